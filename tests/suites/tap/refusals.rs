//! Servers that cannot be followed.

use replimeter_engine::{facts::ServerFacts, follow::requirements};
use replimeter_model::sandbox::SandboxSpec;
use replimeter_suites::{
    LIMIT, TestEnvironment, password, session, shared, sql, start_spec, url, value, wait,
    wait_until,
};

pub(super) fn unfollowable_servers_are_refused() {
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

pub(super) fn server_without_binary_log_is_refused() {
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

pub(super) fn tap_checks_privileges_and_server_ids() {
    let sandbox = shared("mariadb/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    sql(primary, "CREATE USER tapper@'127.0.0.1' IDENTIFIED BY 'pw'");
    let caught_up = || {
        let at = value(primary, "SELECT @@gtid_binlog_pos").unwrap();
        let applied = format!("SELECT MASTER_GTID_WAIT('{at}', 1)");
        wait_until("the replica has applied everything", LIMIT, || {
            value(replica, &applied).as_deref() == Some("0")
        });
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
    sql(primary, "DROP USER tapper@'127.0.0.1'");
    caught_up();
}
