//! Resource usage of servers: processor time, context switches, input and output, from the process
//! where it is visible and from the server's own counters.
//!
//! Readings are of counters that only increase; usage is the difference of two. A server that is
//! gone, or has no counters, leaves blanks and never ends a run.

mod locate;
mod process;
mod threads;
mod watch;

use std::time::Duration;

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::counters::{self, Counters},
    source::Member,
};
use replimeter_model::{
    resources::{ServerUse, UseSource},
    target::Role,
    time::Nanos,
    warning::{Warning, WarningCode},
};

pub use self::watch::{METER_INTERVAL, ResourceWatch};
use self::{
    locate::NotVisible,
    process::{Process, ProcessCounters},
    threads::ThreadGroup,
};
use crate::clock::Clock;

/// Timeout for reading a server's counters during a run.
const ANSWER: Duration = Duration::from_secs(1);

/// Returns the processor time of all threads of a process, including ended ones; `None` if there is no such process.
#[must_use]
pub fn processor_time(pid: u32) -> Option<Duration> {
    let nanos = process::cpu_clock(i32::try_from(pid).ok()?)?;
    Some(Duration::from_nanos(nanos))
}

/// A process that is not a server, such as a load balancer.
#[derive(Clone, Debug)]
pub struct NamedProcess {
    /// Its name in results.
    pub name: String,
    /// Its role.
    pub role: &'static str,
    /// Where its counters are.
    pub counted: CountedProcess,
}

/// What is counted as one process.
#[derive(Clone, Debug)]
pub enum CountedProcess {
    /// The process with this id.
    Pid(u32),
    /// The threads of this process whose names begin with this.
    Threads(String),
}

/// Returns the processor time so far of this process's threads whose names begin with `prefix`.
#[must_use]
pub fn threads_time(prefix: &str) -> Duration {
    let counters = ThreadGroup::new(prefix.to_owned()).read();
    Duration::from_nanos(counters.map_or(0, |counters| counters.cpu_ns))
}

/// A process, or threads of this one.
enum Source {
    Process(Process),
    Threads(ThreadGroup),
}

impl Source {
    fn of_pid(pid: u32) -> Result<Self, NotVisible> {
        Process::new(pid).map(Self::Process).ok_or(NotVisible::Gone)
    }

    fn read(&mut self) -> Option<ProcessCounters> {
        match self {
            Self::Process(process) => process.read(),
            Self::Threads(threads) => threads.read(),
        }
    }

    fn reports_io(&self) -> bool {
        match self {
            Self::Process(process) => process.reports_io(),
            Self::Threads(_) => true,
        }
    }
}

/// A server or another process, and the source of its counters.
struct CounterSource {
    name: String,
    role: &'static str,
    process: Result<Source, NotVisible>,
    /// How to ask it; `None` if it is not a server.
    node: Option<Node>,
    session: Option<Session>,
}

/// Reads the counters of several servers.
pub struct Meter {
    clock: Clock,
    servers: Vec<CounterSource>,
}

/// The counters of one server at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ServerCounters {
    process: Option<ProcessCounters>,
    status: Option<Counters>,
}

/// The counters of every server at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// The middle of the reading.
    pub at: Nanos,
    servers: Vec<ServerCounters>,
}

impl Meter {
    /// Connects to each server once, and finds unknown processes of local servers by their
    /// listening sockets.
    ///
    /// # Errors
    /// When a server cannot be reached.
    pub fn open(servers: &[Member], clock: &Clock) -> Result<Self, ServerError> {
        let servers = servers.iter().map(|server| {
            let node = Node {
                answer: ANSWER,
                ..server.node.clone()
            };
            let process = match server.pid {
                Some(pid) => Source::of_pid(pid),
                None => locate::server(&node).and_then(Source::of_pid),
            };
            Ok(CounterSource {
                session: Some(Session::open(&node)?),
                name: node.name.clone(),
                node: Some(node),
                role: server.role.unwrap_or(Role::Node).name(),
                process,
            })
        });
        Ok(Self {
            clock: *clock,
            servers: servers.collect::<Result<_, ServerError>>()?,
        })
    }

