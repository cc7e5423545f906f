//! Statistics of signed times: histograms, quantiles with intervals, windows of a run; comparisons
//! between starts of servers. No I/O and no clock.

pub mod binomial;
pub mod bins;
mod by_start;
pub mod censored;
pub mod compare;
#[cfg(test)]
mod coverage;
pub mod crashes;
pub mod dependence;
pub mod envelope;
mod grid;
pub mod lag;
pub mod measured_time;
pub mod median;
pub mod over_time;
pub mod rate;
mod row_numbers;
pub mod series;
pub mod share;
pub mod signed;
pub mod stale;
pub mod stalls;
pub mod starts;
pub mod student;
pub mod trial;
pub mod usl;
pub mod waterfall;
pub mod windows;
