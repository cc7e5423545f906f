//! Several runs: their figures compared, and trials of two plans.

pub mod compare;
pub mod trial;
