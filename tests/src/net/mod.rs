//! The net: output of the tool for fixed command lines and recorded runs, stored in `tests/net`.
//! CONTRIBUTING.md describes when and how it may change.

mod folders;
mod golden;
mod page;
mod renamed_keys;
#[cfg(test)]
mod replay;
mod report;
mod runs;
mod shown;
#[cfg(test)]
mod tests;
mod values;

pub use self::{
    folders::CommandFolders,
    golden::{GoldenPart, first_difference},
    page::{charts, drawings, escaped, figures, shortened, unabbreviated, visible, without_report},
    renamed_keys::RenamedKeys,
    report::{ReportData, other_sentences},
    runs::{Rendered, cases, copy_run, in_full, rendered, side_by_side},
    shown::{missing, terminal_report},
    values::{columns, digits, hash, is_text, leaves, list, word},
};

use std::path::{Path, PathBuf};

/// Placeholders for the folder that a command runs in, and for this repository.
pub const FOLDER: &str = "/FOLDER";
/// This repository.
pub const REPOSITORY: &str = "/REPOSITORY";

/// `tests/net`.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("net")
}

/// Returns this repository's folder.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .to_owned()
}
