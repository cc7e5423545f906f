//! Transactions that a replica has but its source does not.

use std::collections::BTreeSet;

use replimeter_engine::{
    dialect::binlog::binlog,
    position::{DomainGtid, Executed, GtidSet},
};
use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    replication::Relation,
};

use super::{CheckContext, about, examination::ServerState, number};

/// Maximum length of GTIDs in a message.
const NAMED: usize = 200;

pub(super) fn check(view: &CheckContext<'_>) -> Vec<Finding> {
    let Some(writer) = view.topology.writer else {
        return Vec::new();
    };
    let Some(top) = view.state(writer) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    for (index, server, state) in view.reached() {
        // Members of a cluster certify one another's transactions: none is errant.
        if view.relation(index) != Relation::Channel {
            continue;
        }
        let top_name = &view.servers[writer].name;
        let drafts = match (&state.executed, &top.executed) {
            (Executed::Set(mine), Executed::Set(theirs)) => {
                of_sets(view, index, state, top, mine, theirs, top_name)
            }
            (
                Executed::Domains { logged, .. },
                Executed::Domains {
                    logged: top_logged,
                    applied: top_applied,
                },
            ) => of_domains(state, top, logged, top_logged, top_applied, top_name),
            (Executed::Unknown(reason), _) | (_, Executed::Unknown(reason)) => {
                vec![unknown(reason)]
            }
            _ => vec![unknown("its engine differs from the writer's")],
        };
        findings.extend(
            drafts.into_iter().map(|(severity, code, message, hint)| {
                about(severity, code, server, message, hint)
            }),
        );
    }
    findings
}

type FindingDraft = (Severity, Code, String, String);

fn unknown(reason: &str) -> FindingDraft {
    (
        Severity::Info,
        Code::ErrantUnknown,
        format!("errant transactions cannot be detected: {reason}"),
        "compare the data, for example with pt-table-checksum".to_owned(),
    )
}

fn shortened(set: &impl ToString) -> String {
    let text = set.to_string();
    if text.chars().count() <= NAMED {
        text
    } else {
        format!("{}…", text.chars().take(NAMED).collect::<String>())
    }
}

fn of_sets(
    view: &CheckContext<'_>,
    index: usize,
    state: &ServerState,
    top: &ServerState,
    mine: &GtidSet,
    theirs: &GtidSet,
    top_name: &str,
) -> Vec<FindingDraft> {
    if mine.is_empty() && state.facts.get("gtid_mode") != "ON" {
        return vec![unknown(&format!(
            "gtid_mode={}",
            state.facts.get("gtid_mode")
        ))];
    }
    let mut expected = expected_uuids(view);
    // Servers that are not named may be sources through another channel.
    for channel in state.channels() {
        let named = state
            .channels()
            .iter()
            .position(|one| one.name == channel.name)
            .and_then(|at| view.topology.channel_sources[index][at]);
        if named.is_none() && !channel.source_uuid.is_empty() {
            expected.insert(channel.source_uuid.to_ascii_lowercase());
        }
    }
    let more = mine.subtract(theirs).of(|uuid| !expected.contains(uuid));
    let writers = top.facts.identity().uuid.to_ascii_lowercase();
    let lost = more.of(|uuid| uuid == writers);
    let errant = more.of(|uuid| uuid != writers);
    let mut drafts = Vec::new();
    if !errant.is_empty() {
        let own = errant.of(|uuid| uuid == state.facts.identity().uuid.to_ascii_lowercase());
        let whence = if own.is_empty() {
            "from another server"
        } else {
            "written on the replica itself"
        };
        drafts.push((
            Severity::Warning,
            Code::ErrantTransactions,
            format!("{}, which {top_name} does not have ({whence}): {}", number(errant.count(), "errant transaction"), shortened(&errant)),
            format!(
                "undo the unwanted changes on the replica; then, on {top_name}, commit an empty transaction with each such gtid_next, or a failover to this replica breaks replication"
            ),
        ));
    }
    if !lost.is_empty() {
        drafts.push((
            Severity::Warning,
            Code::ReplicaAhead,
            format!(
                "it has {} of {top_name} that {top_name} does not have: {}",
                number(lost.count(), "transaction"),
                shortened(&lost)
            ),
            format!("rebuild one of the two from the other: {top_name} lost them in a crash or was restored to an earlier state"),
        ));
    }
    drafts
}

/// Returns the UUIDs that stand for a group, whose members may have its transactions in any order.
fn expected_uuids(view: &CheckContext<'_>) -> BTreeSet<String> {
    let of = |state: &ServerState| {
        let view_change = state
            .facts
            .get("group_replication_view_change_uuid")
            .to_ascii_lowercase();
        let members = state.membership.group().map(|group| {
            group
                .members
                .iter()
                .map(|member| member.uuid.to_ascii_lowercase())
                .collect()
        });
        let members: Vec<String> = members.unwrap_or_default();
        let name = state
            .membership
            .group()
            .map(|group| group.name.to_ascii_lowercase());
        members
            .into_iter()
            .chain(name)
            .chain((view_change.len() == 36).then_some(view_change))
            .collect::<Vec<_>>()
    };
    view.reached().flat_map(|(_, _, state)| of(state)).collect()
}

fn of_domains(
    state: &ServerState,
    top: &ServerState,
    logged: &[DomainGtid],
    top_logged: &[DomainGtid],
    top_applied: &[DomainGtid],
    top_name: &str,
) -> Vec<FindingDraft> {
    if !binlog(&state.facts).on {
        return vec![unknown(
            "its binary log is off, so transactions written on it leave no trace",
        )];
    }
    let own = state.facts.identity().server_id;
    let has = |list: &[DomainGtid], gtid: &DomainGtid| {
        list.iter().any(|one| {
            (one.domain, one.server) == (gtid.domain, gtid.server) && one.sequence >= gtid.sequence
        })
    };
    let written_here = logged.iter().filter(|gtid| u64::from(gtid.server) == own);
    let errant: Vec<String> = written_here
        .filter(|gtid| !has(top_logged, gtid) && !has(top_applied, gtid))
        .map(ToString::to_string)
        .collect();
    let mut drafts = Vec::new();
    if !errant.is_empty() {
        let top_log = binlog(&top.facts);
        // A former replica of this server need not have logged what it applied.
        if !top_log.logs_updates && !top_applied.is_empty() {
            return vec![unknown(&format!(
                "{} were written on it, and {top_name}, a former replica, does not log what it applies",
                errant.join(", ")
            ))];
        }
        drafts.push((
            Severity::Warning,
            Code::ErrantTransactions,
            format!("transactions were written on the replica itself, up to {}, which {top_name} does not have", errant.join(", ")),
            "compare the data and undo the unwanted changes: a failover to this replica would replicate them; read_only=ON prevents new ones, and SET sql_log_bin=0 keeps local changes out of the log".to_owned(),
        ));
    }
    // The last transaction of the writer in each domain.
    let writer = top.facts.identity().server_id;
    let lost: Vec<String> = logged
        .iter()
        .filter(|gtid| {
            u64::from(gtid.server) == writer && !has(top_logged, gtid) && !top_logged.is_empty()
        })
        .map(ToString::to_string)
        .collect();
    if !lost.is_empty() && own != writer {
        drafts.push((
            Severity::Warning,
            Code::ReplicaAhead,
            format!("it has transactions of {top_name} up to {} that {top_name} does not have", lost.join(", ")),
            format!("rebuild one of the two from the other: {top_name} lost them in a crash or was restored to an earlier state"),
        ));
    }
    drafts
}
