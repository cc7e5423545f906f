//! Sandboxes that outlive their command: a keeper process parents the servers and
//! holds the lock of the sandbox's folder; whoever wants something of it asks it
//! over a socket in that folder. A record is believed only while the lock is held,
//! and nobody is ever signalled by a process id out of a file.

mod ask;
pub mod clients;
mod keeper;
mod launch;

use std::{
    fs,
    path::{Path, PathBuf},
};

use replimeter_engine::{Node, namespace::Namespace, option_file};
use replimeter_model::{
    manifest::SandboxRecord,
    sandbox::{SandboxName, SandboxSpec},
    target::{Role, Secret},
};
use serde::{Deserialize, Serialize};

pub use self::{
    ask::{Answer, NodeState, Question},
    keeper::keep,
    launch::{Launched, launch},
};
pub use crate::network::{LinkChange, LinkState};
use crate::{
    access::{CREDENTIALS, endpoint},
    error::SandboxError,
    home::{self, Home},
};

/// The record of a kept sandbox, in its folder.
const RECORD: &str = "sandbox.json";
/// The topology file of a kept sandbox, for `--topology`.
pub const TOPOLOGY: &str = "topology.toml";
/// The record's schema.
const SCHEMA: &str = "replimeter.sandbox-record/1";

/// One server in a record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptNode {
    /// `primary`, `replica1` …, `node1` ….
    pub name: String,
    /// What it is.
    pub role: Role,
    /// Whom it replicates from.
    pub source: Option<String>,
    /// Its TCP port on 127.0.0.1.
    pub port: u16,
    /// Its Unix socket.
    pub socket: PathBuf,
    /// Its error log.
    pub log: PathBuf,
    /// Product and version.
    pub version: String,
    /// The network namespace it runs in, when it has one of its own.
    pub namespace: Option<PathBuf>,
}

/// What a keeper says of its sandbox once it is ready.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The schema of this record.
    pub schema: String,
    /// The sandbox's name.
    pub name: SandboxName,
    /// Its shape.
    pub shape: String,
    /// When it was ready (RFC 3339, UTC).
    pub since: String,
    /// Its servers; the one that is written to first.
    pub nodes: Vec<KeptNode>,
    /// Names of its replication links, when they are links of ours.
    pub links: Vec<String>,
    /// How it came to be.
    pub sandbox: SandboxRecord,
}

/// A sandbox that a keeper keeps, as others see it.
#[derive(Clone, Debug)]
pub struct Kept {
    folder: PathBuf,
    record: Record,
    user: String,
    password: Secret,
}

/// What stands under a name.
#[derive(Clone, Debug)]
pub enum Found {
    /// A keeper keeps it.
    Running(Box<Kept>),
    /// A keeper is just starting it, or taking it down.
    Changing(String),
    /// Its keeper is gone, and with it its servers; only files are left.
    Dead(String),
}

impl Found {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Running(kept) => kept.record.name.as_str(),
            Self::Changing(name) | Self::Dead(name) => name,
        }
    }
}

fn look(folder: &Path) -> Result<Found, SandboxError> {
    let name = folder
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default();
    if !home::held(folder)? {
        return Ok(Found::Dead(name));
    }
    let Ok(text) = fs::read_to_string(folder.join(RECORD)) else {
        return Ok(Found::Changing(name));
    };
    let record: Record = serde_json::from_str(&text).map_err(|error| SandboxError::Kept {
        name: name.clone(),
        state: format!("its record cannot be read: {error}"),
        hint: format!(
            "end it with `replimeter sandbox down {name}`: another version of Replimeter started it"
        ),
    })?;
    let credentials =
        option_file::read(&folder.join(CREDENTIALS)).map_err(|error| SandboxError::Kept {
            name: name.clone(),
            state: error.to_string(),
            hint: "run the command as the user who started it".to_owned(),
        })?;
    let (Some(user), Some(password)) = (credentials.user, credentials.password) else {
        return Ok(Found::Changing(name));
    };
    Ok(Found::Running(Box::new(Kept {
        folder: folder.to_owned(),
        record,
        user,
        password,
    })))
}

