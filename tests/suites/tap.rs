//! `replimeter tap`: the lag of traffic that is not ours, from the binary logs.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use replimeter_engine::{
    ErrorKind, Node, Session,
    binlog::{CompleteTransaction, Follower, Position, StartPosition, requirements},
    dialect,
    facts::ServerFacts,
};
use replimeter_model::{sandbox::SandboxSpec, time::Nanos};
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, harness::Test, password, restart, session, sql,
    start, start_spec, test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(mariadb_tap_follows_rotations_and_tables),
    test!(mysql_tap_follows_tags_and_compression),
    test!(tap_follows_a_replica_of_a_replica),
    test!(tap_on_galera_needs_gtid_mode),
    test!(tap_survives_a_stopped_replica),
    test!(lost_connection_is_restored_and_reported),
    test!(tap_survives_a_server_restart),
    test!(tap_survives_a_server_restart_on_mysql).long(),
    test!(tap_filters_by_schema_and_table),
    test!(tap_follows_group_members),
    test!(unfollowable_servers_are_refused),
    test!(server_without_binary_log_is_refused),
    test!(tap_checks_privileges_and_server_ids),
    test!(tap_streams_end_properly),
    test!(purged_positions_are_reported),
];

/// Tables for traffic that is not ours, on the replicas too.
fn tables(primary: &Node) {
    for statement in [
        "CREATE DATABASE shop",
        "CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200))",
        "CREATE TABLE shop.carts (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(200))",
    ] {
        sql(primary, statement);
    }
}

/// Writes over several connections until told to stop; how many transactions.
fn traffic(nodes: &[&Node], prefix: &[&str], stop: &AtomicBool, written: &AtomicU64) {
    thread::scope(|scope| {
        for writer in 0..3 {
            let node = nodes[writer % nodes.len()];
            scope.spawn(move || {
                let mut session = session(node);
                for statement in prefix {
                    session.run("test", statement).unwrap();
                }
                let table = if writer == 0 { "carts" } else { "orders" };
                while !stop.load(Ordering::Relaxed) {
                    session
                        .run(
                            "test",
                            &format!("INSERT INTO shop.{table} (v) VALUES ('x')"),
                        )
                        .unwrap();
                    written.fetch_add(1, Ordering::Relaxed);
                    thread::sleep(Duration::from_millis(2));
                }
            });
        }
    });
}

/// The command line for a sandbox's servers; the first is the primary.
fn args(sandbox: &Sandbox, more: &[&str]) -> Vec<String> {
    let nodes = sandbox.nodes();
    let mut args = vec![
        "tap".to_owned(),
        "--primary".to_owned(),
        url(&nodes[0], "replimeter"),
    ];
    for node in &nodes[1..] {
        args.extend(["--replica".to_owned(), url(node, "replimeter")]);
    }
    args.extend(more.iter().map(|arg| (*arg).to_owned()));
    args
}

/// How many connections read a server's binary log.
fn dumps(node: &Node) -> BTreeSet<String> {
    let ids = "SELECT GROUP_CONCAT(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'";
    value(node, ids)
        .unwrap_or_default()
        .split_terminator(',')
        .map(str::to_owned)
        .collect()
}

/// How many rows the traffic has left on a server; `None` while it does not answer.
fn rows(node: &Node) -> Option<String> {
    let count = "SELECT (SELECT COUNT(*) FROM shop.orders) + (SELECT COUNT(*) FROM shop.carts)";
    Session::open(node)
        .and_then(|mut session| session.value("test", count))
        .ok()
        .flatten()
}

/// Follows from before the traffic begins, while it lasts and `meanwhile` happens, until every
/// server has what was written.
fn followed(
    sandbox: &Sandbox,
    args: &[String],
    prefix: &[&str],
    meanwhile: impl FnOnce(),
) -> (TestEnvironment, CommandOutput) {
    followed_on(sandbox, &[&sandbox.nodes()[0]], args, prefix, meanwhile)
}

