//! Channels: their state, their sources, their filters.

use replimeter_engine::{
    dialect::{Channel, ThreadState, appliers, statements},
    rules,
};
use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    engine::Engine,
    replication::Relation,
};

use super::{
    CheckContext, about,
    examination::{Examination, ServerState},
    topology::reaches,
};
use crate::{
    SCHEMA, TABLE,
    discovery::stopped_applier,
    preflight::{HIDDEN, SOURCE_EFFECT, SOURCE_HINT, UnnamedReplicas, feeds_writer},
};

pub(super) fn check(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, server, state) in view.reached() {
        for (number, channel) in state.channels().iter().enumerate() {
            let source = view.topology.channel_sources[index][number];
            let used = view
                .source(index)
                .is_some_and(|source| source.channel == number);
            findings.extend(of_channel(server, state, channel, source.is_some(), used));
            if source.is_none() {
                findings.push(unnamed_source(view, index, channel));
            }
        }
        if state.channels().len() > 1 {
            let names: Vec<String> = state
                .channels()
                .iter()
                .map(|channel| source_name(view, index, channel))
                .collect();
            findings.push(about(
                Severity::Info,
                Code::MultiSource,
                server,
                format_args!("it replicates from several sources: {}", names.join(", ")),
                "expect more lag: writes of the other sources are applied between the measured ones",
            ));
        }
        findings.extend(rules::broken_chain(&view.subject(index, server, state)));
        findings.extend(unnamed(server, state));
    }
    findings.extend(circular(view));
    findings.extend(seconds_behind(view));
    findings
}

/// Returns the description of a channel's source.
pub(super) fn source_name(view: &CheckContext<'_>, index: usize, channel: &Channel) -> String {
    let known = view.state(index).and_then(|state| {
        state
            .channels()
            .iter()
            .position(|one| one.name == channel.name)
    });
    match known.and_then(|number| view.topology.channel_sources[index][number]) {
        Some(source) => view.servers[source].name.clone(),
        None if channel.source_host.contains(':') => {
            format!("[{}]:{}", channel.source_host, channel.source_port)
        }
        None => format!("{}:{}", channel.source_host, channel.source_port),
    }
}

/// Returns findings about connected replicas that are not named.
fn unnamed(server: &Examination, state: &ServerState) -> Vec<Finding> {
    let UnnamedReplicas {
        registered,
        readers,
        hidden,
    } = &state.unnamed;
    let mut facts: Vec<String> = registered
        .iter()
        .map(|replica| format!("{replica} replicates from it and is not named"))
        .collect();
    facts.extend(readers.map(|readers| readers.to_string()));
    let find = |fact| {
        about(
            Severity::Info,
            Code::ReplicaNotNamed,
            server,
            format_args!("{fact}: what a run writes is applied there too"),
            "name it too, or make sure that it has no schema `replimeter`",
        )
    };
    let hidden = hidden.map(|privilege| {
        let hint = format!("GRANT {privilege} ON *.* to the user");
        about(Severity::Info, Code::NotChecked, server, HIDDEN, hint)
    });
    facts.into_iter().map(find).chain(hidden).collect()
}

/// Returns the name of a channel in messages.
fn words(channel: &Channel) -> String {
    let name = if channel.name.is_empty() {
        String::new()
    } else {
        format!("channel `{}` ", channel.name)
    };
    format!(
        "replication {name}from {}:{}",
        channel.source_host, channel.source_port
    )
}

/// Returns the finding about a channel whose source is not named: an error if what it applies reaches the writer.
fn unnamed_source(view: &CheckContext<'_>, index: usize, channel: &Channel) -> Finding {
    let sources = |at: usize| view.topology.channel_sources[at].iter().flatten().copied();
    let in_cluster = |at: usize| {
        let relation = view.relation(at);
        relation == Relation::Writer || relation.in_cluster()
    };
    let fact = format!(
        "{} (server_id {}) comes from a server that is not named",
        words(channel),
        channel.source_server_id
    );
    let server = &view.servers[index];
    if !feeds_writer(sources, in_cluster, view.servers.len(), index) {
        let hint = "name that server too to examine it";
        return about(Severity::Info, Code::SourceNotNamed, server, fact, hint);
    }
    let allowed = view
        .topology
        .writer
        .is_some_and(|writer| view.servers[writer].write_to_replica);
    let severity = match allowed {
        true => Severity::Warning,
        false => Severity::Error,
    };
    about(
        severity,
        Code::SourceNotNamed,
        server,
        format_args!("{fact}: {SOURCE_EFFECT}"),
        SOURCE_HINT,
    )
}

