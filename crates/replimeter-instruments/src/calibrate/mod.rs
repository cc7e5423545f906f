//! Calibrations: `lag` with known delays, and against the reference.

pub mod results;
pub mod settings;