/// The same with traffic on these servers.
fn followed_on(
    sandbox: &Sandbox,
    writers: &[&Node],
    args: &[String],
    prefix: &[&str],
    meanwhile: impl FnOnce(),
) -> (TestEnvironment, CommandOutput) {
    let tool = TestEnvironment::new();
    let nodes = sandbox.nodes();
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let ended = thread::scope(|scope| {
        // One of the run before may not have ended yet.
        let before: Vec<BTreeSet<String>> = nodes.iter().map(dumps).collect();
        let child = tool
            .command(args)
            .env("REPLIMETER_PASSWORD", password(&nodes[0]))
            .spawn()
            .unwrap();
        wait_until("every server is followed", LIMIT, || {
            nodes
                .iter()
                .zip(&before)
                .all(|(node, before)| !dumps(node).is_subset(before))
        });
        scope.spawn(|| traffic(writers, prefix, &stop, &written));
        let more = |what: &str| {
            let now = written.load(Ordering::Relaxed);
            wait_until(what, LIMIT, || written.load(Ordering::Relaxed) > now + 200);
        };
        // The traffic must end whatever happens, or the scope waits for it.
        let happened = catch_unwind(AssertUnwindSafe(|| {
            more("there is traffic");
            meanwhile();
            more("there is traffic again");
        }));
        stop.store(true, Ordering::Relaxed);
        wait_until("every server has what was written", LIMIT, || {
            let primary = rows(&nodes[0]);
            primary.is_some() && nodes.iter().all(|node| rows(node) == primary)
        });
        // The last ones are read from the logs within a moment.
        thread::sleep(Duration::from_millis(300));
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let ended = wait(child, LIMIT);
        happened.unwrap_or_else(|panic| resume_unwind(panic));
        ended
    });
    (tool, ended)
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("no number: {value}"))
}

/// Every transaction of the primary is accounted for, and all have a lag.
fn all_matched(document: &Value) {
    assert!(!document["results"]["rows"].as_array().unwrap().is_empty());
    for row in document["results"]["rows"].as_array().unwrap() {
        assert!(number(&row["transactions"]) > 100, "{row:#}");
        assert_eq!(row["matched"], row["transactions"], "{row:#}");
        assert_eq!(
            (number(&row["unmatched"]), number(&row["pending"])),
            (0, 0),
            "{row:#}"
        );
        assert_eq!(row["lag"]["count"], row["matched"]);
    }
}

