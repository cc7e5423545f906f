//! Galera clusters and groups: their members, and whether all are active.

use std::collections::BTreeSet;

use replimeter_model::doctor::{Finding, FindingCode as Code, Severity};

use super::{
    CheckContext, about,
    examination::{Examination, ServerState},
};

/// The smallest share of time in flow control that is reported, in percent.
const STOPPED_PERCENT: f64 = 1.0;

pub(super) fn check(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, server, state) in view.reached() {
        findings.extend(of_node(server, state));
        findings.extend(of_member(server, state));
    }
    findings.extend(galera(view));
    findings.extend(groups(view));
    findings
}

fn of_node(server: &Examination, state: &ServerState) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(node) = state.membership.galera() else {
        return findings;
    };
    let desynced = state.facts.on("wsrep_desync");
    if desynced {
        findings.push(about(
            Severity::Warning,
            Code::NodeDesynced,
            server,
            "it is desynced (wsrep_desync=ON): it may fall behind without slowing the other nodes",
            "SET GLOBAL wsrep_desync=OFF; and wait until it is Synced",
        ));
    }
    if !node.synced() {
        findings.push(about(
            Severity::Error,
            Code::MemberNotReady,
            server,
            format_args!("it is not a full member: {}", node.description()),
            if desynced {
                "SET GLOBAL wsrep_desync=OFF;"
            } else {
                "wait until it is Synced; see its error log"
            },
        ));
    }
    let now = state
        .stopped
        .filter(|(stopped, passed)| *stopped > 0 && *passed > 0);
    let before = state
        .counters
        .get("wsrep_flow_control_paused")
        .and_then(|share| share.parse::<f64>().ok())
        .unwrap_or(0.0);
    let hint = "find the node that sends it with SHOW GLOBAL STATUS LIKE 'wsrep_flow_control_sent'; give that node more wsrep_slave_threads or less load";
    if let Some((stopped, passed)) = now {
        let percent = stopped as f64 / passed as f64 * 100.0;
        findings.push(about(
            Severity::Warning,
            Code::FlowControl,
            server,
            format_args!(
                "flow control stopped writes for {:.0} % of the time of this examination",
                percent.min(100.0)
            ),
            hint,
        ));
    } else if before * 100.0 >= STOPPED_PERCENT {
        findings.push(about(
            Severity::Info,
            Code::FlowControl,
            server,
            format_args!(
                "flow control stopped writes for {:.1} % of the time since the last FLUSH STATUS, but not now",
                before * 100.0
            ),
            hint,
        ));
    }
    findings
}

fn of_member(server: &Examination, state: &ServerState) -> Vec<Finding> {
    let Some(group) = state.membership.group() else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if group.own_member().is_none_or(|own| own.state != "ONLINE") {
        findings.push(about(
            Severity::Error,
            Code::MemberNotReady,
            server,
            format_args!("it is not a full member: {}", group.description()),
            "wait until the member is ONLINE; if it has left, START GROUP_REPLICATION; and see its error log",
        ));
        return findings;
    }
    let others = group
        .members
        .iter()
        .filter(|member| member.state != "ONLINE" && member.uuid != group.uuid);
    let absent: Vec<String> = others
        .map(|member| format!("{} {}", member.address, member.state))
        .collect();
    if !absent.is_empty() {
        findings.push(about(
            Severity::Warning,
            Code::MemberNotReady,
            server,
            format_args!(
                "it sees members of its group that are not online: {}",
                absent.join(", ")
            ),
            "wait for members that are recovering; the group expels an UNREACHABLE one after a timeout",
        ));
    }
    findings
}

