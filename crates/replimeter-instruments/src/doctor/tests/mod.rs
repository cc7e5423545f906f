//! Fabricated states: each common fault has its finding, and healthy servers have none.

mod access;
mod channels;
mod clusters;
mod errant_transactions;
mod semi_sync;
mod settings;

use std::collections::BTreeMap;

use replimeter_engine::{
    ErrorClass, ErrorKind,
    dialect::{
        Channel, ThreadState,
        acknowledgement::{PrimaryState, ReplicaState},
        galera::NodeState,
        group::{GroupState, Member},
    },
    facts::ServerFacts,
    filter::Filters,
    grants::Grants,
    membership::{ClusterState, Membership},
    position::{Executed, GtidSet, domain_commits},
};

use replimeter_model::{
    doctor::{ClockOffset, DoctorStatus, RoundTrip},
    engine::Engine,
    replication::{Mode, Relation},
    target::{Endpoint, Role},
};

use super::*;
use crate::preflight::UnnamedReplicas;
use replimeter_engine::dialect::locks::Obstacles;

const UUIDS: [&str; 3] = [
    "00000000-0000-0000-0000-00000000000a",
    "00000000-0000-0000-0000-00000000000b",
    "00000000-0000-0000-0000-00000000000c",
];

const GROUP: &str = "00000000-0000-0000-0000-0000000000ff";

