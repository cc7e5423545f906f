//! The limit of one transaction: a replica applies it as a whole, and a cluster certifies and acknowledges it as a
//! whole. Everything that writes or deletes many rows divides them by this limit: filling a data set, restoring it,
//! and emptying the table of a run.

/// Maximum rows of one transaction.
pub(crate) const MAX_ROWS: u64 = 10_000;
/// Maximum bytes of the rows of one transaction, unless a single row is larger.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Returns how many rows of this size, in bytes, one transaction may have: at least one.
pub(crate) fn rows(row_bytes: u64) -> u64 {
    (MAX_BYTES / row_bytes.max(1)).clamp(1, MAX_ROWS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_is_limited_by_rows_and_bytes() {
        assert_eq!(rows(0), MAX_ROWS);
        assert_eq!(rows(8), MAX_ROWS, "tiny rows");
        assert_eq!(rows(1024), 1024);
        assert_eq!(rows(MAX_BYTES), 1);
        assert_eq!(rows(1 << 30), 1, "a row cannot be divided");
    }
}
