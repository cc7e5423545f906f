//! Settings, clocks and leftovers that would distort results.

use super::*;

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
        (Engine::MariaDb, "tx_read_only"),
        (Engine::MySql, "transaction_read_only"),
    ] {
        let servers = with(engine, |servers| {
            set(servers, 0, name, "ON");
            set(servers, 1, name, "ON");
        });
        assert_found(
            &servers,
            FindingCode::TransactionsReadOnly,
            Severity::Error,
            "replica1",
        );
    }
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
    for (tls, code) in [
        (false, FindingCode::NotEncrypted),
        (true, FindingCode::ServerNotVerified),
    ] {
        let unsafe_connection = with(Engine::MySql, |servers| {
            let server = of(servers, 1);
            (server.tls, server.unverified) = (tls, Some(("exposed".to_owned(), "verify")));
        });
        assert_found(&unsafe_connection, code, Severity::Warning, "replica1");
    }
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
        of(servers, 0).tables = Ok(vec!["probe_1".to_owned()])
    });
    assert_found(&left, FindingCode::LeftoverTable, Severity::Info, "primary");
    let mut secret = with(Engine::MySql, |servers| of(servers, 1).federated = true);
    let code = FindingCode::LeftoverTable;
    assert_found(&secret, code, Severity::Warning, "replica1");
    of(&mut secret, 0).measured_by = Some("12".to_owned());
    let findings = judged(&secret).findings;
    assert!(findings.iter().all(|finding| finding.code != code));
}
