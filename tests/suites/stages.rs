//! Stages of transactions as real replicas report them.

use std::ops::Range;

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::stages::{
        AppliedPositions, LastTransaction, StageAnswer, StageSource, ThreadHistory, chain,
    },
    facts::ServerFacts,
};
use replimeter_instruments::{
    clock::Clock,
    lag::stage_joiner::{ServerClock, StageJoiner, Transaction},
};
use replimeter_model::{
    engine::Engine,
    stages::{Mark, Stages},
    time::Nanos,
};
use replimeter_stats::waterfall::Waterfall;
use replimeter_suites::{LIMIT, harness::Test, session, shared, sql, test, value, wait_until};

pub(crate) const TESTS: &[Test] = &[
    test!(mysql_reports_last_transaction_of_each_thread),
    test!(mariadb_reports_applied_positions),
    test!(group_reports_stages_of_its_channel),
    test!(galera_reports_no_stages),
    test!(stages_of_real_transactions_sum_to_total),
];

/// A session with the question prepared on it.
fn source(node: &Node) -> Result<(Session, StageSource), ServerError> {
    let mut session = session(node);
    let facts = ServerFacts::read(&mut session)?;
    StageSource::prepare(&facts, &mut session).map(|source| (session, source))
}

fn remembered(node: &Node) -> ThreadHistory {
    let (mut session, source) = source(node).unwrap();
    match source.ask(&mut session).unwrap() {
        StageAnswer::Remembered(remembered) => remembered,
        other => panic!("{other:?}"),
    }
}

fn positions(node: &Node) -> AppliedPositions {
    let (mut session, source) = source(node).unwrap();
    match source.ask(&mut session).unwrap() {
        StageAnswer::Positions(positions) => positions,
        other => panic!("{other:?}"),
    }
}

fn table(primary: &Node) {
    sql(primary, "CREATE DATABASE IF NOT EXISTS replimeter");
    sql(
        primary,
        "CREATE TABLE replimeter.stages (id INT PRIMARY KEY)",
    );
}

/// In order: committed at the source, and in the replica's hands after that, by
/// clocks of one machine.
fn in_order(last: &LastTransaction) {
    let all = [
        last.original_commit_us,
        last.immediate_commit_us,
        last.began_us,
        last.ended_us,
    ]
    .map(|stamp| stamp.unwrap());
    assert!(all.is_sorted(), "{last:?}");
}

