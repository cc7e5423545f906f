//! `loss` and `exposure` for each replication mode.

use serde_json::Value;

use crate::{line, run};

/// Crashes per replication mode.
const CRASHES: &str = "20";
/// Crashes per cluster; a cluster takes longer to agree on the remaining members.
const OF_CLUSTERS: &str = "5";

fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or(f64::NAN)
}

fn interval(value: &Value) -> String {
    value.as_array().map_or_else(String::new, |ends| {
        let ends: Vec<String> = ends
            .iter()
            .filter_map(Value::as_f64)
            .map(|end| format!("{end:.1}"))
            .collect();
        format!(" [{}]", ends.join(", "))
    })
}

fn show(document: &Value) {
    for row in document["results"]["rows"].as_array().into_iter().flatten() {
        let name = format!(
            "{} {}",
            row["shape"].as_str().unwrap_or_default(),
            row["crash"].as_str().unwrap_or_default()
        );
        let lossy = &row["lossy"];
        let share = format!(
            "{} of {} [{:.0}, {:.0}] %",
            lossy["count"],
            lossy["of"],
            lossy["percent_ci95"][0].as_f64().unwrap_or(f64::NAN),
            lossy["percent_ci95"][1].as_f64().unwrap_or(f64::NAN)
        );
        let goal = match (row["mode"].as_str(), row["wait_point"].as_str()) {
            (Some("async"), _) => "most",
            (_, Some("after-sync")) | (Some("galera" | "group"), _) => "none",
            _ => "",
        };
        line(&format!("{name}: crashes that lost"), share, goal);
        let per = &row["lost_per_crash"];
        line(
            &format!("{name}: lost per crash"),
            format!("{:.1}{}", number(per, "mean"), interval(&per["mean_ci95"])),
            "",
        );
        line(
            &format!("{name}: seen then lost"),
            format!("{}", row["seen_then_lost"]),
            "",
        );
        line(
            &format!("{name}: recovery, p50 (ms)"),
            format!("{:.0}", number(row, "recovery_us") / 1e3),
            "",
        );
    }
}

/// Runs crashes of primaries after a network partition, over a link of 1 ms, and crashes of clusters.
pub(crate) fn loss() {
    for engine in ["mariadb", "mysql"] {
        let (loose, strict) = (format!("{engine}/async:1"), format!("{engine}/semi-sync:1"));
        let mut args = vec![
            "loss",
            "--sandbox",
            &loose,
            "--sandbox",
            &strict,
            "--crash",
            "partition",
        ];
        args.extend(["--link-delay", "1ms", "--crashes", CRASHES, "--json"]);
        show(&run(&args));
    }
    show(&run(&[
        "loss",
        "--sandbox",
        "galera:3",
        "--sandbox",
        "group:3",
        "--crashes",
        OF_CLUSTERS,
        "--json",
    ]));
}

/// Compares the mean number of exposed transactions with rate × delay (Little's law).
pub(crate) fn exposure() {
    for engine in ["mariadb", "mysql"] {
        let shape = format!("{engine}/async:1");
        for (delay, seconds) in [("0", 0.0), ("5ms", 0.005), ("20ms", 0.02)] {
            let args = [
                "exposure",
                "--sandbox",
                &shape,
                "--link-delay",
                delay,
                "--rate",
                "500",
                "--duration",
                "10s",
                "--json",
            ];
            let mut args = args.to_vec();
            // Without flushes, so that a busy disk does not hide the delay.
            let quiet = ["innodb_flush_log_at_trx_commit=0", "sync_binlog=0"];
            quiet
                .iter()
                .for_each(|option| args.extend(["--server-option", *option]));
            let document = run(&args);
            let row = &document["results"]["rows"][0];
            let rate = number(row, "committed") / (number(&document, "measured_us") / 1e6);
            let mean = number(&row["transactions"], "mean");
            line(
                &format!("{shape}: exposed over a link of {delay}, mean (rate × delay)"),
                format!("{mean:.2} ({:.2})", rate * seconds),
                "",
            );
        }
    }
}
