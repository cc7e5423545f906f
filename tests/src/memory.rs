//! Memory of processes.

use std::fs;

/// Returns a field of a process's memory in KiB: `VmRSS` is its resident memory, `VmHWM` the largest so far; `None` when it has
/// ended.
pub fn memory_kib(process: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let mut fields = status.lines().filter_map(|line| line.split_once(':'));
    let (_, kib) = fields.find(|(name, _)| *name == field)?;
    kib.trim().strip_suffix(" kB")?.parse().ok()
}
