//! Checks before anything is written: are these the servers, do they replicate
//! from one another, may the user do what is needed, would a setting falsify
//! the run?

use std::time::Duration;

use replimeter_model::{
    manifest::ServerRecord,
    target::SslMode,
    warning::{Warning, WarningCode},
};
use replimeter_server::{
    ErrorKind, Node, ServerError, Session,
    facts::{Facts, grants},
    filter::Filters,
    flavour::{self, Channel},
};

use crate::table::{SCHEMA, TABLE};

/// What the writer's user needs on the schema.
pub const PRIMARY_PRIVILEGES: [&str; 5] = ["CREATE", "DROP", "INSERT", "DELETE", "SELECT"];
/// What the observer's user needs on the schema.
pub const REPLICA_PRIVILEGES: [&str; 1] = ["SELECT"];

/// A server that passed.
pub struct Checked {
    /// How to reach it.
    pub node: Node,
    /// A session for questions outside the measuring path.
    pub session: Session,
    /// What it says of itself.
    pub facts: Facts,
}

/// A replica that passed.
pub struct CheckedReplica {
    /// The server.
    pub server: Checked,
    /// Its channel from the primary.
    pub channel: Channel,
}

impl CheckedReplica {
    /// The delay that its administrator configured.
    #[must_use]
    pub fn delay(&self) -> Duration {
        Duration::from_secs(self.channel.delay_s)
    }

    /// The channel from the primary as it is now, asked for on a new connection and
    /// with little patience: the replica may be frozen.
    ///
    /// # Errors
    /// When the replica does not answer or has lost the channel.
    pub fn channel_now(&self) -> Result<Channel, ServerError> {
        let mut session = Session::open(&self.server.impatient())?;
        let channels = flavour::channels(self.server.facts.engine, &mut session)?;
        channels.into_iter().find(|channel| channel.name == self.channel.name).ok_or_else(|| {
            session.unfit(
                "cannot read the replica's status",
                "the replication channel is gone",
                "did somebody reset the replica?",
            )
        })
    }
}

impl Checked {
    /// The server with little patience, for questions in the middle of a run.
    #[must_use]
    pub fn impatient(&self) -> Node {
        Node { answer: Duration::from_secs(1), ..self.node.clone() }
    }
}

/// Servers that passed, and what a reader should know of them.
pub struct Cluster {
    /// Where rows are written.
    pub primary: Checked,
    /// Where they are awaited.
    pub replicas: Vec<CheckedReplica>,
    /// What was found that does not forbid the run.
    pub warnings: Vec<Warning>,
}

impl Cluster {
    /// Records of all servers for the manifest; the primary first.
    #[must_use]
    pub fn records(&self) -> Vec<ServerRecord> {
        let record = |server: &Checked| server.facts.record(&server.session);
        let replicas = self
            .replicas
            .iter()
            .map(|replica| ServerRecord { replication: replica.channel.raw.clone(), ..record(&replica.server) });
        std::iter::once(record(&self.primary)).chain(replicas).collect()
    }

    /// The smallest `max_allowed_packet` of all servers, in bytes.
    #[must_use]
    pub fn max_allowed_packet(&self) -> Option<u64> {
        std::iter::once(&self.primary)
            .chain(self.replicas.iter().map(|replica| &replica.server))
            .filter_map(|server| server.facts.max_allowed_packet())
            .min()
    }
}

fn connect(node: &Node) -> Result<Checked, ServerError> {
    node.check_files()?;
    let mut session = Session::open(node)?;
    let facts = Facts::read(&mut session)?;
    Ok(Checked { node: node.clone(), session, facts })
}

/// Connects to every server and checks all of them; writes nothing.
///
/// # Errors
/// On the first thing that forbids the run, naming the server, the cause and
/// what to try.
pub fn check(primary: &Node, replicas: &[Node]) -> Result<Cluster, ServerError> {
    let mut primary = connect(primary)?;
    let mut warnings = Vec::new();
    let mut checked: Vec<CheckedReplica> = Vec::new();
    check_primary(&mut primary, &mut warnings)?;
    for node in replicas {
        let mut server = connect(node)?;
        different_servers(&mut primary.session, &mut server.session)?;
        for other in &mut checked {
            different_servers(&mut other.server.session, &mut server.session)?;
        }
        let channel = check_replica(&primary, &mut server, &mut warnings)?;
        checked.push(CheckedReplica { server, channel });
    }
    for server in std::iter::once(&primary).chain(checked.iter().map(|replica| &replica.server)) {
        if !server.session.tls() && server.node.endpoint.ssl_mode == SslMode::Preferred && !is_loopback(&server.node) {
            warnings.push(Warning::new(
                WarningCode::TlsNotVerified,
                format!("{} ({}): the connection is not encrypted", server.session.name(), server.session.address()),
                "add ?ssl-mode=verify-ca&ssl-ca=FILE to its URL if the network is not yours alone",
            ));
        }
    }
    Ok(Cluster { primary, replicas: checked, warnings })
}

