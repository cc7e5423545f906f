//! `report.html`: one file that works offline, from a disk, for years.

mod calibrate;
mod compare;
mod cost;
mod frame;
mod lag;
mod load;
mod loss;
mod pictures;
mod price;
mod reproduce;
mod reproduce_pictures;
mod scale;
mod stale;
mod stale_pictures;
mod tap;
mod together;
mod topology;

pub use self::{
    calibrate::calibrate,
    compare::compare,
    cost::cost,
    lag::lag,
    load::load,
    loss::{exposure, loss},
    reproduce::reproduce,
    scale::scale,
    stale::stale,
    tap::tap,
    together::together,
};
use crate::samples::SamplesError;

/// Why a page could not be made.
#[derive(Debug, thiserror::Error)]
pub enum HtmlError {
    /// The samples behind its pictures.
    #[error(transparent)]
    Samples(#[from] SamplesError),
    /// The samples are of another run: the record counted some, and the file has none.
    #[error("the record counts {recorded} rounds, but {file} holds none of them")]
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