fn mysql_reports_last_transaction_of_each_thread() {
    let sandbox = shared("mysql/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    table(primary);
    // Both servers read this machine's clock.
    let now = || -> f64 {
        let seconds = value(replica, "SELECT UNIX_TIMESTAMP(SYSDATE(6))").unwrap();
        seconds.parse::<f64>().unwrap() * 1e6
    };
    let before = now();
    sql(primary, "INSERT INTO replimeter.stages VALUES (1)");
    let set = value(primary, "SELECT @@global.gtid_executed").unwrap();
    let last = format!(
        "{}:{}",
        set.split(':').next().unwrap(),
        set.rsplit('-').next().unwrap()
    );
    let of = |all: &[LastTransaction]| all.iter().find(|one| one.commit_id == last).cloned();
    // Each thread notes its own end after the next one may have begun, so the
    // order is that of the beginnings, and the last to note is not the last to work.
    wait_until("every thread has noted the last transaction", LIMIT, || {
        let all = remembered(replica);
        [all.queued, all.scheduled, all.applied]
            .iter()
            .all(|noted| of(noted).is_some())
    });
    let all = remembered(replica);
    let (queued, scheduled, applied) = (
        of(&all.queued).unwrap(),
        of(&all.scheduled).unwrap(),
        of(&all.applied).unwrap(),
    );
    in_order(&queued);
    in_order(&applied);
    assert_eq!(queued.original_commit_us, applied.original_commit_us);
    // The coordinator may note its beginning some microseconds before the receiver notes its own; who applies comes after both.
    for earlier in [&queued, &scheduled] {
        assert!(
            earlier.began_us <= applied.began_us,
            "{queued:?} {scheduled:?} {applied:?}"
        );
    }
    let ended = applied.ended_us.unwrap() as f64;
    let after = now();
    assert!(
        before - 1.0 <= ended && ended <= after + 1.0,
        "applied at {ended}, between {before} and {after}"
    );
    // A primary receives nothing.
    assert_eq!(remembered(primary), ThreadHistory::default());
    // One thread that applies has no coordinator.
    let workers = value(replica, "SELECT @@global.replica_parallel_workers").unwrap();
    let apply_by = |workers: &str| {
        sql(replica, "STOP REPLICA");
        let set = format!("SET GLOBAL replica_parallel_workers = {workers}");
        sql(replica, &set);
        sql(replica, "START REPLICA");
    };
    apply_by("0");
    sql(primary, "INSERT INTO replimeter.stages VALUES (2)");
    wait_until("it is applied by one thread", LIMIT, || {
        !remembered(replica).applied.is_empty()
    });
    apply_by(&workers);
}

fn mariadb_reports_applied_positions() {
    let sandbox = shared("mariadb/async:1", &[]);
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    table(primary);
    sql(primary, "INSERT INTO replimeter.stages VALUES (1)");
    let last = value(primary, "SELECT @@global.gtid_binlog_pos").unwrap();
    wait_until("the last transaction is applied", LIMIT, || {
        positions(replica)
            .applied
            .iter()
            .any(|position| position.to_string() == last)
    });
    assert!(
        positions(replica)
            .received
            .iter()
            .any(|position| position.to_string() == last),
        "{:?}",
        positions(replica)
    );
    // What is received and not applied can be told apart.
    sql(replica, "STOP SLAVE SQL_THREAD");
    sql(primary, "INSERT INTO replimeter.stages VALUES (2)");
    let last = value(primary, "SELECT @@global.gtid_binlog_pos").unwrap();
    let held = |all: &[_]| {
        all.iter()
            .any(|position: &replimeter_engine::position::DomainCommit| {
                position.to_string() == last
            })
    };
    wait_until("the next one is received", LIMIT, || {
        held(&positions(replica).received)
    });
    assert!(!held(&positions(replica).applied));
    assert_eq!(positions(primary), AppliedPositions::default());
    sql(replica, "START SLAVE SQL_THREAD");
}

fn group_reports_stages_of_its_channel() {
    let sandbox = shared("mysql/group:2", &[]);
    let (writer, reader) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    table(writer);
    sql(writer, "INSERT INTO replimeter.stages VALUES (1)");
    wait_until("the row is there", LIMIT, || {
        value(
            reader,
            "SELECT 1 FROM information_schema.tables WHERE table_name = 'stages'",
        )
        .is_some()
    });
    wait_until("something is applied", LIMIT, || {
        let all = remembered(reader);
        let of_group = |last: &&LastTransaction| last.channel == "group_replication_applier";
        all.applied.iter().any(|last| of_group(&last))
            && all.queued.iter().any(|last| of_group(&last))
    });
    let all = remembered(reader);
    let applied = all.applied.iter().max_by_key(|last| last.ended_us).unwrap();
    assert!(
        applied.original_commit_us.is_some() && applied.began_us <= applied.ended_us,
        "{applied:?}"
    );
}

fn galera_reports_no_stages() {
    let sandbox = shared("galera:2", &[]);
    let error = source(&sandbox.nodes()[1]).map(drop).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("a Galera node records no timestamps"),
        "{error}"
    );
}

/// The server's clock against ours, by the fastest of some answers.
fn clock_of(node: &Node, clock: &Clock, number: u8) -> ServerClock {
    let mut session = session(node);
    session
        .run("test", "SET SESSION time_zone = '+00:00'")
        .unwrap();
    let one = |session: &mut Session| {
        let began = clock.now();
        let text = session
            .value("test", "SELECT UNIX_TIMESTAMP(SYSDATE(6))")
            .unwrap()
            .unwrap();
        let ended = clock.now();
        let (seconds, micros) = text.split_once('.').unwrap();
        let unix = Nanos(
            seconds.parse::<i64>().unwrap() * 1_000_000_000
                + micros.parse::<i64>().unwrap() * 1_000,
        );
        ServerClock {
            number,
            offset: unix - began.midpoint(ended),
            bound: Nanos((ended - began).0 / 2 + 1_000),
        }
    };
    (0..50)
        .map(|_| one(&mut session))
        .min_by_key(|clock| clock.bound)
        .unwrap()
}

/// Returns the stages of rows of which most are known: a thread that was interrupted before it reported its stage may report it
/// too late, so more rows are written then.
fn waterfall(engine: Engine, primary: &Node, replica: &Node) -> Stages {
    let mut first = 0;
    for rows in [120, 240, 480, 960] {
        let stages = waterfall_of(engine, primary, replica, first..first + rows);
        if let Some(stages) = stages
            && stages.covered * 2 > stages.transactions
        {
            return stages;
        }
        first += rows;
    }
    panic!("the stages of most rows are not known on {engine:?}");
}

