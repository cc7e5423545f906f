use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_model::{
    engine::Engine,
    plan::{Settings, TargetSettings, WarmUp},
    replication::Mode,
    time_span::TimeSpan,
};

use super::*;
use crate::{
    Listener, MeasureError,
    lag::{
        self, Event, Outcome,
        sample::{LagSample, Phase},
        settings::{LagPlan, LagSettings, Method, Methods, Pace},
    },
    preflight,
    table::RowBudget,
};

fn plan(method: Method, rounds: u64) -> LagPlan {
    let mut settings = LagSettings {
        method: Some(Methods::Named(vec![method])),
        rounds: Some(rounds),
        pace: Some(Pace::Interval(TimeSpan::from_millis(3))),
        warm_up: Some(WarmUp::Rounds(5)),
        floor_rounds: Some(0),
        timeout: Some(TimeSpan::from_secs(2)),
        ..LagSettings::default()
    };
    settings.plan(&mut TargetSettings::default()).unwrap().1
}

/// Measures, and calls `each` with every counted sample.
fn measure(
    clock: &Clock,
    reference: &Reference,
    plan: &LagPlan,
    stop: &AtomicBool,
    each: impl FnMut(&LagSample),
) -> Outcome {
    try_measure(clock, reference, plan, stop, each).unwrap()
}

/// Measures; an error before the first counted row is returned.
fn try_measure(
    clock: &Clock,
    reference: &Reference,
    plan: &LagPlan,
    stop: &AtomicBool,
    mut each: impl FnMut(&LagSample),
) -> Result<Outcome, MeasureError> {
    let mut cluster = preflight::check(reference.members()).unwrap();
    assert!(cluster.warnings.is_empty(), "{:?}", cluster.warnings);
    assert_eq!(cluster.mode, Mode::Async);
    let possible = lag::available_methods(&mut cluster, &plan.method).unwrap();
    let mut on = |event| {
        if let Event::Sample(sample) = event
            && sample.write.phase == Phase::Measure
        {
            each(&sample);
        }
        Ok(())
    };
    let mut listener = Listener {
        on: &mut on,
        stop,
        so_far: false,
    };
    let held = RowBudget::default();
    lag::run(&mut cluster, plan, &possible, held, clock, &mut listener)
}

#[test]
fn positions_of_a_replica_of_another_engine_are_not_compared() {
    let reference = Reference::start(Clock::start(), 2).unwrap();
    let mut cluster = preflight::check(reference.members()).unwrap();
    assert!(cluster.check_comparable().is_ok());
    let engine = &mut cluster.replicas[1].server.facts.engine;
    *engine = Engine::ALL
        .into_iter()
        .find(|other| other != engine)
        .unwrap();
    let error = cluster.check_comparable().unwrap_err();
    assert_eq!(error.node, "replica2");
    let methods = |names: &str| lag::available_methods(&mut cluster, &names.parse().unwrap());
    let [wait, poll] = ["wait", "poll"].map(methods);
    assert_eq!(wait.unwrap_err().cause, error.cause);
    assert!(poll.is_ok(), "it compares no positions");
}

#[test]
fn brackets_contain_the_true_instants() {
    for (method, replicas, shape) in [
        (Method::Poll, 1, "0"),
        (Method::Poll, 3, "bimodal"),
        (Method::Poll, 2, "heavy-tailed"),
        (Method::Wait, 1, "0"),
        (Method::Wait, 3, "bimodal"),
        (Method::Wait, 2, "heavy-tailed"),
    ] {
        let clock = Clock::start();
        let reference = Reference::start(clock, replicas).unwrap();
        reference.delay_by(shape.parse().unwrap(), 1);
        let (mut inside, mut all) = (0, 0);
        let stop = AtomicBool::new(false);
        let outcome = measure(&clock, &reference, &plan(method, 60), &stop, |sample| {
            let row = reference.row(sample.replica, sample.write.seq).unwrap();
            let (low, high) = (sample.lower().unwrap(), sample.upper().unwrap());
            let visible = row.visible;
            all += 1;
            inside += i32::from(low < visible && visible <= high);
            if let Some((_, reads)) = sample.readable() {
                let released = row.released.unwrap();
                assert!(visible <= released && released <= high);
                assert_eq!(reads, 1, "readable at once");
            }
        });
        assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
        let wanted = 60 * replicas.cast_signed();
        assert_eq!((inside, all), (wanted, wanted), "{method:?} {shape}");
    }
}

