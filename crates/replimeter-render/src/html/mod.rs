//! `report.html`: one file that works offline, from a disk, for years.

mod page;
mod plotly;
mod topology;

pub use self::page::page;
use crate::rows::SamplesError;

/// Why a page could not be created.
#[derive(Debug, thiserror::Error)]
pub enum HtmlError {
    /// The samples for its charts cannot be read.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The samples belong to another run: the record counted some, and the file has none.
    #[error("the record counts {recorded} rounds, but {file} has none of them")]
    OtherSamples {
        /// Rounds in the record.
        recorded: u64,
        /// Path of the samples.
        file: String,
    },
    /// The template cannot be rendered.
    #[error("cannot render the page: {0}")]
    Template(#[from] minijinja::Error),
}
