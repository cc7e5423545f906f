//! Methods that the servers support.

use replimeter_engine::{ServerError, dialect::waits::PreparedWait, position::WrittenId};
use replimeter_model::warning::{Warning, WarningCode};

use super::tap;
use crate::{
    lag::settings::{Method, Methods},
    preflight::Cluster,
    stamp::Stamps,
};

/// The methods of a run.
#[derive(Debug, Default)]
pub struct AvailableMethods {
    /// Usable methods, in the order of [`Method::ALL`].
    pub methods: Vec<Method>,
    /// The clocks that stamp the rows, if a method needs them.
    pub stamps: Option<Stamps>,
    /// Why methods of `all` were left out.
    pub warnings: Vec<Warning>,
}

/// Returns the requested methods that the servers support. Nothing is written before.
///
/// # Errors
/// When a method that was requested by name is not possible; names the server, the cause and the
/// setting to change.
pub fn available_methods(
    cluster: &mut Cluster,
    wanted: &Methods,
) -> Result<AvailableMethods, ServerError> {
    let mut possible = AvailableMethods::default();
    for method in wanted.wanted() {
        match (check(cluster, method, &mut possible.stamps), wanted) {
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

fn check(
    cluster: &mut Cluster,
    method: Method,
    stamps: &mut Option<Stamps>,
) -> Result<(), ServerError> {
    match method {
        Method::Poll => Ok(()),
        Method::Wait => {
            cluster.check_comparable()?;
            WrittenId::prepare(&mut cluster.primary.session, &cluster.primary.facts)?;
            cluster.replicas.iter_mut().try_for_each(|replica| {
                PreparedWait::prepare(&mut replica.server.session, &replica.server.facts)
                    .map(|_| ())
            })
        }
        Method::Stamp | Method::StampUdf => {
            if cluster.replicas.is_empty() {
                let (cause, hint) = (
                    "the target has no replica whose stamps can be compared",
                    "use --method poll",
                );
                return Err(cluster.primary.session.precondition(
                    "cannot measure by `stamp`",
                    cause,
                    hint,
                ));
            }
            let found = match stamps.take() {
                Some(found) => found,
                None => Stamps::find(cluster)?,
            };
            let there = if method == Method::Stamp {
                found.sysdate
            } else {
                found.udf
            };
            let lacking = found.lacking.join("; ");
            *stamps = Some(found);
            if there {
                return Ok(());
            }
            Err(cluster.primary.session.precondition(
                &format!("cannot measure by `{}`", method.name()),
                lacking,
                if method == Method::Stamp {
                    "start the servers without sysdate_is_now, or use --method stamp-udf"
                } else {
                    "install NOW_USEC() on every server: copy libreplimeter_udf.so into its plugin_dir, then CREATE FUNCTION now_usec RETURNS STRING SONAME 'libreplimeter_udf.so', with sql_log_bin = 0, the primary last; or start a sandbox with --udf"
                },
            ))
        }
        Method::Tap => {
            WrittenId::prepare(&mut cluster.primary.session, &cluster.primary.facts)?;
            tap::check(cluster)
        }
    }
}
