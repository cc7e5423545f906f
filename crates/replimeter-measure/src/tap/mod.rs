//! Lag of every transaction of the real traffic, from the binary logs of primary and
//! replicas, each followed over a connection of its own. Nothing is written anywhere.

mod log;
pub mod matcher;

pub use self::matcher::{Arrival, Match, Matcher, Unmatched};
