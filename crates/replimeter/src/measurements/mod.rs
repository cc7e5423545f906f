//! The measurements, a folder each, and the one list of them.

pub(crate) mod backlog;
pub(crate) mod calibrate;
pub(crate) mod cost;
pub(crate) mod exposure;
pub(crate) mod lag;
pub(crate) mod load;
pub(crate) mod loss;
pub(crate) mod scale;
pub(crate) mod stale;
pub(crate) mod tap;

use std::sync::LazyLock;

use crate::run::Registry;

/// Every measurement, in the order of the help.
pub(crate) fn registry() -> &'static Registry {
    static ALL: LazyLock<Registry> = LazyLock::new(|| {
        Registry::default()
            .with::<lag::Lag>()
            .with::<backlog::Backlog>()
            .with::<calibrate::Calibrate>()
            .with::<tap::Tap>()
            .with::<load::Load>()
            .with::<scale::Scale>()
            .with::<cost::Cost>()
            .with::<stale::Stale>()
            .with::<loss::Loss>()
            .with::<exposure::Exposure>()
    });
    &ALL
}
