//! Implausible times, such as an interval of ten minutes between rows: usually
//! `m` was written for `ms`.

use super::PlanError;
use crate::time_span::TimeSpan;

pub(super) const MINUTE: TimeSpan = TimeSpan::from_secs(60);
pub(super) const HOUR: TimeSpan = TimeSpan::from_secs(3600);
pub(super) const DAY: TimeSpan = TimeSpan::from_secs(86_400);

/// Rejects an implausibly long time.
pub(super) fn check_at_most(
    key: &str,
    value: Option<TimeSpan>,
    most: TimeSpan,
    what: &str,
) -> Result<(), PlanError> {
    match value.filter(|value| *value > most) {
        Some(value) => Err(PlanError::Contradiction(format!(
            "{key} = {value}: {what} is at most {most}{}",
            meant(value)
        ))),
        None => Ok(()),
    }
}

/// Rejects a part of a run that is longer than the whole. Defaults in a `plan.toml` that Replimeter wrote are accepted.
pub(super) fn check_within(
    key: &str,
    value: Option<TimeSpan>,
    default: TimeSpan,
    whole: Option<TimeSpan>,
) -> Result<(), PlanError> {
    match value.zip(whole) {
        Some((value, whole)) if value > whole.max(default) => Err(PlanError::Contradiction(
            format!("{key} = {value} is longer than duration = {whole}, of which it is a part"),
        )),
        _ => Ok(()),
    }
}

/// Minimum report interval.
const MIN_REPORT_INTERVAL: TimeSpan = TimeSpan::from_millis(100);

/// Fills in the report interval of a run of this duration, 1 s, and returns it.
pub(super) fn report_interval(
    given: &mut Option<TimeSpan>,
    duration: Option<TimeSpan>,
) -> Result<TimeSpan, PlanError> {
    let default = TimeSpan::from_secs(1);
    check_within("report-interval", *given, default, duration)?;
    let interval = *given.get_or_insert(default);
    if interval < MIN_REPORT_INTERVAL {
        return Err(PlanError::Contradiction(format!(
            "report-interval must be at least {MIN_REPORT_INTERVAL}"
        )));
    }
    Ok(interval)
}

/// Whole minutes, perhaps written with `m` for milliseconds; a unit is not known afterwards.
fn meant(span: TimeSpan) -> String {
    let seconds = span.0.as_secs();
    if span.0.subsec_nanos() == 0 && seconds.is_multiple_of(60) {
        let millis = TimeSpan::from_millis(seconds / 60);
        let minutes = seconds / 60;
        format!("; if you wrote {minutes}m, `m` is minutes: write {millis} for milliseconds")
    } else {
        String::new()
    }
}
