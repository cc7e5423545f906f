//! Two primaries that replicate from each other.

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment, password, shared, sql, start, value, wait, wait_until,
};

use super::{Written, args, dumps, followed_on, number, tables};

pub(super) fn mysql_replica_that_writes_has_no_lag_of_its_own() {
    let sandbox = shared("mysql/async:1", &[]);
    let first = &sandbox.nodes()[0];
    let (change, reset) = (
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'replimeter', \
         SOURCE_PASSWORD = '{password}', SOURCE_AUTO_POSITION = 1, SOURCE_SSL = 1",
        ["STOP REPLICA", "RESET REPLICA ALL"],
    );
    both_write(&sandbox, change, "START REPLICA", "DO 1");
    reset.iter().for_each(|statement| sql(first, statement));
}

pub(super) fn mariadb_replica_that_writes_has_no_lag_of_its_own() {
    let sandbox = start("mariadb/async:1", &[]);
    let change = "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'replimeter', \
                  MASTER_PASSWORD = '{password}', MASTER_USE_GTID = slave_pos, MASTER_SSL = 0";
    // Two writers need two domains.
    let domain = "SET SESSION gtid_domain_id = @@server_id";
    both_write(&sandbox, change, "START SLAVE", domain);
}

/// What the second server wrote is on it: it is not exposed, and has no lag there.
fn both_write(sandbox: &Sandbox, change: &str, begin: &str, domain: &str) {
    let [first, second] = sandbox.nodes() else {
        panic!("two servers")
    };
    let address = second.endpoint.address();
    let (_, port) = address.rsplit_once(':').unwrap();
    let change = change.replace("{port}", port);
    sql(first, &change.replace("{password}", password(second)));
    sql(first, begin);
    tables(first);
    let id = value(first, "SELECT @@server_id").unwrap();
    let keys = format!(
        "SET SESSION auto_increment_increment = 2, auto_increment_offset = IF(@@server_id = {id}, 1, 2)"
    );
    let prefix = [domain, &keys];
    let rows = |node: &Node| value(node, "SELECT COUNT(*) FROM shop.orders").unwrap();
    wait_until("both replicate, and have the tables", LIMIT, || {
        let there = "SELECT 1 FROM information_schema.tables WHERE table_name = 'carts'";
        dumps(second).len() == 1 && value(second, there).is_some()
    });

    let args = args(sandbox, &["--floor-duration", "0"]);
    let writers = [first, second];
    let (_, document, written) =
        followed_on(sandbox, &writers, &args, &prefix, Written::all, |_| {});
    let row = &document["results"]["rows"][0];
    let of = |name: &str| number(&row[name]);
    assert!(of("transactions") >= written, "{row:#}");
    let reasons = &row["unmatched_reasons"];
    assert_eq!(
        reasons[0]["reason"], "were written on the replica itself",
        "{row:#}"
    );
    assert_eq!(reasons[0]["count"], row["unmatched"], "{row:#}");
    assert!(of("unmatched") > 0 && of("matched") > 0, "{row:#}");
    assert_eq!(of("matched") + of("unmatched"), of("transactions"));
    let warnings = document["warnings"].to_string();
    assert!(!warnings.contains("have no lag"), "{warnings}");

    let tool = TestEnvironment::new();
    let args: Vec<String> = args[1..].iter().take(4).cloned().collect();
    let before = dumps(first);
    let mut command = tool.command(&["exposure", "--duration", "5s", "--json"]);
    command
        .args(args)
        .env("REPLIMETER_PASSWORD", password(first));
    let child = command.spawn().unwrap();
    wait_until("the run follows the log", LIMIT, || {
        dumps(first).difference(&before).next().is_some()
    });
    let mut session = replimeter_suites::session(second);
    prefix
        .iter()
        .for_each(|one| session.run("test", one).unwrap());
    for _ in 0..20 {
        session
            .run("test", "INSERT INTO shop.orders (v) VALUES ('x')")
            .unwrap();
    }
    wait_until("they have arrived", LIMIT, || rows(first) == rows(second));
    let document = wait(child, LIMIT).with_code(0).json();
    let row = &document["results"]["rows"][0];
    assert_eq!(number(&row["committed"]), 0, "{row:#}");
    assert_eq!(row["exposed_percent"], 0.0, "{row:#}");
}
