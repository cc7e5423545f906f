//! The stream of matched transactions.

use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use replimeter_suites::{LIMIT, TestEnvironment, password, shared, wait, wait_until};
use rustix::process::{Pid, Signal, kill_process};

use super::{Printed, Written, args, tables, traffic};

/// Returns the number of windows of a stream of CSV, and of transactions in them that have a lag.
fn of_csv(text: &str) -> (usize, u64) {
    let matched = text.lines().skip(1).map(|line| {
        let matched = line.split(',').nth(6).unwrap();
        matched.parse::<u64>().unwrap()
    });
    (matched.clone().count(), matched.sum())
}

/// Returns the total of such transactions in each complete exposition of a stream.
fn of_expositions(text: &str) -> Vec<u64> {
    let complete = text.rsplit_once("# EOF\n").map_or("", |(before, _)| before);
    let expositions = complete.split("# EOF\n").filter(|text| !text.is_empty());
    let total = |text: &str| {
        let mut lines = text.lines();
        let line = lines.find(|line| line.starts_with("replimeter_tap_matched_total"));
        line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
    };
    expositions.map(total).collect()
}

/// Returns whether a stream has more than three windows, and more than a hundred transactions.
fn is_long(form: &str, text: &str) -> bool {
    let (windows, matched) = match form {
        "csv" => of_csv(text),
        _ => {
            let totals = of_expositions(text);
            (totals.len(), totals.last().copied().unwrap_or(0))
        }
    };
    windows > 3 && matched > 100
}

pub(super) fn tap_streams_end_properly() {
    let sandbox = shared("mariadb/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    for form in ["csv", "openmetrics"] {
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
        if form == "csv" {
            let lines: Vec<&str> = text.lines().collect();
            assert!(
                lines[0]
                    .starts_with("time,start_s,end_s,replica,transactions,bytes,matched,inverted"),
                "{text}"
            );
            assert!(
                lines[1..]
                    .iter()
                    .all(|line| line.split(',').count() == lines[0].split(',').count()),
                "{text}"
            );
        } else {
            assert!(text.ends_with("# EOF\n"), "{text}");
            let totals = of_expositions(&text);
            assert!(totals.is_sorted(), "{totals:?}");
        }
    }
}
