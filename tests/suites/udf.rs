//! `NOW_USEC()` and `NOW_NSEC()` in real servers, and the engine FEDERATED.

use std::{collections::BTreeSet, fs, path::Path};

use replimeter_engine::{
    Node,
    dialect::{self, ThreadState},
    source::Member,
};
use replimeter_instruments::{
    TABLE, preflight,
    stamp::{Federated, Stamps},
};
use replimeter_model::sandbox::SandboxSpec;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment, harness::Test, session, sql, start_spec, test, value, wait, wait_until,
};

pub(crate) const TESTS: &[Test] = &[
    test!(replicas_report_their_own_time).starts(2),
    test!(replicas_of_mysql_report_their_own_time).starts(2),
    test!(cluster_members_have_the_udf).starts(2),
    test!(group_members_have_the_udf).starts(2).long(),
    test!(managed_sandbox_loads_udf_or_names_missing_library).starts(4),
    test!(run_records_that_udf_was_loaded).starts(2),
];

fn start(shape: &str) -> Sandbox {
    let spec = SandboxSpec {
        udf: true,
        federated: true,
        ..SandboxSpec::of(shape.parse().unwrap())
    };
    start_spec(spec).unwrap_or_else(|error| panic!("{error}\n{}", error.hint()))
}

fn number(node: &Node, statement: &str) -> i64 {
    value(node, statement)
        .unwrap()
        .parse()
        .unwrap_or_else(|error| panic!("{statement}: {error}"))
}

/// Compares both functions with the server's own clock and each other.
fn answers(node: &Node) {
    let utc = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ";
    let mut session = session(node);
    // Another zone than UTC, which must not matter to ours.
    session
        .run("test", "SET SESSION time_zone = '+05:30'")
        .unwrap();
    let text = session.value("test", "SELECT NOW_USEC()").unwrap().unwrap();
    assert!(
        text.len() == 26 && text.as_bytes()[10] == b' ' && text.as_bytes()[19] == b'.',
        "{text}"
    );
    let rows = session
        .rows(
            "test",
            &format!(
                "SELECT {utc}NOW_USEC()) AS a, {utc}SYSDATE(6)) - 19800000000 AS sysdate, {utc}NOW_USEC()) AS b, \
                 NOW_NSEC() AS c, SLEEP(0.01) AS slept, NOW_NSEC() AS d"
            ),
        )
        .unwrap();
    let get = |name: &str| rows[0][name].parse::<i64>().unwrap();
    let (a, sysdate, b, c, d) = (get("a"), get("sysdate"), get("b"), get("c"), get("d"));
    // In the order of the statement, by one clock; SYSDATE cuts off and is computed between the two.
    assert!(
        a <= sysdate + 1 && sysdate <= b + 1 && b <= c / 1_000 + 1,
        "{rows:?}"
    );
    assert!(
        d - c >= 10_000_000,
        "two calls of one statement each read the clock: {rows:?}"
    );
    // Each row, too, although there is no argument that changes.
    let values =
        session.rows("test", "SELECT NOW_NSEC() AS ns, SLEEP(0.002) AS slept FROM information_schema.ENGINES LIMIT 4").unwrap();
    let different: BTreeSet<&String> = values.iter().map(|row| &row["ns"]).collect();
    assert_eq!(different.len(), 4, "{values:?}");
    for statement in ["SELECT NOW_USEC(6)", "SELECT NOW_NSEC('x')"] {
        let error = session.value("test", statement).unwrap_err().to_string();
        assert!(error.contains("takes no arguments"), "{error}");
    }
}

fn plugin_files(folder: &Path) -> BTreeSet<std::ffi::OsString> {
    fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect()
}

fn replicas_report_their_own_time() {
    report_their_own_time("mariadb/async:1");
}

fn replicas_of_mysql_report_their_own_time() {
    report_their_own_time("mysql/async:1");
}

