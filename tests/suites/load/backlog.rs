//! Backlogs that replicas catch up with, and backlogs that are rejected.

use std::fs;

use replimeter_suites::{LIMIT, TestEnvironment, password, shared, sql, url, wait};
use serde_json::Value;

use super::{ADMIN, Servers, number};

pub(super) fn delayed_replica_is_refused(servers: &Servers) {
    servers.stop_and_start("CHANGE MASTER TO MASTER_DELAY=1");
    let _ = servers
        .run(&TestEnvironment::new(), &["backlog", "--build-up", "1s"])
        .with_code(3)
        .stderr_contains("deliberately delayed by 1 s");
    servers.stop_and_start("CHANGE MASTER TO MASTER_DELAY=0");
}

pub(super) fn backlog_refuses_cluster_members() {
    let cluster = shared("mariadb/galera:2", &[]);
    let [first, second] = [0, 1].map(|index| url(&cluster.nodes()[index], ADMIN));
    let args = [
        "backlog",
        "--build-up",
        "1s",
        "--node",
        &first,
        "--node",
        &second,
    ];
    let tool = TestEnvironment::new();
    let mut command = tool.command(&args);
    let child = command.env("REPLIMETER_PASSWORD", password(&cluster.nodes()[0]));
    let _ = wait(child.spawn().unwrap(), LIMIT)
        .with_code(3)
        .stderr_contains("cannot build up a backlog")
        .stderr_contains("member of a cluster");
    let ended = TestEnvironment::new()
        .run(&["backlog", "--sandbox", "none", "--build-up", "1s"])
        .with_code(3);
    let _ = ended.stderr_contains("the target has no replica");
}

pub(super) fn replica_catches_up(servers: &Servers) {
    let workers = ["1", "4"];
    let tool = TestEnvironment::new();
    let list = workers.join(",");
    let args = [
        "backlog",
        "--build-up",
        "2s",
        "--workers",
        &list,
        "--load",
        "insert:4@primary",
        "--rate",
        "500",
        "--timeout",
        "60s",
        "--json",
    ];
    let document = servers.run(&tool, &args).with_code(0).json();
    servers.assert_as_it_was("3");
    servers.assert_clean();
    assert_eq!(document["schema"], "replimeter.backlog/1");
    let rows = document["results"]["rows"].as_array().unwrap();
    assert_eq!(
        rows.iter()
            .map(|row| row["workers"].to_string())
            .collect::<Vec<_>>(),
        workers
    );
    for row in rows {
        let shown = format!("{row:#}");
        assert_eq!(
            (row["replica"].as_str(), row["complete"].as_bool()),
            (Some("replica1"), Some(true)),
            "{shown}"
        );
        assert!(number(&row["grown_us"]) >= 2e6, "{shown}");
        assert!(number(&row["load_per_s"]["mean"]) > 0.0, "{shown}");
        // A fast replica has no backlog at the end of the load; the report states it.
        let unclear = document["warnings"].to_string().contains("backlog-unclear");
        assert!(
            unclear || number(&row["catch_up_per_s"]["mean"]) > 0.0,
            "{shown}"
        );
        assert!(number(&row["caught_up_after_us"]) > 0.0, "{shown}");
        if let (Some(low), Some(high)) = (
            row["sustained_per_s"]["ci95"][0].as_f64(),
            row["sustained_per_s"]["ci95"][1].as_f64(),
        ) {
            assert!(low <= high, "{shown}");
        }
        let windows = row["windows"].as_array().unwrap();
        let phases: Vec<&str> = windows
            .iter()
            .map(|window| window["phase"].as_str().unwrap())
            .collect();
        assert!(phases.is_sorted_by_key(|phase| {
            ["growing", "with-load", "without-load"]
                .iter()
                .position(|known| known == phase)
        }));
        let of = |phase: &str| -> Vec<&Value> {
            let windows = windows.iter();
            windows.filter(|window| window["phase"] == phase).collect()
        };
        let applied = |windows: &[&Value]| -> f64 {
            windows
                .iter()
                .map(|window| number(&window["applied"]))
                .sum()
        };
        let (growing, with_load) = (of("growing"), of("with-load"));
        assert_eq!(
            applied(&growing),
            0.0,
            "a stopped applier applies nothing: {shown}"
        );
        let grown = growing.last().expect("windows of the growing backlog");
        assert!(
            number(&row["backlog_transactions"]) >= number(&grown["behind"])
                && number(&grown["behind"]) > 0.0,
            "{shown}"
        );
        for phase in [&growing, &with_load, &of("without-load")] {
            for pair in phase.windows(2) {
                let [before, after] = [pair[0], pair[1]].map(|window| number(&window["behind"]));
                let written = number(&pair[1]["written"]);
                assert_eq!(after + applied(&pair[1..]), before + written, "{shown}");
            }
        }
        // The rate is what the windows applied in this time.
        let sustained = number(&row["sustained_per_s"]["mean"]);
        let sum = sustained * number(&row["under_load_us"]) / 1e6;
        assert!(
            (sum - applied(&with_load)).abs() <= 1.0 + sum / 100.0,
            "{shown}"
        );
        // Nothing is missing but what was just written. A replica that catches up before the load has ended has one reading after it.
        if let Some(last) = of("without-load").last() {
            assert!(
                number(&last["behind"]) <= number(&last["written"]),
                "{shown}"
            );
        }
    }
    let run = tool.only_run();
    assert!(
        fs::read_to_string(run.join("report.html"))
            .unwrap()
            .contains("Backlog over time")
    );
    let report = tool.run(&["report", run.to_str().unwrap()]).with_code(0);
    assert!(
        report.words().contains("replica1, 4 workers")
            && report.words().contains("caught up after"),
        "{report:#?}"
    );
    // The stored plan of the run gives the same plan.
    let again = tool
        .run(&["run", "--dry-run", run.join("plan.toml").to_str().unwrap()])
        .with_code(0);
    assert_eq!(
        again.planned(),
        fs::read_to_string(run.join("plan.toml")).unwrap()
    );
}

