//! The net: output of the tool for fixed command lines and recorded runs, stored in `tests/net`.
//! CONTRIBUTING.md describes when and how it may change.

mod folders;
mod golden;
mod page;
mod renamed_keys;
mod runs;
#[cfg(test)]
mod tests;
mod values;

pub use self::{
    folders::CommandFolders,
    golden::{GoldenPart, first_difference},
    page::{charts, escaped, figures, shortened, visible},
    renamed_keys::RenamedKeys,
    runs::{Rendered, cases, copy_run, rendered, side_by_side},
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
