//! Use of sandboxes: several at once, links, runs.

use std::{fs, path::Path, process::Command, thread, time::Duration};

use replimeter_suites::{LIMIT, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::{TestUser, query};

pub(super) fn two_sandboxes_run_at_once() {
    let user = TestUser::new();
    let first = user
        .command(&["sandbox", "up", "async:1", "--json"])
        .spawn()
        .unwrap();
    let second = user
        .command(&[
            "sandbox",
            "up",
            "mysql/async:1",
            "--name",
            "work",
            "--link-delay",
            "3ms",
        ])
        .spawn()
        .unwrap();
    let first = wait(first, LIMIT).with_code(0).json();
    let second = wait(second, LIMIT).with_code(0).stdout;
    assert_eq!(first["results"][0]["name"], "async-1");
    assert!(second.contains("replimeter sandbox down work"), "{second}");

    let list = user.list();
    assert_eq!(
        list.iter()
            .map(|found| found["name"].as_str().unwrap())
            .collect::<Vec<_>>(),
        ["async-1", "work"]
    );
    for sandbox in &list {
        assert_eq!(sandbox["state"], "running");
        let nodes = sandbox["nodes"].as_array().unwrap();
        assert_eq!(nodes.len(), 2);
        assert_eq!(
            (nodes[1]["role"].as_str(), nodes[1]["source"].as_str()),
            (Some("replica"), Some("primary"))
        );
        for node in nodes {
            assert_eq!(node["state"], "running");
            assert!(
                Path::new(node["socket"].as_str().unwrap()).exists()
                    && node["port"].as_u64().unwrap() > 1023
            );
        }
    }
    assert_eq!(list[1]["links"][0]["name"], "primary-replica1");
    assert_eq!(list[1]["links"][0]["delay_us"].as_u64(), Some(3000));
    let text = user.run(&["sandbox", "list"]).with_code(0).stdout;
    assert!(
        text.contains("MySQL") && text.contains("MariaDB") && text.contains("3,000 µs"),
        "{text}"
    );

    // Names are unique; the next default name differs.
    let _ = user
        .run(&["sandbox", "up", "async:1", "--name", "work"])
        .with_code(2)
        .stderr_contains("is running")
        .stderr_contains("--name");

    // Clients log in without options, to the named server; exit codes are passed through.
    for (name, node) in [("async-1", 1), ("work", 1)] {
        let port = query(&user, name, "replica1", "SELECT @@port");
        let found = list.iter().find(|found| found["name"] == name).unwrap();
        assert_eq!(port, found["nodes"][node]["port"].to_string());
        let _ = query(&user, name, "primary", "CREATE DATABASE mine");
        wait_until("the replica has the database", LIMIT, || {
            query(&user, name, "replica1", "SHOW DATABASES LIKE 'mine'") == "mine"
        });
    }
    let _ = user
        .run(&[
            "sandbox", "exec", "work", "primary", "--", "sh", "-c", "exit 7",
        ])
        .with_code(7);
    let variables = user.run(&[
        "sandbox",
        "exec",
        "work",
        "primary",
        "--",
        "sh",
        "-c",
        "echo $MYSQL_HOST $MYSQL_TCP_PORT $REPLIMETER_URL",
    ]);
    let port = list[1]["nodes"][0]["port"].to_string();
    assert_eq!(
        variables.stdout.trim(),
        format!("127.0.0.1 {port} mysql://replimeter@127.0.0.1:{port}/?ssl-mode=disabled")
    );
    let _ = user
        .run(&["sandbox", "exec", "work", "node1", "--", "true"])
        .with_code(2)
        .stderr_contains("name one of primary, replica1");
    let _ = user
        .run(&[
            "sandbox",
            "exec",
            "work",
            "primary",
            "--",
            "no-such-program",
        ])
        .with_code(3)
        .stderr_contains("not on PATH");

    // A shell accepts the output of `env`, and `lag` accepts its variables.
    let environment = user.run(&["sandbox", "env", "work"]).with_code(0).stdout;
    fs::write(user.tool.folder().join("env.sh"), &environment).unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            ". ./env.sh; echo $REPLICA1_URL; cat $REPLIMETER_TOPOLOGY",
        ])
        .current_dir(user.tool.folder())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("mysql://replimeter@127.0.0.1:") && text.contains("source = \"primary\""),
        "{text}"
    );
    let document = user
        .run(&[
            "lag",
            "--sandbox",
            "work",
            "--rounds",
            "40",
            "--floor-rounds",
            "0",
            "--timeout",
            "60s",
            "--json",
        ])
        .with_code(0)
        .json();
    assert_eq!(
        document["results"]["rows"][0]["shape"],
        "mysql/async:1 (work)"
    );
    assert!(
        document["results"]["rows"][0]["from_send"]["min_us"]
            .as_f64()
            .unwrap()
            >= 3000.0,
        "through the link"
    );
    assert_eq!(
        query(&user, "work", "primary", "SHOW DATABASES LIKE 'replimeter'"),
        "",
        "our schema is gone again"
    );
    assert_eq!(
        query(&user, "work", "primary", "SHOW DATABASES LIKE 'mine'"),
        "mine"
    );

    // `down` while a client is connected.
    let client = user
        .command(&[
            "sandbox",
            "exec",
            "work",
            "primary",
            "--",
            "mysql",
            "-e",
            "SELECT SLEEP(600)",
        ])
        .spawn()
        .unwrap();
    wait_until("the client is connected", LIMIT, || {
        query(
            &user,
            "work",
            "primary",
            "SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE 'SELECT SLEEP%'",
        ) == "1"
    });
    let _ = user.run(&["sandbox", "down", "work"]).with_code(0);
    assert_ne!(wait(client, LIMIT).code, Some(0), "its server is gone");
    assert_eq!(user.list().len(), 1);
    assert_eq!(user.servers(), 2, "the other one runs on");
    let _ = user
        .run(&["sandbox", "down", "work"])
        .with_code(2)
        .stderr_contains("there is no such sandbox")
        .stderr_contains("async-1");
    let _ = user.run(&["sandbox", "down", "--all"]).with_code(0);
    assert!(user.list().is_empty());
    user.assert_nothing_runs("all down");
    assert_eq!(
        fs::read_dir(user.sandboxes())
            .unwrap()
            .filter(|entry| entry.as_ref().unwrap().path().is_dir())
            .count(),
        0
    );
}

