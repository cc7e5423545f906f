//! Tells a person everything about a set of servers that is odd, or good to know
//! before measuring. First everything is read, then it is judged: the judging is
//! pure, so that any state can be tried on it. Nothing is written anywhere, no
//! lock is taken and no setting is changed but our own sessions' time zone.

mod clocks;
mod cluster;
mod connection;
mod errant;
mod examination;
mod logs;
mod replication;
mod rows;
mod semi_sync;
mod settings;
#[cfg(test)]
mod tests;
mod topology;

use std::{thread, time::Duration};

use replimeter_engine::{ServerError, flavour::gtid, source::Member};
use replimeter_model::doctor::{Diagnosis, Finding, FindingCode, Severity};

use self::{
    examination::{Examination, Open, State},
    topology::{Tie, Topology, topology},
};
use crate::{
    clock::Calendar,
    survey::{Surveyed, relate},
};

/// How long a source may take to record what its replicas have already applied:
/// with semi-synchronous replication it does so after their acknowledgement.
const SETTLE: Duration = Duration::from_millis(200);

/// Examines every server, also those behind one that cannot be reached, and
/// judges what was found. `progress` is told what is being done.
#[must_use]
pub fn examine(declared: &[Member], progress: &mut dyn FnMut(&str)) -> Diagnosis {
    let calendar = Calendar::tie();
    let (mut servers, mut open) = (Vec::new(), Vec::new());
    for one in declared {
        progress(&format!("examining {}", one.node));
        let (examination, session) = examination::examine(one, &calendar);
        servers.push(examination);
        open.push(session);
    }
    progress("comparing the servers");
    find_same(&mut servers, &mut open);
    let (topology, mode) = relations(&servers, &mut open, declared);
    read_executed(&mut servers, &mut open, &topology);
    progress("comparing clocks");
    for (server, open) in servers.iter_mut().zip(&mut open) {
        ask(server, open, |open, state| {
            state.stopped = open.stopped(state, &calendar)?;
            state.clock = open.clock(&calendar)?;
            Ok(())
        });
    }
    diagnose(&servers, &topology, mode)
}

/// Asks a server more. One that is lost in between was not examined.
fn ask(
    server: &mut Examination,
    open: &mut Option<Open>,
    question: impl FnOnce(&mut Open, &mut State) -> Result<(), ServerError>,
) {
    if let (Ok(state), Some(session)) = (&mut server.state, open.as_mut())
        && let Err(error) = question(session, state)
    {
        server.state = Err(error);
        *open = None;
    }
}

/// Finds servers that were named twice, among those that could be.
fn find_same(servers: &mut [Examination], open: &mut [Option<Open>]) {
    for (later, server) in servers.iter_mut().enumerate().skip(1) {
        let (before, rest) = open.split_at_mut(later);
        ask(server, &mut rest[0], |session, state| {
            for (index, earlier) in before.iter().enumerate() {
                let Some(earlier) = earlier else { continue };
                let (one, other) = (earlier.surveyed.facts.identity(), state.facts.identity());
                if one.server_id == other.server_id
                    && one.uuid == other.uuid
                    && session.is(earlier)?
                {
                    state.same_as.push(index);
                }
            }
            Ok(())
        });
    }
}

/// The ties between the servers, and the mode as a measurement would name it.
fn relations(
    servers: &[Examination],
    open: &mut [Option<Open>],
    declared: &[Member],
) -> (Topology, Option<String>) {
    if open.iter().any(Option::is_none) || open.is_empty() {
        return (topology(servers, None), None);
    }
    let (surveyed, rest): (Vec<Surveyed>, Vec<_>) = open
        .iter_mut()
        .filter_map(Option::take)
        .map(Open::split)
        .unzip();
    let related = relate(&surveyed, declared);
    for ((slot, surveyed), rest) in open.iter_mut().zip(surveyed).zip(rest) {
        *slot = Some(Open::join(surveyed, rest));
    }
    let mode = related
        .as_ref()
        .ok()
        .map(|relations| relations.mode.to_owned());
    (topology(servers, Some(related)), mode)
}