fn mariadb_tap_follows_rotations_and_tables() {
    let sandbox = start("mariadb/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    tables(primary);
    let more = ["--group-by", "table", "--floor-duration", "2s", "--json"];
    let (tool, ended) = followed(&sandbox, &args(&sandbox, &more), &[], || {
        sql(primary, "FLUSH BINARY LOGS");
        sql(replica, "FLUSH BINARY LOGS");
    });
    let document = ended.with_code(0).json();
    assert_eq!(
        (document["schema"].as_str(), document["status"].as_str()),
        (Some("replimeter.tap/1"), Some("complete"))
    );
    all_matched(&document);
    let row = &document["results"]["rows"][0];
    let groups = row["group_by"].as_array().unwrap();
    assert_eq!(groups[0]["table"], "orders");
    assert_eq!(groups[1]["table"], "carts");
    let of_groups: u64 = groups
        .iter()
        .map(|group| number(&group["lag"]["count"]))
        .sum();
    assert!(
        of_groups >= number(&row["matched"]) - 2,
        "each touches one table: {row:#}"
    );
    assert!(
        number(&document["results"]["streams"][0]["rotations"]) >= 1
            && number(&document["results"]["streams"][1]["rotations"]) >= 1
    );
    assert!(number(&document["results"]["floor"]["transactions"]) > 0);
    let windows = document["results"]["windows"].as_array().unwrap();
    let of_windows: u64 = windows
        .iter()
        .map(|window| number(&window["matched"]))
        .sum();
    assert_eq!(of_windows, number(&row["matched"]));
    assert!(clean(primary) && clean(replica), "nothing is written");
    // The run's directory is whole, and renders again.
    let dir = tool.only_run();
    for name in [
        "plan.toml",
        "manifest.json",
        "samples.parquet",
        "summary.json",
        "report.html",
    ] {
        assert!(dir.join(name).exists(), "{name}");
    }
    let again = tool.run(&["report", dir.to_str().unwrap()]).with_code(0);
    assert!(again.words().contains("shop.orders"), "{again:#?}");
    let plan = dir.join("plan.toml");
    let planned = tool
        .run(&["run", "--dry-run", plan.to_str().unwrap()])
        .with_code(0);
    assert!(
        planned.stdout.contains("command = \"tap\"")
            && planned.stdout.contains("group-by = \"table\"")
    );
}

fn mysql_tap_follows_tags_and_compression() {
    let sandbox = start("mysql/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    let prefix = [
        "SET SESSION gtid_next = 'AUTOMATIC:batch'",
        "SET SESSION binlog_transaction_compression = 1",
    ];
    let more = ["--group-by", "schema", "--json"];
    let (_, ended) = followed(&sandbox, &args(&sandbox, &more), &prefix, || {});
    let document = ended.with_code(0).json();
    all_matched(&document);
    let row = &document["results"]["rows"][0];
    assert_eq!(row["group_by"][0]["schema"], "shop");
    // The commits' own timestamps tell a lag too, to within what is known of the clocks.
    let clocks = document["results"]["clocks"].as_array().unwrap();
    let of = |clock: &Value, name: &str| clock[name].as_f64().unwrap();
    assert_eq!(clocks.len(), 2);
    let bounds: f64 = clocks.iter().map(|clock| of(clock, "bound_us")).sum();
    assert!(
        number(&row["by_servers"]["count"]) > 100 && of(&row["by_servers"], "min_us") > -bounds,
        "{row:#} {clocks:#?}"
    );
    // Servers of one host have one clock.
    assert!(
        (of(&clocks[0], "offset_us") - of(&clocks[1], "offset_us")).abs() <= bounds,
        "{clocks:#?}"
    );
    assert_eq!(
        document["results"]["streams"][0]["tls"], true,
        "MySQL offers TLS by default"
    );
}

fn tap_follows_a_replica_of_a_replica() {
    let sandbox = start("mariadb/chain:2", &[]);
    tables(&sandbox.nodes()[0]);
    let (_, ended) = followed(&sandbox, &args(&sandbox, &["--json"]), &[], || {});
    let document = ended.with_code(0).json();
    all_matched(&document);
    let p50 = |index: usize| {
        document["results"]["rows"][index]["lag"]["p50_us"]
            .as_f64()
            .unwrap()
    };
    assert!(p50(0) < p50(1), "the second hop comes later: {document:#}");
}

fn tap_on_galera_needs_gtid_mode() {
    let sandbox = start("galera:3", &[]);
    tables(&sandbox.nodes()[0]);
    let nodes = sandbox.nodes();
    // Written on every node: what the others certify is in the first one's log too.
    let writers: Vec<&Node> = nodes.iter().collect();
    let (tool, ended) = followed_on(&sandbox, &writers, &members(nodes), &[], || {});
    all_matched(&ended.with_code(0).json());
    for node in nodes {
        sql(node, "SET GLOBAL wsrep_gtid_mode = OFF");
    }
    let refused = wait(
        tool.command(&members(nodes))
            .env("REPLIMETER_PASSWORD", password(&nodes[0]))
            .spawn()
            .unwrap(),
        LIMIT,
    );
    let _ = refused
        .with_code(3)
        .stderr_contains("wsrep_gtid_mode=OFF")
        .stderr_contains("wsrep_gtid_domain_id");
}

fn tap_survives_a_stopped_replica() {
    let sandbox = start("mariadb/async:1", &[]);
    let replica = &sandbox.nodes()[1];
    tables(&sandbox.nodes()[0]);
    let (_, ended) = followed(&sandbox, &args(&sandbox, &["--json"]), &[], || {
        sql(replica, "STOP SLAVE");
        thread::sleep(Duration::from_secs(2));
        sql(replica, "START SLAVE");
    });
    let document = ended.with_code(0).json();
    all_matched(&document);
    // What was written while it stood still is late by up to the stop.
    let largest = document["results"]["rows"][0]["lag"]["max_us"]
        .as_f64()
        .unwrap();
    assert!(largest > 1.5e6, "{largest}");
    let awaited = document["results"]["windows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|window| number(&window["pending"]))
        .max()
        .unwrap();
    assert!(awaited > 100, "{awaited}");
}

fn lost_connection_is_restored_and_reported() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = start(shape, &[]);
        tables(&sandbox.nodes()[0]);
        let more = [
            "--floor-duration",
            "0",
            "--server-id",
            "3111222333",
            "--json",
        ];
        let (_, ended) = followed(&sandbox, &args(&sandbox, &more), &[], || {
            // Of the primary's dumps, ours is the newer one.
            for node in sandbox.nodes() {
                let id = value(
                    node,
                    "SELECT MAX(id) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'",
                );
                sql(node, &format!("KILL {}", id.unwrap()));
            }
            // It is back on the primary beside the replica, and on the replica.
            wait_until("both are followed again", LIMIT, || {
                dumps(&sandbox.nodes()[0]).len() == 2 && dumps(&sandbox.nodes()[1]).len() == 1
            });
        });
        let document = ended.with_code(0).json();
        let row = &document["results"]["rows"][0];
        let of = |name: &str| number(&row[name]);
        assert_eq!(
            of("matched") + of("unmatched"),
            of("transactions"),
            "{shape}: {row:#}"
        );
        assert!(
            of("unmatched") > 0 && of("matched") > 100,
            "{shape}: {row:#}"
        );
        assert_eq!(of("pending"), 0);
        assert!(
            document["results"]["streams"]
                .as_array()
                .unwrap()
                .iter()
                .all(|stream| number(&stream["reconnects"]) == 1),
            "{document:#}"
        );
        assert!(
            document["warnings"].to_string().contains("reconnected"),
            "{document:#}"
        );
    }
}

