//! Server variables for the servers of a sandbox.

use std::{fmt, str::FromStr};

/// One server variable to start a sandbox's servers with: `name=value`, or
/// `name` alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerOption {
    /// The option's name, dashes made underscores.
    pub name: String,
    /// Its value, if any.
    pub value: Option<String>,
}

/// Reason why a text is not a [`ServerOption`].
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ServerOptionError {
    /// The name is empty or has invalid characters.
    #[error("`{0}` is not a server option; write name=value, such as sync_binlog=1")]
    Syntax(String),
    /// The text before the colon names no server.
    #[error(
        "`{0}` is not a server of a sandbox; write primary, replica1 …, replicas (all of them) or node1 … before the colon, and = before a value"
    )]
    Node(String),
    /// The sandbox sets this option itself.
    #[error("the sandbox sets `{0}` itself; it cannot be changed")]
    Reserved(String),
}

/// Options that a sandbox needs to manage its servers.
const RESERVED: [&str; 46] = [
    "admin_address",
    "basedir",
    "bind_address",
    "bootstrap",
    "daemonize",
    "disable_log_bin",
    "datadir",
    "defaults_file",
    "defaults_extra_file",
    "group_replication_bootstrap_group",
    "group_replication_group_name",
    "group_replication_group_seeds",
    "group_replication_local_address",
    "group_replication_enforce_update_everywhere_checks",
    "group_replication_single_primary_mode",
    "group_replication_start_on_boot",
    "gtid_mode",
    "init_file",
    "initialize",
    "initialize_insecure",
    "log_bin",
    "log_error",
    "mysqlx_bind_address",
    "no_defaults",
    "pid_file",
    "port",
    "report_host",
    "report_port",
    "server_id",
    "skip_grant_tables",
    "skip_log_bin",
    "skip_networking",
    "socket",
    "user",
    "chroot",
    "wsrep_cluster_address",
    "wsrep_cluster_name",
    "wsrep_gtid_mode",
    "wsrep_new_cluster",
    "wsrep_gtid_domain_id",
    "wsrep_node_address",
    "wsrep_node_incoming_address",
    "wsrep_node_name",
    "wsrep_on",
    "wsrep_provider",
    "wsrep_sst_receive_address",
];

impl FromStr for ServerOption {
    type Err = ServerOptionError;

    fn from_str(text: &str) -> Result<Self, ServerOptionError> {
        let bare = text.strip_prefix("--").unwrap_or(text);
        let (name, value) = match bare.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (bare, None),
        };
        let valid = name.starts_with(|first: char| first.is_ascii_alphabetic())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
            && !text.contains(['\0', '\n']);
        if !valid {
            return Err(ServerOptionError::Syntax(text.to_owned()));
        }
        let name = name.replace('-', "_");
        let plain = name.strip_prefix("loose_").unwrap_or(&name);
        let bare = ["skip_", "disable_", "enable_", "maximum_"]
            .iter()
            .find_map(|prefix| plain.strip_prefix(prefix));
        // Servers accept any unambiguous prefix of an option's name.
        let reserved = |name: &str| RESERVED.iter().any(|reserved| reserved.starts_with(name));
        // Merged with Replimeter's own value, which requires the full name.
        let disguised = plain.starts_with("wsrep_provider_") && name != "wsrep_provider_options";
        if reserved(plain) || bare.is_some_and(reserved) || disguised {
            return Err(ServerOptionError::Reserved(name));
        }
        Ok(Self { name, value })
    }
}

impl fmt::Display for ServerOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

serde_as_text!(
    ServerOption,
    "description": "A server variable, NAME=VALUE or NAME",
    "examples": ["sync_binlog=1"]
);

/// A server option for all servers of a sandbox, or for one: `[NODE:]name=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeOption {
    /// The server it is for (`replica1`), or every replica (`replicas`); all servers when `None`.
    pub node: Option<String>,
    /// The option.
    pub option: ServerOption,
}

/// Name for all replicas in front of a server option.
const REPLICAS: &str = "replicas";

