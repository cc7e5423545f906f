//! Connections and threads of a part, before its first round.

use std::{sync::mpsc, thread, time::Duration};

use replimeter_engine::{
    Node, ServerError,
    dialect::{
        connections::OpenedConnection, flow_control::FlowControlCounters, sync_reads::Guarantee,
        waits,
    },
    facts::ServerFacts,
};
use replimeter_model::read_consistency::ReadConsistency;

use super::{
    MeasuredCase,
    connections::{Reader, ReaderSpec, Writer},
    counters::CountedServer,
    readers::ReaderRef,
    rounds::{ReaderPool, read_on},
    rows::{RowAllocation, RowHistory},
    shared::Shared,
};
use crate::{
    discovery::DiscoveredServer, preflight::Cluster, priority::prepare_measuring_thread,
    stale::settings::StalePlan,
};

/// Time that a session waits for an answer in addition to the plan's timeout.
const ANSWER_MARGIN: Duration = Duration::from_secs(2);

/// Everything that is connected and prepared for a part.
#[derive(Default)]
pub(super) struct PreparedCase {
    /// The plain one, then the one with synchronous reads; none when a load's reads are checked.
    pub(super) writers: Vec<Writer>,
    pub(super) readers: Vec<Reader>,
    /// Values of the rows.
    pub(super) held: RowHistory,
    /// Every connection that may have to be killed, with its server.
    pub(super) connections: Vec<(Node, OpenedConnection)>,
}

/// Connects everything and prepares its statements.
pub(super) fn prepare(
    cluster: &Cluster,
    plan: &StalePlan,
    part: &MeasuredCase<'_>,
) -> Result<PreparedCase, ServerError> {
    let answer = plan.timeout.0 + ANSWER_MARGIN;
    let patient = |node: &Node| Node {
        answer,
        ..node.clone()
    };
    let primary = patient(&cluster.primary.node);
    let facts: &ServerFacts = &cluster.primary.facts;
    let off = Guarantee {
        level: ReadConsistency::Off,
        reader: Vec::new(),
        writer: Vec::new(),
        by_commit_id: false,
        words: String::new(),
    };
    let synced = part.synced();
    // The writer's part in synchronous reads is the same for every reader that needs one.
    let asks = part
        .guarantees
        .iter()
        .find(|guarantee| !guarantee.writer.is_empty() || guarantee.by_commit_id)
        .unwrap_or(&off);
    let guarantees = if synced { vec![&off, asks] } else { vec![&off] };
    let mut writers: Vec<Writer> = guarantees
        .into_iter()
        .map(|guarantee| Writer::open(&primary, facts, guarantee))
        .collect::<Result<_, _>>()?;
    let mut connections: Vec<(Node, OpenedConnection)> = writers
        .iter()
        .map(|writer| (primary.clone(), writer.connection()))
        .collect();
    // Queried while a reader waits: a writer that hangs must not block.
    let origin = cluster.primary.with_short_timeouts();
    let rows = RowAllocation::new(plan.seed, plan.rows);
    let held = writers
        .first_mut()
        .map(|writer| writer.values(&rows))
        .transpose()?
        .unwrap_or_default();
    let mut readers = Vec::new();
    for (index, (reader, guarantee)) in part.readers.iter().zip(part.guarantees).enumerate() {
        let (server, _) = reader.of(cluster);
        let node = patient(&server.node);
        let waits_without_position = *reader == ReaderRef::Writer
            && !waits::supported_on_writer(server.facts.engine, &cluster.primary.membership);
        let opened = Reader::open(&ReaderSpec {
            index,
            node: &node,
            writer: &origin,
            facts: &server.facts,
            guarantee,
            synced,
            rows,
            waits_without_position,
            patience: plan.timeout.0 + reader.delay(cluster),
            timeout: plan.timeout.0,
        })?;
        connections.extend(
            opened
                .connections()
                .into_iter()
                .map(|number| (node.clone(), number)),
        );
        readers.push(opened);
    }
    Ok(PreparedCase {
        writers,
        readers,
        held: RowHistory::new(held),
        connections,
    })
}

/// Returns the status counters of every server.
pub(super) fn counted(cluster: &Cluster) -> Vec<CountedServer> {
    let of = |server: &DiscoveredServer| {
        let counters = FlowControlCounters::of(&server.membership, server.facts.engine);
        CountedServer::new(&server.node, counters)
    };
    cluster.servers().map(of).collect()
}

/// Starts a thread for each of several readers; the writing thread itself reads a single one.
pub(super) fn reader_pool<'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    mut readers: Vec<Reader>,
    real_time: bool,
    shared: &'scope Shared<'_>,
) -> Option<ReaderPool> {
    if readers.len() == 1 {
        return readers
            .pop()
            .map(|reader| ReaderPool::One(Box::new(reader)));
    }
    let (answer, answers) = mpsc::channel();
    let mut orders = Vec::new();
    for reader in readers {
        let (order, tasks) = mpsc::channel();
        orders.push(order);
        let answer = answer.clone();
        scope.spawn(move || {
            prepare_measuring_thread(real_time);
            read_on(reader, shared, &tasks, &answer);
        });
    }
    Some(ReaderPool::Several { orders, answers })
}
