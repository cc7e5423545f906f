//! Servers that stall for a minute: no command has more connections than its dry run states, with those that it gave up.

use std::{
    collections::{BTreeSet, VecDeque},
    fs,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::Node;
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, await_no_connections, session, sql, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{USER, servers, spawn, stated};

/// Every command that accepts a user's servers; they last longer than the stall.
const COMMANDS: [&str; 11] = [
    "lag --duration 80s",
    "lag --duration 80s --method all --stages",
    "lag --duration 80s --load oltp-mix:2@primary --load-data-size 1000",
    "stale --duration 80s",
    "stale --duration 80s --read-consistency",
    "tap --duration 80s",
    "exposure --duration 80s",
    "front --duration 80s --listen 127.0.0.1:0",
    "load --workload oltp-mix --data-size 1000 --duration 80s",
    "backlog --build-up 40s",
    "doctor",
];

/// The servers that stall.
const STALLED: [(&str, &[usize]); 3] = [("primary", &[0]), ("replica", &[1]), ("both", &[0, 1])];

const STALL: Duration = Duration::from_secs(60);
/// How long a command runs before.
const BEFORE: Duration = Duration::from_secs(5);
/// Interval between two counts.
const INTERVAL: Duration = Duration::from_millis(50);
/// Counts in a row that a number must last: a server that runs notices a closed connection at once.
const LASTS: usize = 10;
/// Pairs of servers that are used at the same time.
const PAIRS: usize = 3;

/// Returns a process and its descendants.
fn family(process: u32) -> Vec<u32> {
    let mut all = vec![process];
    let mut next = 0;
    while let Some(parent) = all.get(next).copied() {
        next += 1;
        let threads = fs::read_dir(format!("/proc/{parent}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
            all.extend(
                children
                    .split_whitespace()
                    .map(|id| id.parse::<u32>().unwrap()),
            );
        }
    }
    all
}

/// Returns the sockets that processes have open.
fn sockets(processes: &[u32]) -> BTreeSet<String> {
    let files = processes
        .iter()
        .filter_map(|process| fs::read_dir(format!("/proc/{process}/fd")).ok())
        .flatten();
    files
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .filter_map(|target| {
            let inode = target.to_str()?.strip_prefix("socket:[")?;
            Some(inode.strip_suffix(']')?.to_owned())
        })
        .collect()
}

/// The connections of a command to a server, as the system of both counts them: also those that the client has closed, and of
/// which the server does not know it yet.
struct Connections {
    /// The server's port.
    port: u16,
    /// The ports that the client has used.
    own: BTreeSet<u16>,
    last: VecDeque<usize>,
    most: usize,
}

impl Connections {
    fn to(node: &Node) -> Self {
        Self {
            port: node.endpoint.port,
            own: BTreeSet::new(),
            last: VecDeque::new(),
            most: 0,
        }
    }

    /// Counts them once; `table` has all connections of the system.
    fn count(&mut self, table: &str, sockets: &BTreeSet<String>) {
        let port = |address: &str| u16::from_str_radix(address.rsplit(':').next()?, 16).ok();
        let rows: Vec<(u16, u16, &str, &str)> = table
            .lines()
            .filter_map(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                let ports = (port(fields.get(1)?)?, port(fields.get(2)?)?);
                Some((ports.0, ports.1, *fields.get(3)?, *fields.get(9)?))
            })
            .collect();
        for (local, remote, _, inode) in &rows {
            if *remote == self.port && sockets.contains(*inode) {
                self.own.insert(*local);
            }
        }
        // The server's side: established, or closed by the client only.
        let open = rows.iter().filter(|(local, remote, state, _)| {
            *local == self.port && self.own.contains(remote) && matches!(*state, "01" | "08")
        });
        self.last.push_back(open.count());
        if self.last.len() > LASTS {
            self.last.pop_front();
            self.most = self.last.iter().copied().min().unwrap_or(0).max(self.most);
        }
    }
}

/// Counts the connections of a command until a condition holds.
fn count_until(
    process: u32,
    all: &mut [Connections],
    mut holds: impl FnMut(&[Connections]) -> bool,
) {
    while !holds(all) {
        let sockets = sockets(&family(process));
        let table = ["tcp", "tcp6"].map(|name| fs::read_to_string(format!("/proc/net/{name}")));
        let table: String = table.into_iter().flatten().collect();
        all.iter_mut().for_each(|one| one.count(&table, &sockets));
        thread::sleep(INTERVAL);
    }
}

/// What a command did while servers stood still.
struct Stalled {
    command: &'static str,
    stalled: &'static str,
    most: Vec<usize>,
    stated: Vec<u64>,
    ended: CommandOutput,
    /// Whether it ended during the stall.
    early: bool,
}

impl Stalled {
    fn exceeds(&self) -> bool {
        let mut both = self.most.iter().zip(&self.stated);
        both.any(|(most, stated)| *most as u64 > *stated)
    }
}

fn stall(sandbox: &Sandbox, mysql: bool, command: &'static str, index: usize) -> Stalled {
    let (stalled, which) = STALLED[index];
    let nodes = sandbox.nodes();
    let both: Vec<&Node> = nodes.iter().collect();
    await_no_connections(&both, USER);
    let stated = match command {
        // `docs/reference/server-cost.md` states them.
        "doctor" => vec![1, 1],
        _ => stated(nodes, command),
    };
    let tool = TestEnvironment::new();
    let child = spawn(&tool, nodes, command, &[]);
    let mut all: Vec<Connections> = both.iter().map(|node| Connections::to(node)).collect();
    let id = child.id();
    // A command that has ended stays a process until it is waited for.
    let over = || {
        fs::read_to_string(format!("/proc/{id}/stat")).map_or(true, |stat| stat.contains(") Z "))
    };
    let mut began = None;
    count_until(id, &mut all, |all| {
        if all.iter().any(|one| !one.own.is_empty()) {
            began.get_or_insert_with(Instant::now);
        }
        // `doctor` takes less than a second.
        let before = if command == "doctor" {
            Duration::ZERO
        } else {
            BEFORE
        };
        began.is_some_and(|began| began.elapsed() > before) || over()
    });
    let signal = |signal| {
        for server in which {
            let pid = Pid::from_raw(i32::try_from(sandbox.pids()[*server]).unwrap()).unwrap();
            kill_process(pid, signal).unwrap();
        }
    };
    signal(Signal::STOP);
    let until = Instant::now() + STALL;
    count_until(id, &mut all, |_| Instant::now() > until);
    let early = over();
    signal(Signal::CONT);
    let until = Instant::now() + LIMIT;
    count_until(id, &mut all, |_| over() || Instant::now() > until);
    if !over() {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    }
    let ended = wait(child, LIMIT);
    // The next command begins with servers as they were.
    wait_until("the servers are as they were", LIMIT, || {
        settle(sandbox, mysql)
    });
    Stalled {
        command,
        stalled,
        most: all.iter().map(|one| one.most).collect(),
        stated,
        ended,
        early,
    }
}

/// Removes what a run left that could not reach its servers; returns whether replication runs.
fn settle(sandbox: &Sandbox, mysql: bool) -> bool {
    let [primary, replica] = sandbox.nodes() else {
        panic!("two servers")
    };
    sql(primary, "DROP DATABASE IF EXISTS replimeter");
    let (start, status, word) = if mysql {
        ("START REPLICA", "SHOW REPLICA STATUS", "Replica")
    } else {
        ("START SLAVE", "SHOW ALL SLAVES STATUS", "Slave")
    };
    let _ = session(replica).run("test", start);
    let rows = session(replica).rows("test", status).unwrap();
    ["IO", "SQL"]
        .iter()
        .all(|thread| rows[0][&format!("{word}_{thread}_Running")] == "Yes")
        && replimeter_suites::clean(replica)
}

/// Prints a table of all commands, and checks that none had more connections than its dry run states.
fn stalls(shape: &str) {
    let mysql = shape.starts_with("mysql");
    let jobs: Vec<(&'static str, usize)> = COMMANDS
        .iter()
        .flat_map(|command| (0..STALLED.len()).map(|index| (*command, index)))
        .collect();
    let next = AtomicUsize::new(0);
    let mut rows: Vec<Stalled> = thread::scope(|scope| {
        let workers: Vec<_> = (0..PAIRS)
            .map(|_| {
                scope.spawn(|| {
                    let sandbox = servers(shape);
                    let mut rows = Vec::new();
                    while let Some((command, index)) =
                        jobs.get(next.fetch_add(1, Ordering::Relaxed))
                    {
                        rows.push(stall(&sandbox, mysql, command, *index));
                    }
                    rows
                })
            })
            .collect();
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap())
            .collect()
    });
    rows.sort_by_key(|row| {
        (
            COMMANDS.iter().position(|one| *one == row.command),
            row.stalled,
        )
    });
    println!("| {shape} | stalled | primary: most, stated | replica: most, stated | exit code |");
    println!("|---|---|---|---|---|");
    for row in &rows {
        println!(
            "| `{}` | {} | {} of {} | {} of {} | {:?}{} |",
            row.command,
            row.stalled,
            row.most[0],
            row.stated[0],
            row.most[1],
            row.stated[1],
            row.ended.code,
            if row.early { ", during the stall" } else { "" },
        );
    }
    for row in rows.iter().filter(|row| row.exceeds()) {
        println!("{}, {} stalled: {:#?}", row.command, row.stalled, row.ended);
    }
    let exceeding: Vec<_> = rows
        .iter()
        .filter(|row| row.exceeds())
        .map(|row| (row.command, row.stalled, &row.most, &row.stated))
        .collect();
    assert!(exceeding.is_empty(), "{exceeding:#?}");
}

pub(super) fn stalls_of_mariadb_open_no_more_connections() {
    stalls("mariadb/async:1");
}

pub(super) fn stalls_of_mysql_open_no_more_connections() {
    stalls("mysql/async:1");
}
