//! Helpers for charts, and the charts of a comparison.

pub mod compare;
pub mod trial;

use crate::{figures::Unit, format::or_dash};

/// Returns the unit that suits the largest of these times in µs.
pub fn unit_for(us: impl IntoIterator<Item = f64>) -> Unit {
    Unit::for_size(us.into_iter().fold(0.0, f64::max))
}

/// Returns a function that formats times in a unit.
pub fn times_in(unit: Unit) -> impl Fn(Option<f64>) -> String + Copy {
    move |us| or_dash(us, |us| unit.show(us))
}

/// Groups values by name, in the order of first occurrence.
pub fn grouped<T>(named: impl IntoIterator<Item = (String, T)>) -> Vec<(String, Vec<T>)> {
    let mut groups: Vec<(String, Vec<T>)> = Vec::new();
    for (name, one) in named {
        match groups.iter_mut().find(|(known, _)| *known == name) {
            Some((_, all)) => all.push(one),
            None => groups.push((name, vec![one])),
        }
    }
    groups
}
