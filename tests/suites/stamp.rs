//! The pieces of the method `stamp` on real servers: what stamps a row, what must
//! be refused, and both ways of joining.

use std::{thread, time::Duration};

use replimeter_engine::{Node, Session, source::Member};
use replimeter_instruments::{
    TABLE,
    clock::Clock,
    clock_offset::ServerClock,
    preflight::{self, Cluster},
    stamp::{self, Federated, JoinedStamps, Stamps},
};
use replimeter_model::time::Nanos;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment, harness::Test, password, session, shared, sql, start, test, url, value,
    wait, wait_until,
};

use crate::methods::run_on;

pub(crate) const TESTS: &[Test] = &[
    test!(replica_stamps_execution_and_joins_agree),
    test!(shipped_rows_are_distinguished_from_stamps),
    test!(galera_nodes_stamp_their_own_executions).starts(3),
    test!(intermediate_replica_must_log_statements).starts(3),
    test!(intermediate_replica_of_mysql_must_log_statements)
        .starts(3)
        .long(),
    test!(unsupported_stamps_are_refused_with_the_reason),
    test!(stamps_without_a_clock_are_refused_on_mariadb).starts(2),
    test!(stamps_without_a_clock_are_refused_on_mysql).starts(2),
    test!(password_in_a_table_of_a_killed_run_is_removed),
];

const ROWS: u64 = 20;

fn cluster(nodes: &[Node]) -> Cluster {
    preflight::check(&nodes.iter().map(Member::from).collect::<Vec<_>>()).unwrap()
}

/// The engines, each with the option for FEDERATED tables.
const FEDERATED: [(&str, &str); 2] = [
    ("mariadb/async:1", "plugin_load_add=ha_federatedx"),
    ("mysql/async:1", "federated"),
];

/// The table as a measurement makes it.
fn make_table(primary: &Node) {
    sql(primary, "CREATE DATABASE replimeter");
    sql(
        primary,
        &format!(
            "CREATE TABLE replimeter.{} (id BIGINT UNSIGNED NOT NULL PRIMARY KEY, sequence INT UNSIGNED NOT NULL, \
             sent_us BIGINT NOT NULL, payload LONGBLOB NOT NULL, stamp DATETIME(6), stamp_udf VARCHAR(26)) ENGINE=InnoDB",
            *TABLE
        ),
    );
}

fn insert(writer: &mut Session, stamps: &Stamps, ids: std::ops::RangeInclusive<u64>) {
    for id in ids {
        let mut statement = stamps.insert();
        for value in [id, id, 0, 0] {
            statement = statement.replacen('?', &value.to_string(), 1);
        }
        writer.run("test", &statement).unwrap();
        thread::sleep(Duration::from_millis(2));
    }
}

fn await_row(replica: &Node, id: u64) {
    wait_until("the row arrives", LIMIT, || {
        let row = format!("SELECT id FROM replimeter.{} WHERE id={id}", *TABLE);
        session(replica)
            .value("test", &row)
            .is_ok_and(|row| row.is_some())
    });
}

/// Writes stamped rows and joins them, client-side.
fn measured(sandbox: &Sandbox, cluster: &mut Cluster) -> (Stamps, Vec<JoinedStamps>) {
    let stamps = Stamps::find(cluster).unwrap();
    let nodes = sandbox.nodes();
    make_table(&nodes[0]);
    let mut writer = session(&nodes[0]);
    stamp::prepare(&mut writer, &cluster.primary.facts).unwrap();
    let clock = Clock::start();
    let mut sessions: Vec<Session> = nodes.iter().map(session).collect();
    let mut clocks: Vec<ServerClock> = sessions
        .iter_mut()
        .zip(nodes)
        .map(|(session, node)| {
            ServerClock::measure(session, node, &clock)
                .unwrap()
                .unwrap()
        })
        .collect();
    let begun = clock.now();
    insert(&mut writer, &stamps, 1..=ROWS);
    nodes[1..].iter().for_each(|node| await_row(node, ROWS));
    let ended = clock.now();
    for (server, session) in clocks.iter_mut().zip(&mut sessions) {
        assert_eq!(server.remeasure(session, &clock).unwrap(), None);
    }
    let rows: Vec<_> = sessions
        .iter_mut()
        .map(|session| stamp::read(session, 1..=ROWS).unwrap())
        .collect();
    assert!(
        rows.iter().all(|rows| rows.len() as u64 == ROWS),
        "{rows:?}"
    );
    let joined: Vec<JoinedStamps> = (1..nodes.len())
        .map(|index| {
            stamp::join(&rows[0], &rows[index], [&clocks[0], &clocks[index]], |_| {
                begun
            })
        })
        .collect();
    for joined in &joined {
        assert_eq!(
            (joined.lags.len() as u64, joined.missing, joined.unplaced),
            (ROWS, 0, 0),
            "{joined:?}"
        );
        for lag in &joined.lags {
            let sysdate = lag.sysdate.unwrap();
            assert!(
                sysdate.0 > -lag.bound.0 && sysdate < ended - begun + lag.bound,
                "{lag:?}"
            );
            assert!(lag.bound > Nanos(1_000), "{lag:?}");
        }
    }
    (stamps, joined)
}

