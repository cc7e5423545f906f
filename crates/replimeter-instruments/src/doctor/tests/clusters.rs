//! Galera clusters and groups.

use super::*;

fn galera(size: usize) -> Vec<Examination> {
    let nodes = (1..=size).map(|id| {
        let mut node = state(Engine::MariaDb, id);
        for (name, value) in [
            ("read_only", "OFF"),
            ("server_id", "1"),
            ("wsrep_gtid_mode", "ON"),
            ("wsrep_gtid_domain_id", "9"),
            ("gtid_domain_id", ["1", "2", "3"][id - 1]),
            ("wsrep_slave_threads", "4"),
        ] {
            node.facts
                .variables
                .insert(name.to_owned(), value.to_owned());
        }
        node.membership.cluster = Ok(Some(ClusterState::Galera(NodeState {
            incoming: Vec::new(),
            cluster: "c".to_owned(),
            member: id.to_string(),
            state: "Synced".to_owned(),
            component: "Primary".to_owned(),
            size: size as u64,
            ready: true,
            sync_wait: 0,
        })));
        server(&format!("node{id}"), id, node)
    });
    nodes.collect()
}

#[test]
fn galera_problems_are_reported() {
    let diagnosis = judged(&galera(3));
    assert_eq!(
        diagnosis.status(),
        DoctorStatus::Ok,
        "{:#?}",
        diagnosis.findings
    );
    assert_eq!(diagnosis.results[1].relation, Relation::Galera);
    let changed = |change: fn(&mut NodeState)| {
        let mut servers = galera(3);
        match &mut of(&mut servers, 1).membership.cluster {
            Ok(Some(ClusterState::Galera(node))) => change(node),
            other => panic!("{other:?}"),
        }
        servers
    };
    assert_found(
        &changed(|node| node.state = "Joining".to_owned()),
        FindingCode::MemberNotReady,
        Severity::Error,
        "node2",
    );
    assert_found(
        &changed(|node| node.size = 2),
        FindingCode::ClusterSplit,
        Severity::Error,
        "",
    );
    assert_found(
        &changed(|node| node.sync_wait = 1),
        FindingCode::WaitingReads,
        Severity::Warning,
        "node2",
    );
    assert_found(
        &changed(|node| node.size = 4),
        FindingCode::MembersNotNamed,
        Severity::Info,
        "",
    );
    assert_found(&galera(2), FindingCode::EvenMembers, Severity::Info, "");
    for (name, value, severity, code, node) in [
        (
            "wsrep_desync",
            "ON",
            Severity::Warning,
            FindingCode::NodeDesynced,
            "node2",
        ),
        (
            "wsrep_gtid_mode",
            "OFF",
            Severity::Info,
            FindingCode::GaleraGtids,
            "",
        ),
        (
            "wsrep_gtid_domain_id",
            "8",
            Severity::Warning,
            FindingCode::GaleraGtids,
            "",
        ),
        (
            "gtid_domain_id",
            "1",
            Severity::Warning,
            FindingCode::GaleraGtids,
            "",
        ),
        (
            "wsrep_slave_threads",
            "1",
            Severity::Info,
            FindingCode::SingleThreadedApplier,
            "node2",
        ),
    ] {
        let mut servers = galera(3);
        set(&mut servers, 1, name, value);
        assert_found(&servers, code, severity, node);
    }
    let mut servers = galera(3);
    of(&mut servers, 1).stopped = Some((5, 10));
    assert_found(
        &servers,
        FindingCode::FlowControl,
        Severity::Warning,
        "node2",
    );
    let mut servers = galera(3);
    of(&mut servers, 1)
        .counters
        .insert("wsrep_flow_control_paused".to_owned(), "0.25".to_owned());
    assert_found(&servers, FindingCode::FlowControl, Severity::Info, "node2");
}

fn group(size: usize) -> Vec<Examination> {
    let members: Vec<Member> = (0..size)
        .map(|at| Member {
            uuid: UUIDS[at].to_owned(),
            address: format!("h:330{}", at + 1),
            state: "ONLINE".to_owned(),
            role: if at == 0 { "PRIMARY" } else { "SECONDARY" }.to_owned(),
        })
        .collect();
    let servers = (1..=size).map(|id| {
        let mut member = state(Engine::MySql, id);
        member.membership.cluster = Ok(Some(ClusterState::Group(GroupState {
            name: GROUP.to_owned(),
            uuid: UUIDS[id - 1].to_owned(),
            members: members.clone(),
            single_primary: true,
            consistency: "EVENTUAL".to_owned(),
        })));
        server(&format!("node{id}"), id, member)
    });
    servers.collect()
}

#[test]
fn group_replication_problems_are_reported() {
    let diagnosis = judged(&group(3));
    assert_eq!(
        diagnosis.status(),
        DoctorStatus::Ok,
        "{:#?}",
        diagnosis.findings
    );
    assert_eq!(
        (diagnosis.writer.as_deref(), diagnosis.results[2].relation),
        (Some("node1"), Relation::Group)
    );
    let changed = |change: fn(&mut GroupState)| {
        let mut servers = group(3);
        match &mut of(&mut servers, 1).membership.cluster {
            Ok(Some(ClusterState::Group(group))) => change(group),
            other => panic!("{other:?}"),
        }
        servers
    };
    let recovering = changed(|group| group.members[1].state = "RECOVERING".to_owned());
    assert_found(
        &recovering,
        FindingCode::MemberNotReady,
        Severity::Error,
        "node2",
    );
    let unreachable = changed(|group| group.members[2].state = "UNREACHABLE".to_owned());
    assert_found(
        &unreachable,
        FindingCode::MemberNotReady,
        Severity::Warning,
        "node2",
    );
    let waiting = changed(|group| group.consistency = "BEFORE".to_owned());
    assert_found(
        &waiting,
        FindingCode::WaitingReads,
        Severity::Warning,
        "node2",
    );
    assert_found(&group(2), FindingCode::EvenMembers, Severity::Info, "");
    assert_found(
        &group(3)[..2],
        FindingCode::MembersNotNamed,
        Severity::Info,
        "",
    );
    let mut writable = group(3);
    set(&mut writable, 2, "read_only", "OFF");
    assert_found(
        &writable,
        FindingCode::ReplicaWritable,
        Severity::Warning,
        "node3",
    );
    let mut mixed = group(3);
    of(&mut mixed, 2).facts.version = "8.4.3".to_owned();
    assert_found(
        &mixed,
        FindingCode::VersionsDiffer,
        Severity::Warning,
        "node3",
    );
}

#[test]
fn single_member_has_the_mode_of_its_cluster() {
    let mode = |servers: &[Examination]| {
        diagnose(servers, &topology(servers, None), Some(Mode::Async)).mode
    };
    assert_eq!(mode(&galera(1)), Some(Mode::Galera));
    assert_eq!(mode(&group(1)), Some(Mode::Group));
    assert_eq!(mode(&cluster(Engine::MariaDb, 0)), None);
    assert_eq!(mode(&cluster(Engine::MariaDb, 1)), Some(Mode::Async));
}
