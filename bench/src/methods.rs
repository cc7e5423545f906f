//! The methods of `lag`: error of each, and writes per second that it follows.

use serde_json::Value;

use crate::{line, run};

/// Compares known delays with the lag that each method measures.
pub(crate) fn calibrate() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let document = run(&[
            "calibrate",
            "--sandbox",
            shape,
            "--method",
            "poll,wait,tap",
            "--json",
        ]);
        for row in document["results"]["rows"].as_array().expect("rows") {
            let Some(error) = row["error_p50_us"].as_f64() else {
                continue;
            };
            let method = row["method"].as_str().unwrap_or_default();
            let goal = if method == "tap" { "± 100" } else { "± 50" };
            let range = &row["error_p50_range"];
            let text = format!(
                "{error:.0} [{:.0}, {:.0}]",
                range[0].as_f64().unwrap_or(f64::NAN),
                range[1].as_f64().unwrap_or(f64::NAN)
            );
            let injected = row["injected_us"].as_f64().unwrap_or_default() / 1e3;
            line(
                &format!("{shape} {method}, {injected} ms: error of p50 (µs)"),
                text,
                goal,
            );
        }
    }
}

/// Compares what polls and waits show with the instants that the servers of the reference chose.
pub(crate) fn reference() {
    let document = run(&[
        "calibrate",
        "--reference",
        "--observers",
        "1,8,64",
        "--neighbors",
        "0,2",
        "--row-delay",
        "1ms",
        "--repetitions",
        "2",
        "--json",
    ]);
    for row in document["results"]["reference"].as_array().expect("rows") {
        let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
        let (place, goal) = match row["neighbors"].as_u64() {
            Some(0) => ("idle", "± 10"),
            _ => ("next to a load", "± 50"),
        };
        let (method, observers) = (row["method"].as_str(), &row["observers"]);
        let what = format!("{} × {observers}, {place}", method.unwrap_or_default());
        let [low, high] = [0, 1].map(|end| number(&row["bias_p50_us_ci95"][end]));
        let bias = number(&row["bias_p50_us"]);
        line(
            &format!("{what}: bias of p50 (µs)"),
            format!("{bias:.0} [{low:.0}, {high:.0}]"),
            goal,
        );
        let inside = 100.0 - number(&row["outside_percent"]);
        line(
            &format!("{what}: true instant in the bracket (%)"),
            format!("{inside:.3}"),
            "≥ 99.9",
        );
    }
}

/// Measures the writes per second that one process writes and observes over eight connections.
pub(crate) fn writes() {
    for method in ["poll", "wait", "tap"] {
        // The target is 12,000 per second; the measured rate and the lateness of writes show whether it is sustained.
        let args = [
            "--sandbox",
            "mariadb/async:1",
            "--method",
            method,
            "--writers",
            "8",
            "--floor-rounds",
            "0",
            "--row-size",
            "100",
        ];
        // As in the other parts with writers: without a flush at every commit, and with parallel appliers.
        let quick = [
            "--server-option",
            "innodb_flush_log_at_trx_commit=2",
            "--server-option",
            "replica1:slave_parallel_threads=8",
        ];
        let paced = [
            "--interval",
            "83us",
            "--duration",
            "10s",
            "--timeout",
            "60s",
            "--json",
        ];
        let document = run(&[&["lag"], &args[..], &quick[..], &paced[..]].concat());
        let row = &document["results"]["rows"][0];
        let seconds = document["measured_us"].as_f64().expect("a time") / 1e6;
        let rate = row["rounds"].as_f64().expect("rounds") / seconds;
        let missing = &row["timed_out"];
        let late = document["client"]["start_lateness"]["p99_us"]
            .as_f64()
            .unwrap_or(f64::NAN)
            / 1e3;
        line(
            &format!("{method}: measured writes per s over 8 connections"),
            format!("{rate:.0}"),
            "≥ 10,000",
        );
        line(
            &format!("{method}: rows timed out; lateness of writes, p99 (ms)"),
            format!("{missing}; {late:.1}"),
            "",
        );
        let lag = |key: &str| {
            row["from_ack"][key]
                .as_f64()
                .map_or(Value::Null, |us| (us / 1e3).into())
        };
        line(
            &format!("{method}: lag from ack at this rate, p50, p99 (ms)"),
            format!("{:.5}, {:.5}", lag("p50_us"), lag("p99_us")),
            "",
        );
    }
}
