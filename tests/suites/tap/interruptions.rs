//! Stopped replicas, lost connections, restarted servers and purged logs.

use std::{thread, time::Duration};

use replimeter_engine::{
    ErrorClass, ErrorKind, dialect,
    facts::ServerFacts,
    follow::{CompleteTransaction, Follower, Position, StartPosition, requirements},
};
use replimeter_model::time::Nanos;
use replimeter_suites::{LIMIT, restart, session, shared, sql, start, value, wait_until};
use rustix::process::Signal;

use super::{all_matched, args, dumps, followed, number, tables};

/// Time for which a replica stays behind.
const BEHIND: Duration = Duration::from_secs(2);

pub(super) fn tap_survives_a_stopped_replica() {
    let sandbox = shared("mariadb/async:1", &[]);
    let replica = &sandbox.nodes()[1];
    tables(&sandbox.nodes()[0]);
    let (_, document) = followed(&sandbox, &args(&sandbox, &[]), &[], |following| {
        sql(replica, "STOP SLAVE");
        following.await_pending("replica1");
        thread::sleep(BEHIND);
        sql(replica, "START SLAVE");
    });
    all_matched(&document);
    // What was written while it was stopped is late by at least that time.
    let largest = document["results"]["rows"][0]["lag"]["max_us"]
        .as_f64()
        .unwrap();
    assert!(largest > 1.9e6, "{largest}");
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
        let sandbox = shared(shape, &[]);
        tables(&sandbox.nodes()[0]);
        let more = ["--floor-duration", "0", "--server-id", "3111222333"];
        let (_, document) = followed(&sandbox, &args(&sandbox, &more), &[], |following| {
            // While the run is stopped it does not reconnect, so what is written in that time is missing in its streams.
            following.signal(Signal::STOP);
            // The run's connection is newer than those of replicas.
            let ended: Vec<(_, u64)> = sandbox
                .nodes()
                .iter()
                .map(|node| (node, *dumps(node).last().unwrap()))
                .collect();
            for (node, id) in &ended {
                sql(node, &format!("KILL {id}"));
            }
            wait_until("both connections have ended", LIMIT, || {
                ended.iter().all(|(node, id)| !dumps(node).contains(id))
            });
            following.await_traffic();
            following.signal(Signal::CONT);
            wait_until("both servers are followed again", LIMIT, || {
                ended
                    .iter()
                    .all(|(node, id)| dumps(node).last().is_some_and(|newest| newest > id))
            });
        });
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
                .all(|stream| number(&stream["reconnects"]) >= 1),
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
    let more = ["--floor-duration", "0"];
    let mut again = None;
    // When a server was started is known to a second.
    wait_until("the restart is another start", LIMIT, || {
        let uptime = &session(&replica.node)
            .rows("test", "SHOW GLOBAL STATUS LIKE 'Uptime'")
            .unwrap()[0];
        uptime["Value"].parse::<u64>().unwrap() >= 4
    });
    let (_, document) = followed(&sandbox, &args(&sandbox, &more), &[], |following| {
        again = Some(restart(replica));
        following.await_pending("replica1");
        thread::sleep(BEHIND);
        sql(&replica.node, resume);
        wait_until("it is followed again", LIMIT, || {
            !dumps(&replica.node).is_empty()
        });
    });
    let row = &document["results"]["rows"][0];
    let of = |name: &str| number(&row[name]);
    assert_eq!(
        of("matched") + of("unmatched") + of("pending"),
        of("transactions"),
        "{shape}: {row:#}"
    );
    // What was written while it was down arrived late by at least the time that it stayed behind, or before it was followed again.
    let late = row["lag"]["max_us"].as_f64().unwrap() > 1.9e6;
    let unseen = row["unmatched_reasons"]
        .to_string()
        .contains("arrived while a connection was lost");
    assert!(of("matched") > 100 && (late || unseen), "{shape}: {row:#}");
    assert!(
        number(&document["results"]["streams"][1]["reconnects"]) >= 1,
        "{shape}: {document:#}"
    );
    assert!(
        document["warnings"]
            .to_string()
            .contains("replica1: reconnected"),
        "{document:#}"
    );
    assert!(
        document["warnings"]
            .to_string()
            .contains("was restarted during the run"),
        "{document:#}"
    );
}

pub(super) fn purged_positions_are_reported() {
    for shape in ["mariadb/none", "mysql/none"] {
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
        // In the log to purge, and in the one after it.
        sql(node, "CREATE DATABASE a");
        sql(node, "FLUSH BINARY LOGS");
        sql(node, "CREATE DATABASE b");
        let mut seen = Vec::new();
        wait_until("both arrive", LIMIT, || {
            follower
                .read(|| Nanos(0), &mut |arrived: CompleteTransaction<'_>| {
                    seen.push(arrived.commit_id)
                })
                .unwrap();
            follower.position().file != first.file
                && follower.position().offset > 200
                && seen.len() >= 2
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
                    let mut refused = None;
                    wait_until("the position is refused", LIMIT, || {
                        let read = follower.read(|| Nanos(0), &mut |_: CompleteTransaction<'_>| {});
                        refused = read.err();
                        refused.is_some()
                    });
                    refused.unwrap()
                }
            };
            assert_eq!(
                error.kind,
                ErrorKind::Statement(ErrorClass::LogRefused),
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

/// Transactions between two connections.
const EACH: usize = 5;

/// A stream that began by GTIDs does not know the upper half of its offset, as one beyond 4 GiB of a file, whose offset
/// no request can have: both resume by GTID.
pub(super) fn stream_by_gtid_resumes_without_repeats() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = shared(shape, &[]);
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
        let total = 3 * EACH + 1;
        for round in 0..3 {
            for number in 0..EACH {
                sql(node, &format!("CREATE DATABASE d{round}_{number}"));
            }
            wait_until("all have arrived", LIMIT, || {
                let mut sink = |arrived: CompleteTransaction<'_>| seen.extend(arrived.commit_id);
                follower.read(|| Nanos(0), &mut sink).unwrap();
                seen.len() >= EACH * (round + 1)
            });
            // Ends the dump and begins another.
            follower.reconnect(None).unwrap();
        }
        sql(node, "CREATE DATABASE last_one");
        let mut quiet = 0;
        wait_until("the stream is quiet", LIMIT, || {
            let mut sink = |arrived: CompleteTransaction<'_>| seen.extend(arrived.commit_id);
            let read = follower.read(|| Nanos(0), &mut sink).unwrap();
            quiet = if read.transactions > 0 || seen.len() < total {
                0
            } else {
                quiet + 1
            };
            quiet > 10
        });
        let distinct: std::collections::BTreeSet<_> = seen.iter().collect();
        assert_eq!(
            (seen.len(), distinct.len()),
            (total, total),
            "{shape}: {seen:?}"
        );
    }
}
