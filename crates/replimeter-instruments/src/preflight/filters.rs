//! Filters of binary logs and of replication, which keep what a run writes from replicas.

use replimeter_engine::{
    ErrorKind, ServerError, Session,
    dialect::{
        self,
        log::{FILTERS_HINT, ITS_LOG},
    },
    filter::Filters,
};
use replimeter_model::warning::{Warning, WarningCode};

use super::Cluster;
use crate::{SCHEMA, TABLE, discovery::DiscoveredServer};

/// Refuses filters that exclude a table of the schema.
///
/// # Errors
/// Names the server and the filter.
pub(crate) fn refuse_filters(
    session: &Session,
    whose: &str,
    filters: &Filters,
    table: &str,
) -> Result<(), ServerError> {
    match filters.excludes(SCHEMA, table) {
        None => Ok(()),
        Some(reason) => Err(session.precondition(
            "a filter excludes the schema `replimeter`",
            format!("{whose} {reason}"),
            "let the schema `replimeter` pass the filter during the measurement",
        )),
    }
}

/// Refuses a primary whose log excludes the schema. Returns a warning if its filters cannot be read.
///
/// # Errors
/// Names the filter; or when the connection breaks.
pub(crate) fn check_log_filters(
    primary: &mut DiscoveredServer,
) -> Result<Option<Warning>, ServerError> {
    let session = &mut primary.session;
    match dialect::log_filters(primary.facts.engine, session) {
        Ok(filters) => {
            let filters = filters.unwrap_or_default();
            refuse_filters(session, ITS_LOG, &filters, &TABLE).map(|()| None)
        }
        Err(error) if error.kind == ErrorKind::Privilege => Ok(Some(Warning::new(
            WarningCode::NotChecked,
            format!(
                "{session}: the filters of {ITS_LOG} could not be read, so they were not checked"
            ),
            FILTERS_HINT,
        ))),
        Err(error) => Err(error),
    }
}

impl Cluster {
    /// Refuses replicas that do not get one of these tables.
    ///
    /// # Errors
    /// Names the replica and the filter.
    pub(crate) fn refuse_filtered(&self, tables: &[&str]) -> Result<(), ServerError> {
        for replica in &self.replicas {
            let Some(channel) = replica.channel() else {
                continue;
            };
            for table in tables {
                let session = &replica.server.session;
                refuse_filters(session, "its replication", &channel.filters, table)?;
            }
        }
        Ok(())
    }
}