fn tap_survives_a_server_restart() {
    follows_after_a_restart("mariadb/async:1", "START SLAVE");
}

fn tap_survives_a_server_restart_on_mysql() {
    follows_after_a_restart("mysql/async:1", "START REPLICA");
}

fn follows_after_a_restart(shape: &str, resume: &str) {
    let sandbox = start(shape, &[]);
    let replica = &sandbox.members()[1];
    tables(&sandbox.nodes()[0]);
    let more = ["--floor-duration", "0", "--json"];
    let mut again = None;
    let (_, ended) = followed(&sandbox, &args(&sandbox, &more), &[], || {
        again = Some(restart(replica));
        sql(&replica.node, resume);
        wait_until("it is followed again", LIMIT, || {
            dumps(&replica.node).len() == 1
        });
    });
    let document = ended.with_code(0).json();
    let row = &document["results"]["rows"][0];
    let of = |name: &str| number(&row[name]);
    assert_eq!(
        of("matched") + of("unmatched") + of("pending"),
        of("transactions"),
        "{shape}: {row:#}"
    );
    // What was written while it was down came when it was there again, late by up to that; or before it was followed again.
    let late = row["lag"]["max_us"].as_f64().unwrap() > 50_000.0;
    let unseen = row["unmatched_reasons"]
        .to_string()
        .contains("arrived while a connection was lost");
    assert!(of("matched") > 100 && (late || unseen), "{shape}: {row:#}");
    assert_eq!(
        number(&document["results"]["streams"][1]["reconnects"]),
        1,
        "{shape}: {document:#}"
    );
    assert!(
        document["warnings"]
            .to_string()
            .contains("replica1: reconnected"),
        "{document:#}"
    );
}

fn tap_filters_by_schema_and_table() {
    let sandbox = start("mariadb/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    let share = |filter: [&str; 2]| {
        let more = [
            "--floor-duration",
            "0",
            "--group-by",
            "table",
            filter[0],
            filter[1],
            "--json",
        ];
        let (_, ended) = followed(&sandbox, &args(&sandbox, &more), &[], || {});
        let document = ended.with_code(0).json();
        let row = document["results"]["rows"][0].clone();
        assert_eq!(row["matched"], row["transactions"], "{row:#}");
        let tables: Vec<String> = row["group_by"]
            .as_array()
            .unwrap()
            .iter()
            .map(|group| group["table"].as_str().unwrap().to_owned())
            .collect();
        (
            number(&row["transactions"]) as f64
                / number(&document["results"]["streams"][0]["transactions"]) as f64,
            tables,
        )
    };
    // One of three writers writes to `carts`.
    let (carts, tables) = share(["--include", "shop.carts"]);
    assert!((0.1..0.6).contains(&carts), "{carts}");
    assert_eq!(tables, ["carts"]);
    let (others, tables) = share(["--exclude", "shop.carts"]);
    assert!((0.4..0.9).contains(&others), "{others}");
    assert_eq!(tables, ["orders"]);
}

/// The command line for the members of a cluster.
fn members(nodes: &[Node]) -> Vec<String> {
    let mut args = vec!["tap".to_owned(), "--json".to_owned()];
    for node in nodes {
        args.extend(["--node".to_owned(), url(node, "replimeter")]);
    }
    args
}

fn tap_follows_group_members() {
    let sandbox = start("mysql/group:3", &[]);
    let nodes = sandbox.nodes();
    tables(&nodes[0]);
    let (_, ended) = followed(&sandbox, &members(nodes), &[], || {});
    all_matched(&ended.with_code(0).json());
}