impl NodeOption {
    /// Returns whether it is for the server of this name.
    #[must_use]
    pub fn is_for(&self, name: &str) -> bool {
        match self.node.as_deref() {
            None => true,
            Some(REPLICAS) => name.starts_with("replica"),
            Some(node) => node == name,
        }
    }
}

impl FromStr for NodeOption {
    type Err = ServerOptionError;

    fn from_str(text: &str) -> Result<Self, ServerOptionError> {
        let name_ends = text.find('=').unwrap_or(text.len());
        let Some((node, option)) = text[..name_ends]
            .split_once(':')
            .map(|(node, _)| (node, &text[node.len() + 1..]))
        else {
            return Ok(Self {
                node: None,
                option: text.parse()?,
            });
        };
        let known = [
            ("replica", true),
            ("node", true),
            ("primary", false),
            (REPLICAS, false),
        ]
        .into_iter()
        .any(|(word, numbered)| {
            node.strip_prefix(word).is_some_and(|rest| {
                if numbered {
                    !rest.starts_with('0') && rest.parse::<u32>().is_ok()
                } else {
                    rest.is_empty()
                }
            })
        });
        if !known {
            return Err(ServerOptionError::Node(node.to_owned()));
        }
        Ok(Self {
            node: Some(node.to_owned()),
            option: option.parse()?,
        })
    }
}

impl fmt::Display for NodeOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}:{}", self.option),
            None => self.option.fmt(f),
        }
    }
}

serde_as_text!(
    NodeOption,
    "description": "A server variable for all servers of a sandbox or for one, [NODE:]NAME=VALUE",
    "examples": ["sync_binlog=1", "replica1:slave_parallel_threads=4"]
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_options_are_parsed() {
        let option: ServerOption = "sync-binlog=1".parse().unwrap();
        assert_eq!(
            (option.name.as_str(), option.value.as_deref()),
            ("sync_binlog", Some("1"))
        );
        assert!(matches!(
            "port=3306".parse::<ServerOption>(),
            Err(ServerOptionError::Reserved(_))
        ));
        assert!(matches!(
            "bind-addr=0.0.0.0".parse::<ServerOption>(),
            Err(ServerOptionError::Reserved(_))
        ));
        assert!(matches!(
            "--loose-datadir=/".parse::<ServerOption>(),
            Err(ServerOptionError::Reserved(_))
        ));
        for text in [
            "loose_wsrep_provider_options=x",
            "wsrep_provider_opt=x",
            "skip-log-bin",
            "disable_gtid_mode",
        ] {
            assert!(
                matches!(
                    text.parse::<ServerOption>(),
                    Err(ServerOptionError::Reserved(_))
                ),
                "{text}"
            );
        }
        for text in [
            "wsrep_provider_options=gcs.fc_limit=1",
            "skip_name_resolve",
            "sync_binlog=1",
        ] {
            assert!(text.parse::<ServerOption>().is_ok(), "{text}");
        }
        for text in ["", "=1", "a b=1", "1x", "x\n=1"] {
            assert!(text.parse::<ServerOption>().is_err(), "{text}");
        }
    }

    #[test]
    fn server_options_apply_to_one_or_all_servers() {
        let one: NodeOption = "replica1:slave-parallel-threads=4".parse().unwrap();
        assert!(one.is_for("replica1") && !one.is_for("replica2") && !one.is_for("primary"));
        assert_eq!(one.to_string(), "replica1:slave_parallel_threads=4");
        let all: NodeOption = "init_connect=SET a:=1".parse().unwrap();
        assert!(all.node.is_none() && all.is_for("node3"));
        assert!(
            "replicas:sync_binlog=0"
                .parse::<NodeOption>()
                .unwrap()
                .is_for("replica9")
        );
        for text in [
            "replica:x=1",
            "replica0:x=1",
            "master:x=1",
            "replica1:port=1",
            "node1:",
        ] {
            assert!(text.parse::<NodeOption>().is_err(), "{text}");
        }
    }
}
