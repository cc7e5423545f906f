//! Galera clusters and groups: who is in them, and does everyone take part?

use std::collections::BTreeSet;

use replimeter_model::doctor::{Finding, FindingCode as Code, Severity};

use super::{
    View, about, among,
    examination::{Examination, State},
};

/// The share of time from which on flow control is part of every figure, in percent.
const STOPPED_PERCENT: f64 = 1.0;

pub(super) fn check(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (_, server, state) in view.reached() {
        findings.extend(of_node(server, state));
        findings.extend(of_member(server, state));
    }
    findings.extend(galera(view));
    findings.extend(groups(view));
    findings
}

fn of_node(server: &Examination, state: &State) -> Vec<Finding> {
    let mut findings = Vec::new();
    let Some(node) = &state.galera else {
        return findings;
    };
    let desynced = state.facts.on("wsrep_desync");
    if desynced {
        findings.push(about(
            Severity::Warning,
            Code::NodeDesynced,
            server,
            "it is desynced on purpose (wsrep_desync=ON): it may fall behind without slowing anybody",
            "SET GLOBAL wsrep_desync=OFF; and wait until it is Synced",
        ));
    }
    if !node.synced() {
        findings.push(about(
            Severity::Error,
            Code::MemberNotReady,
            server,
            format_args!("it does not take part fully: {}", node.words()),
            if desynced {
                "SET GLOBAL wsrep_desync=OFF;"
            } else {
                "wait until it is Synced; its error log says more"
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
    let hint = "which node sends it? SHOW GLOBAL STATUS LIKE 'wsrep_flow_control_sent'; give that one more wsrep_slave_threads, or less to do";
    if let Some((stopped, passed)) = now {
        let percent = stopped as f64 / passed as f64 * 100.0;
        findings.push(about(
            Severity::Warning,
            Code::FlowControl,
            server,
            format_args!(
                "flow control stops writes now: for {:.0} % of the time of this examination",
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

fn of_member(server: &Examination, state: &State) -> Vec<Finding> {
    let Some(group) = state.group() else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    if group.own().is_none_or(|own| own.state != "ONLINE") {
        findings.push(about(
            Severity::Error,
            Code::MemberNotReady,
            server,
            format_args!("it does not take part fully: {}", group.words()),
            "wait until the member is ONLINE; its error log says more; START GROUP_REPLICATION; if it has left",
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
                "it sees members of its group that do not take part: {}",
                absent.join(", ")
            ),
            "wait for those that recover; an UNREACHABLE one is expelled after a while",
        ));
    }
    findings
}

/// What the nodes of each Galera cluster say together.
fn galera(view: &View<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let nodes = || {
        view.reached()
            .filter_map(|(_, server, state)| Some((server, state, state.galera.as_ref()?)))
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
            findings.push(among(
                Severity::Error,
                Code::ClusterSplit,
                format!("the cluster is split: {named} of its nodes are named, but {}", sizes.join(", ")),
                "the nodes without a quorum refuse statements; mend the network, or restart those that were left behind",
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
            findings.push(among(
                Severity::Info,
                Code::GaleraGtids,
                format!("wsrep_gtid_mode is not ON on all of {}: the same transaction has another GTID in each node's binary log", names.join(", ")),
                "start every node with wsrep_gtid_mode=ON, one wsrep_gtid_domain_id for all and a gtid_domain_id of its own to compare binary logs or to hang replicas on any node",
            ));
        } else if distinct("wsrep_gtid_domain_id") > 1 {
            findings.push(among(
                Severity::Warning,
                Code::GaleraGtids,
                format!(
                    "wsrep_gtid_domain_id differs between {}: GTIDs do not agree between them",
                    names.join(", ")
                ),
                "give every node the same wsrep_gtid_domain_id and restart it",
            ));
        } else if named > 1 && distinct("gtid_domain_id") < named {
            findings.push(among(
                Severity::Warning,
                Code::GaleraGtids,
                format!(
                    "gtid_domain_id is not distinct on {}: what one writes for itself only takes GTIDs of the others",
                    names.join(", ")
                ),
                "give every node a gtid_domain_id of its own, other than wsrep_gtid_domain_id",
            ));
        }
    }
    findings
}

/// What the members of each group say together.
fn groups(view: &View<'_>) -> Vec<Finding> {
    let members = || {
        view.reached()
            .filter_map(|(_, server, state)| Some((server, state.group()?)))
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

/// Members that are not named, and sizes without a majority.
fn size(members: u64, named: u64, what: &str, names: &[&str]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if members > named {
        findings.push(among(
            Severity::Info,
            Code::MembersNotNamed,
            format!(
                "the {what} of {} has {members} members, of which {named} are named",
                names.join(", ")
            ),
            "name the others too to have them examined and measured",
        ));
    }
    if members > 0 && members.is_multiple_of(2) {
        findings.push(among(
            Severity::Info,
            Code::EvenMembers,
            format!(
                "the {what} of {} has {members} members: split in halves, neither has a majority and all writes stop",
                names.join(", ")
            ),
            "add a member, or (Galera) an arbitrator, garbd",
        ));
    }
    findings
}
