//! Settings and results of `cost`, which measures its starts by `trial`.

pub mod results;
pub mod settings;
