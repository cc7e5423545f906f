//! Whether a table's rows can be loaded from a file that the client sends.

use crate::{ServerError, Session};

/// Returns whether the server takes rows as files: `LOAD DATA LOCAL` is on, replicas get rows instead of the file, and a text is the
/// same in both.
///
/// # Errors
/// When the server does not answer.
pub fn takes_files(session: &mut Session, operation: &str) -> Result<bool, ServerError> {
    let settings = session.pairs(
        operation,
        "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('local_infile', 'binlog_format')",
    )?;
    let setting = |name: &str| settings.get(name).map_or("", String::as_str);
    // A server without the variable replicates rows only.
    let rows_only = matches!(setting("binlog_format"), "" | "ROW");
    Ok(setting("local_infile") == "ON" && rows_only)
}

/// Returns whether a statement that fails is rolled back in the table of this name in the schema `replimeter`.
///
/// # Errors
/// When the server does not answer.
pub fn rolls_back(
    session: &mut Session,
    operation: &str,
    table: &str,
) -> Result<bool, ServerError> {
    let sql = format!(
        "SELECT engine FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name = '{table}'"
    );
    Ok(session.value(operation, &sql)?.as_deref() == Some("InnoDB"))
}
