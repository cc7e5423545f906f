//! Fabricated states: each common fault has its finding, and healthy servers have none.

use std::collections::BTreeMap;

use replimeter_engine::{
    ErrorKind,
    dialect::{
        Channel,
        galera::NodeState,
        group::{GroupState, Member},
        gtid::{Executed, GtidSet, domain_gtids},
        semi_sync::{PrimaryState, ReplicaState},
    },
    facts::ServerFacts,
    filter::Filters,
    grants::Grants,
};
use replimeter_model::{
    doctor::{ClockOffset, DoctorStatus, Relation, RoundTrip},
    engine::Engine,
    target::{Role, SslMode},
};

use super::{examination::SchemaContents, *};

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
        ssl_mode: SslMode::Preferred,
        loopback: false,
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
        channels: Ok(Vec::new()),
        galera: None,
        group: Ok(None),
        semi_sync: None,
        acknowledges: ReplicaState::default(),
        sysdate_is_now: false,
        counters: texts(&[("Uptime", "100"), ("Threads_connected", "3")]),
        stopped: None,
        binlog_filters: Ok(Some(Filters::default())),
        executed: match engine {
            Engine::MariaDb => Executed::Domains {
                logged: domain_gtids("0-1-9").unwrap(),
                applied: Vec::new(),
            },
            Engine::MySql => Executed::Set(GtidSet::parse(&format!("{}:1-9", UUIDS[0])).unwrap()),
        },
        table: Ok(SchemaContents::None),
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
        io_running: "Yes".to_owned(),
        sql_running: "Yes".to_owned(),
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
        state: Ok(Box::new(state)),
    }
}