/// Every kept sandbox below the private folder, by name; also dead ones.
///
/// # Errors
/// When the folder cannot be read.
pub fn list(home: &Home) -> Result<Vec<Found>, SandboxError> {
    // One that is just going, or unreadable, does not hide the others.
    let look = |folder: &PathBuf| {
        let name = folder
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        look(folder).unwrap_or(Found::Changing(name))
    };
    let mut found: Vec<Found> = home
        .named()?
        .iter()
        .map(look)
        .filter(|found| home.place(found.name()).exists())
        .collect();
    found.sort_by(|one, other| one.name().cmp(other.name()));
    Ok(found)
}

impl Kept {
    /// The running sandbox of this name.
    ///
    /// # Errors
    /// When there is none, or it is not ready; names those that there are.
    pub fn find(home: &Home, name: &SandboxName) -> Result<Self, SandboxError> {
        let folder = home.place_of(name);
        let refuse = |state: &str, hint: String| SandboxError::Kept {
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
            return Err(refuse(
                "there is no such sandbox",
                format!("{known}; start one with `replimeter sandbox up SHAPE --name {name}`"),
            ));
        }
        match look(&folder)? {
            Found::Running(kept) => Ok(*kept),
            Found::Changing(_) => Err(refuse(
                "it is being started or taken down",
                "wait a moment and try again".to_owned(),
            )),
            Found::Dead(_) => Err(refuse(
                "its supervisor was killed, and its servers ended with it",
                format!(
                    "start it again with `replimeter sandbox up`, or remove it with `replimeter sandbox down {name}`"
                ),
            )),
        }
    }

    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What its keeper wrote down.
    #[must_use]
    pub fn details(&self) -> &Record {
        &self.record
    }

    /// How it came to be.
    #[must_use]
    pub fn record(&self) -> &SandboxRecord {
        &self.record.sandbox
    }

    /// The user of its servers, and the password.
    #[must_use]
    pub fn credentials(&self) -> (&str, &Secret) {
        (&self.user, &self.password)
    }

    /// How to reach its servers, what each is, and whom it replicates from.
    ///
    /// # Errors
    /// When a server lives in a network of its own that cannot be entered: the way
    /// round, through a link of ours, would be measured along.
    pub fn nodes(&self) -> Result<Vec<(Node, Role, Option<String>)>, SandboxError> {
        let node = |kept: &KeptNode| {
            let namespace = kept
                .namespace
                .as_deref()
                .map(Namespace::open)
                .transpose()
                .map_err(|error| SandboxError::Kept {
                    name: self.record.name.to_string(),
                    state: format!("the network of {} cannot be entered: {error}", kept.name),
                    hint: "run the command as the user who started it".to_owned(),
                })?;
            let node = Node {
                name: kept.name.clone(),
                endpoint: endpoint(&self.user, kept.port),
                user: self.user.clone(),
                password: Some(self.password.clone()),
                answer: std::time::Duration::from_secs(10),
                namespace,
            };
            Ok((node, kept.role, kept.source.clone()))
        };
        self.record.nodes.iter().map(node).collect()
    }

    /// Asks the keeper.
    ///
    /// # Errors
    /// When it does not answer, or refuses.
    pub fn ask(&self, question: &Question) -> Result<Answer, SandboxError> {
        ask::ask(&self.folder, self.record.name.as_str(), question)
    }
}

/// What a keeper is told to do.
#[derive(Debug)]
pub struct Order {
    /// The sandbox's name.
    pub name: SandboxName,
    /// What to start.
    pub spec: SandboxSpec,
}

/// Ends a kept sandbox, running or dead, and removes everything of it.
///
/// # Errors
/// When there is none of this name, or it does not end.
pub fn down(home: &Home, name: &SandboxName) -> Result<(), SandboxError> {
    let folder = home.place_of(name);
    if !folder.is_dir() {
        // The error that names the others.
        return Kept::find(home, name).map(|_| ());
    }
    if home::held(&folder)? {
        ask::end(&folder, name.as_str())?;
    }
    home.remove_if_abandoned(&folder)
}
