//! `replimeter report`: a run rendered again.

use std::path::Path;

use replimeter_model::manifest::{Manifest, SandboxRecord, ServerRecord};
use replimeter_report::{
    html,
    together::{Side, letter},
};

use crate::{
    cli::ReportArgs,
    document::{Document, incomplete_hint},
    failure::Failure,
    print::{plain, print},
    run_dir::write_text,
};

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if (args.json || args.csv) && args.run_dirs.len() > 1 {
        return Err(Failure::usage("--json and --csv are for a single run", "render the runs one by one"));
    }
    let page = args.together()?;
    let mut read = Vec::new();
    for dir in &args.run_dirs {
        let (document, manifest, plan) = Document::open(dir)?;
        if args.raw && !document.has_sweep() {
            return Err(Failure::usage(format!("{} has no sweep over sizes", dir.display()), "leave --raw out"));
        }
        // The figures are shown even where the page cannot be written.
        let rendered = document.render(dir, &manifest, &plan);
        document.show(args.form())?;
        rendered.map_err(|failure| Failure { hint: "copy the run directory to where you may write".to_owned(), ..failure })?;
        read.push((document, manifest, plan));
    }
    match page {
        Some(page) => together(&page, &read, args.markdown),
        None => Ok(()),
    }
}

/// Writes one page of several runs.
fn together(page: &Path, read: &[(Document, Manifest, String)], markdown: bool) -> Result<(), Failure> {
    let sides: Vec<Side<'_>> = read.iter().enumerate().map(|(index, (document, ..))| document.side(letter(index))).collect();
    let mut all = Manifest { replimeter: env!("CARGO_PKG_VERSION").to_owned(), ..Manifest::default() };
    let mut plans = String::new();
    for (side, (_, manifest, plan)) in sides.iter().zip(read) {
        let named = |shape: &str| format!("{} {shape}", side.letter);
        all.machine = manifest.machine.clone();
        let servers = manifest.servers.iter().cloned();
        all.servers.extend(servers.map(|server| ServerRecord { shape: named(&server.shape), ..server }));
        let sandboxes = manifest.sandboxes.iter().cloned();
        all.sandboxes.extend(sandboxes.map(|sandbox| SandboxRecord { shape: named(&sandbox.shape), ..sandbox }));
        plans.push_str(&format!("# {}: {}\n{plan}\n", side.letter, side.dir));
    }
    if let Some((_, other, _)) = read.iter().find(|(_, manifest, _)| manifest.machine != all.machine) {
        // One page has one place for a machine; a reader must not take it for all.
        all.machine.cpu = format!("several machines, see each run ({}; {} …)", all.machine.cpu, other.machine.cpu);
    }
    let text = html::together(&sides, &all, &plans)
        .map_err(|error| Failure::failed(format!("cannot render the page: {error}"), incomplete_hint()))?;
    write_text(page, &text)?;
    if markdown {
        return Ok(());
    }
    print(&plain(&format!("\nAll together:  file://{}\n", page.display())))
}
