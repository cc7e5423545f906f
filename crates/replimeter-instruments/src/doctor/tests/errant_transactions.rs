//! Errant transactions of both engines.

use super::*;

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
        of(servers, 1)
            .membership
            .channels
            .as_mut()
            .unwrap()
            .push(second);
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
        logged: domain_commits(logged).unwrap(),
        applied: domain_commits(applied).unwrap(),
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
