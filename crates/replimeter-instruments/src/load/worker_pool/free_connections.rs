//! Whether servers take the connections of a load.

use std::collections::BTreeMap;

use replimeter_engine::{Node, ServerError, Session, dialect::connections::free_connections};
use replimeter_model::warning::{Warning, WarningCode};

use super::load_group::LoadGroup;
use crate::load::{OPERATION, result::ScarceConnections};

pub(super) const TOO_MANY_HINT: &str =
    "raise max_connections on the server, close other clients, or use fewer threads";
/// The part of `max_connections` below which a warning is given about what is left.
const FEW: u64 = 10;

/// Checks that a server takes this number of further connections; returns whether it leaves few for others.
pub(super) fn check_room(
    node: &Node,
    session: &mut Session,
    needed: u64,
) -> Result<Option<ScarceConnections>, ServerError> {
    let Some((free, maximum)) = free_connections(session, OPERATION)? else {
        return Ok(None);
    };
    let Some(left) = free.checked_sub(needed) else {
        return Err(session.precondition(
            OPERATION,
            format!("the load needs {needed} connections, and the server has {free} free ones (max_connections={maximum})"),
            TOO_MANY_HINT,
        ));
    };
    Ok((left < maximum / FEW).then(|| ScarceConnections {
        name: node.name.clone(),
        left,
        maximum,
    }))
}

/// Returns a warning when a server does not take the connections of these load groups, which are not open, with this number
/// of threads each.
///
/// # Errors
/// When a server does not answer.
pub fn connection_limit(
    load_groups: &[LoadGroup<'_>],
    threads: u32,
) -> Result<Option<Warning>, ServerError> {
    let mut needed: BTreeMap<&str, (&Node, u64)> = BTreeMap::new();
    for load_group in load_groups {
        for (index, node) in (0..).zip(&load_group.nodes) {
            needed.entry(&node.name).or_insert((node, 0)).1 += load_group.share(index, threads);
        }
    }
    for (node, needed) in needed.into_values() {
        let free = free_connections(&mut Session::open(node)?, OPERATION)?;
        if let Some((free, maximum)) = free.filter(|(free, _)| *free < needed) {
            return Ok(Some(Warning::new(
                WarningCode::ConnectionsScarce,
                format!(
                    "{node}: the throughput was still rising, and {threads} threads need {needed} connections, of which {free} are free (max_connections={maximum})"
                ),
                "raise max_connections on the server to measure with more threads",
            )));
        }
    }
    Ok(None)
}
