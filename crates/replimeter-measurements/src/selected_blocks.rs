//! Blocks that do not count, and disturbed ones that do: what the choice changes.

use std::collections::{BTreeMap, BTreeSet};

use replimeter_model::block_selection::BlockSelection;
use replimeter_render::{
    format::Format,
    report::{Cell, Table},
};
use replimeter_stats::{
    median,
    starts::{Rounds, of_mean},
};

/// Share of a block's time by which threads waited longer for the disk than in the median block, from which on others may have used it:
/// the servers' own writes make every block wait.
const DISK_WAIT: f64 = 0.2;

/// The rates of one block.
#[derive(Clone, Debug)]
pub(crate) struct BlockRates {
    /// The start that it is of.
    pub(crate) start: u32,
    /// Whether it counts.
    pub(crate) counts: bool,
    /// Whether other virtual machines had the cores.
    pub(crate) disturbed: bool,
    /// Share of its time in which a thread of this machine waited for a disk.
    pub(crate) disk_wait: Option<f64>,
    /// Operations per second by their kind.
    pub(crate) per_s: Vec<(String, f64)>,
}

/// Returns the largest and the median share of the counted blocks' time in which threads waited for a disk; `None` if none is larger than
/// the median by [`DISK_WAIT`].
pub(crate) fn disk_waits(blocks: &[BlockRates]) -> Option<DiskWaits> {
    let counted = || blocks.iter().filter(|block| block.counts);
    let waits: Vec<f64> = counted().filter_map(|block| block.disk_wait).collect();
    let median = median::of_values(&waits).value?;
    let longest = waits.iter().copied().fold(0.0, f64::max);
    (longest > median + DISK_WAIT).then_some(DiskWaits { median, longest })
}

/// Shares of the blocks' time in which threads waited for a disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct DiskWaits {
    pub(crate) median: f64,
    pub(crate) longest: f64,
}

/// Returns what the choice of blocks changes.
pub(crate) fn selection(blocks: &[BlockRates]) -> BlockSelection {
    let usual = disk_waits(blocks).map(|waits| waits.median + DISK_WAIT);
    let disturbed = |block: &BlockRates| {
        let waited = block.disk_wait.zip(usual);
        block.disturbed || waited.is_some_and(|(wait, usual)| wait > usual)
    };
    let counted = blocks.iter().filter(|block| block.counts).count();
    let percent = |part: usize, of: usize| (part > 0).then(|| part as f64 / of as f64 * 100.0);
    let mut selection = BlockSelection {
        excluded_percent: percent(blocks.len() - counted, blocks.len()),
        disturbed_percent: percent(
            blocks
                .iter()
                .filter(|block| block.counts && disturbed(block))
                .count(),
            counted,
        ),
        ..BlockSelection::default()
    };
    if selection.excluded_percent.is_some() {
        selection.per_s_with_excluded = rates(blocks, |_| true);
    }
    if selection.disturbed_percent.is_some() {
        selection.per_s_without_disturbed =
            rates(blocks, |block| block.counts && !disturbed(block));
    }
    selection
}

/// Returns the rates of a kind in the blocks that are wanted, by start.
pub(crate) fn rounds(
    blocks: &[BlockRates],
    kind: &str,
    wanted: impl Fn(&BlockRates) -> bool,
) -> Rounds {
    let mut rounds = Rounds::new();
    for block in blocks.iter().filter(|block| wanted(block)) {
        let of_kind = block.per_s.iter().filter(|(other, _)| other == kind);
        for (_, per_s) in of_kind {
            rounds.entry(block.start).or_default().push(*per_s);
        }
    }
    rounds
}

/// Returns the mean over the starts of each kind's rate in the blocks that are wanted.
fn rates(blocks: &[BlockRates], wanted: impl Fn(&BlockRates) -> bool) -> BTreeMap<String, f64> {
    let kinds = blocks.iter().flat_map(|block| &block.per_s);
    let kinds: BTreeSet<&String> = kinds.map(|(kind, _)| kind).collect();
    let mean = |kind: &String| {
        let rounds = rounds(blocks, kind, &wanted);
        Some((kind.clone(), of_mean(rounds.values()).value?))
    };
    kinds.into_iter().filter_map(mean).collect()
}

/// Title of the table.
pub(crate) const SELECTION_TITLE: &str =
    "Blocks that do not count, or were disturbed, and the rates with and without them";

/// A row of a document with its name.
pub(crate) struct NamedSelection<'a> {
    pub(crate) name: String,
    pub(crate) selection: &'a BlockSelection,
}

/// Returns the table of rows whose rates depend on the choice of blocks; empty if there are none.
pub(crate) fn table<'a>(rows: impl IntoIterator<Item = NamedSelection<'a>>) -> Table {
    let rows: Vec<NamedSelection<'_>> = rows
        .into_iter()
        .filter(|row| *row.selection != BlockSelection::default())
        .collect();
    let per_s = |rates: &BTreeMap<String, f64>| -> Cell {
        let each = rates.iter().map(|(kind, per_s)| {
            format!("{kind} {}", Format::Rate.cell(Some(*per_s)).display_text())
        });
        let each: Vec<String> = each.collect();
        match each.is_empty() {
            true => "–".into(),
            false => each.join(", ").into(),
        }
    };
    Table::of(
        1,
        &rows,
        &[
            ("condition", &|row| Cell::from(row.name.clone())),
            ("excluded", &|row| {
                Format::Percent.cell(row.selection.excluded_percent)
            }),
            ("/s with them", &|row| {
                per_s(&row.selection.per_s_with_excluded)
            }),
            ("disturbed", &|row| {
                Format::Percent.cell(row.selection.disturbed_percent)
            }),
            ("/s without them", &|row| {
                per_s(&row.selection.per_s_without_disturbed)
            }),
        ],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(start: u32, counts: bool, per_s: f64) -> BlockRates {
        BlockRates {
            start,
            counts,
            disturbed: false,
            disk_wait: None,
            per_s: vec![("insert".to_owned(), per_s)],
        }
    }

    #[test]
    fn excluded_blocks_change_the_rates() {
        let blocks = [
            block(1, true, 100.0),
            block(1, false, 20.0),
            block(2, true, 100.0),
            block(2, true, 100.0),
        ];
        let selection = selection(&blocks);
        assert_eq!(selection.excluded_percent, Some(25.0));
        // Starts count alike: 60 and 100.
        assert_eq!(selection.per_s_with_excluded["insert"], 80.0);
        assert_eq!(
            (
                selection.disturbed_percent,
                selection.per_s_without_disturbed.len()
            ),
            (None, 0)
        );
        assert_eq!(super::selection(&blocks[2..]), BlockSelection::default());
    }

    #[test]
    fn disturbed_blocks_are_left_out_once() {
        let mut blocks = vec![
            block(1, true, 100.0),
            block(1, true, 40.0),
            block(1, true, 100.0),
            block(1, true, 60.0),
        ];
        blocks[1].disturbed = true;
        // All blocks wait for the disk, one for much longer.
        for (block, wait) in blocks.iter_mut().zip([0.3, 0.35, 0.3, 0.7]) {
            block.disk_wait = Some(wait);
        }
        assert_eq!(disk_waits(&blocks).unwrap().longest, 0.7);
        let selection = selection(&blocks);
        assert_eq!(
            (
                selection.disturbed_percent,
                selection.per_s_without_disturbed["insert"]
            ),
            (Some(50.0), 100.0)
        );
        blocks[3].disk_wait = Some(0.4);
        assert_eq!(disk_waits(&blocks), None);
    }
}
