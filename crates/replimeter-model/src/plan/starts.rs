//! Fresh starts of a sandbox's servers, which share the rounds of a run.

use super::{
    PlanError,
    checks::{DAY, at_most, from_to},
    contradiction,
    stop_condition::StopCondition,
    warm_up::WarmUp,
};
use crate::{target::Target, time_span::TimeSpan};

/// Maximum number of starts.
const MAX_STARTS: u32 = 100;
/// Maximum number of starts by default.
const DEFAULT_STARTS: u64 = 10;
/// Rounds of a start by default.
const START_ROUNDS: u64 = 100;
/// Uncounted rounds of the only start by default.
const WARM_UP_OF_ONE: u64 = 50;
/// Uncounted rounds of each of several starts by default.
const WARM_UP_OF_EACH: u64 = 20;

/// Rejects several starts of servers that are not restarted, and chooses one for them.
///
/// # Errors
/// If several starts are given for such servers.
pub fn only_of_sandboxes(starts: &mut Option<u32>, targets: &[Target]) -> Result<(), PlanError> {
    let restarted = targets
        .iter()
        .all(|target| matches!(target, Target::Sandbox(_)));
    if restarted {
        return Ok(());
    }
    if starts.is_some_and(|starts| starts > 1) {
        return contradiction(
            "starts requires a sandbox, because servers that run already are not restarted; run it several times, and compare the sets",
        );
    }
    *starts = Some(1);
    Ok(())
}

/// Rejects numbers of starts that the rounds or the time cannot be shared among.
pub fn share(until: StopCondition) -> impl Fn(&str, &u32) -> Result<(), PlanError> {
    move |field, starts| {
        from_to(1, MAX_STARTS, "")(field, starts)?;
        match until {
            StopCondition::Rounds(rounds) if rounds < u64::from(*starts) => {
                contradiction("each start needs a round: give at least as many rounds as starts")
            }
            _ => Ok(()),
        }
    }
}

/// Rejects an implausible time over which starts are spread, and any with one start.
pub fn spread(starts: u32) -> impl Fn(&str, &TimeSpan) -> Result<(), PlanError> {
    move |field, time| match starts {
        0 | 1 => contradiction("over spreads starts over a time: give starts 2 or more"),
        _ => at_most(DAY, "the time over which starts are spread")(field, time),
    }
}

/// Returns the number of starts that the rounds or the time are enough for.
pub fn enough_for(until: StopCondition) -> u32 {
    let starts = match until {
        StopCondition::Rounds(rounds) => rounds / START_ROUNDS,
        StopCondition::Elapsed(span) => span.0.as_secs(),
    };
    starts.clamp(1, DEFAULT_STARTS) as u32
}

/// Returns the default warm-up of each start.
pub fn warm_up(starts: u32) -> WarmUp {
    WarmUp::Rounds(match starts {
        1 => WARM_UP_OF_ONE,
        _ => WARM_UP_OF_EACH,
    })
}

/// Returns the part of the start with this number, from 1, of `starts`: the parts add up to the whole.
pub fn part(whole: StopCondition, start: u32, starts: u32) -> StopCondition {
    match whole {
        StopCondition::Rounds(rounds) => {
            StopCondition::Rounds(share_of_start(rounds, start, starts))
        }
        StopCondition::Elapsed(span) => StopCondition::Elapsed(TimeSpan(span.0 / starts)),
    }
}

/// Returns the start's share of a number of rounds.
pub fn share_of_start(rounds: u64, start: u32, starts: u32) -> u64 {
    let until = |start: u32| rounds * u64::from(start) / u64::from(starts);
    until(start) - until(start - 1)
}

/// Returns the start's seed: each start draws numbers of its own.
pub fn seed(seed: u64, start: u32) -> u64 {
    seed.wrapping_add(u64::from(start - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_several_starts_are_spread() {
        let check = |seconds, starts| spread(starts)("over", &TimeSpan::from_secs(seconds));
        assert!(check(3600, 2).is_ok());
        assert!(check(3600, 1).is_err() && check(90_000, 10).is_err());
    }
}
