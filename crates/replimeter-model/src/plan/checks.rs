//! Checks of one value, for declarations of settings. A time can be implausible, such as an interval of ten minutes between rows:
//! usually `m` was written for `ms`.

use std::fmt::Display;

use super::{PlanError, contradiction};
use crate::time_span::TimeSpan;

/// A second.
pub const SECOND: TimeSpan = TimeSpan::from_secs(1);
/// A minute.
pub const MINUTE: TimeSpan = TimeSpan::from_secs(60);
/// An hour.
pub const HOUR: TimeSpan = TimeSpan::from_secs(3600);
/// A day.
pub(super) const DAY: TimeSpan = TimeSpan::from_secs(86_400);

/// Returns the key of a field in plans.
fn key(field: &str) -> String {
    field.replace('_', "-")
}

/// Rejects a setting that another one has to be given for.
///
/// # Errors
/// Always.
pub fn requires<T>(field: &str, needed: &str) -> Result<T, PlanError> {
    contradiction(format!("{} requires {needed}", key(field)))
}

/// Rejects values outside of a range; the message ends with `end`.
pub fn from_to<T: PartialOrd + Display>(
    low: T,
    high: T,
    end: &str,
) -> impl Fn(&str, &T) -> Result<(), PlanError> {
    move |field, value| match (&low..=&high).contains(&value) {
        true => Ok(()),
        false => contradiction(format!("{} must be from {low} to {high}{end}", key(field))),
    }
}

/// Rejects 0; the message ends with `end`.
pub fn above_zero<T: Default + PartialEq>(end: &str) -> impl Fn(&str, &T) -> Result<(), PlanError> {
    move |field, value| match *value == T::default() {
        true => contradiction(format!("{} must be above 0{end}", key(field))),
        false => Ok(()),
    }
}

/// Rejects an implausibly long time.
pub fn at_most(most: TimeSpan, what: &str) -> impl Fn(&str, &TimeSpan) -> Result<(), PlanError> {
    move |field, value| match *value > most {
        true => contradiction(format!(
            "{} = {value}: {what} is at most {most}{}",
            key(field),
            meant(*value)
        )),
        false => Ok(()),
    }
}

/// Rejects a part of a run that is longer than the whole. Its default is accepted, because Replimeter writes it into `plan.toml`.
pub fn part_of(
    whole: Option<TimeSpan>,
    default: TimeSpan,
) -> impl Fn(&str, &TimeSpan) -> Result<(), PlanError> {
    move |field, value| match whole {
        Some(whole) if *value > whole.max(default) => contradiction(format!(
            "{} = {value} is longer than duration = {whole}, of which it is a part",
            key(field)
        )),
        _ => Ok(()),
    }
}

/// Rejects an empty list, and duplicates in it.
///
/// # Errors
/// With the key, if it is empty or has a value twice.
pub fn distinct<T: PartialEq>(field: &str, values: &[T]) -> Result<(), PlanError> {
    if values.is_empty() {
        return contradiction(format!("the list of {} is empty", key(field)));
    }
    match first_twice(values) {
        Some(_) => contradiction(format!("one of {} is given twice", key(field))),
        None => Ok(()),
    }
}

/// Returns the first value that is there twice.
pub fn first_twice<T: PartialEq>(values: &[T]) -> Option<&T> {
    let mut all = values.iter().enumerate();
    all.find_map(|(index, value)| values[..index].contains(value).then_some(value))
}

/// Minimum report interval.
const MIN_REPORT_INTERVAL: TimeSpan = TimeSpan::from_millis(100);

/// Rejects report intervals that are too short, or longer than the run.
pub fn interval_in(
    duration: Option<TimeSpan>,
) -> impl Fn(&str, &TimeSpan) -> Result<(), PlanError> {
    move |field, value| {
        part_of(duration, SECOND)(field, value)?;
        if *value < MIN_REPORT_INTERVAL {
            return contradiction(format!(
                "{} must be at least {MIN_REPORT_INTERVAL}",
                key(field)
            ));
        }
        Ok(())
    }
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