    /// Also reads the counters of these processes, after the servers.
    pub(crate) fn add(&mut self, processes: Vec<NamedProcess>) {
        self.servers
            .extend(processes.into_iter().map(|of| CounterSource {
                name: of.name,
                role: of.role,
                process: match of.counted {
                    CountedProcess::Pid(pid) => Source::of_pid(pid),
                    CountedProcess::Threads(prefix) => {
                        Ok(Source::Threads(ThreadGroup::new(prefix)))
                    }
                },
                node: None,
                session: None,
            }));
    }

    /// Returns warnings about counters that stay blank.
    #[must_use]
    pub fn warnings(&self) -> Vec<Warning> {
        let mut warnings = Vec::new();
        for server in &self.servers {
            let name = &server.name;
            let Some(node) = &server.node else { continue };
            let address = node.endpoint.address();
            let (reason, hint) = match &server.process {
                Ok(process) if process.reports_io() => continue,
                Ok(_) => (
                    "bytes read and written are left blank: the system does not show them to this user".to_owned(),
                    "run as the server's user, or as root",
                ),
                Err(unseen) => (
                    format!(
                        "processor time and context switches are left blank: {unseen}; bytes are those of the storage engine only"
                    ),
                    unseen.hint(),
                ),
            };
            warnings.push(Warning::new(
                WarningCode::ResourcesUnknown,
                format!("{name} ({address}): {reason}"),
                node.hint(hint),
            ));
        }
        warnings
    }

    /// Reads all counters: takes about a millisecond per server, partly of the server's time.
    pub fn read(&mut self) -> Reading {
        self.take(true)
    }

    /// Reads what costs the servers nothing: their processes, or their own counters where these are
    /// not visible.
    pub fn read_basic(&mut self) -> Reading {
        self.take(false)
    }

    fn take(&mut self, whole: bool) -> Reading {
        let began = self.clock.now();
        let servers = self
            .servers
            .iter_mut()
            .map(|server| server.read(whole))
            .collect();
        Reading {
            at: began.midpoint(self.clock.now()),
            servers,
        }
    }

    /// Returns each server's usage between two readings, in the servers' order.
    #[must_use]
    pub fn between(&self, from: &Reading, to: &Reading) -> Vec<ServerUse> {
        self.servers
            .iter()
            .enumerate()
            .map(|(index, server)| {
                server.used(
                    to.at - from.at,
                    from.servers.get(index),
                    to.servers.get(index),
                )
            })
            .collect()
    }
}

impl CounterSource {
    fn read(&mut self, whole: bool) -> ServerCounters {
        let process = self.process.as_mut().ok().and_then(Source::read);
        let status = if whole || self.process.is_err() {
            self.ask()
        } else {
            None
        };
        ServerCounters { process, status }
    }

    /// Returns the server's own counters; reconnects if needed.
    fn ask(&mut self) -> Option<Counters> {
        if self.session.is_none() {
            self.session = Session::open(self.node.as_ref()?).ok();
        }
        match counters::counters(self.session.as_mut()?) {
            Ok(counters) => Some(counters),
            Err(_) => {
                self.session = None;
                None
            }
        }
    }

    fn used(
        &self,
        length: Nanos,
        from: Option<&ServerCounters>,
        to: Option<&ServerCounters>,
    ) -> ServerUse {
        let source = if self.process.is_ok() {
            UseSource::Process
        } else {
            UseSource::Status
        };
        let (from, to) = (
            from.copied().unwrap_or_default(),
            to.copied().unwrap_or_default(),
        );
        ServerUse {
            name: self.name.clone(),
            role: self.role.to_owned(),
            ..used(source, length, from, to)
        }
    }
}

