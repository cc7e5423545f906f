use super::*;

const STAT: &str = "cpu  100 10 50 800 20 1 2 17 5 6\ncpu0 1 2 3\nintr 5\n";

#[test]
fn times_of_cores_are_parsed_or_absent() {
    let time = CoreTime::parse(STAT).unwrap();
    assert_eq!((time.idle, time.steal, time.total), (820, 17, 1000));
    for hostile in [
        "",
        "cpu",
        "cpu ",
        "cpu 1 2 3 4 5 6 7",
        "cpu 1 2 3 x 5 6 7 8",
        "cpu -1 2 3 4 5 6 7 8",
        "cpu0 1 2 3 4 5 6 7 8",
        "cpu 18446744073709551615 1 1 1 1 1 1 1",
        "cpu 99999999999999999999 1 1 1 1 1 1 1",
        "\u{0}\u{1b}[31m",
    ] {
        assert_eq!(CoreTime::parse(hostile), None, "{hostile:?}");
    }
}

#[test]
fn idle_share_is_computed_per_interval() {
    let at = |idle, steal, total| CoreTime { idle, steal, total };
    let before = at(10, 0, 100);
    assert_eq!(at(60, 5, 200).shares(before), Some((0.5, 0.05)));
    assert_eq!(at(60, 5, 200).idle_share(before), Some(0.5));
    assert_eq!(at(60, 5, 200).steal_share(before), Some(0.05));
    // Counters of idle and steal can step back; all together cannot.
    assert_eq!(at(9, 0, 200).shares(before), Some((0.0, 0.0)));
    assert_eq!(before.shares(before), None);
    assert_eq!(before.shares(at(10, 0, 200)), None);
}

#[test]
fn pressure_is_parsed_or_absent() {
    let text = "some avg10=0.12 avg60=0.50 avg300=0.10 total=123456\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n";
    assert_eq!(waited(text), Some(123_456));
    for hostile in [
        "",
        "some",
        "some total=",
        "some total=-1",
        "some total=1e9",
        "full total=7",
        "some avg10=0.00 total=99999999999999999999",
        "something total=7",
    ] {
        assert_eq!(waited(hostile), None, "{hostile:?}");
    }
}

#[test]
fn pauses_are_parsed_in_both_versions() {
    let want = Some(Pauses {
        periods: 40,
        throttled: 3,
        time: 12_000,
    });
    let first = "nr_periods 40\nnr_throttled 3\nthrottled_time 12000\n";
    let second = "usage_usec 5\nnr_periods 40\nnr_throttled 3\nthrottled_usec 12\n";
    assert_eq!(pauses(first), want);
    assert_eq!(pauses(second), want);
    for without in [
        "",
        "usage_usec 5\n",
        "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n",
        "nr_periods 40\n",
        "nr_periods 40\nnr_throttled x\nthrottled_usec 12\n",
        "nr_periods 40\nnr_throttled 3\nthrottled_usec 18446744073709551615\n",
        "nr_periods\u{0}40",
    ] {
        assert_eq!(pauses(without), None, "{without:?}");
    }
}

/// Returns counters at a second, with these ticks and waits.
fn counters(second: i64, [idle, steal, total]: [u64; 3], waited: [Option<u64>; 3]) -> HostCounters {
    HostCounters {
        at: Nanos(second * 1_000_000_000),
        cores: Some(CoreTime { idle, steal, total }),
        waited,
        pauses: Vec::new(),
        client: BTreeMap::new(),
    }
}

#[test]
fn window_has_the_differences_of_its_edges() {
    let mut begin = counters(10, [100, 10, 1000], [Some(5), Some(0), None]);
    let mut end = counters(
        12,
        [200, 20, 1400],
        [Some(1_000_005), Some(20_000), Some(7)],
    );
    let pauses = |periods, throttled, time| Pauses {
        periods,
        throttled,
        time,
    };
    begin.pauses = vec![("primary".to_owned(), pauses(100, 1, 1_000_000))];
    end.pauses = vec![
        ("primary".to_owned(), pauses(300, 5, 9_000_000)),
        // Its group had no period before.
        ("replica1".to_owned(), pauses(10, 0, 0)),
    ];
    let found = window(&begin, &end).unwrap();
    assert_eq!((found.begin_us, found.end_us), (10e6, 12e6));
    assert_eq!(found.cpu_percent, Some(72.5));
    assert_eq!(found.steal_percent, Some(2.5));
    assert_eq!(found.cpu_pressure_percent, Some(50.0));
    assert_eq!(found.io_pressure_percent, Some(1.0));
    assert_eq!(found.memory_pressure_percent, None);
    let primary = &found.throttled[0];
    assert_eq!(
        (
            primary.periods,
            primary.throttled_periods,
            primary.throttled_us
        ),
        (200, 4, 8000.0)
    );
    assert_eq!(found.throttled[1].throttled_periods, 0);
    assert_eq!(window(&begin, &begin), None);
}

#[test]
fn share_of_waiting_threads_is_of_their_runnable_time() {
    let threads = |times: &[(i32, u64, u64)]| -> BTreeMap<i32, ThreadTime> {
        let threads = times.iter();
        threads
            .map(|(number, ran, waited)| {
                (
                    *number,
                    ThreadTime {
                        ran: *ran,
                        waited: *waited,
                    },
                )
            })
            .collect()
    };
    let begin = threads(&[(1, 100, 50), (2, 10, 10)]);
    // The second has ended, the third began.
    let end = threads(&[(1, 150, 60), (3, 30, 10)]);
    assert_eq!(delayed(&begin, &end), Some(20.0 / 100.0));
    assert_eq!(delayed(&begin, &begin), None);
    let own = client_threads();
    assert!(own.values().any(|time| time.ran > 0), "{own:?}");
}

