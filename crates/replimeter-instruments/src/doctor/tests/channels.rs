//! Channels: stopped ones, unknown sources, filters, delays and circles.

use replimeter_engine::dialect::{ConnectedReplica, ThreadState};

use super::*;

#[test]
fn unnamed_replicas_are_reported() {
    let servers = with(Engine::MySql, |servers| {
        of(servers, 0).unnamed.registered = vec![ConnectedReplica {
            server_id: 9,
            address: Some(("db9".to_owned(), 3306)),
            is_program: false,
        }];
    });
    assert_found(
        &servers,
        FindingCode::ReplicaNotNamed,
        Severity::Info,
        "primary",
    );
    let findings = judged(&servers).findings;
    assert!(
        findings
            .iter()
            .any(|finding| finding.message.contains("server_id 9 (db9:3306)"))
    );
}

#[test]
fn stopped_channels_are_reported() {
    let servers = with(Engine::MySql, |servers| {
        let channel = channel_of(servers, 1);
        channel.applier = ThreadState::Stopped;
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
        channel.receiver = ThreadState::Connecting;
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
fn replica_that_reports_to_be_behind_is_warned_of() {
    for (delay, seconds, severity) in [
        (0, "5", Severity::Info),
        (0, "6", Severity::Warning),
        (60, "60", Severity::Info),
        (60, "66", Severity::Warning),
    ] {
        let servers = with(Engine::MariaDb, |servers| {
            let channel = channel_of(servers, 1);
            channel.delay_s = delay;
            channel.raw = texts(&[("Seconds_Behind_Master", seconds)]);
        });
        let findings = judged(&servers).findings;
        let found = findings
            .iter()
            .find(|finding| finding.code == FindingCode::SecondsBehind)
            .unwrap();
        assert_eq!(found.severity, severity, "{found:?}");
    }
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
            of(servers, 1)
                .membership
                .channels
                .as_mut()
                .unwrap()
                .push(other);
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
fn writer_that_replicates_from_an_unknown_source_is_an_error() {
    let of_source = |server_id: u64| {
        let mut other = channel(Engine::MariaDb, 3);
        other.source_server_id = server_id;
        other
    };
    let found = |servers: &[Examination]| {
        let found = judged(servers).findings.into_iter();
        let found = found.filter(|finding| finding.code == FindingCode::SourceNotNamed);
        Vec::from_iter(found.map(|finding| (finding.severity, finding.node.unwrap_or_default())))
    };
    let mut servers = with(Engine::MariaDb, |servers| {
        servers[0].role = Some(Role::Primary);
        of(servers, 0).membership.channels = Ok(vec![of_source(77)]);
    });
    assert_eq!(found(&servers), [(Severity::Error, "primary".to_owned())]);
    servers[0].write_to_replica = true;
    assert_eq!(found(&servers), [(Severity::Warning, "primary".to_owned())]);
    // A ring is complete if all its servers are named.
    servers[0].write_to_replica = false;
    of(&mut servers, 0).membership.channels = Ok(vec![of_source(2)]);
    assert_eq!(found(&servers), []);
    of(&mut servers, 1)
        .membership
        .channels
        .as_mut()
        .unwrap()
        .push(of_source(77));
    assert_eq!(found(&servers), [(Severity::Error, "replica1".to_owned())]);
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
        of(servers, 0).log_filters = filtered("shop")
    });
    assert_found(
        &servers,
        FindingCode::FilterSwallowsSchema,
        Severity::Error,
        "primary",
    );
    let servers = with(Engine::MariaDb, |servers| {
        of(servers, 0).log_filters = filtered("replimeter")
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
        of(servers, 0).membership.channels = Ok(vec![channel(Engine::MariaDb, 2)]);
    });
    assert_found(
        &circle,
        FindingCode::CircularReplication,
        Severity::Warning,
        "",
    );
    assert_eq!(judged(&circle).writer.as_deref(), Some("primary"));
}
