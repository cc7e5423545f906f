//! The servers of every kind of target: sandboxes, and the user's own servers.

use std::sync::atomic::AtomicBool;

use replimeter_model::{sandbox::SandboxSpec, target::Target};
use replimeter_server::source::{Install, Member, OpenContext, ServerSource, Servers, SourceError};

use crate::{credentials::Credentials, environment, progress::Line};

/// Starts, finds or reaches the servers of a target, whatever it is.
#[derive(Default)]
pub(crate) struct Targets(pub(crate) Credentials);

impl ServerSource for Targets {
    fn available(&self, spec: &SandboxSpec) -> Result<Install, SourceError> {
        environment::sandboxes()?.available(spec)
    }

    fn possible(&self, target: &Target) -> Result<(), SourceError> {
        match target {
            Target::Sandbox(spec) => environment::sandboxes()?.possible(spec),
            Target::Running(name) => environment::sandboxes()?.find(name).map(drop),
            Target::Nodes(_) => Ok(()),
        }
    }

    fn open(
        &mut self,
        target: &Target,
        context: &OpenContext<'_>,
    ) -> Result<Box<dyn Servers>, SourceError> {
        match target {
            Target::Sandbox(spec) => environment::sandboxes()?.start(spec, context),
            Target::Running(name) => environment::sandboxes()?.open(name),
            Target::Nodes(specs) => {
                // A prompt and a spinner would write over one another.
                (context.quiet)();
                let nodes = self.0.nodes(specs)?;
                let members = specs.iter().zip(nodes).map(|(spec, node)| Member {
                    node,
                    role: spec.role,
                    source: spec.source.clone(),
                    pid: None,
                });
                Ok(Box::new(OwnServers {
                    label: target.label(),
                    members: members.collect(),
                }))
            }
        }
    }
}

/// Servers of the user's.
struct OwnServers {
    label: String,
    members: Vec<Member>,
}

impl Servers for OwnServers {
    fn label(&self) -> &str {
        &self.label
    }

    fn members(&self) -> &[Member] {
        &self.members
    }
}

/// Opens the servers of a target, and says so.
pub(crate) fn open(
    source: &mut dyn ServerSource,
    target: &Target,
    line: &Line,
    stop: &AtomicBool,
) -> Result<Box<dyn Servers>, SourceError> {
    let context = OpenContext {
        say: &|text| line.say(text),
        quiet: &|| line.clear(),
        stop,
    };
    source.open(target, &context)
}