/// Returns a record with a window of each length in seconds and share.
fn record(windows: &[(f64, f64)], set: impl Fn(&mut HostWindow) -> &mut Option<f64>) -> HostRecord {
    let mut record = HostRecord::default();
    let mut at = 0.0;
    for (seconds, share) in windows {
        let mut window = HostWindow {
            begin_us: at,
            end_us: at + seconds * 1e6,
            ..HostWindow::default()
        };
        *set(&mut window) = Some(*share);
        at = window.end_us;
        record.windows.push(window);
    }
    record
}

#[test]
fn only_what_explains_a_figure_is_warned_of() {
    let steal = |windows: &[(f64, f64)]| {
        record(windows, |window: &mut HostWindow| &mut window.steal_percent)
    };
    assert!(warnings(&steal(&[(10.0, 1.9), (10.0, 0.0)]), true).is_empty());
    // A tick of a short window is a large share of it.
    assert!(warnings(&steal(&[(0.2, 50.0)]), true).is_empty());
    let found = warnings(&steal(&[(10.0, 0.0), (10.0, 6.0)]), true);
    assert!(found[0].message.contains("3.0 %") && found[0].message.contains("6.0 %"));

    let pressure = record(&[(10.0, 60.0)], |window| &mut window.cpu_pressure_percent);
    assert_eq!(warnings(&pressure, true).len(), 1);
    assert!(warnings(&pressure, false).is_empty());
    let io = record(&[(10.0, 60.0)], |window| &mut window.io_pressure_percent);
    assert!(warnings(&io, true).is_empty(), "the servers' own flushes");
    let memory = record(&[(10.0, 6.0)], |window| &mut window.memory_pressure_percent);
    assert_eq!(warnings(&memory, false).len(), 1);

    let mut paused = steal(&[(1.0, 0.0), (1.0, 0.0)]);
    for window in &mut paused.windows {
        window.throttled.push(Throttled {
            name: "replica1".to_owned(),
            periods: 100,
            throttled_periods: 2,
            throttled_us: 4000.0,
        });
    }
    let found = warnings(&paused, false);
    assert!(
        found[0]
            .message
            .contains("replica1 was paused in 4 of 200 periods"),
        "{found:?}"
    );
    assert!(found[0].message.contains("for 8 ms"));

    let flush = |p50_us| {
        Some(FlushLatency {
            count: 32,
            p50_us,
            max_us: 9000.0,
        })
    };
    let flushed = |before, after| HostRecord {
        flush_before: before,
        flush_after: after,
        ..HostRecord::default()
    };
    assert!(warnings(&flushed(flush(300.0), flush(900.0)), false).is_empty());
    assert!(warnings(&flushed(flush(300.0), None), false).is_empty());
    let found = warnings(&flushed(flush(300.0), flush(8000.0)), false);
    assert!(found[0].message.contains("8000 µs after it"), "{found:?}");
}

#[test]
fn missing_counters_are_absent_with_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::start();
    let mut watch = HostWatch::new(&clock);
    watch.proc = folder.path().to_owned();
    watch.limited.clear();
    watch.measuring(Some("a"));
    std::thread::sleep(std::time::Duration::from_millis(2));
    watch.measuring(None);
    watch.measuring(None);
    let record = watch.record();
    assert_eq!(record.windows.len(), 1);
    let window = &record.windows[0];
    let figures = [
        window.cpu_percent,
        window.steal_percent,
        window.cpu_pressure_percent,
        window.io_pressure_percent,
        window.memory_pressure_percent,
    ];
    assert_eq!(figures, [None; 5]);
    assert_eq!(record.absent.len(), 4, "{:?}", record.absent);
    assert!(
        record
            .absent
            .iter()
            .all(|reason| reason.contains("shows no times") || reason.contains("CONFIG_PSI"))
    );
    assert!(warnings(&record, true).is_empty());
    let missing = folder.path().join("none");
    assert_eq!(watch.flush(&missing), None);
    assert!(
        watch
            .record()
            .absent
            .iter()
            .any(|reason| reason.starts_with("flushes in"))
    );
}

#[test]
fn a_window_ends_with_its_part() {
    let clock = Clock::start();
    let mut watch = HostWatch::new(&clock);
    for part in [Some("a"), Some("a"), Some("b"), None, Some("b"), None] {
        watch.measuring(part);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let record = watch.record();
    assert_eq!(record.windows.len(), 3);
    let ends = record.windows.windows(2);
    assert!(ends.clone().all(|pair| pair[0].end_us <= pair[1].begin_us));
    assert_eq!(longest(Nanos(1)), WINDOW);
    assert_eq!(longest(Nanos(6_000_000_000_000)), Nanos(100_000_000_000));
}

#[test]
fn flushes_leave_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let latency = flush(folder.path()).unwrap();
    assert!(latency.count >= 1 && latency.count <= FLUSHES as u64);
    assert!(latency.p50_us > 0.0 && latency.p50_us <= latency.max_us);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}
