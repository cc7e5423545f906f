//! Statements that the servers do not answer: the front gives them up, and leaves nothing behind.

use std::thread;

use replimeter_engine::Node;
use replimeter_suites::{LIMIT, TestEnvironment, clean, session, shared, sql, value, wait_until};

use super::serve;

/// Connections of the front to each server.
const CONNECTIONS: usize = 2;
/// Connections to the primary that a dry run states.
const STATED: u64 = CONNECTIONS as u64 + 3;

pub(super) fn hanging_posts_are_ended_before_more_connect() {
    hang("mariadb/async:1");
}

pub(super) fn hanging_posts_on_mysql_are_ended_before_more_connect() {
    hang("mysql/async:1");
}

fn count(primary: &Node, of: &str) -> u64 {
    let count = "SELECT COUNT(*) FROM information_schema.processlist WHERE user = 'replimeter'";
    value(primary, &format!("{count} {of}"))
        .unwrap()
        .parse()
        .unwrap()
}

fn hang(shape: &str) {
    let sandbox = shared(shape, &[]);
    let primary = &sandbox.nodes()[0];
    let tool = TestEnvironment::new();
    let connections = CONNECTIONS.to_string();
    let front = serve(
        &tool,
        Some(sandbox.nodes()),
        &["--connections", &connections],
    );
    let refused = || {
        thread::scope(|scope| {
            let post = || front.visitor().form("/insert", "title=a");
            let posts: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(post)).collect();
            posts
                .into_iter()
                .map(|post| post.join().unwrap())
                .for_each(|post| assert_eq!(post.status, 503, "{shape}: {post:?}"));
        });
        wait_until("no post waits on the server", LIMIT, || {
            let all = count(primary, "");
            assert!(all <= STATED, "{shape}: {all} connections");
            count(primary, "AND info LIKE 'INSERT%'") == 0
        });
    };
    // The server itself would wait for the lock for a day (MariaDB) or a year.
    let mut held = session(primary);
    held.run("lock", "LOCK TABLES replimeter.post READ")
        .unwrap();
    refused();
    held.run("unlock", "UNLOCK TABLES").unwrap();
    // Nor does it end this by itself.
    let hang = "CREATE TRIGGER replimeter.hang BEFORE INSERT ON replimeter.post FOR EACH ROW SET @slept = SLEEP(1000)";
    sql(primary, hang);
    refused();
    sql(primary, "DROP TRIGGER replimeter.hang");
    let posted = front.visitor().form("/insert", "title=b");
    assert_eq!(posted.status, 200, "{shape}: {posted:?}");
    front.end();
    assert!(clean(primary), "{shape}");
}
