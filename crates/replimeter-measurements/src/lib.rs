//! The measurements, each in its own folder, and their list.

pub mod across;
mod backlog;
mod block_figures;
mod calibrate;
mod cost;
mod data;
mod exposure;
mod front;
pub mod lag;
mod load;
mod loss;
mod outages;
mod scale;
mod selected_blocks;
mod site;
mod stale;
mod starts;
mod tap;
#[cfg(test)]
mod tests;
mod trial;
mod watch;
mod window_series;

use std::sync::LazyLock;

use replimeter_run::Registry;

/// Every measurement, in the order of the help.
pub fn registry() -> &'static Registry {
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
            .with::<front::Front>()
            .with::<watch::Watch>()
    });
    &ALL
}
