//! What the recorded settings of servers mean.

use std::{collections::BTreeMap, ptr};

use replimeter_model::{
    engine::Engine,
    manifest::{ServerMeaning, ServerRecord},
    replication::Mode,
};

use crate::dialect::{
    Channel,
    acknowledgement::{VariableNames, WORDS, on},
    variables::notable,
};

/// Adds what the settings of servers mean, and how they receive writes, and from whom, to records without it: of runs before it was
/// recorded, and of servers that were started in a known mode.
pub fn complete(servers: &mut [ServerRecord]) {
    let mut shapes: BTreeMap<&str, ShapeServers<'_>> = BTreeMap::new();
    for server in servers.iter() {
        shapes.entry(&server.shape).or_default().add(server);
    }
    let topology = |server: &ServerRecord| match server.mode {
        Some(_) => None,
        None => Some(topology(server, &shapes[server.shape.as_str()])),
    };
    let found: Vec<_> = servers.iter().map(topology).collect();
    for (server, found) in servers.iter_mut().zip(found) {
        if let Some((mode, receives_from)) = found {
            (server.mode, server.receives_from) = (Some(mode), receives_from);
        }
        server.meaning = meaning(server);
    }
}

fn meaning(server: &ServerRecord) -> ServerMeaning {
    ServerMeaning {
        wait_point: wait_point(server),
        single_primary: single_primary(server),
        notable: notable(server.mode)
            .filter(|name| server.variables.contains_key(*name))
            .collect(),
    }
}

/// Returns whether a variable is on.
fn is_on(server: &ServerRecord, name: &str) -> bool {
    server.variables.get(name).is_some_and(|value| on(value))
}

/// Returns the cluster that it is a member of, by its settings: its mode, and the cluster's name.
/// `None` for a server that replicates by a channel.
fn cluster(server: &ServerRecord) -> Option<(Mode, &str)> {
    let named = |name: &str| {
        server
            .variables
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    };
    if !server.replication.is_empty() {
        None
    } else if is_on(server, "wsrep_on")
        && named("wsrep_provider").is_some_and(|provider| provider != "none")
    {
        Some((
            Mode::Galera,
            named("wsrep_cluster_name").unwrap_or_default(),
        ))
    } else {
        named("group_replication_group_name").map(|name| (Mode::Group, name))
    }
}

/// Returns how it receives writes, and the name of its source, by its settings and channel status. The first of the
/// servers is written to; without a recorded channel status, all receive from it.
fn topology<'a>(server: &'a ServerRecord, servers: &ShapeServers<'a>) -> (Mode, Option<String>) {
    let Some(first) = servers.first.filter(|first| !ptr::eq(*first, server)) else {
        let cluster = cluster(server);
        return (cluster.map_or(Mode::None, |(mode, _)| mode), None);
    };
    if let Some(cluster) = cluster(server).filter(|own| cluster(first) == Some(*own)) {
        return (cluster.0, None);
    }
    let source = servers
        .source_of(server)
        .filter(|source| !ptr::eq(*source, server));
    let source = source.unwrap_or(first);
    let waits = ptr::eq(source, first) && wait_point(first).is_some();
    let mode = if waits && acknowledges(server) {
        Mode::SemiSync
    } else {
        Mode::Async
    };
    (mode, Some(source.name.clone()))
}

/// Returns whether its group takes writes at one member only.
fn single_primary(server: &ServerRecord) -> bool {
    is_on(server, "group_replication_single_primary_mode")
}

/// Returns whether it acknowledges receipt, as a replica.
fn acknowledges(server: &ServerRecord) -> bool {
    let enabled = |words: &VariableNames| is_on(server, &format!("{}_enabled", words.replica));
    WORDS.iter().any(enabled)
}

/// Returns when it waits for a replica, as a semi-synchronous primary: `after-sync` or `after-commit`; `None`
/// when it does not wait.
fn wait_point(server: &ServerRecord) -> Option<&'static str> {
    let enabled = |words: &&VariableNames| is_on(server, &format!("{}_enabled", words.primary));
    let words = WORDS.iter().find(enabled)?;
    let stated = server
        .variables
        .get(&format!("{}_wait_point", words.primary));
    Some(match stated.map(String::as_str) {
        Some("AFTER_SYNC") => "after-sync",
        Some("AFTER_COMMIT") => "after-commit",
        // The defaults of each engine.
        _ if server.dialect == Engine::MySql.name() => "after-sync",
        _ => "after-commit",
    })
}