#[test]
fn long_wait_has_a_narrow_bracket() {
    let clock = Clock::start();
    let reference = Reference::start(clock, 1).unwrap();
    reference.delay_by("200ms".parse().unwrap(), 1);
    let stop = AtomicBool::new(false);
    let mut narrow = 0;
    let outcome = measure(
        &clock,
        &reference,
        &plan(Method::Wait, 40),
        &stop,
        |sample| {
            // Twice a tenth of the time: a busy machine delays some reads.
            narrow += i32::from(sample.error().unwrap() < Nanos(40_000_000));
        },
    );
    assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
    assert!(narrow >= 20, "{narrow} of 40");
}

#[test]
fn ended_server_is_named() {
    let stop = AtomicBool::new(false);
    for (method, server, name) in [
        (Method::Poll, 0, "primary"),
        (Method::Poll, 2, "replica2"),
        (Method::Wait, 0, "primary"),
        (Method::Wait, 2, "replica2"),
    ] {
        let clock = Clock::start();
        let reference = Reference::start(clock, 2).unwrap();
        // Waits are in progress when their server ends.
        reference.delay_by("20ms".parse().unwrap(), 1);
        let mut seen = 0;
        let outcome = measure(&clock, &reference, &plan(method, 5_000), &stop, |_| {
            seen += 1;
            if seen == 20 {
                reference.end(server);
            }
        });
        let failure = outcome.failure.unwrap().to_string();
        assert!(failure.starts_with(name), "{method:?}: {failure}");
        assert!((20..9_000).contains(&seen), "{seen} rows were kept");
    }
}

#[test]
fn silent_replica_ends_the_run_by_its_timeout() {
    let stop = AtomicBool::new(false);
    for method in [Method::Poll, Method::Wait] {
        let clock = Clock::start();
        let reference = Reference::start(clock, 2).unwrap();
        let held = AtomicBool::new(false);
        let outcome = measure(&clock, &reference, &plan(method, 5_000), &stop, |_| {
            if !held.swap(true, Ordering::Relaxed) {
                reference.hold(1, Nanos(i64::MAX));
            }
        });
        assert_second_timed_out(method, &outcome.failure.unwrap().to_string());
    }
}

/// Checks that a failure names the replica that is silent, and how long was waited for it.
fn assert_second_timed_out(method: Method, failure: &str) {
    assert!(
        failure.starts_with("replica2") && failure.contains(" after 2."),
        "{method:?}: {failure}"
    );
}

#[test]
fn replica_silent_from_the_start_is_named() {
    let stop = AtomicBool::new(false);
    for method in [Method::Poll, Method::Wait] {
        let clock = Clock::start();
        let reference = Reference::start(clock, 2).unwrap();
        reference.hold(1, Nanos(i64::MAX));
        let failure = try_measure(&clock, &reference, &plan(method, 10), &stop, |_| {
            panic!("no row counts")
        });
        assert_second_timed_out(method, &failure.unwrap_err().to_string());
    }
}

#[test]
fn stall_longer_than_the_run_delays_its_rows() {
    let stop = AtomicBool::new(false);
    for method in [Method::Poll, Method::Wait] {
        let clock = Clock::start();
        let reference = Reference::start(clock, 1).unwrap();
        let mut stalled = None;
        let (mut late, mut outside) = (0, 0);
        // 100 rows take 0.3 s.
        let outcome = measure(&clock, &reference, &plan(method, 100), &stop, |sample| {
            let until = *stalled.get_or_insert_with(|| {
                let until = clock.now() + Nanos(1_500_000_000);
                reference.hold(0, until);
                until
            });
            let visible = reference.row(0, sample.write.seq).unwrap().visible;
            let (low, high) = (sample.lower().unwrap(), sample.upper().unwrap());
            outside += i32::from(visible <= low || visible > high);
            late += i32::from(high >= until);
        });
        assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
        assert!(late >= 50 && outside == 0, "{method:?}: {late}, {outside}");
    }
}

#[test]
fn dropped_reference_leaves_no_thread() {
    let clock = Clock::start();
    let reference = Reference::start(clock, 1).unwrap();
    let rows = Arc::clone(&reference.replicas[0]);
    let node = reference.members()[1].node.clone();
    let session = replimeter_engine::Session::open(&node).unwrap();
    drop(reference);
    drop(session);
    let deadline = Instant::now() + Duration::from_secs(5);
    while Arc::strong_count(&rows) > 1 && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(Arc::strong_count(&rows), 1, "no thread has the rows");
    assert!(replimeter_engine::Session::open(&node).is_err());
}
