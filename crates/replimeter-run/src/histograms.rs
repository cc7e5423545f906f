//! Writes the histograms of a run's figures, for other tools.

use std::{
    path::Path,
    time::{Duration, SystemTime},
};

use replimeter_model::{manifest::Manifest, time::Nanos};
use replimeter_render::histograms;
use replimeter_stats::signed::SignedHistogram;

use crate::{
    cli_error::{CliError, unexpected},
    run_dir::{HISTOGRAMS, write_bytes},
};

/// Writes `histograms.hlog`: one series for each name, over the whole run.
pub(crate) fn keep(
    dir: &Path,
    manifest: &Manifest,
    took: Nanos,
    series: &[(String, SignedHistogram)],
) -> Result<(), CliError> {
    let begun =
        SystemTime::UNIX_EPOCH + Duration::from_micros(manifest.origin_unix_us.unsigned_abs());
    let took = Duration::from_nanos(took.0.unsigned_abs());
    let path = dir.join(HISTOGRAMS);
    let log = histograms::log(begun, took, series)
        .map_err(|error| unexpected(format_args!("cannot write {}: {error}", path.display())))?;
    write_bytes(&path, &log)
}
