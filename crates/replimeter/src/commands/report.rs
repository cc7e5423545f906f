//! `replimeter report`: renders a run again.

use std::{path::Path, sync::atomic::AtomicBool};

use replimeter_measurements::across::side_by_side::{self, RunSide};
use replimeter_model::manifest::{Manifest, SandboxRecord, ServerRecord};
use replimeter_render::html;
use replimeter_run::{
    CUT, Recorded, Registry, cli_error::CliError, incomplete_hint, options::OutputForm,
    run_dir::write_text, show,
};

use super::reproduce;
use crate::{
    cli::ReportArgs,
    print::{print, say},
    terminal::Terminal,
};

pub(crate) fn run(
    registry: &Registry,
    args: &ReportArgs,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    let form = args.form.chosen;
    if matches!(form, OutputForm::Json | OutputForm::Csv) && args.run_dirs.len() > 1 {
        return Err(CliError::usage(
            "--json and --csv are for a single run",
            "render the runs one by one",
        ));
    }
    let page = args.side_by_side()?;
    let place = |dir: &Path| dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    for (index, dir) in args.run_dirs.iter().enumerate() {
        if args.run_dirs[..index]
            .iter()
            .any(|other| place(other) == place(dir))
        {
            return Err(CliError::usage(
                format!("{} is named twice", dir.display()),
                "name each run once",
            ));
        }
    }
    if let [dir] = args.run_dirs.as_slice()
        && reproduce::is_one(dir)
    {
        return reproduce::again(registry, args, dir, stop);
    }
    let mut read = Vec::new();
    for dir in &args.run_dirs {
        let recorded = Recorded::open(registry, dir, stop)?;
        if form == OutputForm::Raw && !recorded.run.has_raw() {
            return Err(CliError::usage(
                format!("{} has no sweep over sizes", dir.display()),
                "leave --raw out",
            ));
        }
        // The figures are shown even if the page cannot be created or written.
        let rendered = recorded.render(dir);
        show(recorded.run.as_ref(), form, rendered.is_ok(), &Terminal)?;
        match rendered {
            Ok(()) => {}
            // The requested output was printed; an outdated page is a warning, not a failure.
            Err(failure) if !matches!(form, OutputForm::Text | OutputForm::Raw) => {
                let message = format!(
                    "warning: the page in {} was not regenerated: {}",
                    dir.display(),
                    failure.message
                );
                say(&format!("{message}\n"));
            }
            Err(failure) if failure.hint == CUT => return Err(failure),
            Err(failure) => {
                let hint = "copy the run directory to a folder that you can write to, or use --json, --csv or --markdown".to_owned();
                return Err(CliError { hint, ..failure });
            }
        }
        read.push(recorded);
    }
    match page {
        Some(page) => side_by_side(&page, &read, form),
        None => Ok(()),
    }
}

/// Writes one page of several runs.
fn side_by_side(page: &Path, read: &[Recorded], form: OutputForm) -> Result<(), CliError> {
    let sides: Vec<RunSide<'_>> = read
        .iter()
        .enumerate()
        .map(|(index, Recorded { run, manifest, .. })| {
            RunSide::of(index, run.as_ref(), manifest, Path::new(run.head().run_dir))
        })
        .collect();
    let mut all = Manifest {
        replimeter: env!("CARGO_PKG_VERSION").to_owned(),
        ..Manifest::default()
    };
    let mut plans = String::new();
    for (side, recorded) in sides.iter().zip(read) {
        let Recorded { manifest, plan, .. } = recorded;
        let named = |shape: &str| format!("{} {shape}", side.letter);
        all.machine = manifest.machine.clone();
        let servers = manifest.servers.iter().cloned();
        all.servers.extend(servers.map(|server| ServerRecord {
            shape: named(&server.shape),
            ..server
        }));
        let sandboxes = manifest.sandboxes.iter().cloned();
        all.sandboxes.extend(sandboxes.map(|sandbox| SandboxRecord {
            shape: named(&sandbox.shape),
            ..sandbox
        }));
        plans.push_str(&format!(
            "# {}: {}\n{plan}\n",
            side.letter,
            recorded.run.head().run_dir
        ));
    }
    let mut others = read.iter().map(|recorded| &recorded.manifest);
    if let Some(other) = others.find(|manifest| manifest.machine != all.machine) {
        // A page shows one machine, which must not appear to be that of all runs.
        all.machine.cpu = format!(
            "several machines, see each run ({}; {} …)",
            all.machine.cpu, other.machine.cpu
        );
    }
    let text = html::page(
        &side_by_side::report(&sides),
        side_by_side::charts(&sides),
        &all,
        &plans,
    )
    .map_err(|error| {
        CliError::failed(
            format!("cannot render the page: {error}"),
            incomplete_hint(),
        )
    })?;
    write_text(page, &text).map_err(|failure| CliError {
        hint: "name a file in a folder that you can write to with --page".to_owned(),
        ..failure
    })?;
    if form == OutputForm::Markdown {
        return Ok(());
    }
    print(&format!("\nAll together:  file://{}\n", page.display()))
}
