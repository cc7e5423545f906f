//! Sandboxes as a source of servers: those started for a run, and managed ones.

use std::{sync::atomic::AtomicBool, time::Duration};

use replimeter_engine::{
    Connections, Node,
    source::{self, Allowed, Faults, OpenContext, Servers, SourceError, SourceErrorKind},
};
use replimeter_model::{
    bug::REPORT_BUG,
    manifest::SandboxRecord,
    sandbox::{SandboxName, SandboxSpec},
};

use crate::{
    binaries::Search,
    error::SandboxError,
    home::Home,
    managed::{ManagedSandbox, SupervisorRequest},
    member::Member,
    network::{LinkChange, LinkState},
    process::log_tail,
    reaper::ReaperProgram,
    registry::RunningSandboxes,
    sandbox::Sandbox,
    settings::Settings,
};

impl From<SandboxError> for SourceError {
    fn from(error: SandboxError) -> Self {
        let kind = match error {
            SandboxError::NoBinary { .. } | SandboxError::Impossible { .. } => {
                SourceErrorKind::Unavailable
            }
            SandboxError::Folder { .. }
            | SandboxError::Refused { .. }
            | SandboxError::Name { .. }
            | SandboxError::Unreachable { .. } => SourceErrorKind::Usage,
            SandboxError::Interrupted => SourceErrorKind::Interrupted,
            _ => SourceErrorKind::Failed,
        };
        Self::new(kind, error.to_string(), error.hint())
    }
}

impl From<&Member> for source::Member {
    fn from(member: &Member) -> Self {
        Self {
            node: member.client_node.clone(),
            role: Some(member.role),
            source: member.source.clone(),
            allowed: Allowed::default(),
            pid: Some(member.pid),
        }
    }
}

/// Starts sandboxes, and finds managed ones.
pub struct Sandboxes {
    /// The private folder.
    pub home: Home,
    /// Where to look for binaries, unless a sandbox names their folder.
    pub search: Search,
    /// Ends processes started by servers when the tool is killed.
    pub reaper: Option<ReaperProgram>,
    /// The connections of the run.
    pub connections: Connections,
    /// The running sandboxes of the program.
    pub running: RunningSandboxes,
}

impl Sandboxes {
    /// Returns the settings of a sandbox.
    #[must_use]
    pub fn settings(&self, spec: &SandboxSpec) -> Settings {
        Settings {
            spec: spec.clone(),
            search: Search {
                servers: spec.servers.clone(),
                ..self.search.clone()
            },
            home: self.home.clone(),
            reaper: self.reaper.clone(),
            connections: self.connections.clone(),
            running: self.running.clone(),
        }
    }

    /// Like [`ServerSource::available`](source::ServerSource::available).
    ///
    /// # Errors
    /// When no server here supports the request.
    pub fn available(&self, spec: &SandboxSpec) -> Result<source::Install, SourceError> {
        let install = Sandbox::install_for(&self.settings(spec))?;
        Ok(source::Install {
            engine: install.engine,
            version: install.version,
            program: install.program,
        })
    }

    /// Checks whether such a sandbox is possible. Starts nothing.
    ///
    /// # Errors
    /// When no server here supports the request.
    pub fn check_available(&self, spec: &SandboxSpec) -> Result<(), SourceError> {
        Ok(Sandbox::check_available(&self.settings(spec))?)
    }