/// Returns findings about all nodes of each Galera cluster.
fn galera(view: &CheckContext<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let nodes = || {
        view.reached()
            .filter_map(|(_, server, state)| Some((server, state, state.membership.galera()?)))
    };
    let clusters: BTreeSet<&str> = nodes()
        .map(|(_, _, node)| node.cluster.as_str())
        .filter(|name| !name.is_empty())
        .collect();
    for cluster in clusters {
        let of: Vec<_> = nodes()
            .filter(|(_, _, node)| node.cluster == cluster)
            .collect();
        let names: Vec<&str> = of.iter().map(|(server, ..)| server.name.as_str()).collect();
        let (least, most) = of
            .iter()
            .fold((u64::MAX, 0), |(least, most), (_, _, node)| {
                (least.min(node.size), most.max(node.size))
            });
        let named = of.len() as u64;
        if least < named {
            let sizes: Vec<String> = of
                .iter()
                .map(|(server, _, node)| format!("{} sees {}", server.name, node.size))
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
        findings.extend(size(most, named, "Galera cluster", &names));
        let wide: BTreeSet<&str> = of
            .iter()
            .map(|(_, state, _)| state.facts.get("wsrep_gtid_mode"))
            .collect();
        let distinct = |name: &str| {
            of.iter()
                .map(|(_, state, _)| state.facts.get(name))
                .collect::<BTreeSet<_>>()
                .len() as u64
        };
        if wide.contains("OFF") {
            findings.push(Finding::among(
                Severity::Info,
                Code::GaleraGtids,
                format!("wsrep_gtid_mode is not ON on all of {}: the same transaction has a different GTID in each node's binary log", names.join(", ")),
                "to compare binary logs or attach replicas to any node, start every node with wsrep_gtid_mode=ON, one wsrep_gtid_domain_id for all and its own gtid_domain_id",
            ));
        } else if distinct("wsrep_gtid_domain_id") > 1 {
            findings.push(Finding::among(
                Severity::Warning,
                Code::GaleraGtids,
                format!(
                    "wsrep_gtid_domain_id differs between {}: their GTIDs do not agree",
                    names.join(", ")
                ),
                "give every node the same wsrep_gtid_domain_id and restart it",
            ));
        } else if named > 1 && distinct("gtid_domain_id") < named {
            findings.push(Finding::among(
                Severity::Warning,
                Code::GaleraGtids,
                format!(
                    "gtid_domain_id is not distinct on {}: transactions that stay on one node use GTIDs of the others",
                    names.join(", ")
                ),
                "give every node its own gtid_domain_id, different from wsrep_gtid_domain_id",
            ));
        }
    }
    findings
}

/// Returns findings about all members of each group.
fn groups(view: &CheckContext<'_>) -> Vec<Finding> {
    let members = || {
        view.reached()
            .filter_map(|(_, server, state)| Some((server, state.membership.group()?)))
    };
    let groups: BTreeSet<&str> = members().map(|(_, group)| group.name.as_str()).collect();
    let mut findings = Vec::new();
    for name in groups {
        let of: Vec<_> = members().filter(|(_, group)| group.name == name).collect();
        let names: Vec<&str> = of.iter().map(|(server, _)| server.name.as_str()).collect();
        let most = of
            .iter()
            .map(|(_, group)| group.members.len() as u64)
            .max()
            .unwrap_or(0);
        findings.extend(size(most, of.len() as u64, "group", &names));
    }
    findings
}

/// Returns findings about unnamed members, and cluster sizes without a majority after a split.
fn size(members: u64, named: u64, what: &str, names: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if members > named {
        findings.push(Finding::among(
            Severity::Info,
            Code::MembersNotNamed,
            format!(
                "the {what} of {} has {members} members, but {named} are named",
                names.join(", ")
            ),
            "name the others too: only named servers are examined and measured",
        ));
    }
    if members > 0 && members.is_multiple_of(2) {
        findings.push(Finding::among(
            Severity::Info,
            Code::EvenMembers,
            format!(
                "the {what} of {} has {members} members: if it splits into halves, neither has a majority and all writes stop",
                names.join(", ")
            ),
            "add a member or (Galera) an arbitrator, garbd",
        ));
    }
    findings
}