fn texts(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

/// Returns a healthy server with this `server_id`, from 1.
fn state(engine: Engine, id: usize) -> ServerState {
    let common = [
        ("server_id", ["1", "2", "3"][id - 1]),
        ("hostname", "h"),
        ("log_bin", "ON"),
        ("binlog_format", "ROW"),
        ("binlog_row_image", "FULL"),
        ("log_slave_updates", "ON"),
        ("sync_binlog", "1"),
        ("innodb_flush_log_at_trx_commit", "1"),
        ("read_only", if id == 1 { "OFF" } else { "ON" }),
        ("max_connections", "151"),
        ("autocommit", "ON"),
        ("general_log", "OFF"),
    ];
    let mut variables = texts(&common);
    variables.extend(match engine {
        Engine::MariaDb => texts(&[
            ("version", "10.11.19-MariaDB"),
            ("gtid_strict_mode", "ON"),
            ("slave_parallel_threads", "4"),
            ("slave_parallel_mode", "optimistic"),
            ("tx_isolation", "REPEATABLE-READ"),
            ("gtid_domain_id", "0"),
        ]),
        Engine::MySql => texts(&[
            ("version", "9.7.4"),
            ("server_uuid", UUIDS[id - 1]),
            ("gtid_mode", "ON"),
            ("replica_parallel_workers", "4"),
            ("replica_preserve_commit_order", "ON"),
            ("transaction_isolation", "REPEATABLE-READ"),
            ("performance_schema", "ON"),
        ]),
    });
    let version = variables["version"].clone();
    ServerState {
        tls: true,
        unverified: None,
        connect_us: 900.0,
        round_trip: RoundTrip {
            min_us: 40.0,
            p50_us: 50.0,
            count: 30,
        },
        clock: Some(ClockOffset {
            offset_us: 3.0,
            bound_us: 25.0,
            count: 30,
        }),
        facts: ServerFacts {
            engine,
            version,
            variables,
        },
        user: "'u'@'%'".to_owned(),
        grants: Some(Grants::parse(["GRANT ALL PRIVILEGES ON *.* TO `u`@`%`"])),
        membership: Membership {
            cluster: Ok(None),
            channels: Ok(Vec::new()),
            waits: None,
            acknowledges: ReplicaState::default(),
        },
        applier_users: Ok(Vec::new()),
        sysdate_is_now: false,
        counters: texts(&[("Uptime", "100"), ("Threads_connected", "3")]),
        stopped: None,
        log_filters: Ok(Some(Filters::default())),
        executed: match engine {
            Engine::MariaDb => Executed::Domains {
                logged: domain_commits("0-1-9").unwrap(),
                applied: Vec::new(),
            },
            Engine::MySql => Executed::Set(GtidSet::parse(&format!("{}:1-9", UUIDS[0])).unwrap()),
        },
        tables: Ok(Vec::new()),
        federated: false,
        unnamed: UnnamedReplicas::default(),
        obstacles: Obstacles::default(),
        measured_by: None,
        same_as: Vec::new(),
    }
}

/// Returns a healthy channel from the server with this `server_id`.
fn channel(engine: Engine, source: usize) -> Channel {
    Channel {
        source_host: "127.0.0.1".to_owned(),
        source_port: format!("330{source}"),
        source_server_id: source as u64,
        source_uuid: if engine == Engine::MySql {
            UUIDS[source - 1].to_owned()
        } else {
            String::new()
        },
        receiver: ThreadState::Running,
        applier: ThreadState::Running,
        by_gtid: true,
        raw: texts(&[("Seconds_Behind_Master", "0")]),
        ..Channel::default()
    }
}

fn server(name: &str, port: usize, state: ServerState) -> Examination {
    Examination {
        name: name.to_owned(),
        address: format!("127.0.0.1:330{port}"),
        role: None,
        write_to_replica: false,
        state: Ok(Box::new(state)),
    }
}

/// Returns a primary and replicas of it.
fn cluster(engine: Engine, replicas: usize) -> Vec<Examination> {
    let mut servers = vec![server("primary", 1, state(engine, 1))];
    for id in 2..2 + replicas {
        let mut replica = state(engine, id);
        replica.membership.channels = Ok(vec![channel(engine, 1)]);
        servers.push(server(&format!("replica{}", id - 1), id, replica));
    }
    servers
}

fn of(servers: &mut [Examination], index: usize) -> &mut ServerState {
    servers[index].state.as_mut().unwrap()
}

fn set(servers: &mut [Examination], index: usize, name: &str, value: &str) {
    of(servers, index)
        .facts
        .variables
        .insert(name.to_owned(), value.to_owned());
}

fn channel_of(servers: &mut [Examination], index: usize) -> &mut Channel {
    &mut of(servers, index).membership.channels.as_mut().unwrap()[0]
}

fn judged(servers: &[Examination]) -> Diagnosis {
    diagnose(servers, &topology(servers, None), None)
}

/// Returns the severity and the server of the finding with this code.
fn found(servers: &[Examination], code: FindingCode) -> Option<(Severity, Option<String>)> {
    judged(servers)
        .findings
        .into_iter()
        .find(|finding| finding.code == code)
        .map(|finding| (finding.severity, finding.node))
}

fn assert_found(servers: &[Examination], code: FindingCode, severity: Severity, node: &str) {
    let diagnosis = judged(servers);
    let finding = diagnosis
        .findings
        .iter()
        .find(|finding| finding.code == code);
    let finding = finding.unwrap_or_else(|| panic!("no {code} in {:#?}", diagnosis.findings));
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert_eq!(
        finding.node.as_deref(),
        (!node.is_empty()).then_some(node),
        "{finding:?}"
    );
    assert!(
        !finding.hint.is_empty() && finding.message.contains(node),
        "{finding:?}"
    );
}

/// Returns a cluster with one thing changed.
fn with(engine: Engine, change: impl FnOnce(&mut Vec<Examination>)) -> Vec<Examination> {
    let mut servers = cluster(engine, 2);
    change(&mut servers);
    servers
}

const ENGINES: [Engine; 2] = [Engine::MariaDb, Engine::MySql];

#[test]
fn healthy_servers_have_no_warnings() {
    for engine in ENGINES {
        let diagnosis = judged(&cluster(engine, 2));
        assert_eq!(
            diagnosis.status(),
            DoctorStatus::Ok,
            "{:#?}",
            diagnosis.findings
        );
        assert_eq!(diagnosis.writer.as_deref(), Some("primary"));
        let row = &diagnosis.results[1];
        assert_eq!(
            (row.relation, row.source.as_deref(), row.mode),
            (Relation::Channel, Some("primary"), Some(Mode::Async))
        );
        assert_eq!(diagnosis.clocks.len(), 2);
    }
}

#[test]
fn every_warning_has_a_hint() {
    let mut servers = cluster(Engine::MySql, 2);
    for (name, value) in [
        ("read_only", "ON"),
        ("log_bin", "OFF"),
        ("max_connections", "3"),
        ("general_log", "ON"),
    ] {
        set(&mut servers, 0, name, value);
    }
    channel_of(&mut servers, 1).receiver = ThreadState::Stopped;
    for finding in judged(&servers).findings {
        assert!(!finding.hint.is_empty(), "{finding:?}");
    }
}

#[test]
fn only_hints_of_the_server_name_its_error_log() {
    let hint = "see its error log";
    let finding = |server| {
        Finding::among(
            Severity::Error,
            FindingCode::MemberNotReady,
            String::new(),
            hint,
        )
        .about(server, "h:1")
    };
    let mut findings = [finding("primary"), finding("replica1")];
    let node = Node {
        log: Some("/s/server.log".into()),
        ..Node::new(
            "replica1",
            Endpoint::parse("mysql://h").unwrap().0,
            "",
            Duration::ZERO,
        )
    };
    add_log(&mut findings, &node);
    assert_eq!(
        findings.map(|finding| finding.hint),
        [hint, "see its error log, /s/server.log"]
    );
}

#[test]
fn preflight_refusal_is_reported_once() {
    let mut servers = cluster(Engine::MySql, 1);
    let error = ServerError::precondition(
        "replica1",
        "127.0.0.1:3302",
        "does not replicate",
        "stopped",
        "mend it",
    );
    let mut topology = topology(&servers, None);
    topology.refused = Some(error);
    let codes = |servers: &[Examination]| {
        let findings = diagnose(servers, &topology, None).findings;
        findings
            .iter()
            .filter(|finding| finding.severity == Severity::Error)
            .map(|finding| finding.code)
            .collect::<Vec<_>>()
    };
    assert_eq!(codes(&servers), [FindingCode::TopologyRefused]);
    channel_of(&mut servers, 1).receiver = ThreadState::Stopped;
    assert_eq!(codes(&servers), [FindingCode::ReplicationNotRunning]);
}