/// Returns a primary and replicas of it.
fn cluster(engine: Engine, replicas: usize) -> Vec<Examination> {
    let mut servers = vec![server("primary", 1, state(engine, 1))];
    for id in 2..2 + replicas {
        let mut replica = state(engine, id);
        replica.channels = Ok(vec![channel(engine, 1)]);
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
    &mut of(servers, index).channels.as_mut().unwrap()[0]
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
            (row.relation, row.source.as_deref(), row.mode.as_deref()),
            (Relation::Channel, Some("primary"), Some("async"))
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
    channel_of(&mut servers, 1).io_running = "No".to_owned();
    for finding in judged(&servers).findings {
        assert!(!finding.hint.is_empty(), "{finding:?}");
    }
}

#[test]
fn unreachable_servers_are_reported() {
    for (kind, code) in [
        (ErrorKind::Unreachable, FindingCode::Unreachable),
        (ErrorKind::AccessDenied, FindingCode::AccessDenied),
        (ErrorKind::Tls, FindingCode::TlsFailed),
        (ErrorKind::Statement(1), FindingCode::ExaminationFailed),
    ] {
        let servers = with(Engine::MySql, |servers| {
            let error = ServerError::precondition(
                "replica1",
                "127.0.0.1:3302",
                "cannot connect",
                "no",
                "try",
            );
            servers[1].state = Err(ServerError { kind, ..error });
        });
        assert_found(&servers, code, Severity::Error, "replica1");
        // The other servers are still examined.
        assert_eq!(judged(&servers).results[2].relation, Relation::Channel);
        assert_eq!(judged(&servers).not_reached(), ["replica1"]);
    }
}

#[test]
fn missing_privileges_name_their_grant() {
    let servers = with(Engine::MySql, |servers| {
        of(servers, 0).grants = Some(Grants::parse(["GRANT SELECT ON `replimeter`.* TO `u`@`%`"]));
    });
    assert_found(
        &servers,
        FindingCode::MissingPrivilege,
        Severity::Error,
        "primary",
    );
    let hint = judged(&servers).findings[0].hint.clone();
    assert_eq!(
        hint,
        "GRANT CREATE, DROP, INSERT, DELETE ON `replimeter`.* TO 'u'@'%';"
    );
    let servers = with(Engine::MariaDb, |servers| {
        let error = ServerError::precondition("replica1", "a", "cannot read", "denied", "");
        of(servers, 1).channels = Err(ServerError {
            kind: ErrorKind::Privilege,
            ..error
        });
    });
    assert_found(
        &servers,
        FindingCode::MissingPrivilege,
        Severity::Error,
        "replica1",
    );
    assert!(
        judged(&servers).findings[0]
            .hint
            .contains("REPLICA MONITOR ON *.*")
    );
}

#[test]
fn one_server_under_two_names_is_reported() {
    let servers = with(Engine::MySql, |servers| of(servers, 2).same_as = vec![1]);
    assert_found(
        &servers,
        FindingCode::SameServer,
        Severity::Error,
        "replica2",
    );
    let servers = with(Engine::MySql, |servers| {
        set(servers, 2, "server_uuid", UUIDS[1])
    });
    assert_found(
        &servers,
        FindingCode::DuplicateServerUuid,
        Severity::Error,
        "",
    );
    for engine in ENGINES {
        let servers = with(engine, |servers| set(servers, 2, "server_id", "2"));
        assert_found(
            &servers,
            FindingCode::DuplicateServerId,
            Severity::Error,
            "",
        );
    }
}

#[test]
fn stopped_channels_are_reported() {
    let servers = with(Engine::MySql, |servers| {
        let channel = channel_of(servers, 1);
        channel.sql_running = "No".to_owned();
        channel.sql_error = "Duplicate entry (error 1062)".to_owned();
    });
    assert_found(
        &servers,
        FindingCode::ReplicationNotRunning,
        Severity::Error,
        "replica1",
    );
    assert!(
        judged(&servers).findings[0]
            .message
            .contains("Duplicate entry (error 1062)")
    );
    // One that never connected is identified by its address.
    let servers = with(Engine::MariaDb, |servers| {
        let channel = channel_of(servers, 1);
        channel.io_running = "Connecting".to_owned();
        channel.source_server_id = 0;
    });
    assert_found(
        &servers,
        FindingCode::ReplicationNotRunning,
        Severity::Error,
        "replica1",
    );
    assert_eq!(
        judged(&servers).results[1].source.as_deref(),
        Some("primary")
    );
    let servers = with(Engine::MySql, |servers| {
        channel_of(servers, 1).io_error = "retrying".to_owned()
    });
    assert_found(
        &servers,
        FindingCode::ReplicationError,
        Severity::Warning,
        "replica1",
    );
}

#[test]
fn channels_from_unknown_sources_are_reported() {
    for engine in ENGINES {
        let servers = with(engine, |servers| {
            let mut other = channel(engine, 3);
            other.name = "shop".to_owned();
            other.source_server_id = 77;
            other.source_uuid = if engine == Engine::MySql {
                GROUP.to_owned()
            } else {
                String::new()
            };
            other.source_host = "elsewhere".to_owned();
            of(servers, 1).channels.as_mut().unwrap().push(other);
        });
        assert_found(
            &servers,
            FindingCode::MultiSource,
            Severity::Info,
            "replica1",
        );
        assert_found(
            &servers,
            FindingCode::SourceNotNamed,
            Severity::Info,
            "replica1",
        );
        let finding = judged(&servers)
            .findings
            .into_iter()
            .find(|finding| finding.code == FindingCode::SourceNotNamed);
        assert!(finding.unwrap().message.contains("elsewhere:3303"));
    }
}

#[test]
fn filters_and_delays_are_reported() {
    let servers = with(Engine::MySql, |servers| {
        channel_of(servers, 1).filters.ignore_schemas = vec!["replimeter".to_owned()]
    });
    assert_found(
        &servers,
        FindingCode::FilterSwallowsSchema,
        Severity::Error,
        "replica1",
    );
    let servers = with(Engine::MySql, |servers| {
        channel_of(servers, 1).filters.ignore_schemas = vec!["shop".to_owned()]
    });
    assert_found(
        &servers,
        FindingCode::ReplicationFilter,
        Severity::Info,
        "replica1",
    );
    let servers = with(Engine::MariaDb, |servers| {
        channel_of(servers, 1)
            .raw
            .insert("Replicate_Ignore_Domain_Ids".to_owned(), "5".to_owned());
    });
    assert_found(
        &servers,
        FindingCode::ReplicationFilter,
        Severity::Info,
        "replica1",
    );
    let servers = with(Engine::MariaDb, |servers| {
        channel_of(servers, 1).delay_s = 5
    });
    assert_found(
        &servers,
        FindingCode::DelayedReplica,
        Severity::Warning,
        "replica1",
    );
    let filtered = |schema: &str| {
        Ok(Some(Filters {
            do_schemas: vec![schema.to_owned()],
            ..Filters::default()
        }))
    };
    let servers = with(Engine::MariaDb, |servers| {
        of(servers, 0).binlog_filters = filtered("shop")
    });
    assert_found(
        &servers,
        FindingCode::FilterSwallowsSchema,
        Severity::Error,
        "primary",
    );
    let servers = with(Engine::MariaDb, |servers| {
        of(servers, 0).binlog_filters = filtered("replimeter")
    });
    assert_found(
        &servers,
        FindingCode::BinlogFilter,
        Severity::Info,
        "primary",
    );
}

#[test]
fn chains_are_accepted_and_circles_reported() {
    let chain = |updates: &str| {
        with(Engine::MariaDb, |servers| {
            *channel_of(servers, 2) = channel(Engine::MariaDb, 2);
            set(servers, 1, "log_slave_updates", updates);
        })
    };
    assert_eq!(judged(&chain("ON")).status(), DoctorStatus::Ok);
    assert_eq!(
        judged(&chain("ON")).results[2].source.as_deref(),
        Some("replica1")
    );
    assert_found(
        &chain("OFF"),
        FindingCode::ChainBroken,
        Severity::Error,
        "replica1",
    );
    let circle = with(Engine::MariaDb, |servers| {
        servers[0].role = Some(Role::Primary);
        of(servers, 0).channels = Ok(vec![channel(Engine::MariaDb, 2)]);
    });
    assert_found(
        &circle,
        FindingCode::CircularReplication,
        Severity::Warning,
        "",
    );
    assert_eq!(judged(&circle).writer.as_deref(), Some("primary"));
}

fn semi_sync() -> PrimaryState {
    PrimaryState {
        enabled: true,
        active: true,
        clients: 2,
        acknowledged: 10,
        unacknowledged: 0,
        wait_point: "AFTER_SYNC".to_owned(),
        wait_for: 1,
        timeout_ms: 10_000,
    }
}

/// Returns a replica's side: configured, in effect.
fn acknowledging((enabled, active): (bool, bool)) -> ReplicaState {
    ReplicaState { enabled, active }
}

/// Returns semi-synchronous servers with one thing changed.
fn semi(change: impl FnOnce(&mut PrimaryState, &mut (bool, bool))) -> Vec<Examination> {
    with(Engine::MySql, |servers| {
        let (mut primary, mut replica) = (semi_sync(), (true, true));
        change(&mut primary, &mut replica);
        of(servers, 0).semi_sync = Some(primary);
        of(servers, 1).acknowledges = acknowledging(replica);
        of(servers, 2).acknowledges = acknowledging((true, true));
    })
}

#[test]
fn semi_sync_in_effect_is_no_warning() {
    let diagnosis = judged(&semi(|_, _| {}));
    assert_eq!(
        diagnosis.status(),
        DoctorStatus::Ok,
        "{:#?}",
        diagnosis.findings
    );
    assert_eq!(diagnosis.results[1].mode.as_deref(), Some("semi-sync"));
    assert!(found(&semi(|_, _| {}), FindingCode::SemiSyncSettings).is_some());
}

#[test]
fn ineffective_semi_sync_is_reported() {
    let fallen = semi(|primary, _| primary.active = false);
    assert_found(
        &fallen,
        FindingCode::SemiSyncFallenBack,
        Severity::Warning,
        "primary",
    );
    assert_eq!(judged(&fallen).results[1].mode.as_deref(), Some("async"));
    let nobody = semi(|primary, _| (primary.active, primary.clients) = (false, 0));
    assert_found(
        &nobody,
        FindingCode::SemiSyncNoClients,
        Severity::Warning,
        "primary",
    );
    assert_eq!(found(&nobody, FindingCode::SemiSyncFallenBack), None);
    let stale = semi(|_, replica| *replica = (true, false));
    assert_found(
        &stale,
        FindingCode::SemiSyncReceiverNotRestarted,
        Severity::Warning,
        "replica1",
    );
    let primary_off = semi(|primary, _| *primary = PrimaryState::default());
    assert_found(
        &primary_off,
        FindingCode::SemiSyncPrimaryOff,
        Severity::Warning,
        "replica1",
    );
    // Another replica acknowledges instead, or none does.
    let spare = semi(|primary, replica| (primary.clients, *replica) = (1, (false, false)));
    assert_found(
        &spare,
        FindingCode::SemiSyncReplicaOff,
        Severity::Info,
        "replica1",
    );
    let alone = semi(|primary, replica| (primary.clients, *replica) = (0, (false, false)));
    assert_found(
        &alone,
        FindingCode::SemiSyncReplicaOff,
        Severity::Warning,
        "replica1",
    );
    let many = semi(|primary, _| primary.wait_for = 3);
    assert_found(
        &many,
        FindingCode::SemiSyncWaitCount,
        Severity::Warning,
        "primary",
    );
    let missed = semi(|primary, _| primary.unacknowledged = 4);
    assert_found(
        &missed,
        FindingCode::SemiSyncUnacknowledged,
        Severity::Warning,
        "primary",
    );
}

#[test]
fn replica_prepared_for_promotion_is_not_reported() {
    let servers = with(Engine::MySql, |servers| {
        of(servers, 1).semi_sync = Some(PrimaryState {
            clients: 0,
            ..semi_sync()
        });
    });
    assert_eq!(
        judged(&servers).status(),
        DoctorStatus::Ok,
        "{:#?}",
        judged(&servers).findings
    );
}

#[test]
fn binary_log_settings_are_checked() {
    for (index, name, value, code, severity, node) in [
        (
            0,
            "log_bin",
            "OFF",
            FindingCode::BinlogOff,
            Severity::Error,
            "primary",
        ),
        (
            1,
            "log_bin",
            "OFF",
            FindingCode::BinlogOff,
            Severity::Info,
            "replica1",
        ),
        (
            1,
            "log_slave_updates",
            "OFF",
            FindingCode::UpdatesNotLogged,
            Severity::Info,
            "replica1",
        ),
        (
            0,
            "binlog_format",
            "STATEMENT",
            FindingCode::BinlogFormat,
            Severity::Warning,
            "primary",
        ),
        (
            0,
            "binlog_format",
            "MIXED",
            FindingCode::BinlogFormat,
            Severity::Info,
            "primary",
        ),
        (
            0,
            "binlog_row_image",
            "MINIMAL",
            FindingCode::RowImage,
            Severity::Info,
            "primary",
        ),
        (
            1,
            "sync_binlog",
            "0",
            FindingCode::DurabilityDiffers,
            Severity::Info,
            "",
        ),
    ] {
        for engine in ENGINES {
            assert_found(
                &with(engine, |servers| set(servers, index, name, value)),
                code,
                severity,
                node,
            );
        }
    }
    let relaxed = with(Engine::MySql, |servers| {
        (0..3).for_each(|index| set(servers, index, "sync_binlog", "0"))
    });
    assert_found(
        &relaxed,
        FindingCode::DurabilityRelaxed,
        Severity::Info,
        "primary",
    );
    let lone = vec![server("primary", 1, state(Engine::MySql, 1))];
    assert_eq!(judged(&lone).status(), DoctorStatus::Ok);
}

#[test]
fn gtid_and_applier_settings_are_checked() {
    let off = with(Engine::MySql, |servers| {
        (0..3).for_each(|index| set(servers, index, "gtid_mode", "OFF"))
    });
    assert_found(&off, FindingCode::GtidOff, Severity::Info, "primary");
    let lax = with(Engine::MariaDb, |servers| {
        set(servers, 1, "gtid_strict_mode", "OFF")
    });
    assert_found(&lax, FindingCode::GtidNotStrict, Severity::Info, "");
    for engine in ENGINES {
        let by_file = with(engine, |servers| channel_of(servers, 1).by_gtid = false);
        assert_found(&by_file, FindingCode::NotByGtid, Severity::Info, "replica1");
    }
    let single = with(Engine::MariaDb, |servers| {
        set(servers, 1, "slave_parallel_threads", "0")
    });
    assert_found(
        &single,
        FindingCode::SingleThreadedApplier,
        Severity::Info,
        "replica1",
    );
    let idle = with(Engine::MariaDb, |servers| {
        set(servers, 1, "slave_parallel_mode", "none")
    });
    assert_found(
        &idle,
        FindingCode::SingleThreadedApplier,
        Severity::Info,
        "replica1",
    );
    let order = with(Engine::MySql, |servers| {
        set(servers, 1, "replica_preserve_commit_order", "OFF")
    });
    assert_found(
        &order,
        FindingCode::CommitOrderNotPreserved,
        Severity::Warning,
        "replica1",
    );
    let tracking = with(Engine::MySql, |servers| {
        set(
            servers,
            0,
            "binlog_transaction_dependency_tracking",
            "COMMIT_ORDER",
        )
    });
    assert_found(
        &tracking,
        FindingCode::DependencyTracking,
        Severity::Info,
        "replica1",
    );
}

#[test]
fn mysql_errant_transactions_are_reported() {
    let executed = |text: String| Executed::Set(GtidSet::parse(&text).unwrap());
    let errant = with(Engine::MySql, |servers| {
        of(servers, 1).executed = executed(format!("{}:1-9,{}:1-2", UUIDS[0], UUIDS[1]));
    });
    assert_found(
        &errant,
        FindingCode::ErrantTransactions,
        Severity::Warning,
        "replica1",
    );
    let message = &judged(&errant).findings[0].message;
    assert!(
        message.contains("2 errant") && message.contains("written on the replica itself"),
        "{message}"
    );
    let ahead = with(Engine::MySql, |servers| {
        of(servers, 1).executed = executed(format!("{}:1-12", UUIDS[0]))
    });
    assert_found(
        &ahead,
        FindingCode::ReplicaAhead,
        Severity::Warning,
        "replica1",
    );
    assert_eq!(found(&ahead, FindingCode::ErrantTransactions), None);
    // Being behind is not a fault.
    let behind = with(Engine::MySql, |servers| {
        of(servers, 1).executed = executed(format!("{}:1-5", UUIDS[0]))
    });
    assert_eq!(judged(&behind).status(), DoctorStatus::Ok);
    // Transactions from another channel are expected.
    let other = with(Engine::MySql, |servers| {
        of(servers, 1).executed = executed(format!("{}:1-9,{GROUP}:1-2", UUIDS[0]));
        let mut second = channel(Engine::MySql, 3);
        (second.name, second.source_server_id, second.source_uuid) =
            ("other".to_owned(), 99, GROUP.to_owned());
        of(servers, 1).channels.as_mut().unwrap().push(second);
    });
    assert_eq!(found(&other, FindingCode::ErrantTransactions), None);
    // The end of a chain is compared with its top.
    let chain = with(Engine::MySql, |servers| {
        *channel_of(servers, 2) = channel(Engine::MySql, 2);
        of(servers, 2).executed = executed(format!("{}:1-9,{}:7", UUIDS[0], UUIDS[2]));
    });
    assert_found(
        &chain,
        FindingCode::ErrantTransactions,
        Severity::Warning,
        "replica2",
    );
}

#[test]
fn mariadb_errant_transactions_are_reported() {
    let domains = |logged: &str, applied: &str| Executed::Domains {
        logged: domain_gtids(logged).unwrap(),
        applied: domain_gtids(applied).unwrap(),
    };
    let errant = with(Engine::MariaDb, |servers| {
        of(servers, 1).executed = domains("0-1-9,0-2-5", "0-1-9")
    });
    assert_found(
        &errant,
        FindingCode::ErrantTransactions,
        Severity::Warning,
        "replica1",
    );
    // It is a former primary, and the current one has all of its transactions.
    let once = with(Engine::MariaDb, |servers| {
        of(servers, 0).executed = domains("0-2-5,0-1-9", "0-2-5");
        of(servers, 1).executed = domains("0-2-5,0-1-9", "0-1-9");
    });
    assert_eq!(judged(&once).status(), DoctorStatus::Ok);
    let unlogged = with(Engine::MariaDb, |servers| {
        set(servers, 0, "log_slave_updates", "OFF");
        of(servers, 0).executed = domains("0-1-9", "0-3-5");
        of(servers, 1).executed = domains("0-1-9,0-2-5", "0-1-9");
    });
    assert_found(
        &unlogged,
        FindingCode::ErrantUnknown,
        Severity::Info,
        "replica1",
    );
    let no_log = with(Engine::MariaDb, |servers| set(servers, 1, "log_bin", "OFF"));
    assert_found(
        &no_log,
        FindingCode::ErrantUnknown,
        Severity::Info,
        "replica1",
    );
    let ahead = with(Engine::MariaDb, |servers| {
        of(servers, 1).executed = domains("0-1-11", "0-1-11")
    });
    assert_found(
        &ahead,
        FindingCode::ReplicaAhead,
        Severity::Warning,
        "replica1",
    );
}

#[test]
fn clock_difference_beyond_its_bound_is_reported() {
    let apart = |offset_us, bound_us| {
        with(Engine::MySql, |servers| {
            of(servers, 1).clock = Some(ClockOffset {
                offset_us,
                bound_us,
                count: 30,
            })
        })
    };
    assert_found(
        &apart(-5_000.0, 100.0),
        FindingCode::ClockOffset,
        Severity::Warning,
        "replica1",
    );
    assert_eq!(
        found(&apart(-5_000.0, 4_500.0), FindingCode::ClockOffset),
        None
    );
    assert_eq!(found(&apart(900.0, 10.0), FindingCode::ClockOffset), None);
    let difference = &judged(&apart(-5_000.0, 100.0)).clocks[0];
    assert_eq!(
        (difference.offset_us, difference.bound_us),
        (-5_003.0, 125.0)
    );
}

#[test]
fn settings_that_distort_results_are_reported() {
    for (index, name, value, code, severity, node) in [
        (
            0,
            "read_only",
            "ON",
            FindingCode::WriterReadOnly,
            Severity::Error,
            "primary",
        ),
        (
            1,
            "read_only",
            "OFF",
            FindingCode::ReplicaWritable,
            Severity::Warning,
            "replica1",
        ),
        (
            0,
            "autocommit",
            "OFF",
            FindingCode::AutocommitOff,
            Severity::Info,
            "primary",
        ),
        (
            1,
            "slow_query_log",
            "ON",
            FindingCode::StatementLog,
            Severity::Info,
            "replica1",
        ),
        (
            0,
            "max_connections",
            "5",
            FindingCode::ConnectionsNearlyExhausted,
            Severity::Error,
            "primary",
        ),
    ] {
        for engine in ENGINES {
            assert_found(
                &with(engine, |servers| set(servers, index, name, value)),
                code,
                severity,
                node,
            );
        }
    }
    let standing = with(Engine::MariaDb, |servers| {
        of(servers, 1).sysdate_is_now = true
    });
    assert_found(
        &standing,
        FindingCode::SysdateIsNow,
        Severity::Info,
        "replica1",
    );
    let scarce = with(Engine::MySql, |servers| {
        of(servers, 0)
            .counters
            .insert("Threads_connected".to_owned(), "144".to_owned());
    });
    assert_found(
        &scarce,
        FindingCode::ConnectionsNearlyExhausted,
        Severity::Warning,
        "primary",
    );
    for (engine, name) in [
        (Engine::MariaDb, "tx_isolation"),
        (Engine::MySql, "transaction_isolation"),
    ] {
        let servers = with(engine, |servers| set(servers, 1, name, "SERIALIZABLE"));
        assert_found(
            &servers,
            FindingCode::IsolationSerializable,
            Severity::Warning,
            "replica1",
        );
    }
    let blind = with(Engine::MySql, |servers| {
        set(servers, 1, "performance_schema", "OFF")
    });
    assert_found(
        &blind,
        FindingCode::PerformanceSchemaOff,
        Severity::Info,
        "replica1",
    );
    let plain = with(Engine::MySql, |servers| of(servers, 1).tls = false);
    assert_found(
        &plain,
        FindingCode::NotEncrypted,
        Severity::Warning,
        "replica1",
    );
}

#[test]
fn leftovers_of_earlier_runs_are_reported() {
    let busy = with(Engine::MySql, |servers| {
        of(servers, 0).measured_by = Some("12".to_owned())
    });
    assert_found(
        &busy,
        FindingCode::BeingMeasured,
        Severity::Error,
        "primary",
    );
    let left = with(Engine::MySql, |servers| {
        of(servers, 0).table = Ok(SchemaContents::Ours)
    });
    assert_found(&left, FindingCode::LeftoverTable, Severity::Info, "primary");
    let foreign = with(Engine::MySql, |servers| {
        of(servers, 1).table = Ok(SchemaContents::Foreign)
    });
    assert_found(
        &foreign,
        FindingCode::ForeignTable,
        Severity::Error,
        "replica1",
    );
}

#[test]
fn unsupported_versions_are_reported() {
    let version = |index: usize, text: &str| {
        with(Engine::MySql, |servers| {
            of(servers, index).facts.version = text.to_owned()
        })
    };
    assert_found(
        &version(1, "8.4.3"),
        FindingCode::SourceNewer,
        Severity::Warning,
        "replica1",
    );
    assert_found(
        &version(0, "8.4.3"),
        FindingCode::VersionsDiffer,
        Severity::Info,
        "replica1",
    );
    assert_found(
        &version(1, "9.7.0"),
        FindingCode::VersionsDiffer,
        Severity::Info,
        "replica1",
    );
    let mixed = with(Engine::MySql, |servers| {
        of(servers, 1).facts.engine = Engine::MariaDb
    });
    assert_found(
        &mixed,
        FindingCode::EnginesDiffer,
        Severity::Warning,
        "replica1",
    );
}

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
        node.galera = Some(NodeState {
            incoming: Vec::new(),
            cluster: "c".to_owned(),
            member: id.to_string(),
            state: "Synced".to_owned(),
            component: "Primary".to_owned(),
            size: size as u64,
            ready: true,
            sync_wait: 0,
        });
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
        change(of(&mut servers, 1).galera.as_mut().unwrap());
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
        member.group = Ok(Some(GroupState {
            name: GROUP.to_owned(),
            uuid: UUIDS[id - 1].to_owned(),
            members: members.clone(),
            single_primary: true,
            consistency: "EVENTUAL".to_owned(),
        }));
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
        change(
            of(&mut servers, 1)
                .group
                .as_mut()
                .unwrap()
                .as_mut()
                .unwrap(),
        );
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
    channel_of(&mut servers, 1).io_running = "No".to_owned();
    assert_eq!(codes(&servers), [FindingCode::ReplicationNotRunning]);
}

#[test]
fn single_member_has_the_mode_of_its_cluster() {
    let mode = |servers: &[Examination]| {
        diagnose(servers, &topology(servers, None), Some("async".to_owned())).mode
    };
    assert_eq!(mode(&galera(1)), Some("galera".to_owned()));
    assert_eq!(mode(&group(1)), Some("group".to_owned()));
    assert_eq!(mode(&cluster(Engine::MariaDb, 0)), None);
    assert_eq!(mode(&cluster(Engine::MariaDb, 1)), Some("async".to_owned()));
}
