//! What else used a machine while a run measured on it, or limited it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The machine of the client during a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostRecord {
    /// Windows in which the run measured: its parts, at most 10 s or 1/60 of the time so far.
    pub windows: Vec<HostWindow>,
    /// Flushes of a small write to the sandboxes' file system, before the first server started; null without a sandbox.
    pub flush_before: Option<FlushLatency>,
    /// The same after the last server ended.
    pub flush_after: Option<FlushLatency>,
    /// Why figures are missing.
    pub absent: Vec<String>,
}

/// The machine in one window. Its edges are those of the progress, within about a second.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HostWindow {
    /// Its begin on the run's clock.
    pub begin_us: f64,
    /// Its end on the run's clock.
    pub end_us: f64,
    /// Share of the cores' time in which they worked for anything; near 100 if idle cores are kept awake.
    pub cpu_percent: Option<f64>,
    /// Share of the cores' time that other virtual machines had.
    pub steal_percent: Option<f64>,
    /// Share of the time in which a thread waited for a core; idle cores that are kept awake count as waiting.
    pub cpu_pressure_percent: Option<f64>,
    /// Share of the time in which a thread waited for a disk; the servers' own flushes count.
    pub io_pressure_percent: Option<f64>,
    /// Share of the time in which a thread waited for memory.
    pub memory_pressure_percent: Option<f64>,
    /// Share of the time in which the client's threads could run that they waited for a core; without those that keep cores
    /// awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_delay_percent: Option<f64>,
    /// Pauses by quotas of processor time, of servers and of the client; empty without a quota.
    pub throttled: Vec<Throttled>,
}

/// Pauses of a control group by its quota of processor time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Throttled {
    /// The server, or `client`.
    pub name: String,
    /// Number of the quota's periods in which it used any time.
    pub periods: u64,
    /// Number of periods in which it was paused.
    pub throttled_periods: u64,
    /// Time for which it was paused; with several cores, the sum over them.
    pub throttled_us: f64,
}

/// The latency of flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlushLatency {
    /// Number of flushes.
    pub count: u64,
    /// The median.
    pub p50_us: f64,
    /// The longest.
    pub max_us: f64,
}

impl HostRecord {
    /// Returns whether nothing is recorded, as in a run of before.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the mean of a share over the windows that have it, weighted by their length; `None` if these are
    /// shorter than a second in total.
    #[must_use]
    pub fn mean(&self, share: impl Fn(&HostWindow) -> Option<f64>) -> Option<f64> {
        let (mut weighted, mut total) = (0.0, 0.0);
        for window in &self.windows {
            if let Some(share) = share(window) {
                let length = window.end_us - window.begin_us;
                weighted += share * length;
                total += length;
            }
        }
        (total >= 1e6).then(|| weighted / total)
    }

    /// Returns the pauses of each control group in all windows, by name.
    #[must_use]
    pub fn pauses(&self) -> Vec<Throttled> {
        let mut sums: BTreeMap<&str, Throttled> = BTreeMap::new();
        for one in self.windows.iter().flat_map(|window| &window.throttled) {
            let sum = sums.entry(&one.name).or_insert_with(|| Throttled {
                name: one.name.clone(),
                ..Throttled::default()
            });
            sum.periods += one.periods;
            sum.throttled_periods += one.throttled_periods;
            sum.throttled_us += one.throttled_us;
        }
        sums.into_values().collect()
    }

    /// Returns the largest share of a window of at least a second.
    #[must_use]
    pub fn most(&self, share: impl Fn(&HostWindow) -> Option<f64>) -> Option<f64> {
        let long = self.windows.iter();
        let long = long.filter(|window| window.end_us - window.begin_us >= 1e6);
        long.filter_map(share).max_by(f64::total_cmp)
    }
}
