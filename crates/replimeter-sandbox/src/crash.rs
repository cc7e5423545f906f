//! Deliberate crashes: a server is isolated, killed, replaced and restarted.
//!
//! Possible only with sandbox servers; the effect on the data is measured elsewhere.

use std::{
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{
    Node, ServerError, Session,
    dialect::{galera, group},
};
use replimeter_model::{bug::REPORT_BUG, engine::Engine, replication::Mode, shape::Shape};

use crate::{
    error::{SandboxError, check_interrupted},
    member::Member,
    network::LinkChange,
    process,
    sandbox::Sandbox,
};

/// Timeout for a restart, or for a cluster's agreement on its members.
const RECOVERY_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between polls.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Connects a Galera node to its cluster; without it, it is a standalone server.
const OF_A_CLUSTER: &str = "--wsrep";
/// Executed at the first start, and removed since.
const INIT_FILE: &str = "--init-file=";

impl Sandbox {
    fn member(&self, name: &str) -> Result<&Member, SandboxError> {
        self.members()
            .iter()
            .find(|member| member.node.name == name)
            .ok_or_else(|| SandboxError::Impossible {
                what: format!("the sandbox has no server {name}"),
                hint: REPORT_BUG.to_owned(),
            })
    }

    fn shape(&self) -> Option<Shape> {
        self.record().shape.parse().ok()
    }

    fn mode(&self) -> Mode {
        self.shape().map_or(Mode::None, Shape::mode)
    }

    /// Cuts every link to and from a server, like a pulled cable: data in transit does not arrive,
    /// and neither side is notified.
    ///
    /// # Errors
    /// When its replication does not use links.
    pub fn isolate(&self, name: &str) -> Result<(), SandboxError> {
        let cut = LinkChange {
            cut: Some(true),
            ..LinkChange::default()
        };
        let links: Vec<String> = self.links().into_iter().map(|link| link.name).collect();
        let own: Vec<&String> = links
            .iter()
            .filter(|link| link.split('-').any(|end| end == name))
            .collect();
        let refuse = |what: String| SandboxError::Impossible {
            what,
            hint: "start the sandbox with links (--link-delay; 0 for links without a delay)"
                .to_owned(),
        };
        if own.is_empty() {
            return Err(refuse(format!("{name} cannot be isolated: it has no link")));
        }
        own.into_iter()
            .try_for_each(|link| self.change_link(Some(link), &cut).map_err(refuse))
    }

    /// Kills a server (SIGKILL), without waiting for its end.
    ///
    /// # Errors
    /// When none has this name.
    pub fn kill(&self, name: &str) -> Result<(), SandboxError> {
        let member = self.member(name)?;
        self.servers().kill_server(member.number);
        Ok(())
    }

    /// Makes another server take writes after the primary died, and returns its name. A replica
    /// stops replicating and becomes writable. A group elects a member regardless of `wished`; in a
    /// Galera cluster every node takes writes anyway. Without a majority, the survivor is made to
    /// continue alone.
    ///
    /// # Errors
    /// When the server refuses, or the cluster does not agree in time.
    pub fn promote(
        &self,
        wished: &str,
        dead: &str,
        stop: &AtomicBool,
    ) -> Result<String, SandboxError> {
        match self.mode() {
            Mode::None | Mode::Async | Mode::SemiSync | Mode::Chain => {
                self.promote_replica(wished)?
            }
            Mode::Galera => self.promote_node(wished, stop)?,
            Mode::Group => return self.promote_elected(dead, stop),
        }
        Ok(wished.to_owned())
    }

    fn promote_replica(&self, name: &str) -> Result<(), SandboxError> {
        let member = self.member(name)?;
        let mut session = Session::open(&member.node)?;
        let operation = "cannot be made the primary";
        let (stop, writable): (&[&str], &str) = match self.install().engine {
            Engine::MariaDb => (&["STOP SLAVE"], "SET GLOBAL read_only = OFF"),
            // Disables super_read_only, too.
            Engine::MySql => (
                &["STOP REPLICA", "STOP SLAVE"],
                "SET GLOBAL read_only = OFF",
            ),
        };
        let stop: Vec<String> = stop.iter().map(|sql| (*sql).to_owned()).collect();
        session.run_first_accepted(operation, &stop)?;
        session.run(operation, writable)?;
        Ok(())
    }

    /// Makes a node that lost its majority continue: it does not recover automatically.
    fn promote_node(&self, name: &str, stop: &AtomicBool) -> Result<(), SandboxError> {
        if self.members().len() != 2 {
            return Ok(());
        }
        let member = self.member(name)?;
        let mut bootstrapped = false;
        self.poll_member(member, stop, |session| {
            let Some(state) = galera::node_state(session)? else {
                return Ok(Some("it is not a Galera node".to_owned()));
            };
            if state.size == 1 && state.synced() {
                return Ok(None);
            }
            if state.component != "Primary" && !bootstrapped {
                session.run(
                    "cannot continue alone",
                    "SET GLOBAL wsrep_provider_options = 'pc.bootstrap=true'",
                )?;
                bootstrapped = true;
            }
            Ok(Some(state.description()))
        })
    }

    /// Waits until the group has another primary than the dead one.
    fn promote_elected(&self, dead: &str, stop: &AtomicBool) -> Result<String, SandboxError> {
        let survivors: Vec<&Member> = self
            .members()
            .iter()
            .filter(|member| member.node.name != dead)
            .collect();
        let Some(first) = survivors.first().copied() else {
            return Err(SandboxError::Impossible {
                what: "no other member of the group is left".to_owned(),
                hint: String::new(),
            });
        };
        let dead_port = self.member(dead)?.node.endpoint.port;
        let alone = survivors.len() == 1;
        let mut forced = false;
        let mut elected = None;
        self.poll_member(first, stop, |session| {
            let Some(state) = group::group_state(session)? else {
                return Ok(Some("it is not a member".to_owned()));
            };
            let port = |address: &str| {
                address
                    .rsplit(':')
                    .next()
                    .and_then(|port| port.parse::<u16>().ok())
            };
            let unreachable = state
                .members
                .iter()
                .any(|member| member.state == "UNREACHABLE");
            if alone && unreachable && !forced {
                let operation = "cannot continue alone";
                let own = session
                    .value(operation, "SELECT @@GLOBAL.group_replication_local_address")?
                    .unwrap_or_default();
                session.run(
                    operation,
                    &format!("SET GLOBAL group_replication_force_members = '{own}'"),
                )?;
                forced = true;
            }
            let primaries = state
                .members
                .iter()
                .filter(|member| member.state == "ONLINE" && member.role == "PRIMARY");
            let mut ports = primaries
                .filter_map(|member| port(&member.address))
                .filter(|port| *port != dead_port);
            let gone = !state
                .members
                .iter()
                .any(|member| port(&member.address) == Some(dead_port));
            let next = ports.find_map(|port| {
                survivors
                    .iter()
                    .find(|member| member.node.endpoint.port == port)
            });
            if let (true, Some(next)) = (gone || state.single_primary, next) {
                elected = Some(next.node.name.clone());
                return Ok(None);
            }
            Ok(Some(state.description()))
        })?;
        Ok(elected.unwrap_or_else(|| first.node.name.clone()))
    }

    /// Polls a server until `check` returns `Ok(None)`.
    fn poll_member(
        &self,
        member: &Member,
        stop: &AtomicBool,
        mut state: impl FnMut(&mut Session) -> Result<Option<String>, ServerError>,
    ) -> Result<(), SandboxError> {
        let began = Instant::now();
        let mut session = Session::open(&member.node)?;
        loop {
            check_interrupted(stop)?;
            let Some(words) = state(&mut session)? else {
                return Ok(());
            };
            if began.elapsed() > RECOVERY_TIMEOUT {
                return Err(SandboxError::NotReady {
                    node: member.node.name.clone(),
                    seconds: RECOVERY_TIMEOUT.as_secs(),
                    state: words,
                    log: process::log_tail(&member.log()),
                });
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    /// Restarts a killed server on its data directory, standalone: it joins no cluster and follows
    /// no source, so it shows only its own data.
    ///
    /// # Errors
    /// When it does not start, with the end of its log.
    pub fn restart(&mut self, name: &str, stop: &AtomicBool) -> Result<Node, SandboxError> {
        let member = self.member(name)?.clone();
        // Waits for its end: two servers on one data directory would corrupt it.
        self.servers().kill(member.number);
        let words = self
            .record()
            .command_lines
            .get(name)
            .cloned()
            .unwrap_or_default();
        let Some((program, arguments)) = words.split_first() else {
            return Err(SandboxError::Impossible {
                what: format!("{name} was never started"),
                hint: String::new(),
            });
        };
        let arguments = arguments
            .iter()
            .filter(|word| !word.starts_with(INIT_FILE) && !word.starts_with(OF_A_CLUSTER));
        let mut command = process::command(program);
        command.args(arguments).envs(self.install().environment());
        let number = self.adopt(&member, command)?;
        let began = Instant::now();
        loop {
            check_interrupted(stop)?;
            if let Some(status) = self.servers().ended(number) {
                return Err(SandboxError::Died {
                    node: name.to_owned(),
                    status: process::describe(status),
                    log: process::log_tail(&member.log()),
                });
            }
            match Session::open(&member.node) {
                Ok(_) => break,
                Err(error) if began.elapsed() > RECOVERY_TIMEOUT => {
                    return Err(SandboxError::NotReady {
                        node: name.to_owned(),
                        seconds: RECOVERY_TIMEOUT.as_secs(),
                        state: error.to_string(),
                        log: process::log_tail(&member.log()),
                    });
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        self.replace(name, number);
        Ok(member.client_node)
    }
}