fn replica_stamps_execution_and_joins_agree() {
    for (shape, option) in FEDERATED {
        let sandbox = shared(shape, &[option]);
        let mut cluster = cluster(sandbox.nodes());
        let (stamps, joined) = measured(&sandbox, &mut cluster);
        assert!(stamps.sysdate && !stamps.udf, "{stamps:?}");
        assert!(
            stamps.lacking[0].contains("no function NOW_USEC()"),
            "{stamps:?}"
        );
        assert!(!joined[0].shipped());
        joined[0].refuse_shipped(&cluster.primary.session).unwrap();

        // The same stamps by a join inside the replica; nothing is left of it, there or elsewhere.
        let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
        let executed = |node| {
            value(
                node,
                if shape.starts_with("mysql") {
                    "SELECT @@global.gtid_executed"
                } else {
                    "SELECT @@global.gtid_binlog_pos"
                },
            )
        };
        let before = executed(replica);
        let mut federated = Federated::create(&cluster.replicas[0].server, primary).unwrap();
        let ids = 1..=ROWS;
        let by_replica = federated.join(ids.clone()).unwrap();
        assert_eq!(
            by_replica,
            [primary, replica].map(|node| stamp::read(&mut session(node), ids.clone()).unwrap())
        );
        federated.remove().unwrap();
        // Dropped without a word, too, and one that was left behind is replaced.
        drop(Federated::create(&cluster.replicas[0].server, primary).unwrap());
        assert_eq!(
            value(
                replica,
                "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='replimeter'"
            )
            .unwrap(),
            "1"
        );
        assert_eq!(
            executed(replica),
            before,
            "nothing of it is in the replica's binary log"
        );
        let mut wrong = primary.clone();
        wrong.password = Some(replimeter_model::target::Secret::new("wrong-secret"));
        let error = Federated::create(&cluster.replicas[0].server, &wrong)
            .err()
            .unwrap();
        assert!(
            error.to_string().contains("replica1 (")
                && !format!("{error:?}").contains("wrong-secret"),
            "{error:?}"
        );
        wrong.password = Some(replimeter_model::target::Secret::new("a@b"));
        assert!(
            Federated::create(&cluster.replicas[0].server, &wrong)
                .err()
                .unwrap()
                .to_string()
                .contains("a character")
        );
    }
}

fn password_in_a_table_of_a_killed_run_is_removed() {
    for (shape, option) in FEDERATED {
        let sandbox = shared(shape, &[option]);
        let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
        let there = || {
            let tables = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'replimeter' \
                          AND table_name = 'lag_primary'";
            value(replica, tables).as_deref() == Some("1")
        };
        let servers = [url(primary, "replimeter"), url(replica, "replimeter")];
        let servers = ["--primary", &servers[0], "--replica", &servers[1], "--json"];
        let tool = TestEnvironment::new();
        let spawn = |command: &[&str]| {
            tool.command(&[command, &servers].concat())
                .env("REPLIMETER_PASSWORD", password(primary))
                .spawn()
                .unwrap()
        };
        let load = "load --workload insert --threads 1 --rate 20 --duration 2s --warm-up 0s --keep-awake off";
        for next in [
            load,
            "lag --rounds 5 --warm-up 5 --floor-rounds 20 --timeout 2m",
        ] {
            let long =
                "lag --method stamp --join federated --duration 30m --floor-rounds 20 --timeout 2m";
            let mut child = spawn(&Vec::from_iter(long.split(' ')));
            wait_until("the replica has the table", LIMIT, there);
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(there());
            let leftover = "table `replimeter`.`lag_primary`";
            let found = wait(spawn(&["doctor"]), LIMIT).with_code(0).json()["findings"].to_string();
            assert!(found.contains(leftover), "{found}");
            // The server may not yet have noticed that the killed run's connections are closed.
            wait_until("the lock is free", LIMIT, || {
                value(primary, "SELECT IS_USED_LOCK('replimeter.run')").is_none()
            });
            let next = Vec::from_iter(next.split(' '));
            let ended = wait(spawn(&next), LIMIT);
            assert_eq!(ended.code, Some(0), "{}", ended.stderr);
            let warnings = ended.json()["warnings"].to_string();
            assert!(
                warnings.contains(
                    "removed the table `replimeter`.`lag_primary` that a killed run left"
                ),
                "{warnings}"
            );
            assert!(!there());
        }
    }
}