fn report_their_own_time(shape: &str) {
    let sandbox = start(shape);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    for member in sandbox.members() {
        answers(&member.node);
        let folder = value(&member.node, "SELECT @@plugin_dir").unwrap();
        assert!(Path::new(&folder).starts_with(&member.folder), "{folder}");
        let files = plugin_files(Path::new(&folder));
        assert!(
            files.len() > 1 && files.contains(&*std::ffi::OsString::from("libreplimeter_udf.so")),
            "{files:?}"
        );
        // The server's own are links, and where they lead ours is not.
        let other = files
            .iter()
            .find(|name| *name != "libreplimeter_udf.so")
            .unwrap();
        let own = fs::read_link(Path::new(&folder).join(other)).unwrap();
        assert!(
            !plugin_files(own.parent().unwrap())
                .contains(&*std::ffi::OsString::from("libreplimeter_udf.so")),
            "{own:?}"
        );
        assert_eq!(
            value(
                &member.node,
                "SELECT SUPPORT FROM information_schema.ENGINES WHERE ENGINE='FEDERATED'"
            )
            .unwrap(),
            "YES"
        );
        assert_eq!(
            number(
                &member.node,
                "SELECT COUNT(*) FROM mysql.func WHERE name IN ('now_usec', 'now_nsec')"
            ),
            2
        );
    }
    assert!(sandbox.record().udf.is_some() && sandbox.record().federated);

    sql(primary, "CREATE DATABASE shop");
    sql(
        primary,
        "CREATE TABLE shop.stamps (id INT PRIMARY KEY, stamp VARCHAR(26), ns BIGINT) ENGINE=InnoDB",
    );
    let mut writer = session(primary);
    for (id, format) in [(1, "STATEMENT"), (2, "ROW"), (3, "MIXED")] {
        writer
            .run("test", &format!("SET SESSION binlog_format={format}"))
            .unwrap();
        writer
            .run(
                "test",
                &format!("INSERT INTO shop.stamps VALUES ({id}, NOW_USEC(), NOW_NSEC())"),
            )
            .unwrap();
    }
    wait_until("the rows arrive", LIMIT, || {
        let there = "SELECT 1 FROM information_schema.tables WHERE table_schema='shop'";
        value(replica, there).is_some() && number(replica, "SELECT COUNT(*) FROM shop.stamps") == 3
    });
    let at = |node: &Node, id: u32| {
        let column = |name: &str| {
            value(
                node,
                &format!("SELECT {name} FROM shop.stamps WHERE id={id}"),
            )
            .unwrap()
        };
        (column("stamp"), column("ns").parse::<i64>().unwrap())
    };
    assert!(
        at(replica, 1) > at(primary, 1) && at(replica, 1).1 > at(primary, 1).1,
        "{shape}: {:?}",
        at(replica, 1)
    );
    assert_eq!(
        (at(replica, 2), at(replica, 3)),
        (at(primary, 2), at(primary, 3)),
        "{shape}: rows are shipped"
    );

    // The method finds the function on both, and not when one of them loses it.
    let declared: Vec<Member> = sandbox.nodes().iter().map(Member::from).collect();
    let stamps = || Stamps::find(&mut preflight::check(&declared).unwrap()).unwrap();
    assert_eq!(
        stamps(),
        Stamps {
            sysdate: true,
            udf: true,
            lacking: Vec::new()
        }
    );
    let mut there = session(replica);
    there.run("test", "SET SESSION sql_log_bin=0").unwrap();
    there.run("test", "DROP FUNCTION now_usec").unwrap();
    let without = stamps();
    assert!(
        without.sysdate && !without.udf && without.lacking[0].contains("replica1 ("),
        "{without:?}"
    );
    assert!(!without.insert().contains("NOW_USEC"));
    // The function can be made again in the sandbox, as on one's own server.
    there
        .run(
            "test",
            "CREATE FUNCTION now_usec RETURNS STRING SONAME 'libreplimeter_udf.so'",
        )
        .unwrap();
    assert!(stamps().udf);
    sql(primary, "CREATE DATABASE replimeter");
    sql(
        primary,
        &format!(
            "CREATE TABLE replimeter.{} (id BIGINT UNSIGNED PRIMARY KEY, stamp DATETIME(6), stamp_udf VARCHAR(26))",
            *TABLE
        ),
    );
    let mut writer = session(primary);
    let cluster = preflight::check(&declared).unwrap();
    replimeter_instruments::stamp::prepare(&mut writer, &cluster.primary.facts).unwrap();
    let values: Vec<String> = (1..=9)
        .map(|id| format!("({id}, SYSDATE(6), NOW_USEC())"))
        .collect();
    writer
        .run(
            "test",
            &format!(
                "INSERT INTO replimeter.{} VALUES {}",
                *TABLE,
                values.join(", ")
            ),
        )
        .unwrap();
    wait_until("the rows arrive", LIMIT, || {
        let there = "SELECT 1 FROM information_schema.tables WHERE table_schema='replimeter'";
        value(replica, there).is_some()
            && number(
                replica,
                &format!("SELECT COUNT(*) FROM replimeter.{}", *TABLE),
            ) == 9
    });
    let mut federated = Federated::create(&cluster.replicas[0].server, primary).unwrap();
    let [ours, theirs] = federated.join(1..=9).unwrap();
    assert_eq!((ours.len(), theirs.len()), (9, 9));
    assert!(
        ours.iter()
            .zip(&theirs)
            .all(|(one, other)| one.id == other.id && one.udf < other.udf),
        "{ours:?} {theirs:?}"
    );
    // In the order of the statement, by one clock: SYSDATE() of a row, NOW_USEC() of it, and those of the next row.
    let times = ours
        .iter()
        .flat_map(|row| [row.sysdate.unwrap(), row.udf.unwrap()]);
    let times: Vec<i64> = times.collect();
    assert!(
        times.windows(2).all(|pair| pair[0] <= pair[1] + 1),
        "{ours:?}"
    );
    federated.remove().unwrap();

    // Why all servers are asked beforehand: a replica without the function stops.
    there.run("test", "DROP FUNCTION now_usec").unwrap();
    writer
        .run(
            "test",
            &format!(
                "INSERT INTO replimeter.{} VALUES (10, SYSDATE(6), NOW_USEC())",
                *TABLE
            ),
        )
        .unwrap();
    let engine = cluster.primary.facts.engine;
    wait_until("the replica stops", LIMIT, || {
        dialect::channels(engine, &mut there).unwrap()[0].applier == ThreadState::Stopped
    });
    let error = dialect::channels(engine, &mut there).unwrap()[0]
        .sql_error
        .clone();
    assert!(error.contains("1305"), "{error}");
    sandbox.close().unwrap();
}

