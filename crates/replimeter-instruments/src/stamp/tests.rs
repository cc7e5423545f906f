use super::*;

#[test]
fn row_range_is_read_in_pages() {
    let all: Vec<_> = pages(1..=2 * PAGE + 1).collect();
    assert_eq!(
        all,
        [1..=PAGE, PAGE + 1..=2 * PAGE, 2 * PAGE + 1..=2 * PAGE + 1]
    );
    assert_eq!(pages(5..=5).collect::<Vec<_>>(), [5..=5]);
    let (first, last) = (5, 4);
    assert_eq!(pages(first..=last).count(), 0);
    assert_eq!(
        pages(u64::MAX - 1..=u64::MAX).collect::<Vec<_>>(),
        [u64::MAX - 1..=u64::MAX]
    );
}

#[test]
fn statement_selects_available_columns() {
    let stamps = |sysdate, udf| Stamps {
        sysdate,
        udf,
        lacking: Vec::new(),
    };
    assert!(
        stamps(true, true)
            .insert()
            .ends_with("VALUES (?, ?, ?, ?, SYSDATE(6), NOW_USEC())")
    );
    assert!(
        stamps(true, false)
            .insert()
            .ends_with("VALUES (?, ?, ?, ?, SYSDATE(6), NULL)")
    );
}

const EPOCH_US: i64 = 1_795_266_287_262_399;

fn row(id: u64, us: i64) -> Stamped {
    Stamped {
        id,
        sysdate: Some(EPOCH_US + us),
        udf: Some(EPOCH_US + us + 1),
    }
}

/// Returns a clock that is ahead of the local one by the epoch plus an offset.
fn clock(ahead_us: i64) -> ServerClock {
    ServerClock::fixed(nanos(EPOCH_US + ahead_us), Nanos(20_000))
}

#[test]
fn lag_is_corrected_for_clocks_and_never_clamped() {
    let (one, other) = (clock(0), clock(3_000));
    // The replica's clock is 3 ms ahead: 3.2 ms are 0.2 ms, and 2.9 ms are -0.1 ms.
    let found = join(
        &[row(1, 1_000), row(2, 2_000), row(3, 3_000)],
        &[row(1, 4_200), row(3, 5_900), row(4, 9_000)],
        [&one, &other],
        |id| nanos(id as i64 * 1_000),
    );
    let lags: Vec<_> = found
        .lags
        .iter()
        .map(|lag| (lag.id, lag.sysdate.unwrap().0, lag.udf.unwrap().0))
        .collect();
    assert_eq!(lags, [(1, 200_000, 200_000), (3, -100_000, -100_000)]);
    assert!(
        found
            .lags
            .iter()
            .all(|lag| lag.bound.0 >= 41_000 && lag.bound.0 < 50_000),
        "{found:?}"
    );
    assert_eq!((found.missing, found.unplaced, found.equal), (1, 0, 0));
    assert!(!found.shipped());
}

#[test]
fn rows_near_a_clock_step_have_no_lag() {
    let mut one = clock(0);
    let other = one.clone();
    // Known again 10 ms later, and another second.
    one.step_for_test(nanos(10_000), nanos(1_000_000));
    let rows = |ahead: i64| {
        [
            row(1, -500 + ahead),
            row(2, 5_000 + ahead),
            row(3, 20_000 + ahead),
        ]
    };
    let mut primary = rows(0);
    primary[2] = row(3, 1_020_000);
    let found = join(&primary, &rows(100), [&one, &other], |id| {
        nanos([-500, 5_000, 20_000][id as usize - 1])
    });
    let lags: Vec<_> = found
        .lags
        .iter()
        .map(|lag| (lag.id, lag.sysdate.unwrap().0))
        .collect();
    assert_eq!(
        (lags, found.unplaced),
        (vec![(1, 100_000), (3, 100_000)], 1)
    );
}

#[test]
fn equal_stamps_mean_a_shipped_row() {
    let rows: Vec<_> = (0..5).map(|id| row(id, id as i64 * 1_000)).collect();
    let clock = clock(0);
    let found = join(&rows, &rows, [&clock, &clock], |_| Nanos(0));
    assert!(found.shipped(), "{found:?}");
    let few = join(&rows[..3], &rows[..3], [&clock, &clock], |_| Nanos(0));
    assert!(!few.shipped(), "three may be a coincidence");
}
