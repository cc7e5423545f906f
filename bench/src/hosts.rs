//! Hosts in a box (`--hosts`): the throughput of a primary whose replicas are stopped, idle and busy, in turn.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_model::sandbox::SandboxSpec;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{session, sql, start_spec};
use rustix::{
    process::{Pid, Signal, kill_process},
    time::{ClockId, clock_gettime},
};

use crate::{line, ratio};

/// Connections of the load.
const CLIENTS: u64 = 8;
/// Replicas: on two cores one of them is on the primary's.
const REPLICAS: usize = 2;
/// Rows that the load reads.
const ROWS: u64 = 1000;
/// Duration of a counted repetition, and the time before it that is not counted. Short, since a virtual machine's speed changes within seconds.
const REPETITION: Duration = Duration::from_millis(800);
const SETTLE: Duration = Duration::from_millis(200);
/// Repetitions of each kind.
const ROUNDS: usize = 32;

/// What the replicas do during a repetition.
#[derive(Clone, Copy, PartialEq)]
enum Neighbor {
    /// They have no processor time, as if they were not there.
    Stopped,
    Idle,
    /// They take all they may have.
    Busy,
}

const NEIGHBORS: [Neighbor; 3] = [Neighbor::Stopped, Neighbor::Idle, Neighbor::Busy];

fn signal(pid: u32, signal: Signal) {
    let pid = pid.try_into().ok().and_then(Pid::from_raw);
    kill_process(pid.expect("a server's number"), signal).expect("it takes signals");
}

/// Returns the processor time that this process has used, in seconds.
fn cpu_time() -> f64 {
    let used = clock_gettime(ClockId::ProcessCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

/// Returns the point selects per second on the primary, and how much of one core the client used.
fn selects(sandbox: &Sandbox) -> (f64, f64) {
    let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (stop, counted) = (&stop, &counted);
            scope.spawn(move || {
                let mut session = session(&sandbox.nodes()[0]);
                let mut id = client;
                while !stop.load(Ordering::Relaxed) {
                    id = (id + CLIENTS) % ROWS;
                    let statement = format!("SELECT pad FROM bench.t WHERE id = {id}");
                    session.run("bench", &statement).expect("it reads");
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        thread::sleep(SETTLE);
        let (before, began, used) = (counted.load(Ordering::Relaxed), Instant::now(), cpu_time());
        thread::sleep(REPETITION);
        let done = (counted.load(Ordering::Relaxed) - before) as f64;
        let (elapsed, used) = (began.elapsed().as_secs_f64(), cpu_time() - used);
        stop.store(true, Ordering::Relaxed);
        (done / elapsed, used / elapsed)
    })
}

/// Measures the primary, like `selects`, while the replicas do this.
fn repetition(sandbox: &Sandbox, neighbor: Neighbor) -> (f64, f64) {
    let replicas = || sandbox.members().iter().skip(1).map(|member| member.pid);
    let stop = AtomicBool::new(false);
    if neighbor == Neighbor::Stopped {
        replicas().for_each(|pid| signal(pid, Signal::STOP));
    }
    let measured = thread::scope(|scope| {
        let busy = sandbox.nodes()[1..].iter();
        for replica in busy.filter(|_| neighbor == Neighbor::Busy) {
            let stop = &stop;
            scope.spawn(move || {
                let mut session = session(replica);
                while !stop.load(Ordering::Relaxed) {
                    let statement = "DO BENCHMARK(100000, SHA2('busy', 512))";
                    session.run("bench", statement).expect("it computes");
                }
            });
        }
        let measured = selects(sandbox);
        stop.store(true, Ordering::Relaxed);
        measured
    });
    if neighbor == Neighbor::Stopped {
        replicas().for_each(|pid| signal(pid, Signal::CONT));
    }
    measured
}

/// Compares a primary next to idle and next to busy hosts with one next to stopped ones.
pub(crate) fn hosts() {
    for engine in ["mariadb", "mysql"] {
        let shape = format!("{engine}/async:{REPLICAS}");
        let sandbox = start_spec(SandboxSpec {
            // The primary and the client are hosts, too.
            hosts: Some(REPLICAS as u32 + 2),
            ..SandboxSpec::of(shape.parse().expect("a shape"))
        });
        let sandbox = sandbox.unwrap_or_else(|error| panic!("{error}\n{}", error.hint()));
        let primary = &sandbox.nodes()[0];
        sql(primary, "CREATE DATABASE bench");
        sql(
            primary,
            "CREATE TABLE bench.t (id BIGINT PRIMARY KEY, pad CHAR(60) NOT NULL DEFAULT '')",
        );
        let rows: Vec<String> = (0..ROWS).map(|id| format!("({id}, 'row')")).collect();
        let insert = format!("INSERT INTO bench.t VALUES {}", rows.join(", "));
        sql(primary, &insert);
        let record = sandbox.record();
        let Some(shares) = record.cpus_per_server.clone() else {
            panic!("no hosts of their own here: {:?}", record.hosts_refused);
        };
        line(&format!("{engine}: cores of each server"), shares, "");
        let (mut idle, mut busy, mut cores) = (vec![], vec![], 0.0);
        for pair in 0..ROUNDS {
            let mut per_second = [0.0; NEIGHBORS.len()];
            // The order changes between rounds.
            for step in 0..NEIGHBORS.len() {
                let next = (step + pair) % NEIGHBORS.len();
                let (done, used) = repetition(&sandbox, NEIGHBORS[next]);
                per_second[next] = done;
                if NEIGHBORS[next] == Neighbor::Stopped {
                    cores += used / ROUNDS as f64;
                }
            }
            let [alone, next_to_idle, next_to_busy] = per_second;
            idle.push((next_to_idle, alone));
            busy.push((next_to_busy, alone));
        }
        let alone = idle.iter().map(|(_, alone)| alone).sum::<f64>() / ROUNDS as f64;
        line(
            &format!("{engine}: selects of the primary alone (per s)"),
            format!("{alone:.0}"),
            "",
        );
        line(
            &format!("{engine}: cores that the client uses then"),
            format!("{cores:.2}"),
            "",
        );
        let figures = [("idle", idle, "≥ 0.95"), ("busy", busy, "≥ 0.90")];
        for (neighbor, pairs, goal) in figures {
            line(
                &format!("{engine}: next to {neighbor} hosts / alone [95 %]"),
                ratio(pairs),
                goal,
            );
        }
        sandbox.close().expect("the sandbox is removed");
    }
}
