//! `replimeter schema`, `completions` and `man`: what the program says about itself.

use std::{fs, path::Path};

use clap::{Command, CommandFactory};
use replimeter_model::schema;

use crate::{
    cli::{Cli, CompletionsArgs, ManArgs, SchemaArgs},
    failure::{Failure, unexpected},
    print::print,
};

/// The program's name.
const NAME: &str = "replimeter";

pub(crate) fn schema(args: &SchemaArgs) -> Result<(), Failure> {
    print(&schema::text(&args.name).ok_or_else(unexpected)?)
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), NAME, &mut script);
    print(&String::from_utf8_lossy(&script))
}

pub(crate) fn man(args: &ManArgs) -> Result<(), Failure> {
    let command = built();
    if args.markdown {
        return print(&reference(&command));
    }
    let Some(folder) = &args.folder else {
        return print(&page(&command)?);
    };
    fs::create_dir_all(folder).map_err(|error| unwritable(folder, &error))?;
    for command in pages(&command) {
        let path = folder.join(format!("{}.1", file_name(command)));
        fs::write(&path, page(command)?).map_err(|error| unwritable(&path, &error))?;
    }
    Ok(())
}

fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("cannot write {}: {error}", path.display()), "name a folder that you may write to")
}

/// The whole command line, with everything that clap adds.
fn built() -> Command {
    // As on every machine: the width of this terminal shall not show.
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    command
}

/// A command and those below it that people use.
fn pages(command: &Command) -> Vec<&Command> {
    let below = command.get_subcommands().filter(|inner| !inner.is_hide_set()).flat_map(pages);
    std::iter::once(command).chain(below).collect()
}

/// `replimeter-sandbox-up`.
fn file_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// `replimeter sandbox up`.
fn full_name(command: &Command) -> String {
    command.get_bin_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// The page of a command in the language of `man`.
fn page(command: &Command) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    clap_mangen::Man::new(command.clone())
        .source(concat!("replimeter ", env!("CARGO_PKG_VERSION")))
        .manual("Replimeter")
        .render(&mut bytes)
        .map_err(|error| Failure::failed(format!("cannot write the page: {error}"), "please report this as a defect"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// All commands as one Markdown page.
fn reference(command: &Command) -> String {
    let mut text = "# Command line\n\nMade from the program by `replimeter man --markdown` (`make docs`); `replimeter COMMAND --help` says the same.\n".to_owned();
    for command in pages(command) {
        let depth = full_name(command).split(' ').count();
        text.push_str(&format!("\n{} `{}`\n\n", "#".repeat(depth.min(3) + 1), full_name(command)));
        if let Some(about) = command.get_about() {
            text.push_str(&format!("{}.\n\n", inert(&about.to_string())));
        }
        let usage = command.clone().render_usage().to_string();
        text.push_str(&format!("```text\n{}\n```\n", usage.trim_start_matches("Usage: ").trim_end()));
        text.push_str(&arguments(command));
        if let Some(more) = command.get_after_help() {
            text.push_str(&format!("\n```text\n{}\n```\n", more.to_string().trim()));
        }
    }
    text
}

/// Tables of a command's arguments, one for each heading.
fn arguments(command: &Command) -> String {
    let mut headings: Vec<&str> = Vec::new();
    for argument in command.get_arguments() {
        let heading = argument.get_help_heading().unwrap_or_default();
        if !headings.contains(&heading) {
            headings.push(heading);
        }
    }
    let mut text = String::new();
    for heading in headings {
        let of = |argument: &&clap::Arg| argument.get_help_heading().unwrap_or_default() == heading && !argument.is_hide_set();
        // Every command has these two, and nobody looks them up.
        let ours = |argument: &&clap::Arg| !matches!(argument.get_id().as_str(), "help" | "version");
        let rows: Vec<String> = command.get_arguments().filter(of).filter(ours).map(row).collect();
        if rows.is_empty() {
            continue;
        }
        let title = if heading.is_empty() { "Argument" } else { heading };
        text.push_str(&format!("\n| {title} | |\n|---|---|\n{}", rows.concat()));
    }
    text
}

fn row(argument: &clap::Arg) -> String {
    let values: Vec<String> = argument
        .get_value_names()
        .filter(|_| argument.get_action().takes_values())
        .into_iter()
        .flatten()
        .map(ToString::to_string)
        .collect();
    let name = match argument.get_long() {
        Some(long) if values.is_empty() => format!("--{long}"),
        Some(long) => format!("--{long} {}", values.join(" ")),
        None => values.join(" "),
    };
    let mut help = argument.get_help().map(|help| inert(&help.to_string())).unwrap_or_default();
    let possible: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !possible.is_empty() {
        help.push_str(&format!(": {}", possible.join(", ")));
    }
    let defaults: Vec<String> = argument.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        help.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    format!("| `{}` | {help} |\n", name.replace('|', "\\|"))
}

/// A sentence in which nothing is markup or the end of a cell.
fn inert(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*").replace('_', "\\_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_that_is_kept_is_what_the_program_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/cli.md");
        let kept = std::fs::read_to_string(path).unwrap();
        assert!(kept == reference(&built()), "docs/reference/cli.md is out of date: run `make docs`");
    }

    #[test]
    fn every_command_has_a_page_of_its_own() {
        let command = built();
        let names: Vec<String> = pages(&command).into_iter().map(file_name).collect();
        for want in ["replimeter", "replimeter-lag", "replimeter-sandbox", "replimeter-sandbox-up", "replimeter-servers-add"] {
            assert!(names.iter().any(|name| name == want), "{want}: {names:?}");
        }
        for command in pages(&command) {
            let page = page(command).unwrap();
            assert!(page.contains(".TH") && page.contains("SYNOPSIS"), "{page}");
        }
    }
}
