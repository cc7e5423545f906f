//! Settings that keep servers from replicating alike.

use replimeter_model::doctor::{FindingCode as Code, Severity};

use crate::rules::{Rule, Subject};

fn all(_: &Subject<'_>) -> bool {
    true
}

/// A Galera node.
pub(super) const NODE: [Rule; 1] = [Rule {
    severity: Severity::Warning,
    code: Code::NodeDesynced,
    concerns: all,
    names: &["wsrep_desync"],
    values: &["ON", "1", "YES"],
    message: "it is desynced (wsrep_desync=ON): it may fall behind without slowing the other nodes",
    hint: "SET GLOBAL wsrep_desync=OFF; and wait until it is Synced",
}];
