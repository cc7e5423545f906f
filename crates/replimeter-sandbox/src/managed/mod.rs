//! Managed sandboxes, which outlive their command: a supervisor process is the parent of the
//! servers and holds the lock of the sandbox's folder; other processes send it requests over a
//! socket in that folder. A record is valid only while the lock is held, and no process is signaled
//! by a process id from a file.

mod client;
pub mod clients;
mod launch;
mod supervisor;

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use replimeter_engine::{Connections, Node, namespace::Namespace, option_file};
use replimeter_model::{
    manifest::SandboxRecord,
    sandbox::{SandboxName, SandboxSpec},
    serde_error::plain,
    shape::Shape,
    target::{Role, Secret},
};
use serde::{Deserialize, Serialize};

pub use self::{
    client::{NodeState, SupervisorRequest, SupervisorResponse},
    launch::{LaunchReport, launch},
    supervisor::supervise,
};
pub use crate::network::{LinkChange, LinkState};
use crate::{
    access::{CREDENTIALS, endpoint},
    error::SandboxError,
    home::{self, Home},
};

/// The record of a managed sandbox, in its folder.
const RECORD: &str = "sandbox.json";
/// The topology file of a managed sandbox, for `--topology`.
pub const TOPOLOGY: &str = "topology.toml";
/// The record's schema.
const SCHEMA: &str = "replimeter.sandbox-record/1";

/// One server in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ManagedNode {
    /// `primary`, `replica1` …, `node1` ….
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The name of its source.
    pub source: Option<String>,
    /// Its TCP port on 127.0.0.1.
    pub port: u16,
    /// Its Unix socket.
    pub socket: PathBuf,
    /// Its error log.
    pub log: PathBuf,
    /// Product and version.
    pub version: String,
    /// Its own network namespace, if any.
    pub namespace: Option<PathBuf>,
}

/// The record of a running sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ManagedRecord {
    /// The schema of this record.
    pub schema: String,
    /// The sandbox's name.
    pub name: SandboxName,
    /// Its shape.
    pub shape: String,
    /// When it was ready (RFC 3339, UTC).
    pub since: String,
    /// Its servers; the writer first.
    pub nodes: Vec<ManagedNode>,
    /// Names of its replication links, if it has links.
    pub links: Vec<String>,
    /// Its versions, settings and command lines.
    pub sandbox: SandboxRecord,
}

/// A managed sandbox, as other processes see it.
#[derive(Clone, Debug)]
pub struct ManagedSandbox {
    folder: PathBuf,
    record: ManagedRecord,
    user: String,
    password: Secret,
}

/// The state of a managed sandbox.
#[derive(Clone, Debug)]
pub enum NamedSandbox {
    /// Its supervisor runs.
    Running(Box<ManagedSandbox>),
    /// Its supervisor is starting it, or taking it down.
    Changing(String),
    /// Its supervisor has ended, and with it the servers; only files are left.
    Dead(String),
}

impl NamedSandbox {
    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Running(managed) => managed.record.name.as_str(),
            Self::Changing(name) | Self::Dead(name) => name,
        }
    }
}

fn inspect(folder: &Path) -> Result<NamedSandbox, SandboxError> {
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if !home::held(folder)? {
        return Ok(NamedSandbox::Dead(name));
    }
    let Ok(text) = fs::read_to_string(folder.join(RECORD)) else {
        return Ok(NamedSandbox::Changing(name));
    };
    let record: ManagedRecord = serde_json::from_str(&text).map_err(|error| SandboxError::Managed {
        name: name.clone(),
        state: format!("its record cannot be read: {}", plain(&error)),
        hint: format!(
            "end it with `replimeter sandbox down {name}`: another version of Replimeter started it"
        ),
    })?;
    let credentials =
        option_file::read(&folder.join(CREDENTIALS)).map_err(|error| SandboxError::Managed {
            name: name.clone(),
            state: error.to_string(),
            hint: "run the command as the user who started it".to_owned(),
        })?;
    let (Some(user), Some(password)) = (credentials.user, credentials.password) else {
        return Ok(NamedSandbox::Changing(name));
    };
    Ok(NamedSandbox::Running(Box::new(ManagedSandbox {
        folder: folder.to_owned(),
        record,
        user: user.value,
        password: password.value,
    })))
}

/// Returns every managed sandbox below the private folder, by name, including dead ones.
///
/// # Errors
/// When the folder cannot be read.
pub fn list(home: &Home) -> Result<Vec<NamedSandbox>, SandboxError> {
    // One that is being removed, or unreadable, does not hide the others.
    let inspect = |folder: &PathBuf| {
        let name = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        inspect(folder).unwrap_or(NamedSandbox::Changing(name))
    };
    let mut found: Vec<NamedSandbox> = home
        .named()?
        .iter()
        .map(inspect)
        .filter(|found| home.place(found.name()).exists())
        .collect();
    found.sort_by(|one, other| one.name().cmp(other.name()));
    Ok(found)
}

