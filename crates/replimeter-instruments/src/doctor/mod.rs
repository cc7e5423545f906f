//! Examines a set of servers and reports problems, and facts to know before a measurement. All data
//! is read first and then checked by pure functions, which can be tested with any state. Nothing is
//! written, no lock is taken and no setting is changed except those of Replimeter's own sessions.

mod clocks;
mod connection;
mod examination;
mod replication;
mod rows;
mod settings;
#[cfg(test)]
mod tests;
mod topology;

use std::{thread, time::Duration};

use replimeter_engine::{
    Node, ServerError,
    position::executed,
    rules::{self, Subject},
    source::Member,
};
use replimeter_model::{
    doctor::{Diagnosis, Finding, FindingCode, Severity},
    replication::{Mode, Relation},
};

use self::{
    examination::{Examination, OpenServer, ServerState},
    topology::{Topology, topology},
};
use crate::{
    SCHEMA, TABLE,
    clock::Calendar,
    discovery::{DiscoveredServer, Source, find_topology},
    preflight::find_unnamed,
};

/// How long a source may take to record transactions that its replicas have already applied: with
/// semi-synchronous replication it records them after their acknowledgement.
const SETTLE: Duration = Duration::from_millis(200);

/// Examines every server, including those behind an unreachable one, and checks the results.
/// `progress` receives the current step.
#[must_use]
pub fn examine(declared: &[Member], progress: &mut dyn FnMut(&str)) -> Diagnosis {
    let calendar = Calendar::calibrate();
    let (mut servers, mut open) = (Vec::new(), Vec::new());
    for one in declared {
        progress(&format!("examining {}", one.node));
        let (examination, session) = examination::examine(one, &calendar);
        servers.push(examination);
        open.push(session);
    }
    progress("comparing the servers");
    find_same(&mut servers, &mut open);
    let (topology, mode) = relations(&mut servers, &mut open, declared);
    read_executed(&mut servers, &mut open, &topology);
    progress("comparing clocks");
    for (server, open) in servers.iter_mut().zip(&mut open) {
        ask(server, open, |open, state| {
            state.stopped = open.flow_control_stopped(state, &calendar)?;
            state.clock = open.clock(&calendar)?;
            Ok(())
        });
    }
    let mut diagnosis = diagnose(&servers, &topology, mode);
    for OpenServer { discovered, .. } in open.iter().flatten() {
        add_log(&mut diagnosis.findings, &discovered.node);
    }
    diagnosis
}

/// Completes the hints of the findings about this server.
fn add_log(findings: &mut [Finding], node: &Node) {
    for finding in findings {
        if finding.node.as_ref() == Some(&node.name) {
            finding.hint = node.hint(std::mem::take(&mut finding.hint));
        }
    }
}

/// Queries a server again. One whose connection is lost counts as not examined.
fn ask(
    server: &mut Examination,
    open: &mut Option<OpenServer>,
    question: impl FnOnce(&mut OpenServer, &mut ServerState) -> Result<(), ServerError>,
) {
    if let (Ok(state), Some(session)) = (&mut server.state, open.as_mut())
        && let Err(error) = question(session, state)
    {
        server.state = Err(error);
        *open = None;
    }
}

/// Finds servers that were named twice, among those that may be the same.
fn find_same(servers: &mut [Examination], open: &mut [Option<OpenServer>]) {
    for (later, server) in servers.iter_mut().enumerate().skip(1) {
        let (before, rest) = open.split_at_mut(later);
        ask(server, &mut rest[0], |session, state| {
            for (index, earlier) in before.iter().enumerate() {
                let Some(earlier) = earlier else { continue };
                let (one, other) = (earlier.discovered.facts.identity(), state.facts.identity());
                if one.server_id == other.server_id
                    && one.uuid == other.uuid
                    && session.is_same_server(earlier)?
                {
                    state.same_as.push(index);
                }
            }
            Ok(())
        });
    }
}

/// Returns the relations between the servers, and the mode of a measurement of them.
fn relations(
    servers: &mut [Examination],
    open: &mut [Option<OpenServer>],
    declared: &[Member],
) -> (Topology, Option<Mode>) {
    if open.iter().any(Option::is_none) || open.is_empty() {
        return (topology(servers, None), None);
    }
    let (mut discovered, rest): (Vec<DiscoveredServer>, Vec<_>) = open
        .iter_mut()
        .filter_map(Option::take)
        .map(OpenServer::split)
        .unzip();
    let related = find_topology(&discovered, declared);
    // Without an answer there is nothing to report.
    let unnamed = find_unnamed(&mut discovered).unwrap_or_default();
    for (server, unnamed) in servers.iter_mut().zip(unnamed) {
        if let Ok(state) = &mut server.state {
            state.unnamed = unnamed;
        }
    }
    for ((slot, discovered), rest) in open.iter_mut().zip(discovered).zip(rest) {
        *slot = Some(OpenServer::join(discovered, rest));
    }
    let mode = related.as_ref().ok().map(|topology| topology.mode);
    (topology(servers, Some(related)), mode)
}