    /// Starts a sandbox.
    ///
    /// # Errors
    /// When its servers do not start; nothing is left behind then.
    pub fn start(
        &self,
        spec: &SandboxSpec,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn Servers>, SourceError> {
        (context.say)(&format!("starting the sandbox {}", spec.shape));
        let sandbox = Sandbox::start(&self.settings(spec), context.stop)?;
        Ok(Box::new(RunSandbox {
            label: spec.shape.to_string(),
            members: members(&sandbox),
            sandbox,
        }))
    }

    /// Finds a managed sandbox.
    ///
    /// # Errors
    /// When none has this name.
    pub fn find(&self, name: &SandboxName) -> Result<ManagedSandbox, SourceError> {
        Ok(ManagedSandbox::find(&self.home, name)?)
    }

    /// Finds a managed sandbox, and reads the state of its links.
    ///
    /// # Errors
    /// When none has this name, or its supervisor does not answer.
    pub fn open(&self, name: &SandboxName) -> Result<Box<dyn Servers>, SourceError> {
        let managed = self.find(name)?;
        let members = managed
            .nodes(&self.connections)?
            .into_iter()
            .map(|(node, role, source)| source::Member {
                node,
                role: Some(role),
                source,
                allowed: Allowed::default(),
                pid: None,
            })
            .collect();
        // Links may have been changed since it was started.
        let links = managed.ask(&SupervisorRequest::Status)?.links;
        let links: Vec<String> = links.iter().map(words).collect();
        Ok(Box::new(ManagedServers {
            label: format!("{} ({name})", managed.details().shape),
            members,
            record: SandboxRecord {
                link: (!links.is_empty()).then(|| links.join(", ")),
                ..managed.record().clone()
            },
            managed,
        }))
    }
}

fn members(sandbox: &Sandbox) -> Vec<source::Member> {
    sandbox.members().iter().map(source::Member::from).collect()
}

/// Returns the state of a link, for a run's record.
fn words(link: &LinkState) -> String {
    let micros = |nanos: u64| nanos as f64 / 1e3;
    let cut = if link.cut { ", cut" } else { "" };
    let bandwidth = link
        .bandwidth_bits
        .map_or_else(String::new, |bits| format!(", {bits} bit/s"));
    format!(
        "{}: {} µs one way ± {} µs{bandwidth}{cut}",
        link.name,
        micros(link.delay_ns),
        micros(link.jitter_ns)
    )
}

/// A sandbox that was started for one run.
struct RunSandbox {
    sandbox: Sandbox,
    label: String,
    members: Vec<source::Member>,
}

impl Servers for RunSandbox {
    fn label(&self) -> &str {
        &self.label
    }

    fn members(&self) -> &[source::Member] {
        &self.members
    }

    fn record(&self) -> Option<&SandboxRecord> {
        Some(self.sandbox.record())
    }

    fn is_temporary(&self) -> bool {
        true
    }

    fn ended(&self, member: usize) -> Option<String> {
        self.sandbox.ended(member)
    }

    fn log_end(&self, member: usize) -> Option<String> {
        let member = self.sandbox.members().get(member)?;
        Some(log_tail(&member.log()))
    }

    fn faults(&mut self) -> Option<&mut dyn Faults> {
        Some(self)
    }

    fn close(self: Box<Self>) -> Result<(), SourceError> {
        Ok(self.sandbox.close()?)
    }
}

impl Faults for RunSandbox {
    fn set_delay(&mut self, delay: Duration) -> Result<(), SourceError> {
        let change = LinkChange {
            delay_ns: Some(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX)),
            ..LinkChange::default()
        };
        self.sandbox
            .change_link(None, &change)
            .map_err(|reason| SourceError::new(SourceErrorKind::Failed, reason, REPORT_BUG))
    }

    fn isolate(&mut self, server: &str) -> Result<(), SourceError> {
        Ok(self.sandbox.isolate(server)?)
    }

    fn kill(&mut self, server: &str) -> Result<(), SourceError> {
        Ok(self.sandbox.kill(server)?)
    }

    fn promote(
        &mut self,
        wished: &str,
        dead: &str,
        stop: &AtomicBool,
    ) -> Result<String, SourceError> {
        Ok(self.sandbox.promote(wished, dead, stop)?)
    }

    fn restart(&mut self, server: &str, stop: &AtomicBool) -> Result<Node, SourceError> {
        let node = self.sandbox.restart(server, stop)?;
        // It has a new process.
        self.members = members(&self.sandbox);
        Ok(node)
    }
}

/// A managed sandbox.
struct ManagedServers {
    managed: ManagedSandbox,
    label: String,
    members: Vec<source::Member>,
    record: SandboxRecord,
}

impl Servers for ManagedServers {
    fn label(&self) -> &str {
        &self.label
    }

    fn members(&self) -> &[source::Member] {
        &self.members
    }

    fn record(&self) -> Option<&SandboxRecord> {
        Some(&self.record)
    }

    /// Names ended servers and cut links: a replica behind one looks like any other that receives nothing.
    fn advice(&self) -> Option<String> {
        let state = self.managed.ask(&SupervisorRequest::Status).ok()?;
        if let Some(advice) = self.managed.ended_servers(&state) {
            return Some(advice);
        }
        let name = &self.managed.details().name;
        let cut: Vec<&str> = state
            .links
            .iter()
            .filter(|link| link.cut)
            .map(|link| link.name.as_str())
            .collect();
        (!cut.is_empty()).then(|| {
            format!(
                "link {} of this sandbox is cut: replimeter sandbox link {name} --heal",
                cut.join(", ")
            )
        })
    }
}