/// All privileges except that to stop the applier.
pub(super) fn missing_privileges_are_named(servers: &Servers) {
    let (missing, monitor) = servers.grants();
    let grants = [
        "CREATE USER prober@'127.0.0.1' IDENTIFIED BY 'pw'".to_owned(),
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT, EXECUTE, EVENT ON replimeter.* TO prober@'127.0.0.1'"
            .to_owned(),
        format!("GRANT {monitor} ON *.* TO prober@'127.0.0.1'"),
    ];
    grants
        .iter()
        .for_each(|grant| sql(servers.primary(), grant));
    let run = |more: &[&str]| {
        let args = [
            &[
                "backlog",
                "--build-up",
                "1s",
                "--workers",
                "2",
                "--rate",
                "100",
                "--timeout",
                "60s",
            ],
            more,
        ]
        .concat();
        wait(
            servers.spawn_as(&TestEnvironment::new(), "prober", "pw", None, &args),
            LIMIT,
        )
    };
    servers.await_grants();
    let ended = run(&[])
        .with_code(3)
        .stderr_contains("replica1 (")
        .stderr_contains("cannot stop the applier");
    let _ = ended.stderr_contains(&format!("GRANT {missing} ON *.*"));
    servers.assert_as_it_was("3");
    // The privileges that the error names are sufficient.
    sql(
        servers.primary(),
        &format!("GRANT {missing} ON *.* TO prober@'127.0.0.1'"),
    );
    servers.await_grants();
    let _ = run(&[]).with_code(0);
    servers.assert_as_it_was("3");
    sql(servers.primary(), "DROP USER prober@'127.0.0.1'");
    // The user could not see all replicas.
    sql(servers.primary(), "DROP DATABASE IF EXISTS replimeter");
}

pub(super) fn backlog_without_replica_is_refused(servers: &Servers) {
    let tool = TestEnvironment::new();
    fs::write(tool.folder().join("idle.sql"), "SELECT 1").unwrap();
    let args = [
        "backlog",
        "--build-up",
        "1s",
        "--load",
        "idle.sql:1@primary",
        "--rate",
        "10",
        "--timeout",
        "60s",
        "--json",
    ];
    let document = servers.run(&tool, &args).with_code(0).json();
    assert!(
        document["headline"]
            .as_str()
            .unwrap()
            .contains("no backlog grew"),
        "{document:#}"
    );
    assert!(document["warnings"].to_string().contains("backlog-unclear"));
    servers.assert_as_it_was("3");
}
