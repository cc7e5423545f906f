//! The rows in the table, and their removal.

use std::ops::Range;

use replimeter_engine::{ServerError, Session};

use crate::{SCHEMA, TABLE, transaction};

/// The rows in the table: it is emptied before they become too many.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowBudget {
    /// Their ids; the end is the next row's id.
    pub ids: Range<u64>,
    /// Bytes of their payloads.
    pub bytes: u64,
}

impl Default for RowBudget {
    /// Returns the state of a new table: no rows, and the first id is 1.
    fn default() -> Self {
        Self {
            ids: 1..1,
            bytes: 0,
        }
    }
}

impl RowBudget {
    /// Payload bytes at which the table is emptied.
    pub const MAX_BYTES: u64 = 64 << 20;
    /// Rows at which the table is emptied: ten transactions, so that the pause is no longer than one for
    /// [`MAX_BYTES`](Self::MAX_BYTES), and a replica has applied them long before any usual `--timeout`.
    pub const MAX_ROWS: u64 = 100_000;

    /// Returns whether the table must be emptied.
    #[must_use]
    pub fn full(&self) -> bool {
        self.bytes >= Self::MAX_BYTES || self.rows() >= Self::MAX_ROWS
    }

    fn rows(&self) -> u64 {
        self.ids.end - self.ids.start
    }

    /// Splits the ids into ranges that one transaction may delete. Rows of one table have the same size, except a few
    /// small ones.
    fn slices(&self) -> impl Iterator<Item = Range<u64>> {
        let step = transaction::rows(self.bytes.div_ceil(self.rows().max(1)));
        let end = self.ids.end;
        std::iter::successors(Some(self.ids.start), move |first| first.checked_add(step))
            .take_while(move |first| *first < end)
            .map(move |first| first..end.min(first.saturating_add(step)))
    }
}

/// Removes the rows from the table, in transactions of limited size ([`transaction`]), until `halted`. Not TRUNCATE,
/// which is DDL and would stall a Galera cluster; and by id, since a DELETE with a LIMIT is unsafe for a statement-based
/// binary log.
///
/// # Errors
/// When the server refuses.
pub(crate) fn remove_rows(
    session: &mut Session,
    held: &RowBudget,
    halted: impl Fn() -> bool,
) -> Result<(), ServerError> {
    for slice in held.slices().take_while(|_| !halted()) {
        let delete = format!(
            "DELETE FROM `{SCHEMA}`.`{}` WHERE id >= {} AND id < {}",
            *TABLE, slice.start, slice.end
        );
        session.run("cannot empty the table", &delete)?;
    }
    Ok(())
}

/// Returns the bytes of which every row's payload is a prefix: without a pattern that a compressing
/// server could shrink.
#[must_use]
pub fn payload(longest: u64) -> Vec<u8> {
    // Weyl sequence with a mixing multiplication (Steele et al. 2014).
    let mut state = 0u64;
    (0..longest)
        .map(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            b' ' + ((mixed >> 40) % 95) as u8
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_full_at_row_or_byte_limit() {
        let held = |rows: u64, bytes: u64| {
            RowBudget {
                ids: 5..5 + rows,
                bytes,
            }
            .full()
        };
        assert!(!RowBudget::default().full());
        assert!(!held(RowBudget::MAX_ROWS - 1, RowBudget::MAX_BYTES - 1));
        assert!(held(RowBudget::MAX_ROWS, 0), "tiny rows fill it too");
        assert!(held(64, RowBudget::MAX_BYTES), "and so do few large ones");
    }

    #[test]
    fn slices_cover_all_ids_in_order_within_limit() {
        for (ids, bytes, count) in [
            (1..1, 0, 0),
            (1..2, 8, 1),
            (7..10_007, 10_000, 1),
            (7..10_008, 10_000, 2),
            (1..100_001, 100_000, 10),
            (1..65, 64 << 20, 64),
            (1..3, 1 << 30, 2),
            (u64::MAX - 3..u64::MAX, 0, 1),
        ] {
            let held = RowBudget {
                ids: ids.clone(),
                bytes,
            };
            let parts: Vec<_> = held.slices().collect();
            assert_eq!(parts.len(), count, "{ids:?}");
            assert!(
                parts
                    .iter()
                    .all(|part| !part.is_empty() && part.end - part.start <= transaction::MAX_ROWS),
                "{parts:?}"
            );
            assert!(
                parts.windows(2).all(|pair| pair[0].end == pair[1].start),
                "{parts:?}"
            );
            if let (Some(first), Some(last)) = (parts.first(), parts.last()) {
                assert_eq!((first.start, last.end), (ids.start, ids.end));
            }
        }
    }
}
