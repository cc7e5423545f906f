//! Times that make no sense, such as ten minutes from one row to the next: nearly
//! always `m` was written for `ms`.

use super::PlanError;
use crate::span::Span;

pub(super) const MINUTE: Span = Span::from_secs(60);
pub(super) const HOUR: Span = Span::from_secs(3600);

/// Refuses a time that is longer than anybody means.
pub(super) fn at_most(
    key: &str,
    value: Option<Span>,
    most: Span,
    what: &str,
) -> Result<(), PlanError> {
    match value.filter(|value| *value > most) {
        Some(value) => Err(PlanError::Contradiction(format!(
            "{key} = {value}: {what} takes {most} at the most{}",
            meant(value)
        ))),
        None => Ok(()),
    }
}

/// Refuses a part of a run that is longer than the whole. What a plan of ours spells out is a default, though, and stays.
pub(super) fn within(
    key: &str,
    value: Option<Span>,
    default: Span,
    whole: Option<Span>,
) -> Result<(), PlanError> {
    match value.zip(whole) {
        Some((value, whole)) if value > whole.max(default) => {
            Err(PlanError::Contradiction(format!(
                "{key} = {value} is longer than duration = {whole}, of which it is a part{}",
                meant(value)
            )))
        }
        _ => Ok(()),
    }
}

/// Whole minutes, read as milliseconds.
fn meant(span: Span) -> String {
    let seconds = span.0.as_secs();
    if span.0.subsec_nanos() == 0 && seconds.is_multiple_of(60) {
        let millis = Span::from_millis(seconds / 60);
        format!("; did you mean {millis}? (`m` is minutes)")
    } else {
        String::new()
    }
}
