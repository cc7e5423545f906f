//! Checks of servers for `doctor`. What they read and advise differs between engines, and has a folder for each family of engines.

mod mysql;

use std::fmt;

use replimeter_model::{
    doctor::{Finding, FindingCode, Severity},
    replication::Relation,
};

pub use self::mysql::errant;
use crate::{facts::ServerFacts, membership::Membership, position::Executed};

/// A server that was read, as checks see it.
#[derive(Clone, Copy)]
pub struct Subject<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its host and port.
    pub address: &'a str,
    /// Its settings.
    pub facts: &'a ServerFacts,
    /// How it takes part in replication.
    pub membership: &'a Membership,
    /// Which transactions it has executed.
    pub executed: &'a Executed,
    /// How it receives writes.
    pub relation: Relation,
    /// The indexes of the sources of all of its channels, where they are known.
    pub channel_sources: &'a [Option<usize>],
}

/// All servers; `None` for one that could not be read.
pub type Subjects<'a> = [Option<Subject<'a>>];

impl Subject<'_> {
    /// Returns a finding about this server.
    fn about(
        &self,
        severity: Severity,
        code: FindingCode,
        message: impl fmt::Display,
        hint: impl Into<String>,
    ) -> Finding {
        Finding::among(severity, code, message.to_string(), hint).about(self.name, self.address)
    }
}

/// Returns the servers that were read.
fn read<'s, 'a>(servers: &'s Subjects<'a>) -> impl Iterator<Item = &'s Subject<'a>> {
    servers.iter().flatten()
}

/// Returns a count with its noun.
fn number(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}