/// Reads which transactions every server has executed: replicas before sources,
/// so that what was on its way is no difference; once more what a difference
/// would be held against, after a while.
fn read_executed(servers: &mut [Examination], open: &mut [Option<Open>], topology: &Topology) {
    let mut order: Vec<usize> = (0..servers.len())
        .filter(|index| topology.writer != Some(*index))
        .collect();
    order.extend(topology.writer);
    let mut read = |servers: &mut [Examination], index: usize| {
        ask(&mut servers[index], &mut open[index], |open, state| {
            state.executed = gtid::executed(&state.facts, &mut open.surveyed.session)?;
            Ok(())
        });
    };
    for index in order {
        read(servers, index);
    }
    if let Some(writer) = topology.writer
        && errant::check(&View { servers, topology })
            .iter()
            .any(|finding| finding.severity > Severity::Info)
    {
        thread::sleep(SETTLE);
        read(servers, writer);
    }
}

/// Judges what was read.
fn diagnose(servers: &[Examination], topology: &Topology, mode: Option<String>) -> Diagnosis {
    let view = View { servers, topology };
    // A server by itself replicates to nobody here, unless it is in a cluster.
    let mode = match view.topology.writer.and_then(|writer| view.state(writer)) {
        Some(state) if servers.len() == 1 => rows::cluster(state),
        _ => mode,
    };
    let clocks = clocks::differences(&view);
    let mut findings = Vec::new();
    findings.extend(connection::check(&view));
    findings.extend(cluster::check(&view));
    findings.extend(replication::check(&view));
    findings.extend(semi_sync::check(&view));
    findings.extend(logs::check(&view));
    findings.extend(errant::check(&view));
    findings.extend(clocks::check(&clocks));
    findings.extend(settings::check(&view));
    findings.extend(refused(&view, &findings));
    // Stable: within a severity the order is that of the checks and the servers.
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    Diagnosis {
        mode,
        writer: topology.writer.map(|writer| servers[writer].name.clone()),
        results: rows::rows(&view),
        clocks,
        findings,
    }
}

/// Why a measurement would refuse these servers as a set, unless that was said of
/// the server already, with more words.
fn refused(view: &View<'_>, said: &[Finding]) -> Option<Finding> {
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

/// What checks look at.
#[derive(Clone, Copy)]
struct View<'a> {
    servers: &'a [Examination],
    topology: &'a Topology,
}

impl<'a> View<'a> {
    /// A server's state, when it could be examined.
    fn state(&self, index: usize) -> Option<&'a State> {
        self.servers[index].seen()
    }

    /// Every server that could be examined, with its number.
    fn reached(&self) -> impl Iterator<Item = (usize, &'a Examination, &'a State)> + use<'a> {
        self.servers
            .iter()
            .enumerate()
            .filter_map(|(index, server)| Some((index, server, server.seen()?)))
    }

    /// How a server comes by what is written.
    fn tie(&self, index: usize) -> &'a Tie {
        &self.topology.ties[index]
    }

    /// Whether another of the servers replicates from this one.
    fn is_source(&self, index: usize) -> bool {
        self.topology
            .sources
            .iter()
            .flatten()
            .any(|source| *source == Some(index))
    }

    /// The server's name in messages.
    fn title(&self, index: usize) -> String {
        self.servers[index].title()
    }
}

/// A finding about one server, which its message begins with.
fn about(
    severity: Severity,
    code: FindingCode,
    server: &Examination,
    message: impl std::fmt::Display,
    hint: impl Into<String>,
) -> Finding {
    Finding {
        severity,
        code,
        node: Some(server.name.clone()),
        message: format!("{}: {message}", server.title()),
        hint: hint.into(),
    }
}

/// A number of things.
fn number(count: u64, one: &str) -> String {
    format!("{count} {one}{}", if count == 1 { "" } else { "s" })
}

/// A finding about several servers.
fn among(
    severity: Severity,
    code: FindingCode,
    message: impl Into<String>,
    hint: impl Into<String>,
) -> Finding {
    Finding {
        severity,
        code,
        node: None,
        message: message.into(),
        hint: hint.into(),
    }
}
