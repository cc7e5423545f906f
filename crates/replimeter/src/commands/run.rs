//! `replimeter run`: plans from files.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::{
    active::Active,
    cli::RunArgs,
    print::{print, say},
    servers::host,
};
use replimeter_run::{
    PlannedRun, Registry,
    cli_error::CliError,
    options::{CommandLineSettings, OutputArgs, OutputForm},
};

/// Maximum size of a plan, in bytes; real plans are far smaller.
const MAX_PLAN_SIZE: u64 = 1 << 20;

pub(crate) fn run(registry: &Registry, args: &RunArgs, active: &Active) -> Result<(), CliError> {
    let paths = files(&args.plans)?;
    let output = &args.output;
    let single = matches!(output.form.chosen, OutputForm::Json | OutputForm::Csv);
    if paths.len() > 1 && (single || output.run_dir.is_some()) {
        return Err(CliError::usage(
            "--json, --csv and --run-dir are for a single plan",
            "run the plans one by one",
        ));
    }
    let given = CommandLineSettings {
        output: output.clone(),
        ..args.target.given()?
    };
    // Every plan is read and checked before the first is run.
    let plans = paths
        .iter()
        .map(|path| read(registry, path, &given))
        .collect::<Result<Vec<_>, _>>()?;
    plans.iter().try_for_each(|plan| plan.check(output))?;
    let several = paths.len() > 1;
    for (number, (path, plan)) in paths.iter().zip(plans).enumerate() {
        if output.dry_run {
            if several {
                let gap = if number == 0 { "" } else { "\n" };
                print(&format!("{gap}# {}\n", path.display()))?;
            }
            print_plan(&*plan, output)?;
            continue;
        }
        if several {
            say(&format!(
                "plan {} of {}: {}\n",
                number + 1,
                paths.len(),
                path.display()
            ));
        }
        plan.carry_out(&given, &host(active), &active.stop)?;
    }
    Ok(())
}

/// Prints a plan and its effects, for a dry run.
pub(super) fn print_plan(plan: &dyn PlannedRun, output: &OutputArgs) -> Result<(), CliError> {
    let (text, effects) = (plan.text()?, plan.effects(output)?);
    print(&format!("{text}\n{effects}"))
}

/// Returns the plan files; those of folders are sorted by name.
fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, CliError> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let refuse = |reason: String| {
            CliError::usage(
                format!("cannot use the folder {}: {reason}", path.display()),
                "name a folder with plans (*.toml), or a plan file",
            )
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(path).map_err(|error| refuse(error.to_string()))? {
            let inside = entry.map_err(|error| refuse(error.to_string()))?.path();
            if inside.extension().is_some_and(|ending| ending == "toml") && inside.is_file() {
                found.push(inside);
            }
        }
        if found.is_empty() {
            return Err(refuse("there is no plan (*.toml) in it".to_owned()));
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

/// Reads a plan file, with what the command line adds.
pub(super) fn read(
    registry: &Registry,
    path: &Path,
    given: &CommandLineSettings,
) -> Result<Box<dyn PlannedRun>, CliError> {
    let shown = path.display();
    let unreadable = |reason: String| {
        CliError::usage(
            format!("cannot read the plan {shown}: {reason}"),
            "write a plan with `replimeter lag --dry-run > plan.toml`; every run keeps its own",
        )
    };
    let meta = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !meta.is_file() || meta.len() > MAX_PLAN_SIZE {
        return Err(unreadable(
            "it is not a regular file, or too large for a plan".to_owned(),
        ));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    registry.plan(&text, given).map_err(|error| {
        CliError::usage(
            format!("{shown}: {error}"),
            "`replimeter schema plan --markdown` lists every key; `replimeter run --dry-run` checks a plan",
        )
    })
}
