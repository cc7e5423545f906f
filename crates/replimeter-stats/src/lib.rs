//! Statistics of signed times: histograms, quantiles with intervals, windows of a run; comparisons
//! between starts of servers. No I/O and no clock.

pub mod binomial;
pub mod bins;
pub mod by_start;
pub mod censored;
pub mod compare;
pub mod coverage;
pub mod dependence;
pub mod envelope;
mod grid;
pub mod measured_time;
pub mod median;
pub mod over_time;
pub mod rate;
pub mod series;
pub mod share;
pub mod signed;
pub mod stalls;
pub mod starts;
pub mod student;
pub mod trial;
pub mod usl;
pub mod waterfall;
pub mod windows;
