//! `replimeter reproduce`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use replimeter_run::options::FormArgs;

/// The size of each experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ReproduceExtent {
    /// Fewer rounds, starts and rows: less than ten minutes on two cores
    Small,
    /// The plans in plans/ unchanged: some hours
    Full,
}

impl ReproduceExtent {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Small => "small",
            Self::Full => "full",
        }
    }
}

#[derive(Args, Debug)]
#[command(after_long_help = "Examples:
  replimeter reproduce
  replimeter reproduce --size full
  replimeter reproduce --experiments 1,3 --run-dir again

Starts its own servers for each experiment, and removes them. What cannot be
started here (with an engine, or a library of a cluster, that is not installed)
is left out and named. The report names the sources.")]
pub(crate) struct ReproduceArgs {
    /// Size of the experiments
    #[arg(
        long,
        value_enum,
        default_value = "small",
        help_heading = "Measurement"
    )]
    pub(crate) size: ReproduceExtent,

    /// Run only these of the five experiments, such as 1,3 [default: all]
    #[arg(long, value_name = "N,…", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=5), help_heading = "Measurement")]
    pub(crate) experiments: Vec<u32>,

    /// Keep all in this new directory [default: replimeter-runs/TIME-reproduce]
    ///
    /// It may exist if it is empty.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub(crate) run_dir: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) form: FormArgs<2>,
}
