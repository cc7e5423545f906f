//! Several starts of the servers: what a report states about them.

use replimeter_model::record::StartSpread;
use replimeter_stats::dependence::{MIN_STARTS, missed};

/// Returns what the intervals of a run with this number of fresh starts cover, 0 for servers that ran already.
pub(crate) fn covered(starts: u32) -> String {
    let missed = missed(starts) * 100.0;
    match starts {
        0 => "The servers ran already: the intervals cover the time of this run, not restarts of the servers or other hours.".to_owned(),
        1 => "The servers were started once: the intervals do not cover the variation between starts.".to_owned(),
        starts => format!(
            "The servers of each shape were started {starts} times: the intervals cover the variation between starts like these. A kind of start \
             that is one in ten is missed by {starts} starts with a probability of {missed:.0} %, and is then in no interval. The tail of a \
             distribution has an interval from {MIN_STARTS} starts on, if fifteen or more reach beyond the quantile."
        ),
    }
}

/// Returns what a figure was in each start, formatted by `show`; empty without several starts.
pub(crate) fn spread(
    name: &str,
    starts: Option<StartSpread>,
    show: impl Fn(f64) -> String,
) -> Option<String> {
    let StartSpread { min, median, max } = starts?;
    let figures = [min, median, max].map(show).join(" / ");
    Some(format!("{name} {figures}"))
}
