//! Servers that cannot be reached or examined, and their names and versions.

use super::*;

#[test]
fn unreachable_servers_are_reported() {
    for (kind, code) in [
        (ErrorKind::Unreachable, FindingCode::Unreachable),
        (ErrorKind::AccessDenied, FindingCode::AccessDenied),
        (ErrorKind::Tls, FindingCode::TlsFailed),
        (
            ErrorKind::Statement(ErrorClass::Other),
            FindingCode::ExaminationFailed,
        ),
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
        of(servers, 1).membership.channels = Err(ServerError {
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
fn hidden_routines_and_events_are_reported() {
    let granted = |privileges: &str| {
        with(Engine::MariaDb, |servers| {
            let grant = format!("GRANT {privileges} ON `replimeter`.* TO `u`@`%`");
            of(servers, 1).grants = Some(Grants::parse([grant.as_str()]));
        })
    };
    let code = FindingCode::MissingPrivilege;
    let servers = granted("SELECT");
    assert_found(&servers, code, Severity::Info, "replica1");
    let findings = judged(&servers).findings;
    let hints = findings.iter().filter(|finding| finding.code == code);
    let hints: Vec<&str> = hints.map(|finding| finding.hint.as_str()).collect();
    assert_eq!(
        hints,
        [
            "run on the primary, from where it replicates: GRANT EXECUTE, EVENT ON `replimeter`.* TO 'u'@'%';"
        ]
    );
    for all in ["SELECT, EXECUTE, EVENT", "SELECT, ALTER ROUTINE, EVENT"] {
        let findings = judged(&granted(all)).findings;
        assert!(findings.iter().all(|finding| finding.code != code));
    }
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
