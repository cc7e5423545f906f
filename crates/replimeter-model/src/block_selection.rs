//! What the choice of blocks changes.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Blocks of a row that do not count, or that count although they were disturbed, and its rates with and without them.
///
/// Blocks are left out for a reason that may also make them slower or faster than others: how far the rates differ is how much they
/// depend on the choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BlockSelection {
    /// Share of the blocks that do not count, in percent; null if there are none.
    pub excluded_percent: Option<f64>,
    /// Operations per second by their kind if these blocks counted.
    pub per_s_with_excluded: BTreeMap<String, f64>,
    /// Share of the counted blocks in which the machine was disturbed, in percent; null if there are none.
    pub disturbed_percent: Option<f64>,
    /// Operations per second by their kind if these blocks did not count.
    pub per_s_without_disturbed: BTreeMap<String, f64>,
}
