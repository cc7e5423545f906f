//! The figures of `watch`.

use replimeter_instruments::watch::results::{State, WatchResults};
use replimeter_run::{
    figures,
    figures::{DimensionSpec, SHAPE, StatedFigures},
};

const OF: &[DimensionSpec] = &[SHAPE, DimensionSpec::new("server")];
const OF_STATE: &[DimensionSpec] = &[
    SHAPE,
    DimensionSpec::new("server"),
    DimensionSpec::new("state"),
];

figures! {
    // Any of them can be 0, and a watch has no independent samples: no intervals.
    LAG_LOW = "watch.lag_low" [max]: Us, Lower, Difference, of OF;
    LAG_HIGH = "watch.lag_high" [max]: Us, Lower, Difference, of OF;
    LATE = "watch.late_percent": Percent, Lower, Difference, of OF;
    MAYBE_LATE = "watch.maybe_late_percent": Percent, Lower, Difference, of OF;
    TIME_IN_STATE = "watch.state_percent": Percent, Neither, Difference, of OF_STATE;
}

pub(super) fn stated(results: &WatchResults) -> StatedFigures {
    let mut figures = StatedFigures::default();
    for row in &results.rows {
        let of = [results.shape.as_str(), row.server.as_str()];
        let all_us: f64 = row.state_us.values().sum();
        if row.state != Some(State::Primary) {
            figures.add(&LAG_LOW[0], &of, row.lag_max_low_us, None, row.samples);
            figures.add(&LAG_HIGH[0], &of, row.lag_max_high_us, None, row.samples);
            figures.add(&LATE, &of, row.late_percent, None, results.polls);
            figures.add(
                &MAYBE_LATE,
                &of,
                row.maybe_late_percent,
                None,
                results.polls,
            );
        }
        for (state, us) in &row.state_us {
            let of = [of[0], of[1], state.as_str()];
            let percent = (all_us > 0.0).then(|| us / all_us * 100.0);
            figures.add(&TIME_IN_STATE, &of, percent, None, results.polls);
        }
    }
    figures
}
