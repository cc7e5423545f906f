//! The servers of every kind of target: sandboxes, and existing servers.

use std::{path::PathBuf, rc::Rc, sync::atomic::AtomicBool};

use replimeter_engine::{
    Connections,
    source::{
        Allowed, Install, Member, OpenContext, Program, ProgramSpec, ServerSource, Servers,
        SourceError, SourceErrorKind,
    },
};
use replimeter_model::{
    sandbox::SandboxSpec,
    target::{NodeSpec, Target},
};
use replimeter_run::{
    Host,
    options::{CommandLineSettings, topology_file},
};
use replimeter_sandbox::{RunningSandboxes, programs, source::Sandboxes};

use crate::{
    active::Active, credentials::Credentials, environment, progress::StatusLine, terminal::Terminal,
};

/// Starts, finds or connects to the servers of any target.
pub(crate) struct Targets {
    credentials: Rc<Credentials>,
    /// The file that names the user's servers.
    topology: Option<PathBuf>,
    /// What a run may do to users' servers that it otherwise refuses.
    allowed: Allowed,
    /// The connections of the run.
    connections: Connections,
    /// The running sandboxes of the program.
    running: RunningSandboxes,
}

impl ServerSource for Targets {
    fn available(&self, spec: &SandboxSpec) -> Result<Install, SourceError> {
        self.sandboxes()?.available(spec)
    }

    fn check_available(&self, target: &Target) -> Result<(), SourceError> {
        match target {
            Target::Sandbox(spec) => self.sandboxes()?.check_available(spec),
            Target::Running(name) => self.sandboxes()?.find(name).map(drop),
            Target::Nodes(_) => Ok(()),
        }
    }

    fn data_folder(&self) -> Option<PathBuf> {
        let sandboxes = self.sandboxes().ok()?;
        Some(sandboxes.home.root().to_owned())
    }

    fn program(&self, name: &str) -> Result<PathBuf, SourceError> {
        programs::find(&self.sandboxes()?.search, name)
    }

    fn start_program(&self, spec: ProgramSpec<'_>) -> Result<Box<dyn Program>, SourceError> {
        programs::start(&self.sandboxes()?.home, spec)
    }

    fn open(
        &mut self,
        target: &Target,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn Servers>, SourceError> {
        match target {
            Target::Sandbox(spec) => self.sandboxes()?.start(spec, context),
            Target::Running(name) => self.sandboxes()?.open(name),
            Target::Nodes(specs) => {
                // A prompt and a spinner would overwrite each other.
                (context.quiet)();
                let mut servers = OwnServers {
                    label: target.label(),
                    specs: specs.clone(),
                    topology: self.topology.clone(),
                    credentials: Rc::clone(&self.credentials),
                    allowed: self.allowed,
                    connections: self.connections.clone(),
                    members: Vec::new(),
                };
                servers.connect(None)?;
                Ok(Box::new(servers))
            }
        }
    }
}

impl Targets {
    /// Creates the source of a run, with the command line's credentials; a plan can name an option file.
    pub(crate) fn of(
        given: &CommandLineSettings,
        defaults_file: Option<PathBuf>,
        active: &Active,
    ) -> Self {
        Self {
            credentials: Rc::new(Credentials {
                passwords: given.passwords.clone(),
                defaults_file,
                ask_password: given.ask_password,
                show_errors: given.show_errors,
            }),
            topology: given.topology.clone(),
            allowed: given.allowed,
            connections: active.connections.begin(),
            running: active.sandboxes.clone(),
        }
    }

    fn sandboxes(&self) -> Result<Sandboxes, SourceError> {
        environment::sandboxes(self.connections.clone(), self.running.clone())
    }
}

/// Returns the host of measurements.
pub(crate) fn host(active: &Active) -> Host<'static> {
    let active = active.clone();
    Host {
        held_appliers: active.held_appliers.clone(),
        hang_ups: active.hang_ups.clone(),
        servers: Box::new(move |given, defaults_file| {
            Box::new(Targets::of(given, defaults_file, &active))
        }),
        screen: &Terminal,
        keep_journal: environment::keep_journal(),
        fault: environment::fault(),
    }
}

/// Existing servers of the user.
struct OwnServers {
    label: String,
    specs: Vec<NodeSpec>,
    topology: Option<PathBuf>,
    credentials: Rc<Credentials>,
    allowed: Allowed,
    connections: Connections,
    members: Vec<Member>,
}

impl OwnServers {
    /// Finds out how to log in to all of them; those that were there `before` are asked for no password.
    fn connect(&mut self, before: Option<&[Member]>) -> Result<(), SourceError> {
        let nodes = self
            .credentials
            .nodes(&self.specs, &self.connections, before)?;
        let members = self.specs.iter().zip(nodes).map(|(spec, node)| Member {
            node,
            role: spec.role,
            source: spec.source.clone(),
            allowed: self.allowed,
            pid: None,
        });
        self.members = members.collect();
        Ok(())
    }
}

impl Servers for OwnServers {
    fn label(&self) -> &str {
        &self.label
    }

    fn members(&self) -> &[Member] {
        &self.members
    }

    fn read_again(&mut self) -> Result<bool, SourceError> {
        if let Some(path) = &self.topology {
            let file = topology_file::read(path).map_err(|error| {
                SourceError::new(SourceErrorKind::Usage, error.message, error.hint)
            })?;
            self.specs = file.nodes;
        }
        let before = self.members.clone();
        self.connect(Some(&before)).map(|()| true)
    }
}

/// Opens the servers of a target, with a progress message.
pub(crate) fn open(
    source: &mut dyn ServerSource,
    target: &Target,
    line: &StatusLine,
    stop: &AtomicBool,
) -> Result<Box<dyn Servers>, SourceError> {
    let context = OpenContext {
        say: &|text| line.say(text),
        quiet: &|| line.clear(),
        stop,
    };
    source.open(target, &context)
}
