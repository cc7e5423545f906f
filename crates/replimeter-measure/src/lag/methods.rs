//! Which methods the servers permit.

use replimeter_model::{
    plan::{Method, Methods},
    warning::{Warning, WarningCode},
};
use replimeter_server::{
    ServerError,
    flavour::{waits::Wait, written::Written},
};

use super::tap;
use crate::preflight::Cluster;

/// The methods of a run.
#[derive(Debug, Default)]
pub struct Possible {
    /// In the order of [`Method::ALL`].
    pub methods: Vec<Method>,
    /// Why one of `all` is not among them.
    pub warnings: Vec<Warning>,
}

/// Finds out which of the wanted methods the servers permit, before anything is written.
///
/// # Errors
/// When one that was asked for by name is not possible, with the server, the reason
/// and what to turn on.
pub fn possible(cluster: &mut Cluster, wanted: &Methods) -> Result<Possible, ServerError> {
    let mut possible = Possible::default();
    for method in wanted.wanted() {
        match (check(cluster, method), wanted) {
            (Ok(()), _) => possible.methods.push(method),
            (Err(error), Methods::Named(_)) => return Err(error),
            (Err(error), Methods::All) => possible.warnings.push(Warning::new(
                WarningCode::MethodLeftOut,
                format!("the method {} was left out: {error}", method.name()),
                error.hint,
            )),
        }
    }
    Ok(possible)
}

fn check(cluster: &mut Cluster, method: Method) -> Result<(), ServerError> {
    match method {
        Method::Poll => Ok(()),
        Method::Wait => {
            Written::prepare(&mut cluster.primary.session, &cluster.primary.facts)?;
            cluster
                .replicas
                .iter_mut()
                .try_for_each(|replica| Wait::prepare(&mut replica.server.session, &replica.server.facts).map(|_| ()))
        }
        Method::Stamp | Method::StampUdf => {
            Err(cluster.primary.session.unfit("stamp", "not in this build", "choose --method poll"))
        }
        Method::Tap => {
            Written::prepare(&mut cluster.primary.session, &cluster.primary.facts)?;
            tap::check(&mut cluster.primary)?;
            cluster.replicas.iter_mut().try_for_each(|replica| tap::check(&mut replica.server))
        }
    }
}