/// Reads which transactions every server has executed: replicas before sources, so that
/// transactions in transit are not a difference; where a difference is found, the source is read
/// again after a pause.
fn read_executed(
    servers: &mut [Examination],
    open: &mut [Option<OpenServer>],
    topology: &Topology,
) {
    let mut order: Vec<usize> = (0..servers.len())
        .filter(|index| topology.writer != Some(*index))
        .collect();
    order.extend(topology.writer);
    let mut read = |servers: &mut [Examination], index: usize| {
        ask(&mut servers[index], &mut open[index], |open, state| {
            state.executed = executed(&state.facts, &mut open.discovered.session)?;
            Ok(())
        });
    };
    for index in order {
        read(servers, index);
    }
    if let Some(writer) = topology.writer
        && rules::errant(&CheckContext { servers, topology }.subjects())
            .iter()
            .any(|finding| finding.severity > Severity::Info)
    {
        thread::sleep(SETTLE);
        read(servers, writer);
    }
}

/// Checks the data and returns the findings.
fn diagnose(servers: &[Examination], topology: &Topology, mode: Option<Mode>) -> Diagnosis {
    let view = CheckContext { servers, topology };
    // A single server has no replica here, unless it is in a cluster.
    let mode = match view.topology.writer.and_then(|writer| view.state(writer)) {
        Some(state) if servers.len() == 1 => rows::cluster(state),
        _ => mode,
    };
    let clocks = clocks::differences(&view);
    let subjects = view.subjects();
    let mut findings = Vec::new();
    findings.extend(connection::check(&view));
    findings.extend(rules::members(&subjects));
    findings.extend(replication::check(&view));
    findings.extend(rules::acknowledgements(&subjects));
    findings.extend(rules::logs(&subjects, SCHEMA, &TABLE));
    findings.extend(rules::errant(&subjects));
    findings.extend(clocks::check(&clocks));
    findings.extend(settings::check(&view));
    findings.extend(refused(&view, &findings));
    // Stable: within a severity, findings keep the order of checks and servers.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Diagnosis {
        mode,
        writer: topology.writer.map(|writer| servers[writer].name.clone()),
        results: rows::rows(&view),
        clocks,
        findings,
    }
}

/// Returns why a measurement would refuse these servers as a set, unless a more detailed finding
/// reports it already.
fn refused(view: &CheckContext<'_>, said: &[Finding]) -> Option<Finding> {
    let error = view.topology.refused.as_ref()?;
    let same = |finding: &&Finding| {
        finding.severity == Severity::Error
            && finding.node.as_ref() == Some(&error.node)
            && matches!(
                finding.code,
                FindingCode::ReplicationNotRunning
                    | FindingCode::MissingPrivilege
                    | FindingCode::SameServer
                    | FindingCode::DuplicateServerId
                    | FindingCode::DuplicateServerUuid
                    | FindingCode::ClusterSplit
                    | FindingCode::MemberNotReady
            )
    };
    said.iter().find(same).is_none().then(|| Finding {
        severity: Severity::Error,
        code: FindingCode::TopologyRefused,
        node: Some(error.node.clone()),
        message: error.to_string(),
        hint: error.hint.clone(),
    })
}

/// The data that checks use.
#[derive(Clone, Copy)]
struct CheckContext<'a> {
    servers: &'a [Examination],
    topology: &'a Topology,
}

impl<'a> CheckContext<'a> {
    /// Returns a server's state, when it could be examined.
    fn state(&self, index: usize) -> Option<&'a ServerState> {
        self.servers[index].seen()
    }

    /// Returns every server that could be examined, with its index.
    fn reached(&self) -> impl Iterator<Item = (usize, &'a Examination, &'a ServerState)> + use<'a> {
        self.servers
            .iter()
            .enumerate()
            .filter_map(|(index, server)| Some((index, server, server.seen()?)))
    }

    /// Returns a server as the engine's rules see it.
    fn subject(
        &self,
        index: usize,
        server: &'a Examination,
        state: &'a ServerState,
    ) -> Subject<'a> {
        Subject {
            name: &server.name,
            address: &server.address,
            facts: &state.facts,
            membership: &state.membership,
            counters: &state.counters,
            stopped: state.stopped,
            log_filters: state.log_filters.as_ref().ok().and_then(Option::as_ref),
            executed: &state.executed,
            relation: self.relation(index),
            source: self.source(index).map(|source| source.server),
            channel_sources: &self.topology.channel_sources[index],
            is_source: self.is_source(index),
        }
    }

    /// Returns all servers as the engine's rules see them.
    fn subjects(&self) -> Vec<Option<Subject<'a>>> {
        let all = self.servers.iter().enumerate();
        all.map(|(index, server)| Some(self.subject(index, server, server.seen()?)))
            .collect()
    }

    /// Returns how a server receives writes.
    fn relation(&self, index: usize) -> Relation {
        self.topology.relations[index]
    }

    /// Returns the source of a server that receives by a channel.
    fn source(&self, index: usize) -> Option<Source> {
        self.topology.sources[index]
    }

    /// Returns the server that another one receives from; in a cluster, the writer.
    fn upstream(&self, index: usize) -> Option<usize> {
        match self.relation(index) {
            Relation::Channel => self.source(index).map(|source| source.server),
            relation => self.topology.writer.filter(|_| relation.in_cluster()),
        }
    }

    /// Returns whether another of the servers replicates from this one.
    fn is_source(&self, index: usize) -> bool {
        self.topology
            .channel_sources
            .iter()
            .flatten()
            .any(|source| *source == Some(index))
    }

    /// Returns the server's name in messages.
    fn title(&self, index: usize) -> String {
        self.servers[index].title()
    }
}

/// Returns a finding about one server; its message begins with the server.
fn about(
    severity: Severity,
    code: FindingCode,
    server: &Examination,
    message: impl std::fmt::Display,
    hint: impl Into<String>,
) -> Finding {
    Finding::among(severity, code, message.to_string(), hint).about(&server.name, &server.address)
}