impl ManagedSandbox {
    /// Returns the running sandbox of this name.
    ///
    /// # Errors
    /// When it does not exist, or is not ready; lists the existing ones.
    pub fn find(home: &Home, name: &SandboxName) -> Result<Self, SandboxError> {
        let folder = home.sandbox_path(name);
        let refuse = |state: &str, hint: String| SandboxError::Managed {
            name: name.to_string(),
            state: state.to_owned(),
            hint,
        };
        if !folder.is_dir() {
            let known: Vec<String> = list(home)
                .unwrap_or_default()
                .iter()
                .map(|found| found.name().to_owned())
                .collect();
            let known = if known.is_empty() {
                "none is running".to_owned()
            } else {
                format!("running: {}", known.join(", "))
            };
            let (shape, written) = match Shape::nearest(name.as_str()) {
                Some(shape) => (
                    shape.to_string(),
                    format!(", or write the shape as `{shape}`"),
                ),
                None => ("SHAPE".to_owned(), String::new()),
            };
            return Err(SandboxError::Name {
                name: name.to_string(),
                reason: "there is no such sandbox".to_owned(),
                hint: format!(
                    "{known}; start one with `replimeter sandbox up {shape} --name {name}`{written}"
                ),
            });
        }
        match inspect(&folder)? {
            NamedSandbox::Running(managed) => Ok(*managed),
            NamedSandbox::Changing(_) => Err(refuse(
                "it is being started or taken down",
                "wait a moment and try again".to_owned(),
            )),
            NamedSandbox::Dead(_) => Err(refuse(
                "its supervisor was killed, and its servers ended with it",
                format!(
                    "start it again with `replimeter sandbox up`, or remove it with `replimeter sandbox down {name}`"
                ),
            )),
        }
    }

    /// Returns its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns its record.
    #[must_use]
    pub fn details(&self) -> &ManagedRecord {
        &self.record
    }

    /// Returns its versions, settings and command lines.
    #[must_use]
    pub fn record(&self) -> &SandboxRecord {
        &self.record.sandbox
    }

    /// Returns the user of its servers, and the password.
    #[must_use]
    pub fn credentials(&self) -> (&str, &Secret) {
        (&self.user, &self.password)
    }

    /// Returns how to reach its servers, with role and source of each.
    ///
    /// # Errors
    /// When a server's network namespace cannot be entered: on the other way, through a link, the
    /// link would be part of every time.
    pub fn nodes(
        &self,
        connections: &Connections,
    ) -> Result<Vec<(Node, Role, Option<String>)>, SandboxError> {
        let node = |managed: &ManagedNode| {
            let namespace = managed
                .namespace
                .as_deref()
                .map(Namespace::open)
                .transpose()
                .map_err(|error| SandboxError::Managed {
                    name: self.record.name.to_string(),
                    state: format!("the network of {} cannot be entered: {error}", managed.name),
                    hint: "run the command as the user who started it".to_owned(),
                })?;
            let endpoint = endpoint(&self.user, managed.port);
            let node = Node {
                password: Some(self.password.clone()),
                namespace,
                connections: connections.clone(),
                log: Some(managed.log.clone()),
                ..Node::new(&managed.name, endpoint, &self.user, Duration::from_secs(10))
            };
            Ok((node, managed.role, managed.source.clone()))
        };
        self.record.nodes.iter().map(node).collect()
    }

    /// Returns which servers ended, and how to restart the sandbox or remove it; `None` if all run.
    #[must_use]
    pub fn ended_servers(&self, state: &SupervisorResponse) -> Option<String> {
        let ManagedRecord { name, shape, .. } = &self.record;
        let ended = state.nodes.iter();
        let ended: Vec<String> = ended
            .filter_map(|node| Some(format!("{} ({})", node.name, node.ended.as_ref()?)))
            .collect();
        (!ended.is_empty()).then(|| {
            format!(
                "{} of the sandbox {name} ended: remove it with `replimeter sandbox down {name}`, then start it again with `replimeter sandbox up {shape} --name {name}`",
                ended.join(", ")
            )
        })
    }

    /// Sends a request to the supervisor.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub fn ask(&self, question: &SupervisorRequest) -> Result<SupervisorResponse, SandboxError> {
        client::ask(&self.folder, self.record.name.as_str(), question)
    }
}

/// The order to a supervisor.
#[derive(Debug)]
pub struct SupervisorConfig {
    /// The sandbox's name.
    pub name: SandboxName,
    /// The sandbox to start.
    pub spec: SandboxSpec,
}

/// Ends a managed sandbox, running or dead, and removes all of its files.
///
/// # Errors
/// When none has this name, or it does not end.
pub fn down(home: &Home, name: &SandboxName) -> Result<(), SandboxError> {
    let folder = home.sandbox_path(name);
    if !folder.is_dir() {
        // The error that lists the existing ones.
        return ManagedSandbox::find(home, name).map(|_| ());
    }
    if home::held(&folder)? {
        client::end(&folder, name.as_str())?;
    }
    home.remove_if_abandoned(&folder)
}
