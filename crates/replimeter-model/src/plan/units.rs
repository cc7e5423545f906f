//! Times that make no sense, such as ten minutes from one row to the next: nearly
//! always `m` was written for `ms`.

use super::{Pace, PlanError, PlanFile};
use crate::span::Span;

const MINUTE: Span = Span::from_secs(60);
const HOUR: Span = Span::from_secs(3600);

/// Refuses a time that is longer than anybody means.
pub(super) fn check(file: &PlanFile) -> Result<(), PlanError> {
    let lag = file.lag.clone().unwrap_or_default();
    let calibrate = file.calibrate.clone().unwrap_or_default();
    let cost = file.cost.clone().unwrap_or_default();
    let every = match lag.pace {
        Some(Pace::Every(every)) => Some(every),
        _ => None,
    };
    let stale = file.stale.clone().unwrap_or_default();
    let loading = file.load.clone().unwrap_or_default();
    let scale = file.scale.clone().unwrap_or_default();
    let tap = file.tap.clone().unwrap_or_default();
    let longest_delay = calibrate.delays.iter().flatten().max().copied();
    // What is written, how long it may be, and what it is.
    for (key, value, most, what) in [
        ("link-delay", file.target.link_delay, Span::from_secs(10), "a link"),
        ("link-jitter", file.target.link_jitter, Span::from_secs(10), "the jitter of a link"),
        ("pace (every)", every, MINUTE, "the time from one row to the next"),
        ("step-pause", lag.step_pause, MINUTE, "the pause before a step"),
        ("timeout", lag.timeout, HOUR, "the longest that a row may stay unseen"),
        ("every", calibrate.every, MINUTE, "the time from one row to the next"),
        ("delays", longest_delay, Span::from_secs(10), "a delay that is injected"),
        ("link-delays", cost.link_delays.iter().max().copied(), Span::from_secs(1), "a delay of a link"),
        ("block", cost.block, Span::from_secs(600), "a block"),
        ("ramp", cost.ramp, Span::from_secs(600), "the time before it counts"),
        ("warm-up", scale.warm_up, Span::from_secs(600), "the time before it counts"),
        ("ramp", loading.ramp, HOUR, "the time before it counts"),
        ("timeout", stale.timeout, HOUR, "the longest that a write may stay unseen"),
        ("rest", tap.rest, Span::from_millis(100), "a rest, by which stamps are late,"),
    ] {
        let Some(value) = value.filter(|value| *value > most) else { continue };
        let meant = as_millis(value).map_or_else(String::new, |millis| format!("; did you mean {millis}? (`m` is minutes)"));
        return Err(PlanError::Contradiction(format!("{key} = {value}: {what} takes {most} at the most{meant}")));
    }
    Ok(())
}

/// Whole minutes, read as milliseconds.
fn as_millis(span: Span) -> Option<Span> {
    let seconds = span.0.as_secs();
    (span.0.subsec_nanos() == 0 && seconds.is_multiple_of(60)).then(|| Span::from_millis(seconds / 60))
}
