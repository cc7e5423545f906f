//! Existing clusters by file and by URL: roles are discovered and compared with the
//! declared ones; findings of `doctor`.

use std::fs;

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, harness::Test, of_run, password, session, shared,
    sql, start, test, url, value, wait, wait_until,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(chain_is_read_from_a_topology_file).starts(3),
    test!(galera_cluster_is_found_by_url).starts(1),
    test!(group_is_found_by_url).starts(1),
    test!(unreachable_server_is_named_and_others_shown),
    test!(node_killed_during_a_run_ends_it).starts(3),
    test!(group_member_killed_during_a_run_ends_it)
        .starts(3)
        .long(),
];

/// Writes a topology file of `name, role, source` and the node's address.
fn file(tool: &TestEnvironment, nodes: &[(&str, &str, &str, &Node)]) {
    let mut text = String::new();
    for (name, role, source, node) in nodes {
        text.push_str(&format!(
            "[[node]]\nname = \"{name}\"\nurl = \"{}\"\n",
            url(node, "replimeter")
        ));
        for (key, value) in [("role", role), ("source", source)] {
            if !value.is_empty() {
                text.push_str(&format!("{key} = \"{value}\"\n"));
            }
        }
    }
    fs::write(tool.folder().join("cluster.toml"), text).unwrap();
}

fn run(tool: &TestEnvironment, sandbox: &Sandbox, args: &[&str]) -> CommandOutput {
    wait(
        tool.command(args)
            .env("REPLIMETER_PASSWORD", password(&sandbox.nodes()[0]))
            .spawn()
            .unwrap(),
        LIMIT,
    )
}

fn lag(sandbox: &Sandbox, nodes: &[(&str, &str, &str, &Node)]) -> CommandOutput {
    let tool = TestEnvironment::new();
    file(&tool, nodes);
    run(
        &tool,
        sandbox,
        &[
            "lag",
            "--topology",
            "cluster.toml",
            "--rounds",
            "30",
            "--floor-rounds",
            "5",
            "--timeout",
            "60s",
            "--json",
        ],
    )
}

fn doctor(sandbox: &Sandbox, nodes: &[(&str, &str, &str, &Node)]) -> CommandOutput {
    let tool = TestEnvironment::new();
    file(&tool, nodes);
    run(
        &tool,
        sandbox,
        &["doctor", "--topology", "cluster.toml", "--json"],
    )
}

fn codes(document: &Value) -> Vec<String> {
    let findings = document["findings"].as_array().unwrap().iter();
    findings
        .map(|finding| finding["code"].as_str().unwrap().to_owned())
        .collect()
}