fn of_channel(
    server: &Examination,
    state: &ServerState,
    channel: &Channel,
    named: bool,
    used: bool,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let engine = state.facts.engine;
    let words = words(channel);
    let mut add = |severity, code, message: String, hint: String| {
        findings.push(about(severity, code, server, message, hint))
    };
    if !channel.running() {
        let severity = if used || named {
            Severity::Error
        } else {
            Severity::Warning
        };
        add(
            severity,
            Code::ReplicationNotRunning,
            format!("{words} is not running: {}", channel.state()),
            mending(engine, channel),
        );
    } else if !channel.io_error.is_empty() || !channel.sql_error.is_empty() {
        add(
            Severity::Warning,
            Code::ReplicationError,
            format!(
                "{words} is running, but its last error is: {}",
                channel.state()
            ),
            "see the server's error log: the thread retries automatically".to_owned(),
        );
    }
    if channel.delay_s > 0 {
        let delay = statements::delay_option(engine);
        add(
            Severity::Warning,
            Code::DelayedReplica,
            format!(
                "{words} is deliberately delayed by {} s, which every lag includes",
                channel.delay_s
            ),
            format!(
                "to measure lag without the delay, stop it, set {delay}=0 with CHANGE … TO, and start it"
            ),
        );
    }
    findings.extend(filtered(server, channel, &words, used));
    findings
}

/// Returns the hint for a channel that is not running.
fn mending(engine: Engine, channel: &Channel) -> String {
    if let Some(hint) = stopped_applier(engine, channel) {
        return hint;
    }
    let start = statements::start(engine, channel, statements::ChannelPart::Both);
    if channel.sql_error.is_empty() && channel.io_error.is_empty() {
        if channel.receiver == ThreadState::Connecting {
            format!(
                "check that it can reach {}:{} and that its user may log in there (it is connecting)",
                channel.source_host, channel.source_port
            )
        } else {
            format!("start it: {start}")
        }
    } else {
        format!("fix the cause of the error (see the server's error log), then {start}")
    }
}

/// Returns a finding about a channel's filters.
fn filtered(server: &Examination, channel: &Channel, words: &str, used: bool) -> Option<Finding> {
    if let Some(reason) = channel.filters.excludes(SCHEMA, &TABLE).filter(|_| used) {
        return Some(about(
            Severity::Error,
            Code::FilterSwallowsSchema,
            server,
            format_args!("{words} {reason}: rows of a measurement would not arrive"),
            format!("let the schema `{SCHEMA}` pass the filter during the measurement"),
        ));
    }
    let mut filters = channel.filters.texts();
    filters.extend(appliers::other_filters(channel));
    (!filters.is_empty()).then(|| {
        about(
            Severity::Info,
            Code::ReplicationFilter,
            server,
            format_args!("{words} is filtered: {}", filters.join("; ")),
            format!(
                "the schema `{SCHEMA}` passes; the filtered data costs the replica less than the source"
            ),
        )
    })
}

fn circular(view: &CheckContext<'_>) -> Option<Finding> {
    let sources = &view.topology.channel_sources;
    let in_circle = |index: usize| {
        sources[index]
            .iter()
            .flatten()
            .any(|source| reaches(sources, *source, index))
    };
    let circle: Vec<String> = (0..view.servers.len())
        .filter(|index| in_circle(*index))
        .map(|index| view.title(index))
        .collect();
    (!circle.is_empty()).then(|| {
        Finding::among(
            Severity::Warning,
            Code::CircularReplication,
            format!("{} replicate in a circle: writes on more than one of them may conflict", circle.join(", ")),
            "write to one of them only, make the others read-only, and declare that one the primary",
        )
    })
}

/// A replica that reports more than this beyond its configured delay is behind.
const BEHIND_S: u64 = 5;

/// Returns the lag as servers report it; never a measurement.
fn seconds_behind(view: &CheckContext<'_>) -> Option<Finding> {
    let mut behind = false;
    let said: Vec<String> = view
        .reached()
        .flat_map(|(_, server, state)| {
            let channels = state.channels().iter();
            channels.map(move |channel| (server, channel))
        })
        .filter_map(|(server, channel)| {
            let seconds = appliers::seconds_behind(channel)?;
            behind |= seconds > BEHIND_S + channel.delay_s;
            let name = if channel.name.is_empty() {
                String::new()
            } else {
                format!(" (`{}`)", channel.name)
            };
            Some(format!("{}{name} {seconds} s", server.name))
        })
        .collect();
    if behind {
        return Some(Finding::among(
            Severity::Warning,
            Code::SecondsBehind,
            format!(
                "replicas report Seconds_Behind: {}; `lag` would first wait until they have caught up, and then measure them in that state",
                said.join(", ")
            ),
            "use `replimeter tap` or `replimeter exposure` to observe a replica while it is behind; or wait, and measure when it has caught up",
        ));
    }
    (!said.is_empty()).then(|| {
        Finding::among(
            Severity::Info,
            Code::SecondsBehind,
            format!("replicas report Seconds_Behind: {}", said.join(", ")),
            "use `replimeter lag` to measure: these are whole seconds by two servers' clocks, and 0 while nothing is applied",
        )
    })
}
