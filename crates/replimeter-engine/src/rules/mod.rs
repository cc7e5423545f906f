//! Checks of servers for `doctor`. What they read and advise differs between engines, and has a folder for each family of engines.
//!
//! A `Rule` is data: it finds the values of one setting. What needs more of a server's state, or several servers, is a function.

mod mysql;

use std::{collections::BTreeMap, fmt};

use replimeter_model::{
    doctor::{Finding, FindingCode, Severity},
    replication::Relation,
};

pub use self::mysql::{
    ENGINES_DIFFER, WRITTEN_TO, acknowledgements, broken_chain, check_primary, errant, logs,
    members, sessions, stages,
};
use crate::{facts::ServerFacts, filter::Filters, membership::Membership, position::Executed};

/// A check of one setting of a server.
struct Rule {
    severity: Severity,
    code: FindingCode,
    /// Returns whether it concerns a server.
    concerns: fn(&Subject<'_>) -> bool,
    /// The names of the setting in different versions.
    names: &'static [&'static str],
    values: Values,
    /// The message without the server, in which `{value}` is the setting's value.
    message: &'static str,
    hint: &'static str,
}

/// The values of a setting that are found, in any case.
enum Values {
    /// These.
    Are(&'static [&'static str]),
    /// All except for these.
    Other(&'static [&'static str]),
}

impl Rule {
    /// Returns the finding about a server, if there is one. A setting that the server does not have has none.
    fn finding(&self, server: &Subject<'_>) -> Option<Finding> {
        let mut values = self.names.iter().map(|name| server.facts.get(name));
        let value = values.find(|value| !value.is_empty())?;
        let any = |listed: &[&str]| listed.iter().any(|one| one.eq_ignore_ascii_case(value));
        let is_found = match self.values {
            Values::Are(listed) => any(listed),
            Values::Other(listed) => !any(listed),
        };
        (is_found && (self.concerns)(server)).then(|| {
            let message = self.message.replace("{value}", value);
            server.about(self.severity, self.code, message, self.hint)
        })
    }
}

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
    /// Its counters.
    pub counters: &'a BTreeMap<String, String>,
    /// How long flow control stopped writes while it was examined, and the length of that time, in nanoseconds.
    pub stopped: Option<(u64, u64)>,
    /// The filters of its log; `None` when it has no log, or when they could not be read.
    pub log_filters: Option<&'a Filters>,
    /// Which transactions it has executed.
    pub executed: &'a Executed,
    /// How it receives writes.
    pub relation: Relation,
    /// The index of the server that it receives from, if that is by a channel.
    pub source: Option<usize>,
    /// The indexes of the sources of all of its channels, where they are known.
    pub channel_sources: &'a [Option<usize>],
    /// Whether another of the servers replicates from it.
    pub is_source: bool,
}

/// All servers; `None` for one that could not be read.
pub type Subjects<'a> = [Option<Subject<'a>>];

impl Subject<'_> {
    /// Returns the findings of these rules.
    fn findings(&self, rules: &[Rule]) -> Vec<Finding> {
        rules.iter().filter_map(|rule| rule.finding(self)).collect()
    }

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

#[cfg(test)]
mod tests {
    use replimeter_model::engine::Engine;

    use super::*;
    use crate::dialect::acknowledgement::ReplicaState;

    #[test]
    fn rule_reads_the_first_name_that_a_server_has() {
        let rule = |values| Rule {
            severity: Severity::Info,
            code: FindingCode::RowImage,
            concerns: |server| server.relation == Relation::Writer,
            names: &["new_name", "old_name"],
            values,
            message: "it is {value}",
            hint: "",
        };
        let membership = Membership {
            cluster: Ok(None),
            channels: Ok(Vec::new()),
            waits: None,
            acknowledges: ReplicaState::default(),
        };
        let found = |relation, variables: &[(&str, &str)], values| {
            let text = |text: &&str| (*text).to_owned();
            let variables = variables
                .iter()
                .map(|(name, value)| (text(name), text(value)));
            let facts = ServerFacts {
                engine: Engine::MySql,
                version: String::new(),
                variables: variables.collect(),
            };
            let server = Subject {
                name: "a",
                address: "h:1",
                facts: &facts,
                membership: &membership,
                counters: &BTreeMap::new(),
                stopped: None,
                log_filters: None,
                executed: &Executed::default(),
                relation,
                source: None,
                channel_sources: &[],
                is_source: false,
            };
            rule(values).finding(&server).map(|finding| finding.message)
        };
        let (is, other) = (|| Values::Are(&["off"]), || Values::Other(&["ON"]));
        let off = Some("a (h:1): it is OFF".to_owned());
        assert_eq!(found(Relation::Writer, &[("old_name", "OFF")], is()), off);
        assert_eq!(
            found(Relation::Writer, &[("old_name", "OFF")], other()),
            off
        );
        let both = [("new_name", "ON"), ("old_name", "OFF")];
        assert_eq!(found(Relation::Writer, &both, is()), None);
        assert_eq!(found(Relation::Writer, &both, other()), None);
        assert_eq!(found(Relation::Writer, &[], other()), None, "it has none");
        assert_eq!(found(Relation::Channel, &[("old_name", "OFF")], is()), None);
    }
}