fn unfollowable_servers_are_refused() {
    let refused = |shape: &str, options: &[&str], wanted: &[&str]| {
        let tool = TestEnvironment::new();
        let mut args = vec!["tap", "--sandbox", shape, "--duration", "1s"];
        options
            .iter()
            .for_each(|option| args.extend(["--server-option", option]));
        let ended = tool.run(&args).with_code(3);
        for wanted in wanted {
            assert!(
                ended.stderr.contains(wanted),
                "`{wanted}` is missing in {ended:#?}"
            );
        }
        assert!(tool.runs().is_empty(), "nothing to keep");
    };
    refused(
        "mariadb/async:1",
        &["replica1:log_slave_updates=0"],
        &["replica1 (", "log_slave_updates=OFF", "replimeter lag"],
    );
    refused(
        "mysql/async:1",
        &["replica1:log_replica_updates=0"],
        &["replica1 (", "log_replica_updates=OFF"],
    );
}

fn server_without_binary_log_is_refused() {
    for shape in ["mariadb/none", "mysql/none"] {
        let spec = SandboxSpec {
            binary_log: false,
            ..SandboxSpec::of(shape.parse().unwrap())
        };
        let sandbox = start_spec(spec).unwrap();
        let node = &sandbox.nodes()[0];
        let mut session = session(node);
        let facts = ServerFacts::read(&mut session).unwrap();
        let error =
            requirements::check(&session, &facts, requirements::FollowPurpose::Source).unwrap_err();
        assert!(
            error.to_string().contains("primary (") && error.hint.contains("log_bin"),
            "{shape}: {error} {}",
            error.hint
        );
    }
}

