//! The machine that the client runs on.

use std::fs;

pub use replimeter_instruments::host::{CoreTime, disk_wait};
use replimeter_model::{
    manifest::Machine,
    warning::{Warning, WarningCode},
};

fn line(path: &str, wanted: impl Fn(&str) -> Option<String>) -> String {
    fs::read_to_string(path)
        .ok()
        .and_then(|text| text.lines().find_map(wanted))
        .unwrap_or_else(|| "unknown".to_owned())
}

/// Returns the values in `/proc` and `/sys`; "unknown" for missing ones.
pub fn describe() -> Machine {
    let after = |prefix: &'static str, separator: char| {
        move |line: &str| {
            let (name, value) = line.split_once(separator)?;
            (name.trim() == prefix).then(|| value.trim().trim_matches('"').to_owned())
        }
    };
    let whole = |line: &str| Some(line.trim().to_owned());
    let kib: u64 = line("/proc/meminfo", after("MemTotal", ':'))
        .trim_end_matches(" kB")
        .parse()
        .unwrap_or(0);
    Machine {
        kernel: format!(
            "{} {}",
            line("/proc/sys/kernel/ostype", whole),
            line("/proc/sys/kernel/osrelease", whole)
        ),
        distribution: line("/etc/os-release", after("PRETTY_NAME", '=')),
        cpu: line("/proc/cpuinfo", after("model name", ':')),
        cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        memory_bytes: kib * 1024,
        clock_source: line(
            "/sys/devices/system/clocksource/clocksource0/current_clocksource",
            whole,
        ),
    }
}

/// Returns a warning if cores were idle for most of the time since `before`, in a run that did not keep them
/// awake.
pub fn idle_cores(before: Option<CoreTime>) -> Option<Warning> {
    let share = CoreTime::read()?.idle_share(before?)?;
    (share > 0.5).then(|| {
        Warning::new(
            WarningCode::KeepAwakeOff,
            format!("this machine's cores were idle for {:.0} % of the run and were not kept awake: every latency includes waking a core", share * 100.0),
            "use --keep-awake on",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_cores_and_memory() {
        let machine = describe();
        assert!(machine.cores >= 1 && machine.memory_bytes > 1 << 20);
        assert!(machine.kernel.starts_with("Linux"));
    }
}
