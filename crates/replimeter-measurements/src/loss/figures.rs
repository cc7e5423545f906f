//! The figures of `loss`.

use replimeter_instruments::loss::results::{CrashRecord, LossResults};
use replimeter_run::{
    figures,
    figures::{DimensionSpec, Figures, SHAPE},
};
use replimeter_stats::{
    compare::{Resampled, of_blocks},
    share::wilson,
};

const ROW: &[DimensionSpec] = &[SHAPE, DimensionSpec::new("crash")];

figures! {
    // A count can be 0.
    LOST = "loss.lost": Count, Lower, Difference, of ROW;
    SEEN_THEN_LOST = "loss.seen_then_lost": Count, Lower, Difference, of ROW;
    LOSSY = "loss.lossy_percent": Percent, Lower, Difference, of ROW;
    LOSSY_TO_READERS = "loss.lossy_to_readers_percent": Percent, Lower, Difference, of ROW;
    RECOVERY_MEAN = "loss.recovery.mean": Us, Lower, Ratio, of ROW;
    RECOVERY_P50 = "loss.recovery.p50": Us, Lower, Ratio, of ROW;
    ACKNOWLEDGED = "loss.acknowledged": PerS, Neither, Ratio, of ROW;
}

pub(super) fn figures(results: &LossResults) -> Figures {
    let mut figures = Figures::default();
    for row in &results.rows {
        let of = [row.shape.as_str(), &row.crash];
        let crashes = results.crashes.iter();
        let crashes: Vec<_> = crashes.filter(|crash| crash.shape == row.shape).collect();
        let each = |value: fn(&CrashRecord) -> f64| {
            of_blocks(&crashes.iter().map(|crash| value(crash)).collect::<Vec<_>>())
        };
        let missing = each(|crash| crash.lost as f64);
        figures.add(&LOST, &of, missing);
        let seen_then_lost = each(|crash| crash.seen_then_lost as f64);
        figures.add(&SEEN_THEN_LOST, &of, seen_then_lost);
        for (spec, share) in [
            (&LOSSY, &row.lossy),
            (&LOSSY_TO_READERS, &row.lossy_to_readers),
        ] {
            let drawn = (share.of > 0).then(|| {
                let ends = wilson(share.count as f64, share.of as f64).map(|end| end * 100.0);
                Resampled::of_interval(share.percent, Some(ends), share.of)
            });
            figures.add(spec, &of, drawn);
        }
        figures.add(&RECOVERY_MEAN, &of, each(|crash| crash.recovery_us));
        let median = row
            .recovery_us
            .map(|us| Resampled::of_interval(us, row.recovery_us_ci95, row.crashes));
        figures.add(&RECOVERY_P50, &of, median);
        let per_s = each(|crash| crash.acknowledged as f64 / (crash.load_us / 1e6));
        figures.add(&ACKNOWLEDGED, &of, per_s);
    }
    figures
}
