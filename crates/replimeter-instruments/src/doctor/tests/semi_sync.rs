//! Semi-synchronous replication: what is configured, and what is in effect.

use super::*;

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
        of(servers, 0).membership.waits = Some(primary);
        of(servers, 1).membership.acknowledges = acknowledging(replica);
        of(servers, 2).membership.acknowledges = acknowledging((true, true));
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
    assert_eq!(diagnosis.results[1].mode, Some(Mode::SemiSync));
    assert!(found(&semi(|_, _| {}), FindingCode::AcknowledgementSettings).is_some());
}

#[test]
fn ineffective_semi_sync_is_reported() {
    let inactive = semi(|primary, _| primary.active = false);
    assert_found(
        &inactive,
        FindingCode::AcknowledgementFallenBack,
        Severity::Warning,
        "primary",
    );
    assert_eq!(judged(&inactive).results[1].mode, Some(Mode::Async));
    let without_replicas = semi(|primary, _| (primary.active, primary.clients) = (false, 0));
    assert_found(
        &without_replicas,
        FindingCode::AcknowledgementNoClients,
        Severity::Warning,
        "primary",
    );
    assert_eq!(
        found(&without_replicas, FindingCode::AcknowledgementFallenBack),
        None
    );
    let stale = semi(|_, replica| *replica = (true, false));
    assert_found(
        &stale,
        FindingCode::AcknowledgementReceiverNotRestarted,
        Severity::Warning,
        "replica1",
    );
    let primary_off = semi(|primary, _| *primary = PrimaryState::default());
    assert_found(
        &primary_off,
        FindingCode::AcknowledgementPrimaryOff,
        Severity::Warning,
        "replica1",
    );
    // Another replica acknowledges instead, or none does.
    let spare = semi(|primary, replica| (primary.clients, *replica) = (1, (false, false)));
    assert_found(
        &spare,
        FindingCode::AcknowledgementReplicaOff,
        Severity::Info,
        "replica1",
    );
    let alone = semi(|primary, replica| (primary.clients, *replica) = (0, (false, false)));
    assert_found(
        &alone,
        FindingCode::AcknowledgementReplicaOff,
        Severity::Warning,
        "replica1",
    );
    let many = semi(|primary, _| primary.wait_for = 3);
    assert_found(
        &many,
        FindingCode::AcknowledgementWaitCount,
        Severity::Warning,
        "primary",
    );
    let missed = semi(|primary, _| primary.unacknowledged = 4);
    assert_found(
        &missed,
        FindingCode::AcknowledgementUnacknowledged,
        Severity::Warning,
        "primary",
    );
}

#[test]
fn replica_prepared_for_promotion_is_not_reported() {
    let servers = with(Engine::MySql, |servers| {
        of(servers, 1).membership.waits = Some(PrimaryState {
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
