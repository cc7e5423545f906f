//! Galera clusters and groups: their members, and whether all are active.

use std::collections::BTreeSet;

use replimeter_model::doctor::{Finding, FindingCode as Code, Severity};

use super::settings::NODE;
use crate::{
    dialect::{galera::NodeState, group::GroupState},
    rules::{Subject, Subjects, read},
};

/// The smallest share of time in flow control that is reported, in percent.
const STOPPED_PERCENT: f64 = 1.0;

/// Returns findings about members of clusters, then about each cluster.
#[must_use]
pub fn members(servers: &Subjects<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for server in read(servers) {
        if let Some(node) = server.membership.galera() {
            findings.extend(of_node(server, node));
        }
        if let Some(group) = server.membership.group() {
            findings.extend(of_member(server, group));
        }
    }
    findings.extend(galera(servers));
    findings.extend(groups(servers));
    findings
}

fn of_node(server: &Subject<'_>, node: &NodeState) -> Vec<Finding> {
    let mut findings = server.findings(&NODE);
    if !node.synced() {
        findings.push(server.about(
            Severity::Error,
            Code::MemberNotReady,
            format_args!("it is not a full member: {}", node.description()),
            if findings.is_empty() {
                "wait until it is Synced; see its error log"
            } else {
                "SET GLOBAL wsrep_desync=OFF;"
            },
        ));
    }
    let now = server
        .stopped
        .filter(|(stopped, passed)| *stopped > 0 && *passed > 0);
    let before = server.counters.get("wsrep_flow_control_paused");
    let before = before.and_then(|share| share.parse::<f64>().ok());
    let before_percent = before.unwrap_or(0.0) * 100.0;
    let (severity, message) = if let Some((stopped, passed)) = now {
        let percent = (stopped as f64 / passed as f64 * 100.0).min(100.0);
        let message = format!(
            "flow control stopped writes for {percent:.0} % of the time of this examination"
        );
        (Severity::Warning, message)
    } else if before_percent >= STOPPED_PERCENT {
        let message = format!(
            "flow control stopped writes for {before_percent:.1} % of the time since the last FLUSH STATUS, but not now"
        );
        (Severity::Info, message)
    } else {
        return findings;
    };
    let hint = "find the node that sends it with SHOW GLOBAL STATUS LIKE 'wsrep_flow_control_sent'; give that node more wsrep_slave_threads or less load";
    findings.push(server.about(severity, Code::FlowControl, message, hint));
    findings
}

fn of_member(server: &Subject<'_>, group: &GroupState) -> Option<Finding> {
    if group.own_member().is_none_or(|own| own.state != "ONLINE") {
        return Some(server.about(
            Severity::Error,
            Code::MemberNotReady,
            format_args!("it is not a full member: {}", group.description()),
            "wait until the member is ONLINE; if it has left, START GROUP_REPLICATION; and see its error log",
        ));
    }
    let others = group.members.iter();
    let absent: Vec<String> = others
        .filter(|member| member.state != "ONLINE" && member.uuid != group.uuid)
        .map(|member| format!("{} {}", member.address, member.state))
        .collect();
    (!absent.is_empty()).then(|| {
        server.about(
            Severity::Warning,
            Code::MemberNotReady,
            format_args!(
                "it sees members of its group that are not online: {}",
                absent.join(", ")
            ),
            "wait for members that are recovering; the group expels an UNREACHABLE one after a timeout",
        )
    })
}

