//! The command line of `replimeter trial`.

use std::path::PathBuf;

use clap::Args;
use replimeter_run::{Entry, Registry, cli_error::CliError, options::FormArgs};
use replimeter_stats::trial::MAX_PAIRS;

/// `replimeter trial`.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  replimeter lag --sandbox async:1 --dry-run > before.toml
  replimeter lag --sandbox async:1 --server-option {flush option}=0 \\
    --dry-run > after.toml
  replimeter trial before.toml after.toml
  # at most three minutes, and exit code 1 if the median lag is worse
  replimeter trial before.toml after.toml --pairs 20 --fail-if-worse
  replimeter trial before.toml after.toml --figure lag.p50 --detect 10%

Each pair is one start of A and one of B, back to back in random order, so that
a slow minute of the machine slows both. After every ten pairs the differences
are tested; a trial without a difference shows one in at most 5 % of cases. Exit
codes: 0 decided or not, 1 --fail-if-worse and B is worse, 2 a mistake in the
request, 3 a server failed, 130 interrupted (with the result so far).")]
pub struct TrialArgs {
    /// Two plan files of lag or of load: the baseline, and what is compared
    #[arg(required = true, num_args = 2, value_names = ["A.toml", "B.toml"])]
    pub plans: Vec<PathBuf>,

    /// Figure that decides [default: lag.from_send.p50, load.throughput]
    ///
    /// The others are tested only if this one differs. Of several replicas it is their geometric mean.
    #[arg(long, value_name = "NAME", help_heading = "Conditions")]
    pub figure: Option<String>,

    /// Largest number of pairs, from 10 to 100
    #[arg(
        long,
        value_name = "N",
        default_value_t = MAX_PAIRS as u32,
        value_parser = clap::value_parser!(u32).range(10..=MAX_PAIRS as i64),
        help_heading = "Conditions"
    )]
    pub pairs: u32,

    /// Difference below which both count as equal, which ends the trial too
    #[arg(long, value_name = "PERCENT", default_value = "20%", value_parser = percent, help_heading = "Conditions")]
    pub detect: f64,

    /// Exit with code 1 if the figure is shown to be worse in B
    #[arg(long, help_heading = "Conditions")]
    pub fail_if_worse: bool,

    /// Print what would be done, and do nothing
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,

    /// Keep it in this new directory [default: replimeter-runs/TIME-trial]
    ///
    /// It may exist if it is empty.
    #[arg(long, value_name = "DIR", help_heading = "Output")]
    pub run_dir: Option<PathBuf>,

    /// The form of the report.
    #[command(flatten)]
    pub form: FormArgs<2>,
}

/// Parses a difference in percent.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    match number.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 1000.0 => Ok(percent),
        _ => Err("write a difference in percent above 0, such as 20%".to_owned()),
    }
}

impl TrialArgs {
    /// Returns the name of the figure that decides a trial of this measurement.
    ///
    /// # Errors
    /// When it has no trials.
    pub(super) fn figure(&self, registry: &Registry, command: &str) -> Result<&str, CliError> {
        let default = registry.get(command).and_then(Entry::trial_figure);
        match (default, &self.figure) {
            (Some(_), Some(figure)) => Ok(figure),
            (Some(default), None) => Ok(default),
            (None, _) => Err(CliError::usage(
                format!("{command} has no trials"),
                "compare several runs of each side with `replimeter compare`",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_percent_above_zero() {
        assert_eq!(percent("20%"), Ok(20.0));
        assert_eq!(percent("7.5"), Ok(7.5));
        for wrong in ["0", "-5%", "x", "", "nan", "1e9%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }
}
