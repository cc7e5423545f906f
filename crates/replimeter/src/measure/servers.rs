//! From a target to servers that can be talked to.

use std::{path::Path, sync::atomic::AtomicBool};

use replimeter_measure::survey::Declared;
use replimeter_model::{
    manifest::SandboxRecord,
    sandbox::SandboxSpec,
    target::{Passwords, Role, Target},
};
use replimeter_sandbox::{
    Sandbox, Settings,
    kept::{Kept, LinkState, Question},
};
use replimeter_server::Node;

use super::ANSWER;
use crate::{credentials, environment, failure::Failure, progress::Line};

/// The servers of a target; a sandbox of our own goes when this is dropped.
pub(crate) struct Servers {
    /// Started for this target alone.
    pub(crate) sandbox: Option<Sandbox>,
    /// The record of the sandbox, ours alone or one that is kept running.
    pub(crate) record: Option<SandboxRecord>,
    /// The servers, and what is said of them.
    pub(crate) declared: Vec<Declared>,
    /// What reports call the target.
    pub(crate) label: String,
}

impl Servers {
    /// The servers as a measurement asks them: whoever is slow to answer is away.
    pub(crate) fn to_measure(&self) -> Vec<Declared> {
        let prompt = |one: &Declared| Declared {
            node: Node {
                answer: ANSWER,
                ..one.node.clone()
            },
            ..one.clone()
        };
        self.declared.iter().map(prompt).collect()
    }
}

/// What reports call a target.
pub(crate) fn label(target: &Target) -> String {
    match target {
        Target::Sandbox(spec) => spec.shape.to_string(),
        Target::Running(name) => name.to_string(),
        Target::Nodes(nodes) => {
            // Members are all alike; of others the first is the primary.
            let members = nodes.iter().all(|node| node.role == Some(Role::Node));
            format!(
                "endpoints:{}",
                if members {
                    nodes.len()
                } else {
                    nodes.len() - 1
                }
            )
        }
    }
}

/// How a link is, for a run's record.
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

/// What to say when links of a kept sandbox are cut; a replica behind one looks like
/// any other that gets nothing.
pub(crate) fn cut_links(target: &Target) -> Option<String> {
    let Target::Running(name) = target else {
        return None;
    };
    let kept = Kept::find(&environment::private_home().ok()?, name).ok()?;
    let links = kept.ask(&Question::Status).ok()?.links;
    let cut: Vec<&str> = links
        .iter()
        .filter(|link| link.cut)
        .map(|link| link.name.as_str())
        .collect();
    if cut.is_empty() {
        return None;
    }
    Some(format!(
        "this sandbox's link {} is cut: replimeter sandbox link {name} --heal",
        cut.join(", ")
    ))
}

/// Looks whether every target can be had at all, before the first is measured.
///
/// # Errors
/// Of the first that cannot.
pub(crate) fn possible(targets: &[Target]) -> Result<(), Failure> {
    for target in targets {
        match target {
            Target::Sandbox(spec) => Sandbox::possible(&settings(spec)?)?,
            Target::Running(name) => Kept::find(&environment::private_home()?, name).map(|_| ())?,
            Target::Nodes(_) => {}
        }
    }
    Ok(())
}

/// What a sandbox is started with.
pub(crate) fn settings(spec: &SandboxSpec) -> Result<Settings, Failure> {
    let home = environment::private_home()?;
    let search = environment::search(&home, spec.servers.clone());
    Ok(Settings {
        spec: spec.clone(),
        search,
        home,
        guard: environment::guard(),
    })
}

/// Starts, finds or prepares to reach the servers of a target.
pub(crate) fn obtain(
    target: &Target,
    passwords: &Passwords,
    defaults_file: Option<&Path>,
    ask: bool,
    line: &Line,
    stop: &AtomicBool,
) -> Result<Servers, Failure> {
    let label = label(target);
    match target {
        Target::Sandbox(spec) => {
            line.say(format!("starting the sandbox {}", spec.shape));
            let sandbox = Sandbox::start(&settings(spec)?, stop)?;
            let declared = sandbox
                .members()
                .iter()
                .map(|member| Declared {
                    node: member.node.clone(),
                    role: Some(member.role),
                    source: member.source.clone(),
                })
                .collect();
            let record = Some(sandbox.record().clone());
            Ok(Servers {
                sandbox: Some(sandbox),
                record,
                declared,
                label,
            })
        }
        Target::Running(name) => {
            let kept = Kept::find(&environment::private_home()?, name)?;
            let declared = kept
                .nodes()?
                .into_iter()
                .map(|(node, role, source)| Declared {
                    node,
                    role: Some(role),
                    source,
                })
                .collect();
            // Links may have been changed since it was started.
            let links: Vec<String> = kept
                .ask(&Question::Status)?
                .links
                .iter()
                .map(words)
                .collect();
            let link = Some(links.join(", ")).filter(|links| !links.is_empty());
            let record = Some(SandboxRecord {
                link,
                ..kept.record().clone()
            });
            Ok(Servers {
                sandbox: None,
                record,
                declared,
                label: format!("{} ({name})", kept.details().shape),
            })
        }
        Target::Nodes(specs) => {
            // A prompt and a spinner would write over one another.
            line.clear();
            let nodes = credentials::nodes(specs, passwords, defaults_file, ask)?;
            let declared = specs
                .iter()
                .zip(nodes)
                .map(|(spec, node)| Declared {
                    node,
                    role: spec.role,
                    source: spec.source.clone(),
                })
                .collect();
            Ok(Servers {
                sandbox: None,
                record: None,
                declared,
                label,
            })
        }
    }
}
