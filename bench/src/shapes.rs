//! Every shape: duration of a warm start, memory of its servers, and the difference between
//! an injected delay and the measured lag.

use std::sync::atomic::AtomicBool;

use replimeter_sandbox::{Home, Sandbox, Search, Settings};
use replimeter_suites::{home, memory_kib};
use serde_json::Value;

use crate::{TIMES, difference, figure, line, run};

/// Returns the resident memory of processes, in MB; shared pages count in each process.
fn resident(pids: &[u32]) -> f64 {
    let kib = pids.iter().filter_map(|pid| memory_kib(*pid, "VmRSS"));
    kib.sum::<u64>() as f64 * 1024.0 / 1e6
}

/// Measures warm starts until all servers report that they replicate and show the sentinel
/// row.
pub(crate) fn starts() {
    let servers = home().join("servers");
    let folder = tempfile::Builder::new()
        .permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .tempdir_in("/var/tmp")
        .expect("a folder in /var/tmp");
    for (shape, goal, memory) in [
        ("mariadb/semi-sync:2", "≤ 3", None),
        ("mariadb/chain:2", "", None),
        ("galera:3", "≤ 4", Some("≤ 700")),
        ("mysql/async:1", "≤ 4", None),
        ("mysql/semi-sync:2", "", None),
        ("mysql/group:3", "≤ 10", Some("≤ 2,200")),
    ] {
        let (mut times, mut sizes) = (vec![], vec![]);
        for number in 0..=TIMES {
            let search = Search {
                servers: Some(servers.clone()),
                ..Search::default()
            };
            let home = Home::at(folder.path().join("home")).expect("a private folder");
            let settings = Settings::of(shape.parse().expect("a shape"), search, home);
            let sandbox =
                Sandbox::start(&settings, &AtomicBool::new(false)).expect("the sandbox starts");
            // The first start makes the data directory.
            if number > 0 {
                times.push(sandbox.record().start_us / 1e6);
                sizes.push(resident(&sandbox.pids()));
            }
            sandbox.close().expect("the sandbox is removed");
        }
        line(
            &format!("sandbox {shape}, warm: start to ready (s)"),
            figure(&times).1,
            goal,
        );
        if let Some(goal) = memory {
            line(
                &format!("sandbox {shape}: resident memory of all servers (MB)"),
                figure(&sizes).1,
                goal,
            );
        }
    }
}

/// Measures lag over a link with a delay, minus lag over the same link without, minus the
/// delay. Runs with and without alternate, since the machine's speed drifts.
pub(crate) fn links() {
    let lag = |delay: &str| {
        let args = [
            "--rounds",
            "200",
            "--interval",
            "25ms",
            "--floor-rounds",
            "0",
            "--json",
        ];
        // Without flushes: the variation of a disk is many times the difference to measure.
        let quiet = [
            "--server-option",
            "sync_binlog=0",
            "--server-option",
            "innodb_flush_log_at_trx_commit=0",
        ];
        let document: Value = run(&[
            &["lag", "--sandbox", "mariadb/async:1", "--link-delay", delay],
            &quiet[..],
            &args[..],
        ]
        .concat());
        document["results"]["rows"][0]["from_ack"]["p50_us"]
            .as_f64()
            .expect("enough rounds for a median")
    };
    for (delay, us) in [("1ms", 1_000.0), ("5ms", 5_000.0), ("20ms", 20_000.0)] {
        let goal = f64::max(100.0, us * 0.05);
        let errors: Vec<f64> = (0..TIMES)
            .map(|round| {
                let (with, without) = if round % 2 == 0 {
                    let with = lag(delay);
                    (with, lag("0"))
                } else {
                    let without = lag("0");
                    (lag(delay), without)
                };
                with - without - us
            })
            .collect();
        line(
            &format!("link {delay}: lag(d) - lag(0) - d, p50 (µs)"),
            difference(&errors),
            &format!("within ± {goal:.0}"),
        );
    }
}