fn tap_checks_privileges_and_server_ids() {
    let sandbox = start("mariadb/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    sql(primary, "CREATE USER tapper@'127.0.0.1' IDENTIFIED BY 'pw'");
    let caught_up = || {
        let at = value(primary, "SELECT @@gtid_binlog_pos").unwrap();
        assert_eq!(
            value(replica, &format!("SELECT MASTER_GTID_WAIT('{at}', 30)")).as_deref(),
            Some("0")
        );
    };
    caught_up();
    let run = |user: &str, secret: &str, more: &[&str]| {
        let tool = TestEnvironment::new();
        let (primary, replica) = (url(primary, user), url(replica, user));
        let mut args = vec![
            "tap",
            "--primary",
            &primary,
            "--replica",
            &replica,
            "--duration",
            "1s",
            "--floor-duration",
            "0",
        ];
        args.extend(more);
        wait(
            tool.command(&args)
                .env("REPLIMETER_PASSWORD", secret)
                .spawn()
                .unwrap(),
            LIMIT,
        )
    };
    let _ = run("tapper", "pw", &[])
        .with_code(3)
        .stderr_contains("REPLICATION SLAVE")
        .stderr_contains("`tapper`");
    sql(
        primary,
        "GRANT REPLICATION SLAVE ON *.* TO tapper@'127.0.0.1'",
    );
    caught_up();
    // Enough by itself; what it cannot see is said.
    let document = run("tapper", "pw", &["--json"]).with_code(0).json();
    assert!(
        document["warnings"]
            .to_string()
            .contains("does not show its replication status"),
        "{document:#}"
    );
    sql(
        primary,
        "GRANT REPLICA MONITOR, BINLOG MONITOR ON *.* TO tapper@'127.0.0.1'",
    );
    caught_up();
    let document = run("tapper", "pw", &["--json"]).with_code(0).json();
    assert!(
        !document["warnings"]
            .to_string()
            .contains("replication status"),
        "{document:#}"
    );
    let id = value(replica, "SELECT @@server_id").unwrap();
    let _ = run("replimeter", password(primary), &["--server-id", &id])
        .with_code(3)
        .stderr_contains(&id)
        .stderr_contains("--server-id");
    assert_eq!(value(replica, "SELECT 1").as_deref(), Some("1"));
}

fn tap_streams_end_properly() {
    let sandbox = start("mariadb/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    for form in ["csv", "openmetrics"] {
        let tool = TestEnvironment::new();
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let primary = &sandbox.nodes()[0];
        let ended = thread::scope(|scope| {
            let args = args(
                &sandbox,
                &[
                    "--stream",
                    form,
                    "--report-interval",
                    "500ms",
                    "--floor-duration",
                    "0",
                ],
            );
            let child = tool
                .command(&args)
                .env("REPLIMETER_PASSWORD", password(primary))
                .spawn()
                .unwrap();
            scope.spawn(|| traffic(&[primary], &[], &stop, &written));
            // Five windows.
            thread::sleep(Duration::from_millis(2600));
            // Nobody asked for an end: the user's is the proper one.
            kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
            let ended = wait(child, LIMIT);
            stop.store(true, Ordering::Relaxed);
            ended
        })
        .with_code(0);
        assert!(tool.only_run().join("report.html").exists());
        assert!(
            ended.stderr.contains("transactions/s"),
            "asked for by --report-interval: {ended:#?}"
        );
        if form == "csv" {
            let lines: Vec<&str> = ended.stdout.lines().collect();
            assert!(
                lines[0]
                    .starts_with("time,start_s,end_s,replica,transactions,bytes,matched,inverted"),
                "{ended:#?}"
            );
            assert!(lines.len() > 3, "{ended:#?}");
            assert!(
                lines[1..]
                    .iter()
                    .all(|line| line.split(',').count() == lines[0].split(',').count())
            );
            let matched: u64 = lines[1..]
                .iter()
                .map(|line| line.split(',').nth(6).unwrap().parse::<u64>().unwrap())
                .sum();
            assert!(matched > 100, "{ended:#?}");
        } else {
            let expositions: Vec<&str> = ended.stdout.split("# EOF\n").collect();
            assert!(
                expositions.len() > 3 && expositions.last() == Some(&""),
                "{ended:#?}"
            );
            let total = |text: &str| -> u64 {
                let line = text
                    .lines()
                    .find(|line| line.starts_with("replimeter_tap_matched_total"))
                    .unwrap();
                line.rsplit(' ').next().unwrap().parse().unwrap()
            };
            let totals: Vec<u64> = expositions[..expositions.len() - 1]
                .iter()
                .map(|text| total(text))
                .collect();
            assert!(
                totals.is_sorted() && totals[totals.len() - 1] > 100,
                "{totals:?}"
            );
        }
    }
}

fn purged_positions_are_reported() {
    for shape in ["mariadb/async:0", "mysql/async:0"] {
        let sandbox = start(shape, &[]);
        let node = &sandbox.nodes()[0];
        let facts = ServerFacts::read(&mut session(node)).unwrap();
        let mut ids = requirements::server_ids(&mut session(node), &facts)
            .unwrap()
            .unwrap();
        let mut id = || {
            let id = requirements::unused_server_id(&ids);
            ids.insert(id);
            id
        };
        let first = Position {
            file: "binlog.000001".to_owned(),
            offset: 4,
        };
        let mut follower =
            Follower::open(node, &facts, id(), &StartPosition::File(first.clone())).unwrap();
        sql(node, "FLUSH BINARY LOGS");
        sql(node, "CREATE DATABASE a");
        let mut seen = Vec::new();
        wait_until("it arrives", LIMIT, || {
            follower
                .read(|| Nanos(0), &mut |arrived: CompleteTransaction<'_>| {
                    seen.push(arrived.gtid)
                })
                .unwrap();
            follower.position().file != first.file
                && follower.position().offset > 200
                && !seen.is_empty()
        });
        drop(follower);
        let last = dialect::binlog_end(facts.engine, &mut session(node))
            .unwrap()
            .unwrap()
            .0;
        wait_until("it is purged", LIMIT, || {
            sql(node, &format!("PURGE BINARY LOGS TO '{last}'"));
            session(node)
                .rows("test", "SHOW BINARY LOGS")
                .unwrap()
                .len()
                == 1
        });
        let starts = [
            StartPosition::File(first),
            StartPosition::Gtids(String::new()),
        ];
        for from in starts {
            let opened = Follower::open(node, &facts, id(), &from);
            let error = match opened {
                Err(error) => error,
                Ok(mut follower) => {
                    let mut read =
                        || follower.read(|| Nanos(0), &mut |_: CompleteTransaction<'_>| {});
                    (0..50)
                        .find_map(|_| read().err())
                        .unwrap_or_else(|| panic!("{shape}: {from:?} is there"))
                }
            };
            assert_eq!(
                error.kind,
                ErrorKind::Statement(1236),
                "{shape}: {error} {}",
                error.hint
            );
            assert!(
                error.hint.contains("keep its binary log longer"),
                "{shape}: {error}: {}",
                error.hint
            );
        }
    }
}