fn cluster_members_have_the_udf() {
    let sandbox = start("galera:2");
    sandbox.nodes().iter().for_each(answers);
    sql(&sandbox.nodes()[0], "CREATE DATABASE shop");
    sql(
        &sandbox.nodes()[0],
        "CREATE TABLE shop.stamps (id INT PRIMARY KEY, ns BIGINT) ENGINE=InnoDB",
    );
    let mut writer = session(&sandbox.nodes()[0]);
    writer
        .run("test", "SET SESSION binlog_format=STATEMENT")
        .unwrap();
    writer
        .run("test", "INSERT INTO shop.stamps VALUES (1, NOW_NSEC())")
        .unwrap();
    let values: BTreeSet<i64> = sandbox
        .nodes()
        .iter()
        .map(|node| {
            wait_until("the row arrives", LIMIT, || {
                let rows = session(node).value("test", "SELECT COUNT(*) FROM shop.stamps");
                rows.is_ok_and(|rows| rows.as_deref() == Some("1"))
            });
            number(node, "SELECT ns FROM shop.stamps")
        })
        .collect();
    assert_eq!(values.len(), 2, "each node executed it itself: {values:?}");
}

fn group_members_have_the_udf() {
    let sandbox = start("mysql/group:2");
    sandbox.nodes().iter().for_each(answers);
}

fn managed_sandbox_loads_udf_or_names_missing_library() {
    let tool = TestEnvironment::new();
    let name = format!("udf-{}", std::process::id());
    let up = [
        "sandbox",
        "up",
        "mariadb/async:1",
        "--udf",
        "--federated",
        "--name",
        &name,
    ];
    let missing = tool
        .command(&up)
        .env("REPLIMETER_UDF", "/nowhere/ours.so")
        .spawn()
        .unwrap();
    let _ = wait(missing, LIMIT)
        .with_code(3)
        .stderr_contains("/nowhere/ours.so")
        .stderr_contains("REPLIMETER_UDF");
    let lag = tool
        .command(&["lag", "--sandbox", "async:1", "--udf"])
        .env("REPLIMETER_UDF", "/nowhere/ours.so")
        .spawn()
        .unwrap();
    let _ = wait(lag, LIMIT)
        .with_code(3)
        .stderr_contains("/nowhere/ours.so");
    // Something that is no library: the server's own word for it, whichever server.
    for shape in ["mariadb/none", "mysql/none"] {
        let foreign = tool.folder().join("foreign.so");
        fs::write(&foreign, "no library").unwrap();
        let lag = tool
            .command(&["lag", "--sandbox", shape, "--udf"])
            .env("REPLIMETER_UDF", &foreign)
            .spawn()
            .unwrap();
        let _ = wait(lag, LIMIT)
            .with_code(3)
            .stderr_contains("did not load NOW_USEC(): Can't open shared library");
    }
    let _ = tool.run(&up).with_code(0);
    let exec = tool
        .run(&[
            "sandbox",
            "exec",
            &name,
            "replica1",
            "--",
            "mysql",
            "-Ne",
            "SELECT LENGTH(NOW_USEC())",
        ])
        .with_code(0);
    assert_eq!(exec.stdout.trim(), "26");
    let _ = tool.run(&["sandbox", "down", &name]).with_code(0);
    // They belong to a sandbox, not to servers of one's own.
    let own = tool.run(&[
        "lag",
        "--primary",
        "mysql://a/",
        "--replica",
        "mysql://b/",
        "--udf",
    ]);
    let _ = own.with_code(2).stderr_contains("not both");
}

fn run_records_that_udf_was_loaded() {
    let tool = TestEnvironment::new();
    let document = tool.run(&[
        "lag",
        "--sandbox",
        "mariadb/async:1",
        "--udf",
        "--federated",
        "--rounds",
        "30",
        "--floor-rounds",
        "0",
        "--keep-awake",
        "off",
        "--timeout",
        "2m",
        "--json",
    ]);
    let document = document.with_code(0).json();
    let options = document["target"]["options"].as_array().unwrap();
    assert!(
        options.iter().any(|option| option == "NOW_USEC() loaded"),
        "{options:?}"
    );
    let manifest: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(tool.only_run().join("manifest.json")).unwrap())
            .unwrap();
    assert!(
        manifest["sandboxes"][0]["udf"]
            .as_str()
            .unwrap()
            .ends_with("libreplimeter_udf.so")
    );
    assert_eq!(manifest["sandboxes"][0]["federated"].as_bool(), Some(true));
    // The resolved plan runs again as it is.
    let plan = fs::read_to_string(tool.only_run().join("plan.toml")).unwrap();
    assert!(
        plan.contains("udf = true") && plan.contains("federated = true"),
        "{plan}"
    );
}