/// The servers of a shape.
#[derive(Default)]
struct ShapeServers<'a> {
    first: Option<&'a ServerRecord>,
    by_id: BTreeMap<&'a str, &'a ServerRecord>,
    by_address: BTreeMap<&'a str, &'a ServerRecord>,
}

impl<'a> ShapeServers<'a> {
    fn add(&mut self, server: &'a ServerRecord) {
        self.first.get_or_insert(server);
        if let Some(id) = server.variables.get("server_id") {
            self.by_id.entry(id).or_insert(server);
        }
        self.by_address.entry(&server.address).or_insert(server);
    }

    /// Returns the server that another one receives from by its channel status: by the source's server id, which also
    /// holds behind a link, or by the address.
    fn source_of(&self, server: &ServerRecord) -> Option<&'a ServerRecord> {
        let channel = Channel::from_row(server.replication.clone());
        let by_address = || {
            let address = format!("{}:{}", channel.source_host, channel.source_port);
            self.by_address.get(address.as_str())
        };
        let id = Some(channel.source_server_id).filter(|id| *id != 0);
        let by_id = id.and_then(|id| self.by_id.get(id.to_string().as_str()));
        by_id.or_else(by_address).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_and_wait_point_are_read_from_settings() {
        let with = |dialect: &str, pairs: &[(&str, &str)]| ServerRecord {
            dialect: dialect.to_owned(),
            variables: pairs
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
            ..ServerRecord::default()
        };
        let node = with(
            "mariadb",
            &[
                ("wsrep_on", "ON"),
                ("wsrep_provider", "/galera.so"),
                ("wsrep_cluster_name", "c"),
            ],
        );
        assert_eq!(cluster(&node), Some((Mode::Galera, "c")));
        let lone = with(
            "mariadb",
            &[
                ("wsrep_on", "OFF"),
                ("wsrep_provider", "none"),
                ("wsrep_cluster_name", "my_wsrep_cluster"),
            ],
        );
        assert_eq!((cluster(&lone), wait_point(&lone)), (None, None));
        let member = with(
            "mysql",
            &[
                ("group_replication_group_name", "g"),
                ("group_replication_single_primary_mode", "ON"),
            ],
        );
        assert!(cluster(&member) == Some((Mode::Group, "g")) && single_primary(&member));
        assert_eq!(
            cluster(&with("mysql", &[("group_replication_group_name", "")])),
            None
        );
        assert_eq!(
            wait_point(&with("mysql", &[("rpl_semi_sync_source_enabled", "ON")])),
            Some("after-sync")
        );
        assert_eq!(
            wait_point(&with("mariadb", &[("rpl_semi_sync_master_enabled", "ON")])),
            Some("after-commit")
        );
        let said = [
            ("rpl_semi_sync_master_enabled", "ON"),
            ("rpl_semi_sync_master_wait_point", "AFTER_SYNC"),
        ];
        assert_eq!(wait_point(&with("mariadb", &said)), Some("after-sync"));
    }

    #[test]
    fn recorded_relations_are_kept_and_missing_ones_derived() {
        let server = |name: &str, source: &str| {
            let mut server = ServerRecord {
                name: name.to_owned(),
                address: format!("{name}:1"),
                ..ServerRecord::default()
            };
            let mut add = |key: &str, value: &str| {
                server.replication.insert(key.to_owned(), value.to_owned());
            };
            if !source.is_empty() {
                add("Master_Host", source);
                add("Master_Port", "1");
            }
            server
        };
        let mut servers = [
            server("a", ""),
            server("b", "a"),
            server("c", "b"),
            server("d", ""),
        ];
        servers[3].mode = Some(Mode::Group);
        complete(&mut servers);
        let found = servers.map(|server| (server.mode.unwrap(), server.receives_from));
        let from = |name: &str| (Mode::Async, Some(name.to_owned()));
        assert_eq!(
            found,
            [
                (Mode::None, None),
                from("a"),
                from("b"),
                (Mode::Group, None)
            ]
        );
    }
}