fn chain_is_read_from_a_topology_file() {
    let sandbox = start("mariadb/chain:2", &[]);
    let [top, middle, end] = sandbox.nodes() else {
        panic!("three servers")
    };
    // Undeclared roles are discovered, regardless of the order.
    let document = lag(
        &sandbox,
        &[
            ("end", "", "", end),
            ("top", "", "", top),
            ("middle", "", "", middle),
        ],
    )
    .with_code(0)
    .json();
    assert_eq!(document["target"]["modes"], serde_json::json!(["chain"]));
    let replicas: Vec<&str> = document["results"]["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["replica"].as_str().unwrap())
        .collect();
    assert_eq!(replicas, ["end", "middle"]);
    assert_eq!(document["target"]["nodes"][0]["name"], "top");
    wait_until("all tables are removed", LIMIT, || {
        sandbox.nodes().iter().all(clean)
    });
    // And compared with declared roles.
    let said = |primary: &str, middle_role: &str, source: &str| {
        lag(
            &sandbox,
            &[
                ("top", primary, "", top),
                ("middle", middle_role, "", middle),
                ("end", "replica", source, end),
            ],
        )
    };
    let _ = said("primary", "replica", "middle").with_code(0);
    let _ = said("primary", "replica", "top")
        .with_code(3)
        .stderr_contains("its source is declared as top, but it replicates from middle");
    let _ = said("replica", "primary", "")
        .with_code(3)
        .stderr_contains("middle (")
        .stderr_contains("declared the primary, but it replicates from top");
    let _ = said("primary", "node", "")
        .with_code(3)
        .stderr_contains("it is declared a node, but it is in no Galera cluster");
    let _ = said("primary", "primary", "")
        .with_code(2)
        .stderr_contains("`top` and `middle` are both primaries");
    // The one in between is not named.
    let ended = lag(
        &sandbox,
        &[("top", "primary", "", top), ("end", "", "", end)],
    )
    .with_code(3);
    let _ = ended
        .stderr_contains("end (")
        .stderr_contains("is not a replica of the given primary")
        .stderr_contains("server in between");
    // The middle is itself a replica of a server that is not named.
    sql(middle, "SET GLOBAL read_only = 0");
    let part = [("middle", "", "", middle), ("end", "", "", end)];
    let _ = lag(&sandbox, &part)
        .with_code(3)
        .stderr_contains("middle (")
        .stderr_contains("which is not named");
    assert!(sandbox.nodes().iter().all(clean));

    // The file's own mistakes are usage errors, before any connection.
    let tool = TestEnvironment::new();
    for (text, want) in [
        ("", "the key `node` is missing"),
        ("node = []", "no server is named"),
        (
            "[[node]]\nname = 'a'\nurl = 'mysql://a/'\nrolle = 'x'\n",
            "unknown key `rolle`",
        ),
        (
            "[[node]]\nname = 'a'\nurl = 'mysql://u:secret@a/'\n[[node]]\nname = 'b'\nurl = 'mysql://b/'\n",
            "must not hold a URL with a password",
        ),
        (
            "[[node]]\nname = 'a b'\nurl = 'mysql://a/'\n[[node]]\nname = 'b'\nurl = 'mysql://b/'\n",
            "is not a valid server name",
        ),
    ] {
        fs::write(tool.folder().join("cluster.toml"), text).unwrap();
        let ended = tool
            .run(&["lag", "--topology", "cluster.toml"])
            .with_code(2)
            .stderr_contains(want);
        assert!(!ended.stderr.contains("secret"), "{ended:#?}");
    }
    let _ = tool
        .run(&["lag", "--topology", "nowhere.toml"])
        .with_code(2)
        .stderr_contains("nowhere.toml");

    // Doctor: healthy first, then what a DBA meets.
    let all = [
        ("top", "", "", top),
        ("middle", "", "", middle),
        ("end", "", "", end),
    ];
    let document = doctor(&sandbox, &all).with_code(0).json();
    assert_eq!(
        (
            document["schema"].as_str(),
            document["target"]["mode"].as_str()
        ),
        (Some("replimeter.doctor/1"), Some("chain"))
    );
    let row = &document["results"][2];
    assert_eq!(
        (row["source"].as_str(), row["role"].as_str()),
        (Some("middle"), Some("replica"))
    );
    let clock = &row["clock"];
    assert!(clock["bound_us"].as_f64().unwrap() > 0.0);
    // All on one machine: the offset is within its own bound, or hardly beyond it.
    assert!(
        clock["offset_us"].as_f64().unwrap().abs() < clock["bound_us"].as_f64().unwrap() + 1000.0,
        "{clock}"
    );
    let tool = TestEnvironment::new();
    file(&tool, &part);
    let allowed = [
        "lag",
        "--topology",
        "cluster.toml",
        "--write-to-replica",
        "--rounds",
        "5",
        "--floor-rounds",
        "5",
        "--timeout",
        "60s",
        "--json",
    ];
    let document = run(&tool, &sandbox, &allowed).with_code(0).json();
    assert!(
        document["warnings"]
            .to_string()
            .contains("source-not-named"),
        "{document:#}"
    );
    sql(end, "STOP SLAVE");
    sql(end, "CHANGE MASTER TO MASTER_DELAY=3600");
    sql(end, "START SLAVE IO_THREAD");
    sql(middle, "CREATE DATABASE errant");
    let document = doctor(&sandbox, &all).with_code(1).json();
    let codes = codes(&document);
    for wanted in [
        "replication-not-running",
        "delayed-replica",
        "replica-writable",
        "errant-transactions",
    ] {
        assert!(
            codes.iter().any(|code| code == wanted),
            "{wanted} is missing in {codes:?}"
        );
    }
    for finding in document["findings"].as_array().unwrap() {
        assert!(
            !finding["hint"].as_str().unwrap().is_empty()
                && !finding["message"].as_str().unwrap().is_empty(),
            "{finding}"
        );
    }
    assert!(
        value(top, "SHOW DATABASES LIKE 'replimeter'").is_none(),
        "doctor writes nothing"
    );
    let text = {
        let tool = TestEnvironment::new();
        file(&tool, &all);
        run(&tool, &sandbox, &["doctor", "--topology", "cluster.toml"])
            .with_code(1)
            .stdout
    };
    assert!(
        text.contains("Replication topology") && text.contains("└─"),
        "{text}"
    );
}

fn galera_cluster_is_found_by_url() {
    let sandbox = shared("galera:2", &[]);
    let [one, two] = sandbox.nodes() else {
        panic!("two nodes")
    };
    let tool = TestEnvironment::new();
    let (first, second) = (url(one, "replimeter"), url(two, "replimeter"));
    let args = ["--node", &first, "--node", &second, "--json"];
    let lag = [
        "lag",
        "--rounds",
        "30",
        "--floor-rounds",
        "5",
        "--timeout",
        "60s",
    ];
    let document = run(&tool, &sandbox, &[&lag[..], &args].concat())
        .with_code(0)
        .json();
    assert_eq!(
        (
            document["target"]["modes"][0].as_str(),
            document["results"]["rows"][0]["replica"].as_str()
        ),
        (Some("galera"), Some("node2"))
    );
    wait_until("all tables are removed", LIMIT, || clean(one) && clean(two));
    let document = run(&tool, &sandbox, &[&["doctor"], &args[..]].concat())
        .with_code(0)
        .json();
    assert_eq!(document["target"]["mode"], "galera");
    // Reads that wait hide the lag: both commands say so.
    sql(two, "SET GLOBAL wsrep_sync_wait = 1");
    let document = run(&tool, &sandbox, &[&lag[..], &args].concat())
        .with_code(0)
        .json();
    assert!(
        document["warnings"].to_string().contains("waiting-reads"),
        "{document:#}"
    );
    sql(two, "SET GLOBAL wsrep_sync_wait = 0");
    // A node that takes no part.
    sql(two, "SET GLOBAL wsrep_desync = ON");
    let _ = run(&tool, &sandbox, &[&["lag"], &args[..]].concat())
        .with_code(3)
        .stderr_contains("node2 (")
        .stderr_contains("Donor/Desynced");
    sql(two, "SET GLOBAL wsrep_desync = OFF");
    wait_until("the node takes part again", LIMIT, || {
        let state = session(two).rows("test", "SHOW STATUS LIKE 'wsrep_local_state_comment'");
        state.unwrap()[0]["Value"] == "Synced"
    });
    // Locks are of one node: a run may be in progress on the other one.
    sql(one, "CREATE DATABASE replimeter");
    let table = "CREATE TABLE replimeter.probe_1 (id INT PRIMARY KEY) COMMENT 'replimeter: made by a measurement and removed by it; run 1'";
    sql(one, table);
    let _ = run(&tool, &sandbox, &["lag", "--node", &second])
        .with_code(3)
        .stderr_contains("1 of the 2 members of its cluster are named");
    sql(one, "DROP DATABASE replimeter");
    // A server of another cluster.
    let other = start("galera:1", &[]);
    let stranger = url(&other.nodes()[0], "replimeter");
    let mut command = tool.command(&["lag", "--node", &first, "--node", &stranger]);
    command
        .env("REPLIMETER_NODE1_PASSWORD", password(one))
        .env("REPLIMETER_NODE2_PASSWORD", password(&other.nodes()[0]));
    let ended = wait(command.spawn().unwrap(), LIMIT).with_code(3);
    assert!(
        ended.stderr.contains("node2 (") && ended.stderr.contains("node1"),
        "both sides are named: {ended:#?}"
    );
}

fn group_is_found_by_url() {
    let sandbox = shared("group:2", &[]);
    let [one, two] = sandbox.nodes() else {
        panic!("two members")
    };
    // The writer is the group's primary, in whatever order they are named.
    let tool = TestEnvironment::new();
    let (first, second) = (url(one, "replimeter"), url(two, "replimeter"));
    let args = [
        "lag",
        "--node",
        &second,
        "--node",
        &first,
        "--rounds",
        "30",
        "--floor-rounds",
        "5",
        "--timeout",
        "60s",
        "--json",
    ];
    let document = run(&tool, &sandbox, &args).with_code(0).json();
    assert_eq!(
        (
            document["target"]["modes"][0].as_str(),
            document["target"]["nodes"][0]["name"].as_str()
        ),
        (Some("group"), Some("node2"))
    );
    assert_eq!(document["results"]["rows"][0]["replica"], "node1");
    wait_until("all tables are removed", LIMIT, || clean(one) && clean(two));
    // A secondary declared the primary: both sides are named.
    let ended = lag(&sandbox, &[("a", "", "", one), ("b", "primary", "", two)]).with_code(3);
    let _ = ended.stderr_contains("it is declared the primary, but in its group it is SECONDARY");
    // The primary is not among those named.
    let other = start("mysql/none", &[]);
    let stranger = url(&other.nodes()[0], "replimeter");
    let mut command = tool.command(&["lag", "--node", &second, "--node", &stranger]);
    command
        .env("REPLIMETER_NODE1_PASSWORD", password(one))
        .env("REPLIMETER_NODE2_PASSWORD", password(&other.nodes()[0]));
    let _ = wait(command.spawn().unwrap(), LIMIT)
        .with_code(3)
        .stderr_contains("whose primary is not named");
    let document = doctor(&sandbox, &[("a", "", "", one), ("b", "", "", two)])
        .with_code(0)
        .json();
    assert_eq!(document["target"]["mode"], "group");
    assert!(
        document["results"][1]["state"]
            .as_str()
            .unwrap()
            .contains("ONLINE"),
        "{document:#}"
    );
}

fn unreachable_server_is_named_and_others_shown() {
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let (primary, replica) = (
        url(&sandbox.nodes()[0], "replimeter"),
        "mysql://replimeter@127.0.0.1:1/",
    );
    let ended = run(
        &tool,
        &sandbox,
        &[
            "doctor",
            "--primary",
            &primary,
            "--replica",
            replica,
            "--json",
        ],
    )
    .with_code(3);
    let document = ended
        .stderr_contains("replica1 could not be examined")
        .json();
    assert!(
        codes(&document).iter().any(|code| code == "unreachable"),
        "{document:#}"
    );
    assert_eq!(document["results"][0]["reached"], true);
}

fn node_killed_during_a_run_ends_it() {
    a_dead_member_ends_the_run("galera:3");
}

fn group_member_killed_during_a_run_ends_it() {
    a_dead_member_ends_the_run("group:3");
}

fn a_dead_member_ends_the_run(shape: &str) {
    let sandbox = start(shape, &[]);
    let tool = TestEnvironment::new();
    let urls: Vec<String> = sandbox
        .nodes()
        .iter()
        .map(|node| url(node, "replimeter"))
        .collect();
    let args = [
        "lag",
        "--node",
        &urls[0],
        "--node",
        &urls[1],
        "--node",
        &urls[2],
        "--duration",
        "60s",
        "--floor-rounds",
        "5",
        "--timeout",
        "60s",
        "--json",
    ];
    let mut command = tool.command(&args);
    let child = command
        .env("REPLIMETER_PASSWORD", password(&sandbox.nodes()[0]))
        .spawn()
        .unwrap();
    wait_until("rows arrive", LIMIT, || {
        let third = &sandbox.nodes()[2];
        let rows = of_run(third, "SELECT COUNT(*) FROM replimeter.probe");
        let rows = session(third).value("test", &rows);
        rows.ok().flatten().is_some_and(|count| count.len() > 2)
    });
    let victim = rustix::process::Pid::from_raw(i32::try_from(sandbox.pids()[2]).unwrap()).unwrap();
    rustix::process::kill_process(victim, rustix::process::Signal::KILL).unwrap();
    let document = wait(child, LIMIT)
        .with_code(3)
        .stderr_contains("node3 (")
        .json();
    assert_eq!(document["status"], "failed", "{shape}");
    assert!(
        document["results"]["rows"][0]["rounds"].as_u64().unwrap() > 0,
        "what was measured is kept"
    );
}
