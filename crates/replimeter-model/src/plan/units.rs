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
        (
            "link-delay",
            file.target.link_delay,
            Span::from_secs(10),
            "a link",
        ),
        (
            "link-jitter",
            file.target.link_jitter,
            Span::from_secs(10),
            "the jitter of a link",
        ),
        (
            "pace (every)",
            every,
            MINUTE,
            "the time from one row to the next",
        ),
        (
            "step-pause",
            lag.step_pause,
            MINUTE,
            "the pause before a step",
        ),
        (
            "timeout",
            lag.timeout,
            HOUR,
            "the longest that a row may stay unseen",
        ),
        (
            "every",
            calibrate.every,
            MINUTE,
            "the time from one row to the next",
        ),
        (
            "delays",
            longest_delay,
            Span::from_secs(10),
            "a delay that is injected",
        ),
        (
            "link-delays",
            cost.link_delays.iter().max().copied(),
            Span::from_secs(1),
            "a delay of a link",
        ),
        ("block", cost.block, Span::from_secs(600), "a block"),
        (
            "ramp",
            cost.ramp,
            Span::from_secs(600),
            "the time before it counts",
        ),
        (
            "warm-up",
            scale.warm_up,
            Span::from_secs(600),
            "the time before it counts",
        ),
        ("ramp", loading.ramp, HOUR, "the time before it counts"),
        (
            "timeout",
            stale.timeout,
            HOUR,
            "the longest that a write may stay unseen",
        ),
        (
            "rest",
            tap.rest,
            Span::from_millis(100),
            "a rest, by which stamps are late,",
        ),
    ] {
        let Some(value) = value.filter(|value| *value > most) else {
            continue;
        };
        let meant = as_millis(value).map_or_else(String::new, |millis| {
            format!("; did you mean {millis}? (`m` is minutes)")
        });
        return Err(PlanError::Contradiction(format!(
            "{key} = {value}: {what} takes {most} at the most{meant}"
        )));
    }
    within_the_run(file)
}

/// Refuses parts of a run that are longer than the run. What a plan of ours spells out is a default, though, and stays.
fn within_the_run(file: &PlanFile) -> Result<(), PlanError> {
    let (tap, exposure) = (
        file.tap.clone().unwrap_or_default(),
        file.exposure.clone().unwrap_or_default(),
    );
    let (cost, loading) = (
        file.cost.clone().unwrap_or_default(),
        file.load.clone().unwrap_or_default(),
    );
    let scale = file.scale.clone().unwrap_or_default();
    let seconds = Span::from_secs;
    let usual = if cost.self_test.is_some() {
        seconds(4)
    } else {
        seconds(30)
    };
    // What is written, how long it is where nobody says so, and how long the run is.
    for (key, value, default, whole) in [
        ("every", tap.every, seconds(1), tap.duration),
        ("floor", tap.floor, seconds(5), tap.duration),
        (
            "every",
            exposure.every,
            seconds(1),
            Some(exposure.duration.unwrap_or(seconds(60))),
        ),
        (
            "block",
            cost.block,
            seconds(1),
            Some(cost.duration.unwrap_or(usual)),
        ),
        (
            "ramp",
            cost.ramp,
            seconds(1),
            Some(cost.duration.unwrap_or(usual)),
        ),
        (
            "ramp",
            loading.ramp,
            seconds(2),
            Some(loading.duration.unwrap_or(seconds(30))),
        ),
        (
            "warm-up",
            scale.warm_up,
            seconds(1),
            Some(scale.duration.unwrap_or(seconds(5))),
        ),
    ] {
        let (Some(value), Some(whole)) = (value, whole) else {
            continue;
        };
        if value > whole.max(default) {
            let meant = as_millis(value).map_or_else(String::new, |millis| {
                format!("; did you mean {millis}? (`m` is minutes)")
            });
            return Err(PlanError::Contradiction(format!(
                "{key} = {value} is longer than for = {whole}, of which it is a part{meant}"
            )));
        }
    }
    Ok(())
}

/// Whole minutes, read as milliseconds.
fn as_millis(span: Span) -> Option<Span> {
    let seconds = span.0.as_secs();
    (span.0.subsec_nanos() == 0 && seconds.is_multiple_of(60))
        .then(|| Span::from_millis(seconds / 60))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_not_longer_than_the_whole() {
        let said = |text: &str| {
            PlanFile::from_toml(text)
                .unwrap()
                .resolve()
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        let target = "[target]\nprimary = 'mysql://a/'\nreplicas = ['mysql://b/']\n";
        for (plan, key) in [
            (
                "command = 'tap'\n[tap]\nevery = '10m'\nfor = '5s'",
                "every = 600s is longer than for = 5s",
            ),
            (
                "command = 'tap'\n[tap]\nfloor = '10m'\nfor = '5s'",
                "floor = 600s is longer than for = 5s",
            ),
            (
                "command = 'cost'\n[cost]\nblock = '10m'",
                "block = 600s is longer than for = 30s",
            ),
            (
                "command = 'load'\n[load]\nramp = '10m'\nfor = '5s'",
                "ramp = 600s is longer than for = 5s",
            ),
            (
                "command = 'scale'\n[scale]\nwarm-up = '10m'",
                "did you mean 10ms",
            ),
        ] {
            let error = said(plan).unwrap_err();
            assert!(error.contains(key), "{plan}: {error}");
        }
        let exposure =
            format!("command = 'exposure'\n{target}[exposure]\nevery = '10m'\nfor = '5s'");
        assert!(
            said(&exposure)
                .unwrap_err()
                .contains("every = 600s is longer than for = 5s")
        );
        // Defaults that a short run's plan.toml spells out.
        for plan in [
            "command = 'tap'\n[tap]\nfloor = '5s'\nevery = '1s'\nfor = '2s'",
            "command = 'load'\n[load]\nramp = '2s'\nfor = '1s'",
        ] {
            said(plan).unwrap();
        }
        said("command = 'tap'\n[tap]\nevery = '10m'").unwrap();
    }
}