fn shipped_rows_are_distinguished_from_stamps() {
    let sandbox = shared("mariadb/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    let mut cluster = cluster(sandbox.nodes());
    let stamps = Stamps::find(&mut cluster).unwrap();
    make_table(primary);
    // A session that was not prepared.
    insert(&mut session(primary), &stamps, 1..=ROWS);
    await_row(replica, ROWS);
    let clock = Clock::start();
    let server = ServerClock::measure(&mut session(primary), primary, &clock)
        .unwrap()
        .unwrap();
    let rows = [primary, replica].map(|node| stamp::read(&mut session(node), 1..=ROWS).unwrap());
    let joined = stamp::join(&rows[0], &rows[1], [&server, &server], |_| clock.now());
    let error = joined.refuse_shipped(&session(replica)).unwrap_err();
    assert!(
        error.to_string().contains("replica1 (") && error.to_string().contains("replicated"),
        "{error}"
    );
    // No FEDERATED engine here.
    let error = Federated::create(&cluster.replicas[0].server, primary)
        .err()
        .unwrap();
    assert!(
        error
            .to_string()
            .contains("FEDERATED engine is not enabled")
            && error.hint.contains("ha_federatedx"),
        "{error:?}"
    );
}

fn galera_nodes_stamp_their_own_executions() {
    let sandbox = start("galera:3", &["plugin_load_add=ha_federatedx"]);
    let mut cluster = cluster(sandbox.nodes());
    let (_, joined) = measured(&sandbox, &mut cluster);
    assert!(joined.iter().all(|joined| !joined.shipped()), "{joined:?}");
    let [one, two] = [0, 1].map(|index| &cluster.replicas[index].server);
    let federated = Federated::create(one, &sandbox.nodes()[0]).unwrap();
    let there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema='replimeter' AND table_name='lag_primary'";
    assert_eq!(value(&one.node, there).as_deref(), Some("1"));
    assert_eq!(value(&two.node, there).as_deref(), Some("0"));
    federated.remove().unwrap();
    assert_eq!(value(&one.node, there).as_deref(), Some("0"));
}

fn intermediate_replica_must_log_statements() {
    let sandbox = start("mariadb/chain:2", &[]);
    let error = Stamps::find(&mut cluster(sandbox.nodes())).unwrap_err();
    assert!(
        error.to_string().contains("replica1 (")
            && error.to_string().contains("rows with its own stamps"),
        "{error}"
    );
    let _ = run_on(&sandbox, &["lag", "--method", "stamp", "--rounds", "10"])
        .with_code(3)
        .stderr_contains("replica1");
    for replica in &sandbox.nodes()[1..] {
        sql(replica, "STOP SLAVE");
        sql(replica, "SET GLOBAL binlog_format = STATEMENT");
        sql(replica, "START SLAVE");
    }
    assert_stamps_in_a_chain(&sandbox);
}

fn intermediate_replica_of_mysql_must_log_statements() {
    // A replica of MySQL's that logs statements cannot apply rows, not even the sandbox's first one.
    let sandbox = start("mysql/chain:2", &["binlog_format=STATEMENT"]);
    assert_stamps_in_a_chain(&sandbox);
}

/// Checks that each replica of a chain stamps the rows by its own execution.
fn assert_stamps_in_a_chain(sandbox: &Sandbox) {
    let mut cluster = cluster(sandbox.nodes());
    let (_, joined) = measured(sandbox, &mut cluster);
    assert!(joined.iter().all(|joined| !joined.shipped()), "{joined:?}");
    // The second one's executions come after the first one's.
    for (one, two) in joined[0].lags.iter().zip(&joined[1].lags) {
        let (earlier, later) = (one.sysdate.unwrap(), two.sysdate.unwrap());
        assert!(later + one.bound + two.bound > earlier, "{one:?} {two:?}");
    }
}

fn unsupported_stamps_are_refused_with_the_reason() {
    let sandbox = shared("mysql/group:2", &[]);
    let error = Stamps::find(&mut cluster(sandbox.nodes())).unwrap_err();
    assert!(
        error.to_string().contains("3098") && error.hint.contains("poll"),
        "{error:?}"
    );
    // A replica that would stop at the first statement.
    let sandbox = shared("mysql/async:1", &[]);
    let replica = &sandbox.nodes()[1];
    let require_rows = |is_required: u8| {
        sql(replica, "STOP REPLICA");
        let change = "CHANGE REPLICATION SOURCE TO REQUIRE_ROW_FORMAT";
        sql(replica, &format!("{change} = {is_required}"));
        sql(replica, "START REPLICA");
        let running = "SELECT 1 FROM performance_schema.replication_connection_status WHERE SERVICE_STATE = 'ON'";
        wait_until("it replicates", LIMIT, || value(replica, running).is_some());
    };
    require_rows(1);
    let error = Stamps::find(&mut cluster(sandbox.nodes())).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("replica1 (") && text.contains("REQUIRE_ROW_FORMAT=1"),
        "{text}"
    );
    require_rows(0);
    Stamps::find(&mut cluster(sandbox.nodes())).unwrap();
}

