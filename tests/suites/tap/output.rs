//! The stream of matched transactions.

use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use replimeter_suites::{LIMIT, TestEnvironment, password, shared, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Printed, Written, args, number, tables, traffic};

/// Returns the number of transactions that have a lag, of each time at which a stream shows it.
fn matched(form: &str, text: &str) -> Vec<u64> {
    match form {
        "samples" => {
            let mut sum = 0;
            let windows = text.lines().map(|line| {
                let window: Value = serde_json::from_str(line).unwrap();
                sum += number(&window["matched"]);
                sum
            });
            windows.collect()
        }
        "csv" => {
            let mut table = csv::Reader::from_reader(text.as_bytes());
            let records = table.records().map(Result::unwrap);
            let lags = records.filter(|record| &record[1] == "tap.lag.max");
            lags.map(|record| record.iter().next_back().unwrap().parse().unwrap())
                .collect()
        }
        _ => {
            let complete = text.rsplit_once("# EOF\n").map_or("", |(before, _)| before);
            let lines = complete.lines();
            let lines = lines.filter(|line| line.starts_with("replimeter_tap_lag_samples{"));
            lines
                .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
                .collect()
        }
    }
}

/// Returns whether a stream shows more than a hundred transactions, at more than three times.
fn is_long(form: &str, text: &str) -> bool {
    // The last line can be incomplete.
    let complete = text.rsplit_once('\n').map_or("", |(before, _)| before);
    let matched = matched(form, complete);
    matched.len() > 3 && matched.last().is_some_and(|last| *last > 100)
}

pub(super) fn tap_streams_end_properly() {
    let sandbox = shared("mariadb/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    for form in ["samples", "csv", "openmetrics"] {
        let tool = TestEnvironment::new();
        let (stop, written) = (AtomicBool::new(false), Written::default());
        let primary = &sandbox.nodes()[0];
        let more = [
            "--stream",
            form,
            "--report-interval",
            "500ms",
            "--floor-duration",
            "0",
        ];
        let mut command = tool.command(&args(&sandbox, &more));
        command.env("REPLIMETER_PASSWORD", password(primary));
        let mut child = command.spawn().unwrap();
        let printed = Printed::from(child.stdout.take().unwrap());
        let (ended, text) = thread::scope(|scope| {
            scope.spawn(|| traffic(&[primary], &[], &stop, &written));
            let streamed = catch_unwind(AssertUnwindSafe(|| {
                wait_until("the stream is long", LIMIT, || {
                    is_long(form, &printed.so_far())
                });
            }));
            // Without a duration, the user ends the run.
            kill_process(Pid::from_child(&child), Signal::INT).unwrap();
            let ended = wait(child, LIMIT);
            stop.store(true, Ordering::Relaxed);
            streamed.unwrap_or_else(|panic| resume_unwind(panic));
            (ended, printed.all())
        });
        let ended = ended.with_code(0);
        assert!(tool.only_run().join("report.html").exists());
        assert!(
            ended.stderr.contains("transactions/s"),
            "asked for by --report-interval: {ended:#?}"
        );
        assert!(is_long(form, &text), "{text}");
        let document = fs::read_to_string(tool.only_run().join("summary.json")).unwrap();
        let document: Value = serde_json::from_str(&document).unwrap();
        let row = &document["results"]["rows"][0];
        let matched = matched(form, &text);
        assert!(matched.is_sorted(), "{matched:?}");
        assert_eq!(matched.last(), Some(&number(&row["matched"])), "{text}");
        if form == "openmetrics" {
            assert!(text.ends_with("# EOF\n"), "{text}");
        }
    }
}
