//! How a replica applies transactions: threads, mode, order of commits.

use replimeter_model::engine::Engine;

use crate::{dialect::Channel, facts::ServerFacts};

/// A replica's applying threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appliers {
    /// Threads that apply in parallel; 0 and 1 both mean one.
    pub threads: u64,
    /// The variable for the number of threads, for statements.
    pub threads_variable: &'static str,
    /// How work is distributed (`optimistic`, `LOGICAL_CLOCK` …); empty when the server does not
    /// show it.
    pub mode: String,
    /// The variable for keeping the source's order of commits and whether it is on; `None` where
    /// the order is always kept.
    pub keeps_order: Option<(&'static str, bool)>,
}

impl Appliers {
    /// Returns whether more than one thread applies.
    #[must_use]
    pub fn parallel(&self) -> bool {
        self.threads > 1 && !self.ignores_threads()
    }

    /// Returns whether its mode leaves more than one thread unused.
    #[must_use]
    pub fn ignores_threads(&self) -> bool {
        self.mode == "none"
    }
}

/// The hint for appliers that leave threads unused.
pub const USE_THREADS: &str = "set slave_parallel_mode to conservative or optimistic";

/// Returns whether the number of threads can be set while channels other than the stopped one run.
#[must_use]
pub fn set_for_one_channel(engine: Engine) -> bool {
    engine == Engine::MySql
}

/// Returns the privileges to stop and start an applier and, if wanted, to set its threads.
#[must_use]
pub fn privileges(engine: Engine, threads: bool) -> &'static [&'static str] {
    match (engine, threads) {
        (Engine::MariaDb, _) => &["REPLICATION SLAVE ADMIN"],
        (Engine::MySql, false) => &["REPLICATION_SLAVE_ADMIN"],
        (Engine::MySql, true) => &["REPLICATION_SLAVE_ADMIN", "SYSTEM_VARIABLES_ADMIN"],
    }
}

/// Returns the first of these variables that the server has.
fn known<'n>(facts: &ServerFacts, names: &[&'n str]) -> Option<&'n str> {
    names
        .iter()
        .copied()
        .find(|name| facts.variables.contains_key(*name))
}

/// Returns the applying threads; `None` when the server does not show them.
#[must_use]
pub fn appliers(facts: &ServerFacts) -> Option<Appliers> {
    // MySQL since 8.0.26, MariaDB, older MySQL. MariaDB has the last one as an alias, too.
    let threads_variable = known(
        facts,
        &[
            "replica_parallel_workers",
            "slave_parallel_threads",
            "slave_parallel_workers",
        ],
    )?;
    let mode = known(
        facts,
        &[
            "replica_parallel_type",
            "slave_parallel_mode",
            "slave_parallel_type",
        ],
    );
    let order = known(
        facts,
        &[
            "replica_preserve_commit_order",
            "slave_preserve_commit_order",
        ],
    );
    Some(Appliers {
        threads: facts.get(threads_variable).parse().unwrap_or(0),
        threads_variable,
        mode: mode
            .map(|name| facts.get(name).to_owned())
            .unwrap_or_default(),
        keeps_order: order.map(|name| (name, facts.on(name))),
    })
}

/// Returns the channel's lag as the server reports it, in whole seconds; `None` when it reports
/// none, as while a thread is stopped.
#[must_use]
pub fn seconds_behind(channel: &Channel) -> Option<u64> {
    ["Seconds_Behind_Source", "Seconds_Behind_Master"]
        .iter()
        .find_map(|name| channel.raw.get(*name))?
        .parse()
        .ok()
}

/// Returns filters that are not by schema or table, but by GTID domain or `server_id` (MariaDB and
/// MySQL), as the server reports them.
#[must_use]
pub fn other_filters(channel: &Channel) -> Vec<String> {
    let names = [
        "Replicate_Do_Domain_Ids",
        "Replicate_Ignore_Domain_Ids",
        "Replicate_Ignore_Server_Ids",
    ];
    let stated = names
        .iter()
        .filter_map(|name| Some((*name, channel.raw.get(*name)?)));
    stated
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(variables: &[(&str, &str)]) -> ServerFacts {
        let variables = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        ServerFacts {
            engine: Engine::MariaDb,
            version: String::new(),
            variables,
        }
    }

    #[test]
    fn applier_settings_are_read_from_both_dialects() {
        let maria = appliers(&facts(&[
            ("slave_parallel_threads", "4"),
            ("slave_parallel_workers", "4"),
            ("slave_parallel_mode", "optimistic"),
        ]));
        let maria = maria.unwrap();
        assert_eq!(
            (maria.threads, maria.threads_variable, maria.keeps_order),
            (4, "slave_parallel_threads", None)
        );
        assert_eq!(maria.mode, "optimistic");
        let new = appliers(&facts(&[
            ("replica_parallel_workers", "8"),
            ("replica_preserve_commit_order", "OFF"),
        ]))
        .unwrap();
        assert_eq!(
            new.keeps_order,
            Some(("replica_preserve_commit_order", false))
        );
        let old = appliers(&facts(&[
            ("slave_parallel_workers", "0"),
            ("slave_preserve_commit_order", "ON"),
        ]))
        .unwrap();
        assert!(!old.parallel());
        assert_eq!(appliers(&facts(&[])), None);
    }
}
