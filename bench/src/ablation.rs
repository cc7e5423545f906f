//! Effect of the client's use of the cores, and of several methods at once, on the lag and on a load: the defaults follow from it.

use crate::{TIMES, line, ratio, run};

/// An option of `lag`, its name in front of a state, and its two states.
struct Setting {
    option: &'static str,
    name: &'static str,
    states: [&'static str; 2],
}

impl Setting {
    const fn new(option: &'static str, name: &'static str, states: [&'static str; 2]) -> Self {
        Self {
            option,
            name,
            states,
        }
    }

    /// Returns the state in a combination of those of all settings; `bit` is the setting's place.
    fn state(&self, combination: usize, bit: usize) -> &'static str {
        self.states[(combination >> bit) & 1]
    }
}

const SETTINGS: [Setting; 3] = [
    Setting::new("--keep-awake", "keep-awake ", ["off", "on"]),
    Setting::new("--real-time", "real-time ", ["off", "on"]),
    Setting::new("--method", "", ["poll", "all"]),
];
const COMBINATIONS: usize = 1 << SETTINGS.len();
/// Threads of the load, which only reads, so that the replica does not fall behind; 0 is no load.
const THREADS: [u32; 3] = [0, 1, 8];

/// Returns the median lag from send of `poll`, in µs, and the load's passes per second, if it has one.
fn measure(threads: u32, combination: usize) -> [Option<f64>; 2] {
    let load = format!("point-select:{threads}@primary");
    let mut args = vec!["lag", "--sandbox", "mariadb/async:1", "--json"];
    args.extend(["--rounds", "100", "--interval", "13ms"]);
    args.extend(["--floor-rounds", "0"]);
    // Without flushes: the variation of a disk is many times the difference to measure.
    args.extend(["--server-option", "sync_binlog=0"]);
    args.extend(["--server-option", "innodb_flush_log_at_trx_commit=0"]);
    for (bit, setting) in SETTINGS.iter().enumerate() {
        args.extend([setting.option, setting.state(combination, bit)]);
    }
    if threads > 0 {
        args.extend(["--load", &load, "--load-data-size", "10000"]);
    }
    let document = run(&args);
    for (bit, key) in ["keep_awake", "real_time"].into_iter().enumerate() {
        let on = SETTINGS[bit].state(combination, bit) == "on";
        assert_eq!(document["client"][key], on, "the system refused {key}");
    }
    let rows = document["results"]["rows"].as_array().expect("rows");
    let poll = rows.iter().find(|row| row["method"] == "poll");
    let lag = poll.expect("the row of poll")["from_send"]["p50_us"].as_f64();
    let throughput = &document["results"]["load"][0]["throughput"];
    [
        Some(lag.expect("enough rounds for a median")),
        throughput["mean"].as_f64(),
    ]
}

/// Measures all combinations in turns, without a load and with each, and compares those that differ in one setting.
pub(crate) fn ablation() {
    for threads in THREADS {
        let repetitions = (0..TIMES).map(|repetition| {
            let mut measured = [[None; 2]; COMBINATIONS];
            for step in 0..COMBINATIONS {
                // In reverse in every second repetition, so that a drift of the machine cancels.
                let reversed = COMBINATIONS - 1 - step;
                let combination = if repetition % 2 == 0 { step } else { reversed };
                measured[combination] = measure(threads, combination);
            }
            measured
        });
        let repetitions: Vec<_> = repetitions.collect();
        for (bit, setting) in SETTINGS.iter().enumerate() {
            let [without, with] = setting.states;
            let changed = format!("{}{with}/{without}", setting.name);
            for off in (0..COMBINATIONS).filter(|all| (all >> bit) & 1 == 0) {
                let on = off | (1 << bit);
                let others = SETTINGS.iter().enumerate().filter(|(at, _)| *at != bit);
                let others: String = others
                    .map(|(at, other)| format!(", {}{}", other.name, other.state(off, at)))
                    .collect();
                for (figure, what) in ["lag", "load"].into_iter().enumerate() {
                    let pairs = repetitions
                        .iter()
                        .map(|repetition| repetition[on][figure].zip(repetition[off][figure]));
                    // Without a load it has no throughput.
                    if let Some(pairs) = pairs.collect::<Option<Vec<_>>>() {
                        let name = format!("{what}, {threads} threads: {changed}{others}");
                        line(&name, ratio(pairs), "");
                    }
                }
            }
        }
    }
}
