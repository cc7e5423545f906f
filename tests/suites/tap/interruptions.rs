//! Stopped replicas, lost connections, restarted servers and purged logs.

use std::{thread, time::Duration};

use replimeter_engine::{
    ErrorKind,
    binlog::{CompleteTransaction, Follower, Position, StartPosition, requirements},
    dialect,
    facts::ServerFacts,
};
use replimeter_model::time::Nanos;
use replimeter_suites::{LIMIT, restart, session, sql, start, value, wait_until};

use super::{all_matched, args, dumps, followed, number, tables};

pub(super) fn tap_survives_a_stopped_replica() {
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

pub(super) fn lost_connection_is_restored_and_reported() {
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

pub(super) fn tap_survives_a_server_restart() {
    follows_after_a_restart("mariadb/async:1", "START SLAVE");
}

pub(super) fn tap_survives_a_server_restart_on_mysql() {
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

pub(super) fn purged_positions_are_reported() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
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

/// A stream that began by GTIDs does not know the upper half of its offset, as one beyond 4 GiB of a file, whose offset
/// no request can have: both resume by GTID.
pub(super) fn stream_by_gtid_resumes_without_repeats() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = start(shape, &[]);
        let node = &sandbox.nodes()[0];
        let facts = ServerFacts::read(&mut session(node)).unwrap();
        let ids = requirements::server_ids(&mut session(node), &facts)
            .unwrap()
            .unwrap();
        let id = requirements::unused_server_id(&ids);
        let far = StartPosition::File(Position {
            file: "binlog.000001".to_owned(),
            offset: 5 << 30,
        });
        let refused = Follower::open(node, &facts, id, &far).err().unwrap();
        assert!(refused.to_string().contains("beyond 4 GiB"), "{refused}");
        sql(node, "CREATE DATABASE before_it");
        let own = if shape.starts_with("mariadb") {
            "SELECT @@GLOBAL.gtid_binlog_pos"
        } else {
            "SELECT @@GLOBAL.gtid_executed"
        };
        let from = StartPosition::Gtids(value(node, own).unwrap());
        let mut follower = Follower::open(node, &facts, id, &from).unwrap();
        let mut seen = Vec::new();
        for round in 0..3 {
            for number in 0..20 {
                sql(node, &format!("CREATE DATABASE d{round}_{number}"));
            }
            wait_until("all have arrived", LIMIT, || {
                let mut sink = |arrived: CompleteTransaction<'_>| seen.extend(arrived.gtid);
                follower.read(|| Nanos(0), &mut sink).unwrap();
                seen.len() >= 20 * (round + 1)
            });
            // Ends the dump and begins another.
            follower.reconnect(None).unwrap();
        }
        sql(node, "CREATE DATABASE last_one");
        let mut quiet = 0;
        wait_until("the stream is quiet", LIMIT, || {
            let mut sink = |arrived: CompleteTransaction<'_>| seen.extend(arrived.gtid);
            let read = follower.read(|| Nanos(0), &mut sink).unwrap();
            quiet = if read.transactions > 0 || seen.len() < 61 {
                0
            } else {
                quiet + 1
            };
            quiet > 10
        });
        let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!((seen.len(), distinct.len()), (61, 61), "{shape}: {seen:?}");
    }
}
