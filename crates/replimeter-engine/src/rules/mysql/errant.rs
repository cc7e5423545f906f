//! Transactions that a replica has but its source does not.

use std::collections::BTreeSet;

use replimeter_model::{
    doctor::{Finding, FindingCode as Code, Severity},
    replication::Relation,
};

use crate::{
    dialect::log::LogSettings,
    position::{DomainCommit, Executed, GtidSet, last_of},
    rules::{Subject, Subjects, number, read},
};

/// Maximum length of GTIDs in a message.
const NAMED: usize = 200;

/// Returns findings about transactions of replicas that the writer does not have.
#[must_use]
pub fn errant(servers: &Subjects<'_>) -> Vec<Finding> {
    let Some(top) = read(servers).find(|server| server.relation == Relation::Writer) else {
        return Vec::new();
    };
    // Members of a cluster certify one another's transactions: none is errant.
    let replicas = read(servers).filter(|server| server.relation == Relation::Channel);
    let found = replicas.flat_map(|replica| match (replica.executed, top.executed) {
        (Executed::Set(mine), Executed::Set(theirs)) => {
            of_sets(servers, replica, top, mine, theirs)
        }
        (
            Executed::Domains { logged, .. },
            Executed::Domains {
                logged: top_logged,
                applied: top_applied,
            },
        ) => of_domains(replica, top, logged, top_logged, top_applied),
        (Executed::Unknown(reason), _) | (_, Executed::Unknown(reason)) => {
            vec![unknown(replica, reason)]
        }
        _ => vec![unknown(replica, "its engine differs from the writer's")],
    });
    found.collect()
}

fn unknown(replica: &Subject<'_>, reason: &str) -> Finding {
    replica.about(
        Severity::Info,
        Code::ErrantUnknown,
        format_args!("errant transactions cannot be detected: {reason}"),
        "compare the data, for example with pt-table-checksum",
    )
}

fn ahead(replica: &Subject<'_>, top: &Subject<'_>, message: &str) -> Finding {
    replica.about(
        Severity::Warning,
        Code::ReplicaAhead,
        message,
        format!(
            "rebuild one of the two from the other: {} lost them in a crash or was restored to an earlier state",
            top.name
        ),
    )
}

fn shortened(set: &GtidSet) -> String {
    let text = set.to_string();
    if text.chars().count() <= NAMED {
        text
    } else {
        format!("{}…", text.chars().take(NAMED).collect::<String>())
    }
}

fn of_sets(
    servers: &Subjects<'_>,
    replica: &Subject<'_>,
    top: &Subject<'_>,
    mine: &GtidSet,
    theirs: &GtidSet,
) -> Vec<Finding> {
    let (top_name, mode) = (top.name, replica.facts.get("gtid_mode"));
    if mine.is_empty() && mode != "ON" {
        return vec![unknown(replica, &format!("gtid_mode={mode}"))];
    }
    let mut expected: BTreeSet<String> = read(servers).flat_map(uuids_of_group).collect();
    // Servers that are not named may be sources through another channel.
    let channels = replica.membership.channels().iter();
    let unnamed = channels
        .zip(replica.channel_sources)
        .filter(|(channel, source)| source.is_none() && !channel.source_uuid.is_empty());
    expected.extend(unnamed.map(|(channel, _)| channel.source_uuid.to_ascii_lowercase()));
    let more = mine.subtract(theirs).of(|uuid| !expected.contains(uuid));
    let uuid_of = |server: &Subject<'_>| server.facts.identity().uuid.to_ascii_lowercase();
    let writers = uuid_of(top);
    let lost = more.of(|uuid| uuid == writers);
    let errant = more.of(|uuid| uuid != writers);
    let mut findings = Vec::new();
    if !errant.is_empty() {
        let own = uuid_of(replica);
        let whence = if errant.of(|uuid| uuid == own).is_empty() {
            "from another server"
        } else {
            "written on the replica itself"
        };
        findings.push(replica.about(
            Severity::Warning,
            Code::ErrantTransactions,
            format_args!(
                "{}, which {top_name} does not have ({whence}): {}",
                number(errant.count(), "errant transaction"),
                shortened(&errant)
            ),
            format!(
                "undo the unwanted changes on the replica; then, on {top_name}, commit an empty transaction with each such gtid_next, or a failover to this replica breaks replication"
            ),
        ));
    }
    if !lost.is_empty() {
        let message = format!(
            "it has {} of {top_name} that {top_name} does not have: {}",
            number(lost.count(), "transaction"),
            shortened(&lost)
        );
        findings.push(ahead(replica, top, &message));
    }
    findings
}

/// Returns the UUIDs that stand for a server's group, whose members may have its transactions in any order.
fn uuids_of_group(server: &Subject<'_>) -> Vec<String> {
    let view_change = server.facts.get("group_replication_view_change_uuid");
    let mut uuids = Vec::from_iter((view_change.len() == 36).then_some(view_change));
    if let Some(group) = server.membership.group() {
        uuids.push(&group.name);
        uuids.extend(group.members.iter().map(|member| member.uuid.as_str()));
    }
    uuids.into_iter().map(str::to_ascii_lowercase).collect()
}

fn of_domains(
    replica: &Subject<'_>,
    top: &Subject<'_>,
    logged: &[DomainCommit],
    top_logged: &[DomainCommit],
    top_applied: &[DomainCommit],
) -> Vec<Finding> {
    if !LogSettings::of(replica.facts).on {
        let reason = "its binary log is off, so transactions written on it leave no trace";
        return vec![unknown(replica, reason)];
    }
    let (top_name, own) = (top.name, replica.facts.identity().server_id);
    let has = |list: &[DomainCommit], gtid: &DomainCommit| {
        last_of(list, gtid.domain, gtid.server) >= Some(gtid.sequence)
    };
    let of_server = |id: u64, lacks: &dyn Fn(&DomainCommit) -> bool| {
        let of = logged.iter().filter(|gtid| u64::from(gtid.server) == id);
        let texts: Vec<String> = of
            .filter(|gtid| lacks(gtid))
            .map(ToString::to_string)
            .collect();
        texts.join(", ")
    };
    let errant = of_server(own, &|gtid| {
        !has(top_logged, gtid) && !has(top_applied, gtid)
    });
    let mut findings = Vec::new();
    if !errant.is_empty() {
        // A former replica of this server need not have logged what it applied.
        if !LogSettings::of(top.facts).logs_updates && !top_applied.is_empty() {
            let reason = format!(
                "{errant} were written on it, and {top_name}, a former replica, does not log what it applies"
            );
            return vec![unknown(replica, &reason)];
        }
        findings.push(replica.about(
            Severity::Warning,
            Code::ErrantTransactions,
            format_args!(
                "transactions were written on the replica itself, up to {errant}, which {top_name} does not have"
            ),
            "compare the data and undo the unwanted changes: a failover to this replica would replicate them; read_only=ON prevents new ones, and SET sql_log_bin=0 keeps local changes out of the log",
        ));
    }
    // The last transaction of the writer in each domain.
    let writer = top.facts.identity().server_id;
    let lost = of_server(writer, &|gtid| {
        !has(top_logged, gtid) && !top_logged.is_empty()
    });
    if !lost.is_empty() && own != writer {
        let message =
            format!("it has transactions of {top_name} up to {lost} that {top_name} does not have");
        findings.push(ahead(replica, top, &message));
    }
    findings
}
