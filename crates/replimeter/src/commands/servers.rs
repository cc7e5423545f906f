//! `replimeter servers`: lists server binaries, and adds one.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_engine::source::SourceError;
use replimeter_model::{
    servers::{MissingCapability, SERVERS_SCHEMA, ServerRow, ServersDocument},
    warning::{Warning, WarningCode},
};
use replimeter_render::servers;
use replimeter_run::{cli_error::CliError, json_text, options::OutputForm, print_document};
use replimeter_sandbox::{Install, SandboxError, add, binaries::UnusableServer};

use crate::{
    cli::{AddArgs, ServersArgs, ServersCommand},
    environment,
    print::print,
    progress::StatusLine,
    terminal::Terminal,
};

pub(crate) fn run(args: &ServersArgs, stop: &Arc<AtomicBool>) -> Result<(), CliError> {
    if let Some(ServersCommand::Add(args)) = &args.command {
        return add(args, stop);
    }
    let search = environment::search(&environment::private_home()?, args.servers.clone());
    let discovery = Install::discovery(&search);
    let document = document(&discovery.installs, &discovery.unusable);
    let form = args.form.chosen;
    if form == OutputForm::Json || !document.results.is_empty() {
        let report = servers::report(&document);
        print_document(form, &report, || json_text(&document), "", &Terminal)?;
    }
    if document.results.is_empty() {
        // The same words as when a sandbox finds none.
        return Err(SourceError::from(discovery.none(&search, None)).into());
    }
    Ok(())
}

fn add(args: &AddArgs, stop: &AtomicBool) -> Result<(), CliError> {
    let home = environment::private_home()?;
    let search = environment::search(&home, None);
    let line = StatusLine::new();
    line.say("checking the server");
    let added = add::add(&home, &search, &args.source, stop).map_err(|error| match error {
        SandboxError::Interrupted => CliError::interrupted("interrupted; no server was added"),
        error => SourceError::from(error).into(),
    })?;
    line.clear();
    let document = document(std::slice::from_ref(&added.install), &[]);
    let form = args.form.chosen;
    if form == OutputForm::Text {
        print(&format!(
            "Added {}, linked to {}\n\n",
            added.place.display(),
            added.folder.display()
        ))?;
    }
    let report = servers::report(&document);
    print_document(form, &report, || json_text(&document), "", &Terminal)
}

fn document(installs: &[Install], unusable: &[UnusableServer]) -> ServersDocument {
    let warning = |found: &UnusableServer| {
        let message = format!("{} cannot be used: {}", found.path.display(), found.cause);
        Warning::new(WarningCode::ServerUnusable, message, found.hint.clone())
    };
    ServersDocument {
        schema: SERVERS_SCHEMA.to_owned(),
        results: installs.iter().map(row).collect(),
        warnings: unusable.iter().map(warning).collect(),
    }
}

fn row(install: &Install) -> ServerRow {
    let missing = install.capabilities.missing().into_iter();
    ServerRow {
        engine: install.engine.name().to_owned(),
        version: install.version.clone(),
        program: install.program.display().to_string(),
        origin: install.origin.name().to_owned(),
        abilities: install
            .capabilities
            .names()
            .into_iter()
            .map(str::to_owned)
            .collect(),
        missing: missing
            .map(|missing| MissingCapability {
                ability: missing.capability.name().to_owned(),
                hint: missing.hint,
            })
            .collect(),
    }
}
