//! What `make test` may use.

use replimeter_suites::{
    harness::{Test, declared_servers},
    test,
};

use crate::GROUPS;

pub(crate) const TESTS: &[Test] = &[test!(ordinary_tests_start_no_more_servers)];

/// Servers that the tests of `make test` start, without shared ones. A commit that raises it says why.
const SERVERS: usize = 336;

fn ordinary_tests_start_no_more_servers() {
    assert_eq!(
        declared_servers(GROUPS),
        SERVERS,
        "the tests start another number of servers: if it rose, say why in the commit; then change SERVERS"
    );
}
