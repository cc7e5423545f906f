//! The documents of a run that are compared.

use replimeter_model::manifest::Manifest;
use serde_json::Value;

/// The documents of a run.
pub(crate) struct Documents {
    /// The record.
    pub(super) summary: Value,
    pub(crate) manifest: Manifest,
    /// The text of `plan.toml`.
    pub(super) plan: String,
}