/// Returns the difference of two readings of one server, without its name.
fn used(source: UseSource, length: Nanos, from: ServerCounters, to: ServerCounters) -> ServerUse {
    // A counter that decreased was reset: the server was restarted.
    let less = |from: Option<u64>, to: Option<u64>| Some(to?.checked_sub(from?)? as f64);
    let process = |pick: fn(&ProcessCounters) -> Option<u64>| {
        less(
            from.process.as_ref().and_then(pick),
            to.process.as_ref().and_then(pick),
        )
    };
    let status = |pick: fn(&Counters) -> Option<u64>| {
        less(
            from.status.as_ref().and_then(pick),
            to.status.as_ref().and_then(pick),
        )
    };
    let cpu_us = process(|counters| Some(counters.cpu_ns)).map(|nanos| nanos / 1e3);
    // The kernel counts these in ticks, usually of 10 ms.
    let user = process(|counters| Some(counters.user_ticks));
    let system = process(|counters| Some(counters.system_ticks));
    let share = |part: Option<f64>| {
        let (part, all) = (part?, user? + system?);
        cpu_us.filter(|_| all > 0.0).map(|cpu| cpu * part / all)
    };
    let by_process = source == UseSource::Process;
    let bytes =
        |process: Option<f64>, status: Option<f64>| if by_process { process } else { status };
    ServerUse {
        name: String::new(),
        role: String::new(),
        source,
        length_us: length.as_micros(),
        cpu_us,
        cpu_user_us: share(user),
        cpu_system_us: share(system),
        context_switches: process(|counters| Some(counters.switches)),
        involuntary_switches: process(|counters| Some(counters.involuntary)),
        read_bytes: bytes(
            process(|counters| counters.read_bytes),
            status(|counters| counters.read_bytes),
        ),
        write_bytes: bytes(
            process(|counters| counters.write_bytes),
            status(|counters| counters.write_bytes),
        ),
        reads: status(|counters| counters.reads),
        writes: status(|counters| counters.writes),
        fsyncs: status(|counters| counters.fsyncs),
        log_groups: status(|counters| counters.log_groups),
        received_bytes: status(|counters| counters.received_bytes),
        sent_bytes: status(|counters| counters.sent_bytes),
        cluster_bytes: status(|counters| counters.cluster_bytes),
        rows_read: status(|counters| counters.rows_read),
        rows_written: status(|counters| counters.rows_written),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(cpu_ns: u64, switches: u64, fsyncs: u64) -> ServerCounters {
        let process = ProcessCounters {
            cpu_ns,
            user_ticks: cpu_ns / 40_000_000,
            system_ticks: cpu_ns / 120_000_000,
            switches,
            involuntary: 1,
            read_bytes: None,
            write_bytes: Some(switches * 100),
        };
        ServerCounters {
            process: Some(process),
            status: Some(Counters {
                fsyncs: Some(fsyncs),
                ..Counters::default()
            }),
        }
    }

    #[test]
    fn usage_is_the_difference_of_readings() {
        let used = used(
            UseSource::Process,
            Nanos(1_000_000_000),
            counted(0, 10, 5),
            counted(480_000_000, 110, 25),
        );
        assert_eq!((used.length_us, used.cpu_us), (1e6, Some(480_000.0)));
        assert_eq!(
            (used.cpu_user_us, used.cpu_system_us),
            (Some(360_000.0), Some(120_000.0))
        );
        assert_eq!(
            (used.context_switches, used.write_bytes, used.read_bytes),
            (Some(100.0), Some(10_000.0), None)
        );
        assert_eq!((used.fsyncs, used.received_bytes), (Some(20.0), None));
    }

    #[test]
    fn restarted_server_leaves_blanks() {
        let used = used(
            UseSource::Process,
            Nanos(1),
            counted(500, 10, 100),
            counted(600, 11, 7),
        );
        assert_eq!((used.cpu_us, used.fsyncs), (Some(0.1), None));
    }

    #[test]
    fn bytes_come_from_the_engine_without_a_process() {
        let status = |bytes| ServerCounters {
            process: None,
            status: Some(Counters {
                write_bytes: Some(bytes),
                ..Counters::default()
            }),
        };
        let used = used(UseSource::Status, Nanos(1), status(5), status(12));
        assert_eq!((used.write_bytes, used.cpu_us), (Some(7.0), None));
    }
}