fn is_loopback(node: &Node) -> bool {
    let host = node.endpoint.host.as_str();
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn check_primary(primary: &mut Checked, warnings: &mut Vec<Warning>) -> Result<(), ServerError> {
    let Checked { session, facts, .. } = primary;
    if let Some(name) = facts.read_only() {
        return Err(session.unfit(
            "cannot be the primary",
            format!("it is read-only ({name}={})", facts.get(name)),
            "name the writable primary with --primary",
        ));
    }
    check_privileges(session, facts, &PRIMARY_PRIVILEGES, warnings)?;
    if !facts.on("log_bin") {
        return Err(session.unfit(
            "cannot be the primary",
            "its binary log is off (log_bin=OFF)",
            "nothing replicates from it; turn the binary log on",
        ));
    }
    match flavour::binlog_filters(facts.engine, session) {
        Ok(filters) => refuse_filter(session, "its binary log", &filters.unwrap_or_default())?,
        Err(error) if error.kind == ErrorKind::Privilege => warnings.push(Warning::new(
            WarningCode::NotChecked,
            format!("{} ({}): the filters of its binary log could not be read", session.name(), session.address()),
            "grant BINLOG MONITOR (MariaDB) or REPLICATION CLIENT (MySQL) to have them checked",
        )),
        Err(error) => return Err(error),
    }
    Ok(())
}

fn refuse_filter(session: &Session, whose: &str, filters: &Filters) -> Result<(), ServerError> {
    match filters.swallows(SCHEMA, TABLE) {
        None => Ok(()),
        Some(reason) => Err(session.unfit(
            "a filter swallows the schema `replimeter`",
            format!("{whose} {reason}"),
            "let the schema `replimeter` pass the filter for the time of the measurement",
        )),
    }
}

fn check_privileges(
    session: &mut Session,
    facts: &Facts,
    wanted: &[&str],
    warnings: &mut Vec<Warning>,
) -> Result<(), ServerError> {
    let Some(grants) = grants(session, facts.engine)? else {
        warnings.push(Warning::new(
            WarningCode::NotChecked,
            format!("{} ({}): the user's privileges could not be read", session.name(), session.address()),
            "docs/privileges.md lists what is needed",
        ));
        return Ok(());
    };
    let missing = grants.missing(wanted, SCHEMA, TABLE);
    if missing.is_empty() {
        return Ok(());
    }
    let user = session.value("cannot read the user's name", "SELECT CURRENT_USER()")?.unwrap_or_default();
    let user = user.replacen('@', "'@'", 1);
    let mut error = session.unfit(
        "the user lacks privileges",
        format!("no {} on the schema `replimeter`", missing.join(", ")),
        format!("GRANT {} ON `replimeter`.* TO '{user}';", wanted.join(", ")),
    );
    error.kind = ErrorKind::Privilege;
    Err(error)
}

/// Refuses two addresses of one server: a lock taken by name through one is seen
/// through the other. Writes nothing, and neither names nor numbers can deceive.
fn different_servers(one: &mut Session, other: &mut Session) -> Result<(), ServerError> {
    let name = format!("replimeter.same.{}.{}", std::process::id(), one.connection_id());
    let doing = "cannot compare the servers";
    one.value(doing, &format!("SELECT GET_LOCK('{name}', 0)"))?;
    let holder = other.value(doing, &format!("SELECT IS_USED_LOCK('{name}')"))?;
    one.value(doing, &format!("SELECT RELEASE_LOCK('{name}')"))?;
    if holder.is_none() {
        return Ok(());
    }
    Err(other.unfit(
        "is not a server of its own",
        format!("it is the same server as {} ({})", one.name(), one.address()),
        "give each server once: the primary with --primary, each replica with --replica",
    ))
}

fn check_replica(primary: &Checked, server: &mut Checked, warnings: &mut Vec<Warning>) -> Result<Channel, ServerError> {
    check_privileges(&mut server.session, &server.facts, &REPLICA_PRIVILEGES, warnings)?;
    let Checked { session, facts, .. } = server;
    let channels = flavour::channels(facts.engine, session).map_err(|mut error| {
        if error.kind == ErrorKind::Privilege {
            error.hint = format!(
                "GRANT {} ON *.* to the user, so that the replica's state can be read",
                flavour::monitor_privilege(facts.engine)
            );
        }
        error
    })?;
    let channel = choose_channel(primary, session, channels)?;
    refuse_filter(session, "its replication", &channel.filters)?;
    if !channel.running() {
        return Err(session.unfit(
            "does not replicate",
            channel.state(),
            "mend replication first; the server's error log says more",
        ));
    }
    if channel.delay_s > 0 {
        warnings.push(Warning::new(
            WarningCode::DelayedReplica,
            format!(
                "{} ({}) is deliberately delayed by {} s (its configured replication delay); every time below includes that delay",
                session.name(),
                session.address(),
                channel.delay_s
            ),
            "this is no lag: set the delay to 0 to measure lag",
        ));
    }
    Ok(channel)
}

/// The channel that comes from the primary.
fn choose_channel(primary: &Checked, session: &Session, channels: Vec<Channel>) -> Result<Channel, ServerError> {
    let doing = "is not a replica of the given primary";
    if channels.is_empty() {
        return Err(session.unfit(doing, "it replicates from nowhere", "is this the right server? set up replication first"));
    }
    let identity = primary.facts.identity();
    let from_primary = |channel: &&Channel| {
        if identity.uuid.is_empty() || channel.source_uuid.is_empty() {
            channel.source_server_id == identity.server_id
        } else {
            channel.source_uuid == identity.uuid
        }
    };
    if let Some(channel) = channels.iter().find(from_primary) {
        return Ok(channel.clone());
    }
    // A channel that never connected knows no source yet; its address may tell.
    if let Some(channel) = channels.iter().find(|channel| channel.source_server_id == 0) {
        return Err(session.unfit(
            "does not replicate",
            channel.state(),
            "mend replication first; the server's error log says more",
        ));
    }
    let sources: Vec<String> = channels
        .iter()
        .map(|channel| format!("{}:{} (server_id {})", channel.source_host, channel.source_port, channel.source_server_id))
        .collect();
    Err(session.unfit(
        doing,
        format!(
            "it replicates from {}, and the primary {} has server_id {}",
            sources.join(", "),
            primary.session.address(),
            identity.server_id
        ),
        "name the primary that this replica replicates from, or another replica",
    ))
}