/// Returns findings about all nodes of each Galera cluster.
fn galera(servers: &Subjects<'_>) -> Vec<Finding> {
    let nodes = || read(servers).filter_map(|server| Some((server, server.membership.galera()?)));
    let clusters: BTreeSet<&str> = nodes()
        .map(|(_, node)| node.cluster.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    let mut findings = Vec::new();
    for cluster in clusters {
        let of: Vec<_> = nodes()
            .filter(|(_, node)| node.cluster == cluster)
            .collect();
        let names: Vec<&str> = of.iter().map(|(server, _)| server.name).collect();
        let sizes = || of.iter().map(|(_, node)| node.size);
        let named = of.len() as u64;
        if sizes().min().is_some_and(|least| least < named) {
            let sizes: Vec<String> = of
                .iter()
                .map(|(server, node)| format!("{} sees {}", server.name, node.size))
                .collect();
            findings.push(Finding::among(
                Severity::Error,
                Code::ClusterSplit,
                format!(
                    "the cluster is split: {named} of its nodes are named, but {}",
                    sizes.join(", ")
                ),
                "repair the network, or restart the nodes without a quorum: they refuse statements",
            ));
        }
        let most = sizes().max().unwrap_or(0);
        findings.extend(size(most, named, "Galera cluster", &names));
        let of: Vec<&Subject<'_>> = of.into_iter().map(|(server, _)| server).collect();
        findings.extend(gtids_of_nodes(&of, &names.join(", ")));
    }
    findings
}

/// Returns a finding about GTIDs that differ between the nodes of a cluster.
fn gtids_of_nodes(nodes: &[&Subject<'_>], names: &str) -> Option<Finding> {
    let values =
        |name: &str| -> BTreeSet<&str> { nodes.iter().map(|node| node.facts.get(name)).collect() };
    let (severity, message, hint) = if values("wsrep_gtid_mode").contains("OFF") {
        (
            Severity::Info,
            format!(
                "wsrep_gtid_mode is not ON on all of {names}: the same transaction has a different GTID in each node's binary log"
            ),
            "to compare binary logs or attach replicas to any node, start every node with wsrep_gtid_mode=ON, one wsrep_gtid_domain_id for all and its own gtid_domain_id",
        )
    } else if values("wsrep_gtid_domain_id").len() > 1 {
        (
            Severity::Warning,
            format!("wsrep_gtid_domain_id differs between {names}: their GTIDs do not agree"),
            "give every node the same wsrep_gtid_domain_id and restart it",
        )
    } else if nodes.len() > 1 && values("gtid_domain_id").len() < nodes.len() {
        (
            Severity::Warning,
            format!(
                "gtid_domain_id is not distinct on {names}: transactions that stay on one node use GTIDs of the others"
            ),
            "give every node its own gtid_domain_id, different from wsrep_gtid_domain_id",
        )
    } else {
        return None;
    };
    Some(Finding::among(severity, Code::GaleraGtids, message, hint))
}

/// Returns findings about all members of each group.
fn groups(servers: &Subjects<'_>) -> Vec<Finding> {
    let members = || read(servers).filter_map(|server| Some((server, server.membership.group()?)));
    let groups: BTreeSet<&str> = members().map(|(_, group)| group.name.as_str()).collect();
    let mut findings = Vec::new();
    for name in groups {
        let of: Vec<_> = members().filter(|(_, group)| group.name == name).collect();
        let names: Vec<&str> = of.iter().map(|(server, _)| server.name).collect();
        let most = of.iter().map(|(_, group)| group.members.len()).max();
        let most = most.unwrap_or(0) as u64;
        findings.extend(size(most, of.len() as u64, "group", &names));
    }
    findings
}

/// Returns findings about unnamed members, and cluster sizes without a majority after a split.
fn size(members: u64, named: u64, what: &str, names: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let names = names.join(", ");
    let mut add = |code, message: String, hint: &str| {
        findings.push(Finding::among(Severity::Info, code, message, hint))
    };
    if members > named {
        add(
            Code::MembersNotNamed,
            format!("the {what} of {names} has {members} members, but {named} are named"),
            "name the others too: only named servers are examined and measured",
        );
    }
    if members > 0 && members.is_multiple_of(2) {
        add(
            Code::EvenMembers,
            format!(
                "the {what} of {names} has {members} members: if it splits into halves, neither has a majority and all writes stop"
            ),
            "add a member or (Galera) an arbitrator, garbd",
        );
    }
    findings
}