pub(super) fn links_are_cut_and_healed() {
    let user = TestUser::new();
    let _ = user
        .run(&[
            "sandbox",
            "up",
            "async:1",
            "--name",
            "cut",
            "--link-delay",
            "0",
        ])
        .with_code(0);
    let _ = query(&user, "cut", "primary", "CREATE DATABASE before_the_cut");
    wait_until("the replica has the database", LIMIT, || {
        query(&user, "cut", "replica1", "SHOW DATABASES LIKE 'before%'").contains("before")
    });
    let _ = user.run(&["sandbox", "link", "cut", "--cut"]).with_code(0);
    let _ = query(&user, "cut", "primary", "CREATE DATABASE during_the_cut");
    // As long as a transaction would need to arrive.
    thread::sleep(Duration::from_millis(700));
    assert_eq!(
        query(&user, "cut", "replica1", "SHOW DATABASES LIKE 'during%'"),
        "",
        "nothing passes"
    );
    let _ = user
        .run(&[
            "sandbox",
            "link",
            "cut",
            "primary-replica1",
            "--heal",
            "--delay",
            "200ms",
        ])
        .with_code(0);
    wait_until("delayed rows arrive", LIMIT, || {
        query(&user, "cut", "replica1", "SHOW DATABASES LIKE 'during%'").contains("during")
    });
    let shown = user
        .run(&["sandbox", "link", "cut", "--json"])
        .with_code(0)
        .json();
    let link = &shown["results"][0]["links"][0];
    assert_eq!(
        (link["state"].as_str(), link["delay_us"].as_u64()),
        (Some("open"), Some(200_000))
    );
    let _ = user
        .run(&["sandbox", "link", "cut", "nowhere", "--cut"])
        .with_code(2)
        .stderr_contains("the links are primary-replica1");
    let _ = user
        .run(&["sandbox", "link", "cut", "--jitter", "1s"])
        .with_code(3)
        .stderr_contains("larger than its delay");
}

pub(super) fn run_with_semi_sync_fall_back_is_invalid() {
    let user = TestUser::new();
    let args = [
        "sandbox",
        "up",
        "semi-sync:1",
        "--name",
        "semi",
        "--link-delay",
        "5ms",
    ];
    let _ = user.run(&args).with_code(0);
    let doctor = || {
        user.run(&["doctor", "--sandbox", "semi", "--json"])
            .with_code(0)
            .json()
    };
    let healthy = doctor();
    assert_eq!(healthy["target"]["mode"], "semi-sync");
    assert_eq!(healthy["results"][1]["source"], "primary");
    let child = user
        .command(&[
            "lag",
            "--sandbox",
            "semi",
            "--pace",
            "visible",
            "--rounds",
            "600",
            "--warm-up",
            "20",
            "--floor-rounds",
            "0",
            "--timeout",
            "60s",
            "--json",
        ])
        .spawn()
        .unwrap();
    // A row takes 10 ms or more. The run is stopped while its rows are counted and the link is cut, so that it cannot end before.
    let pid = Pid::from_child(&child);
    wait_until("counted rows are written", LIMIT, || {
        thread::sleep(Duration::from_millis(200));
        kill_process(pid, Signal::STOP).unwrap();
        let ask = |sql: &str| {
            let client = [
                "sandbox", "exec", "semi", "replica1", "--", "mysql", "-N", "-e",
            ];
            let answer = user.run(&[&client[..], &[sql]].concat());
            answer.stdout.trim().to_owned()
        };
        let table = ask(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'replimeter'",
        );
        let rows = ask(&format!("SELECT COUNT(*) FROM replimeter.`{table}`"));
        let counted = rows.parse::<u64>().unwrap_or(0) > 60;
        if !counted {
            kill_process(pid, Signal::CONT).unwrap();
        }
        counted
    });
    // Not before: an acknowledgement that is late by that much would be a fallback, too.
    let timeout = "SET GLOBAL rpl_semi_sync_master_timeout = 300";
    let _ = query(&user, "semi", "primary", timeout);
    let _ = user.run(&["sandbox", "link", "semi", "--cut"]).with_code(0);
    kill_process(pid, Signal::CONT).unwrap();
    wait_until("the primary has fallen back", LIMIT, || {
        let status = "SHOW STATUS LIKE 'Rpl_semi_sync_master_status'";
        query(&user, "semi", "primary", status).contains("OFF")
    });
    let _ = user
        .run(&["sandbox", "link", "semi", "--heal"])
        .with_code(0);
    let ended = wait(child, LIMIT)
        .with_code(1)
        .stderr_contains("fell back from semi-synchronous to asynchronous");
    assert_eq!(ended.json()["status"], "invalid");
    // A permanent cut, a typical problem for `doctor`.
    let _ = user.run(&["sandbox", "link", "semi", "--cut"]).with_code(0);
    let _ = query(&user, "semi", "primary", "CREATE DATABASE unacknowledged");
    let found = doctor();
    let codes: Vec<&str> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    assert!(codes.contains(&"semi-sync-fallen-back"), "{codes:?}");
    assert_eq!(found["status"], "warnings");
}
