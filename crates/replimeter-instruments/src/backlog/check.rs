//! Checks whether a backlog can be built up; reads only.

use replimeter_engine::{
    ErrorKind, ServerError, Session,
    dialect::{
        appliers::{appliers, privileges, set_for_one_channel},
        settings::{self, quoted_user},
    },
    facts::grants,
    position::check_counted,
};
use replimeter_model::engine::Engine;

use crate::{
    SCHEMA, TABLE,
    backlog::settings::BacklogPlan,
    discovery::{applier_stops, writable_transactions},
    preflight::Cluster,
};

/// Checks that every replica has an applier that the user may stop, before anything is written or
/// stopped.
///
/// # Errors
/// The first obstacle; names the server and the cause.
pub fn check(cluster: &mut Cluster, plan: &BacklogPlan) -> Result<(), ServerError> {
    let operation = "cannot build up a backlog";
    if cluster.replicas.is_empty() {
        return Err(cluster.primary.session.precondition(
            operation,
            "the target has no replica",
            "choose a target with a replica, such as --sandbox async:1",
        ));
    }
    cluster.check_comparable()?;
    check_counted(&cluster.primary.session, &cluster.primary.facts, operation)?;
    let engine = cluster.primary.facts.engine;
    for replica in &mut cluster.replicas {
        let server = &mut replica.server;
        let precondition =
            |cause: String, hint: &str| Err(server.session.precondition(operation, cause, hint));
        match replica.source.map(|source| source.delay_s) {
            Some(0) => {}
            Some(delay_s) => {
                return precondition(
                    format!(
                        "it is deliberately delayed by {delay_s} s, which would limit its catch-up"
                    ),
                    "set the delay to 0 during the measurement",
                );
            }
            None => {
                return precondition(
                    "the applier of a member of a cluster cannot be stopped alone: the member would leave the cluster, or flow control would stop the writers".to_owned(),
                    "use replicas with channels, such as --sandbox async:1, or measure the cluster under load with `lag --load`",
                );
            }
        }
        check_counted(&server.session, &server.facts, operation)?;
        if let Some(setting) = settings::begins_read_only(&server.facts) {
            return precondition(applier_stops(setting), &writable_transactions(setting));
        }
        if plan.workers.is_empty() {
            may(&mut server.session, engine, false)?;
            continue;
        }
        let channels = server.membership.channels().len();
        if appliers(&server.facts).is_none() {
            return precondition(
                "its number of applier workers cannot be read".to_owned(),
                "remove --workers",
            );
        }
        if channels > 1 && !set_for_one_channel(engine) {
            return precondition(
                format!(
                    "its number of applier workers can be set only while all of its {channels} channels are stopped"
                ),
                "remove --workers",
            );
        }
        may(&mut server.session, engine, true)?;
    }
    Ok(())
}

/// Checks that the user may stop the applier and set its workers.
fn may(session: &mut Session, engine: Engine, workers: bool) -> Result<(), ServerError> {
    // A server that does not show grants refuses the stop instead.
    let Some(grants) = grants(session, engine)? else {
        return Ok(());
    };
    let missing = grants.missing(privileges(engine, workers), SCHEMA, &TABLE);
    if missing.is_empty() || grants.has("SUPER", SCHEMA, &TABLE) {
        return Ok(());
    }
    let (missing, user) = (missing.join(", "), quoted_user(session)?);
    let mut error = session.precondition(
        "cannot stop the applier",
        format!(
            "the user lacks privileges to stop and start it{}: {missing}",
            if workers {
                " and to set its number of workers"
            } else {
                ""
            }
        ),
        format!("GRANT {missing} ON *.* TO {user};"),
    );
    error.kind = ErrorKind::Privilege;
    Err(error)
}
