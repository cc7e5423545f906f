//! Statistics of signed times: histograms, quantiles with intervals, windows
//! over the course of a run. No I/O and no clock.

pub mod bins;
pub mod envelope;
pub mod lag;
pub mod rate;
pub mod series;
pub mod signed;
pub mod windows;
