//! `report.html`: one file that works offline, from a disk, for years.

mod page;
mod plotly;
mod topology;

pub use self::page::page;
use crate::rows::SamplesError;

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
pub enum HtmlError {
    /// The samples behind its pictures.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The samples are of another run: the record counted some, and the file has none.
    #[error("the record counts {recorded} rounds, but {file} has none of them")]
    OtherSamples {
        /// Rounds in the record.
        recorded: u64,
        /// Where samples were looked for.
        file: String,
    },
    /// The page itself.
    #[error("cannot render the page: {0}")]
    Template(#[from] minijinja::Error),
}
