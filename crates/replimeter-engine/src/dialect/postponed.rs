//! Work that InnoDB postpones and does in the background.

use replimeter_model::resources::PostponedWork;

use crate::{ServerError, Session};

const OPERATION: &str = "cannot read the server's postponed work";
const DIRTY_PAGES: &str = "Innodb_buffer_pool_pages_dirty";
const HISTORY: &str = "Innodb_history_list_length";
/// The length of the history in MySQL, which needs `PROCESS`.
const HISTORY_METRIC: &str =
    "SELECT `COUNT` FROM information_schema.INNODB_METRICS WHERE NAME = 'trx_rseg_history_len'";

/// Reads the work that a server has postponed; needs no privilege, except for the history of MySQL.
///
/// # Errors
/// When the connection breaks.
pub fn postponed(session: &mut Session) -> Result<PostponedWork, ServerError> {
    let statement =
        format!("SHOW GLOBAL STATUS WHERE Variable_name IN ('{DIRTY_PAGES}', '{HISTORY}')");
    let status = session.pairs(OPERATION, &statement)?;
    let get = |name: &str| status.get(name).and_then(|value| value.parse().ok());
    let history = match get(HISTORY) {
        Some(length) => Some(length),
        None => match session.value(OPERATION, HISTORY_METRIC) {
            Ok(length) => length.and_then(|length| length.parse().ok()),
            Err(error) if error.is_refusal() => None,
            Err(error) => return Err(error),
        },
    };
    Ok(PostponedWork {
        dirty_pages: get(DIRTY_PAGES),
        history,
    })
}
