//! `front`: processor time of a request by `ab`, and rates compared with the statements alone.

use std::{
    fs,
    net::SocketAddr,
    process::{Child, Command, Stdio},
    time::Duration,
};

use replimeter_sandbox::Sandbox;
use replimeter_suites::{TestEnvironment, http::served_address, password, start, url, wait};
use rustix::process::{Pid, Signal, kill_process};

use crate::{TIMES, figure, line, load::cpu_of};

/// Clients of both.
const CLIENTS: &str = "10";
/// Requests of `ab` for each kind.
const REQUESTS: u64 = 10_000;
/// Rows of the data set.
const ROWS: &str = "300000";
const LIMIT: Duration = Duration::from_secs(60);

/// A kind of request: its name, path and form, and the workload of its statement.
const KINDS: [(&str, &str, &str, Option<&str>); 3] = [
    (
        "insert",
        "insert",
        "title=A+post+about+the+number+7",
        Some("post-insert"),
    ),
    (
        "select",
        "select",
        "title=%2534%25&date=1964-12-31+16:00:00",
        Some("select"),
    ),
    ("page", "", "", None),
];

fn tool(environment: &TestEnvironment, sandbox: &Sandbox, args: &[&str]) -> Command {
    let mut command = environment.command(args);
    command
        .args(["--primary", &url(&sandbox.nodes()[0], "replimeter")])
        .args(["--replica", &url(&sandbox.nodes()[1], "replimeter")])
        .env("REPLIMETER_PASSWORD", password(&sandbox.nodes()[0]));
    command
}

/// Returns the operations per second of a workload without a front.
fn alone(sandbox: &Sandbox, workload: &str) -> f64 {
    let args = [
        "load",
        "--json",
        "--workload",
        workload,
        "--threads",
        CLIENTS,
    ];
    let more = [
        "--data-size",
        ROWS,
        "--keep-data",
        "--duration",
        "3s",
        "--warm-up",
        "500ms",
    ];
    let environment = TestEnvironment::new();
    let mut command = tool(&environment, sandbox, &[&args[..], &more].concat());
    let document = wait(command.spawn().unwrap(), LIMIT * 5)
        .with_code(0)
        .json();
    document["results"]["rows"][0]["throughput"]["mean"]
        .as_f64()
        .unwrap()
}

/// Returns requests per second, and the front's processor time per request in µs.
fn ab(front: &Child, address: SocketAddr, path: &str, form: &str) -> (f64, f64) {
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(&file, form).unwrap();
    let before = cpu_of(front).unwrap();
    let mut command = Command::new("ab");
    command.args(["-q", "-k", "-l", "-c", CLIENTS, "-n", &REQUESTS.to_string()]);
    if !form.is_empty() {
        command.arg("-p").arg(file.path());
        command.args(["-T", "application/x-www-form-urlencoded"]);
    }
    let output = command
        .arg(format!("http://{address}/{path}"))
        .output()
        .expect("ab is installed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success() && !text.contains("Non-2xx"),
        "{text}"
    );
    let rate = text
        .lines()
        .find_map(|line| line.strip_prefix("Requests per second:"));
    let rate = rate
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap();
    (
        rate,
        1e6 * (cpu_of(front).unwrap() - before) / REQUESTS as f64,
    )
}

/// Serves, and measures every kind of request.
fn served(sandbox: &Sandbox) -> Vec<(f64, f64)> {
    let environment = TestEnvironment::new();
    let args = ["front", "--listen", "127.0.0.1:0", "--data-size", ROWS];
    let mut command = tool(&environment, sandbox, &args);
    let mut front = command.stdout(Stdio::null()).spawn().unwrap();
    let (address, rest) = served_address(&mut front);
    let measured = KINDS
        .map(|(_, path, form, _)| ab(&front, address, path, form))
        .to_vec();
    kill_process(
        Pid::from_raw(front.id().cast_signed()).unwrap(),
        Signal::INT,
    )
    .unwrap();
    let _ = wait(front, LIMIT).with_code(0);
    rest.join().unwrap();
    measured
}

pub(crate) fn front() {
    let sandbox = start(
        "mariadb/async:1",
        &["sync_binlog=0", "innodb_flush_log_at_trx_commit=0"],
    );
    let mut rates = vec![vec![]; KINDS.len()];
    let mut cpu = vec![vec![]; KINDS.len()];
    let mut ratios = vec![vec![]; KINDS.len()];
    for _ in 0..TIMES {
        // Creates the data set at first.
        let alone = KINDS.map(|(_, _, _, workload)| workload.map(|name| alone(&sandbox, name)));
        for (index, (rate, us)) in served(&sandbox).into_iter().enumerate() {
            rates[index].push(rate);
            cpu[index].push(us);
            ratios[index].extend(alone[index].map(|alone| rate / alone));
        }
    }
    for (index, (name, ..)) in KINDS.iter().enumerate() {
        line(
            &format!("front: {name}, requests/s, {CLIENTS} clients"),
            figure(&rates[index]).1,
            "",
        );
        line(
            &format!("front: {name}, its CPU per request (µs)"),
            figure(&cpu[index]).1,
            "≤ 60",
        );
        if !ratios[index].is_empty() {
            let goal = if *name == "select" { "≥ 0.8" } else { "" };
            line(
                &format!("front: {name}, rate / the statement alone"),
                figure(&ratios[index]).1,
                goal,
            );
        }
    }
}
