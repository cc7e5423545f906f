//! What charts share, and those of a comparison.

pub mod compare;

use crate::{figures::Unit, format::or_dash};

/// The unit in which the largest of these microseconds reads best.
pub fn unit_for(us: impl IntoIterator<Item = f64>) -> Unit {
    Unit::for_size(us.into_iter().fold(0.0, f64::max))
}

/// How times are shown in a unit.
pub fn times_in(unit: Unit) -> impl Fn(Option<f64>) -> String + Copy {
    move |us| or_dash(us, |us| unit.show(us))
}

/// What has the same name together, in the order in which the names come.
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
