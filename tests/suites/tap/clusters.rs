//! Members of a cluster.

use replimeter_engine::Node;
use replimeter_suites::{LIMIT, TestEnvironment, password, shared, sql, url, wait};

use super::{Written, all_matched, followed, followed_on, tables};

pub(super) fn tap_on_galera_needs_gtid_mode() {
    let sandbox = shared("galera:3", &[]);
    tables(&sandbox.nodes()[0]);
    let nodes = sandbox.nodes();
    // Written on every node: what the others certify is in the first one's log too.
    let writers: Vec<&Node> = nodes.iter().collect();
    let args = members(nodes);
    let (_, document, _) = followed_on(&sandbox, &writers, &args, &[], Written::all, |_| {});
    all_matched(&document);
    for node in nodes {
        sql(node, "SET GLOBAL wsrep_gtid_mode = OFF");
    }
    let refused = wait(
        TestEnvironment::new()
            .command(&args)
            .env("REPLIMETER_PASSWORD", password(&nodes[0]))
            .spawn()
            .unwrap(),
        LIMIT,
    );
    let _ = refused
        .with_code(3)
        .stderr_contains("wsrep_gtid_mode=OFF")
        .stderr_contains("wsrep_gtid_domain_id");
    for node in nodes {
        sql(node, "SET GLOBAL wsrep_gtid_mode = ON");
    }
}

/// The command line for the members of a cluster.
fn members(nodes: &[Node]) -> Vec<String> {
    let mut args = vec!["tap".to_owned()];
    for node in nodes {
        args.extend(["--node".to_owned(), url(node, "replimeter")]);
    }
    args
}

pub(super) fn tap_follows_group_members() {
    let sandbox = shared("mysql/group:3", &[]);
    let nodes = sandbox.nodes();
    tables(&nodes[0]);
    let (_, document) = followed(&sandbox, &members(nodes), &[], |_| {});
    all_matched(&document);
}
