//! The rows that are written: which row a round uses, and its earlier values.

use std::{
    collections::HashMap,
    sync::{LazyLock, atomic::AtomicBool},
};

use replimeter_model::random::Random;

use crate::{MeasureError, SCHEMA, TABLE, check_interrupted, preflight::Cluster};

/// Columns of the table, as published, with some payload.
pub const COLUMNS: &str = "id BIGINT UNSIGNED NOT NULL PRIMARY KEY, k BIGINT UNSIGNED NOT NULL, pad CHAR(60) NOT NULL DEFAULT ''";
/// The write of a round. Its condition on the last value leaves a row alone that another client has
/// changed.
pub static UPDATE: LazyLock<String> = LazyLock::new(|| {
    format!(
        "UPDATE `{SCHEMA}`.`{}` SET k = ? WHERE id = ? AND k = ?",
        *TABLE
    )
});
/// The write that resets a row after a change by another client.
pub static RETAKE: LazyLock<String> =
    LazyLock::new(|| format!("UPDATE `{SCHEMA}`.`{}` SET k = ? WHERE id = ?", *TABLE));
/// The read of a round.
pub static SELECT: LazyLock<String> =
    LazyLock::new(|| format!("SELECT k FROM `{SCHEMA}`.`{}` WHERE id = ?", *TABLE));

/// Maximum number of rounds that are searched for older versions of a row.
const LOOKBACK: u64 = 200_000;
/// Rows per INSERT.
const BATCH: u64 = 1000;

/// The assignment of rows to rounds.
#[derive(Clone, Copy, Debug)]
pub struct RowAllocation {
    seed: u64,
    rows: u64,
}

impl RowAllocation {
    /// Creates the assignment for this number of rows; the same seed gives the same order.
    #[must_use]
    pub fn new(seed: u64, rows: u32) -> Self {
        Self {
            seed,
            rows: u64::from(rows.max(1)),
        }
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.rows
    }

    /// Returns the id of a round's row: as published, one of the odd numbers from 1 on.
    #[must_use]
    pub fn row_of(&self, round: u64) -> u64 {
        2 * (scrambled(self.seed ^ scrambled(round)) % self.rows) + 1
    }

    /// Returns the index of a row.
    #[must_use]
    pub fn index(&self, row: u64) -> usize {
        usize::try_from(row / 2).unwrap_or(0)
    }

    /// Returns whether a round before `wanted` wrote this value into the row; 0 is the initial value.
    #[must_use]
    pub fn is_own_write(&self, row: u64, value: u64, wanted: u64) -> bool {
        value == 0 || (value <= wanted && self.row_of(value) == row)
    }

    /// Returns how many versions of the row are newer than `seen`, up to and including `wanted`.
    #[must_use]
    pub fn behind(&self, row: u64, seen: u64, wanted: u64) -> u32 {
        let from = seen.max(wanted.saturating_sub(LOOKBACK));
        let versions = (from + 1..=wanted)
            .filter(|round| self.row_of(*round) == row)
            .count();
        u32::try_from(versions).unwrap_or(u32::MAX)
    }
}

/// The last value that this run wrote into each row, and the rows that another client has changed.
#[derive(Clone, Debug, Default)]
pub(super) struct RowHistory {
    values: Vec<u64>,
    /// By row: the round that reset it.
    since: HashMap<u64, u64>,
}

impl RowHistory {
    /// Creates the state before the first round.
    pub(super) fn new(values: Vec<u64>) -> Self {
        Self {
            values,
            since: HashMap::new(),
        }
    }

    /// Returns the expected value of the row with this index.
    pub(super) fn at(&self, index: usize) -> u64 {
        self.values.get(index).copied().unwrap_or(0)
    }

    /// Records the write of a round.
    pub(super) fn record_write(&mut self, index: usize, round: u64) {
        if let Some(value) = self.values.get_mut(index) {
            *value = round;
        }
    }

    /// Records that a round found another client's value.
    pub(super) fn record_foreign_write(&mut self, row: u64, round: u64) {
        self.since.insert(row, round);
    }

    /// Returns the first round whose values are certain. Older values of the row may be another
    /// client's: a restored old value looks like lag.
    pub(super) fn own_since(&self, row: u64) -> u64 {
        self.since.get(&row).copied().unwrap_or(0)
    }
}

/// Returns a hash of this number: always the same, without a visible relation to it.
pub(super) fn scrambled(number: u64) -> u64 {
    Random::new(number).bits()
}

/// Fills the empty table.
///
/// # Errors
/// When the server refuses.
pub(super) fn fill(
    cluster: &mut Cluster,
    rows: u64,
    stop: &AtomicBool,
) -> Result<(), MeasureError> {
    let session = &mut cluster.primary.session;
    let mut next = 0;
    while next < rows {
        check_interrupted(stop)?;
        let end = rows.min(next + BATCH);
        let values: Vec<String> = (next..end)
            .map(|number| format!("({}, 0, REPEAT('x', 60))", 2 * number + 1))
            .collect();
        let sql = format!(
            "INSERT INTO `{SCHEMA}`.`{}` (id, k, pad) VALUES {}",
            *TABLE,
            values.join(", ")
        );
        session.run("cannot fill the table", &sql)?;
        next = end;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_history_tracks_last_value_and_foreign_writes() {
        let mut held = RowHistory::new(vec![0; 3]);
        held.record_write(1, 7);
        held.record_write(9, 8);
        assert_eq!((held.at(0), held.at(1), held.at(9)), (0, 7, 0));
        held.record_foreign_write(3, 12);
        assert_eq!((held.own_since(1), held.own_since(3)), (0, 12));
    }

    #[test]
    fn rounds_use_odd_rows_evenly_and_track_values() {
        let rows = RowAllocation::new(7, 500);
        let mut taken = vec![0u32; 500];
        for round in 1..=50_000u64 {
            let row = rows.row_of(round);
            assert!(row % 2 == 1 && row < 1000);
            taken[rows.index(row)] += 1;
        }
        assert!(
            taken.iter().all(|count| (50..170).contains(count)),
            "{taken:?}"
        );
        let row = rows.row_of(10);
        let later: Vec<u64> = (11..20_000)
            .filter(|round| rows.row_of(*round) == row)
            .collect();
        assert_eq!(rows.behind(row, 10, later[0]), 1);
        assert_eq!(rows.behind(row, 10, later[4]), 5);
        assert!(rows.is_own_write(row, 10, later[0]) && rows.is_own_write(row, 0, 5));
        assert!(
            !rows.is_own_write(row, later[1], later[0]),
            "from the future"
        );
        let other = (1..100).find(|round| rows.row_of(*round) != row).unwrap();
        assert!(!rows.is_own_write(row, other, later[0]), "of another row");
    }
}