fn stamps_without_a_clock_are_refused_on_mariadb() {
    refuse_stamps_without_a_clock(
        "mariadb/async:1",
        "SLAVE MONITOR, BINLOG MONITOR",
        "BINLOG ADMIN",
    );
}

fn stamps_without_a_clock_are_refused_on_mysql() {
    refuse_stamps_without_a_clock(
        "mysql/async:1",
        "REPLICATION CLIENT",
        "SESSION_VARIABLES_ADMIN",
    );
}

/// Checks what `SYSDATE()` without a clock and missing privileges cause; `privilege` is the one that stamps need beyond
/// `monitor`.
fn refuse_stamps_without_a_clock(shape: &str, monitor: &str, privilege: &str) {
    let sandbox = start(shape, &["replica1:sysdate_is_now"]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    let error = Stamps::find(&mut cluster(sandbox.nodes())).unwrap_err();
    assert!(
        error.to_string().contains("replica1 (") && error.to_string().contains("sysdate_is_now"),
        "{error}"
    );
    assert!(
        error.to_string().contains("NOW_USEC()") && error.hint.contains("CREATE FUNCTION now_usec"),
        "{error:?}"
    );

    let document = run_on(&sandbox, &["doctor", "--json"]);
    let document = document.with_code(0).json();
    let found: Vec<_> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|finding| finding["code"] == "sysdate-is-now")
        .collect();
    assert!(
        found.len() == 1 && found[0]["node"] == "replica1",
        "{shape}: {document:#}"
    );

    let grant = |privileges: &str| {
        sql(primary, &format!("GRANT {privileges} TO probe@'127.0.0.1'"));
    };
    sql(primary, "CREATE USER probe@'127.0.0.1' IDENTIFIED BY 'pw'");
    grant("ALL ON replimeter.*");
    grant(&format!("{monitor} ON *.*"));
    if shape.starts_with("mysql") {
        grant("SELECT ON performance_schema.replication_applier_configuration");
    }
    let mut probe = sandbox.nodes().to_vec();
    for node in &mut probe {
        node.user = "probe".to_owned();
        node.password = Some(replimeter_model::target::Secret::new("pw"));
        node.endpoint.tls.mode = None;
    }
    let position = if shape.starts_with("mysql") {
        ["SELECT @@global.gtid_executed"; 2]
    } else {
        ["SELECT @@gtid_binlog_pos", "SELECT @@gtid_slave_pos"]
    };
    let granted = || {
        let executed = value(primary, position[0]);
        wait_until("the privileges arrive", LIMIT, || {
            value(replica, position[1]) == executed
        });
    };
    granted();
    drop(Session::open(&probe[1]).unwrap());
    let error = Stamps::find(&mut cluster(&probe)).unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("primary (")
            && text.contains("stays ROW")
            && text.contains("replicates the row"),
        "{text}"
    );
    assert!(error.hint.contains(privilege), "{error:?}");
    // With it, the user may.
    grant(&format!("{privilege} ON *.*"));
    granted();
    let error = Stamps::find(&mut cluster(&probe)).unwrap_err();
    assert!(error.to_string().contains("sysdate_is_now"), "{error}");
}
