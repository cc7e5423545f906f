//! The stream of matched transactions.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Duration,
};

use replimeter_suites::{LIMIT, TestEnvironment, password, start, wait};
use rustix::process::{Pid, Signal, kill_process};

use super::{args, tables, traffic};

pub(super) fn tap_streams_end_properly() {
    let sandbox = start("mariadb/async:1", &[]);
    tables(&sandbox.nodes()[0]);
    for form in ["csv", "openmetrics"] {
        let tool = TestEnvironment::new();
        let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
        let primary = &sandbox.nodes()[0];
        let ended = thread::scope(|scope| {
            let args = args(
                &sandbox,
                &[
                    "--stream",
                    form,
                    "--report-interval",
                    "500ms",
                    "--floor-duration",
                    "0",
                ],
            );
            let child = tool
                .command(&args)
                .env("REPLIMETER_PASSWORD", password(primary))
                .spawn()
                .unwrap();
            scope.spawn(|| traffic(&[primary], &[], &stop, &written));
            // Five windows.
            thread::sleep(Duration::from_millis(2600));
            // Without a duration, the user ends the run.
            kill_process(Pid::from_raw(child.id() as i32).unwrap(), Signal::INT).unwrap();
            let ended = wait(child, LIMIT);
            stop.store(true, Ordering::Relaxed);
            ended
        })
        .with_code(0);
        assert!(tool.only_run().join("report.html").exists());
        assert!(
            ended.stderr.contains("transactions/s"),
            "asked for by --report-interval: {ended:#?}"
        );
        if form == "csv" {
            let lines: Vec<&str> = ended.stdout.lines().collect();
            assert!(
                lines[0]
                    .starts_with("time,start_s,end_s,replica,transactions,bytes,matched,inverted"),
                "{ended:#?}"
            );
            assert!(lines.len() > 3, "{ended:#?}");
            assert!(
                lines[1..]
                    .iter()
                    .all(|line| line.split(',').count() == lines[0].split(',').count())
            );
            let matched: u64 = lines[1..]
                .iter()
                .map(|line| line.split(',').nth(6).unwrap().parse::<u64>().unwrap())
                .sum();
            assert!(matched > 100, "{ended:#?}");
        } else {
            let expositions: Vec<&str> = ended.stdout.split("# EOF\n").collect();
            assert!(
                expositions.len() > 3 && expositions.last() == Some(&""),
                "{ended:#?}"
            );
            let total = |text: &str| -> u64 {
                let line = text
                    .lines()
                    .find(|line| line.starts_with("replimeter_tap_matched_total"))
                    .unwrap();
                line.rsplit(' ').next().unwrap().parse().unwrap()
            };
            let totals: Vec<u64> = expositions[..expositions.len() - 1]
                .iter()
                .map(|text| total(text))
                .collect();
            assert!(
                totals.is_sorted() && totals[totals.len() - 1] > 100,
                "{totals:?}"
            );
        }
    }
}