/// Writes rows one by one, looks for each on the replica, and asks in between.
fn waterfall_of(
    engine: Engine,
    primary: &Node,
    replica: &Node,
    rows: Range<u64>,
) -> Option<Stages> {
    let clock = Clock::start();
    // Both servers read this machine's clock; the offsets are measured one by one all the same.
    let mut joiner = StageJoiner::new(clock_of(primary, &clock, 1), clock_of(replica, &clock, 1));
    let mut waterfall = Waterfall::new(&chain(engine, "replica1", false));
    let (mut writer, mut reader) = (session(primary), session(replica));
    let (mut asking, source) = source(replica).unwrap();
    let own = match engine {
        // Shared servers may have transactions of other servers.
        Engine::MySql => {
            "SELECT CONCAT(@@server_uuid, ':', REGEXP_SUBSTR(REGEXP_SUBSTR(@@global.gtid_executed,
                CONCAT(@@server_uuid, '(:[0-9]+(-[0-9]+)?)+')), '[0-9]+$'))"
        }
        Engine::MariaDb => "SELECT @@last_gtid",
    };
    let mut ask = |joiner: &mut StageJoiner| {
        let began = clock.now();
        let answer = source.ask(&mut asking).unwrap();
        joiner.answer(began, clock.now(), &answer);
    };
    let written = rows.end - rows.start;
    for seq in rows {
        ask(&mut joiner);
        let send = clock.now();
        writer
            .run(
                "test",
                &format!("INSERT INTO replimeter.stages VALUES (1000 + {seq})"),
            )
            .unwrap();
        let ack = clock.now();
        let mut visible_after = None;
        let visible_until = loop {
            let began = clock.now();
            let seen = reader
                .value(
                    "test",
                    &format!("SELECT 1 FROM replimeter.stages WHERE id = 1000 + {seq}"),
                )
                .unwrap();
            let ended = clock.now();
            if seen.is_some() {
                break ended;
            }
            visible_after = Some(began);
            ask(&mut joiner);
        };
        let gtid = writer.value("test", own).unwrap().unwrap();
        joiner.transaction(Transaction {
            seq,
            commit_id: gtid,
            send,
            ack,
            logged: None,
            visible_after,
            visible_until,
        });
        ask(&mut joiner);
        joiner
            .take()
            .iter()
            .for_each(|(_, points)| waterfall.record(points));
    }
    joiner
        .finish()
        .iter()
        .for_each(|(_, points)| waterfall.record(points));
    let stages = waterfall.stages()?;
    assert_eq!(stages.transactions, written);
    Some(stages)
}

fn stages_of_real_transactions_sum_to_total() {
    for (shape, engine) in [
        ("mysql/async:1", Engine::MySql),
        ("mariadb/async:1", Engine::MariaDb),
    ] {
        let sandbox = shared(shape, &[]);
        let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
        table(primary);
        wait_until("the table is there", LIMIT, || {
            session(replica)
                .value("test", "SELECT COUNT(*) FROM replimeter.stages")
                .is_ok()
        });
        let stages = waterfall(engine, primary, replica);
        assert!(
            stages.covered + stages.overwritten <= stages.transactions,
            "{} covered, {} overwritten",
            stages.covered,
            stages.overwritten
        );
        assert_eq!(
            stages
                .tail_breakdown
                .iter()
                .map(|near| near.quantile.as_str())
                .collect::<Vec<_>>(),
            ["p50", "p90"]
        );
        // What comes first is first, but for the error bars. A worker may begin before the
        // receiver has stamped the end, and a row is visible before the worker stamps its own.
        let strict = stages
            .stages
            .iter()
            .filter(|stage| !matches!(stage.to, Mark::ApplyBegan | Mark::Visible));
        let inverted: u64 = strict.map(|stage| stage.inversions).sum();
        assert!(inverted * 20 <= stages.covered, "{inverted} inverted");
        assert!(
            stages.residue_beyond * 20 <= stages.covered,
            "{} residues beyond their error bars",
            stages.residue_beyond
        );
        let sum: f64 = stages
            .stages
            .iter()
            .map(|stage| stage.duration.mean_us.unwrap())
            .sum();
        let (whole, residue) = (
            stages.end_to_end.mean_us.unwrap(),
            stages.residue.mean_us.unwrap(),
        );
        assert!(
            (whole - sum - residue).abs() < 1e-6 * whole,
            "{whole} {sum} {residue}"
        );
    }
}
