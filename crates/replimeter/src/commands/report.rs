//! `replimeter report`: a run rendered again.

use std::{
    fs,
    io::{self, Write},
    path::Path,
};

use replimeter_model::{
    manifest::{MANIFEST_SCHEMA, Manifest},
    record::{LAG_SCHEMA, LagDocument},
};
use replimeter_report::{html, terminal};
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    cli::ReportArgs,
    failure::Failure,
    run_dir::{MANIFEST, PAGE, PLAN, SAMPLES, SUMMARY, write_text},
};

pub(crate) fn run(args: &ReportArgs) -> Result<(), Failure> {
    if args.json && args.run_dirs.len() > 1 {
        return Err(Failure::usage("--json is for a single run", "render the runs one by one"));
    }
    for dir in &args.run_dirs {
        let mut document: LagDocument = read_json(dir, SUMMARY, LAG_SCHEMA)?;
        // The directory may have been moved or copied since.
        document.run_dir = std::path::absolute(dir).unwrap_or_else(|_| dir.clone()).display().to_string();
        let manifest: Manifest = read_json(dir, MANIFEST, MANIFEST_SCHEMA)?;
        let plan = read_text(dir, PLAN)?;
        if args.raw && document.size_sweep.is_empty() {
            return Err(Failure::usage(format!("{} has no sweep over sizes", dir.display()), "leave --raw out"));
        }
        // The figures are shown even where the page cannot be written.
        let rendered = render(dir, &document, &manifest, &plan);
        show(&document, args.json, args.raw)?;
        rendered.map_err(|failure| Failure { hint: "copy the run directory to where you may write".to_owned(), ..failure })?;
    }
    Ok(())
}

/// Writes the page of a run.
pub(crate) fn render(dir: &Path, document: &LagDocument, manifest: &Manifest, plan: &str) -> Result<(), Failure> {
    let page = html::lag(document, manifest, plan, &dir.join(SAMPLES))
        .map_err(|error| Failure::failed(format!("cannot render the page: {error}"), incomplete_hint()))?;
    write_text(&dir.join(PAGE), &page)
}

/// Prints the report, or the JSON document.
pub(crate) fn show(document: &LagDocument, json: bool, raw: bool) -> Result<(), Failure> {
    if !json {
        let mut text = terminal::lag(document, raw);
        text.push_str(&format!("\nRun kept in {}\n", document.run_dir));
        if Path::new(&document.run_dir).join(PAGE).exists() {
            text.push_str(&format!("As a page:  file://{}/{PAGE}\n", document.run_dir));
        }
        return print(&plain(&text));
    }
    print_json(document)
}

/// Prints the one document of a command.
pub(crate) fn print_json(document: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Failure::failed(format!("cannot write the document: {error}"), "please report this as a defect"))?;
    print(&(text + "\n"))
}

/// Prints on standard output; a reader that has left (`| head`) is no error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::failed(format!("cannot write to standard output: {error}"), "the run directory has everything"))
        }
        _ => Ok(()),
    }
}

/// A text without control characters: names from plans and servers must not
/// command the terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|character| if character.is_control() && character != '\n' { '\u{fffd}' } else { character }).collect()
}

fn incomplete_hint() -> &'static str {
    "is this a run directory, and was the run not killed? plan.toml in it can be run again with `replimeter run`"
}

fn read_text(dir: &Path, name: &str) -> Result<String, Failure> {
    let path = dir.join(name);
    fs::read_to_string(&path)
        .map_err(|error| Failure::failed(format!("cannot read {}: {error}", path.display()), incomplete_hint()))
}

fn read_json<T: DeserializeOwned>(dir: &Path, name: &str, schema: &str) -> Result<T, Failure> {
    let text = read_text(dir, name)?;
    let path = dir.join(name);
    let refuse = |reason: String| Failure::failed(format!("cannot use {}: {reason}", path.display()), incomplete_hint());
    let value: serde_json::Value = serde_json::from_str(&text).map_err(|error| refuse(error.to_string()))?;
    match value.get("schema").and_then(serde_json::Value::as_str) {
        Some(stated) if stated == schema => serde_json::from_value(value).map_err(|error| refuse(error.to_string())),
        Some(stated) => Err(refuse(format!("it has the schema {stated}, this version reads {schema}"))),
        None => Err(refuse("it states no schema".to_owned())),
    }
}
