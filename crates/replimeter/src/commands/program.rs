//! `replimeter schema`, `completions` and `man`: what the program says about itself.

use std::{fs, path::Path};

use clap::Command;
use clap_complete::Shell;
use replimeter_model::schema;
use replimeter_run::{
    Entry, Registry,
    failure::{Failure, unexpected},
};
use serde_json::Value;

use crate::{
    cli::{self, CompletionsArgs, ManArgs, SchemaArgs},
    print::print,
};

/// The program's name.
const NAME: &str = "replimeter";

pub(crate) fn schema(registry: &Registry, args: &SchemaArgs) -> Result<(), Failure> {
    let schema = registry
        .schema(&args.name)
        .ok_or_else(|| unexpected("there is no such schema"))?;
    if args.markdown {
        let text = if args.name == schema::PLAN {
            Some(plan_keys(&schema))
        } else {
            registry.get(&args.name).map(columns)
        };
        return print(&text.ok_or_else(|| {
            Failure::usage(
                format!("{} has no keys and no samples to list", args.name),
                "--markdown is for plan, and for the commands that measure",
            )
        })?);
    }
    print(&text(&schema))
}

/// A schema as it is printed and kept in `docs/schema`.
fn text(schema: &Value) -> String {
    format!("{schema:#}\n")
}

pub(crate) fn completions(registry: &Registry, args: &CompletionsArgs) -> Result<(), Failure> {
    print(&script(registry, args.shell))
}

/// The completions for a shell.
pub(crate) fn script(registry: &Registry, shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut cli::command(registry), NAME, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

pub(crate) fn man(registry: &Registry, args: &ManArgs) -> Result<(), Failure> {
    let command = built(registry);
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
    Failure::failed(
        format!("cannot write {}: {error}", path.display()),
        "name a folder that you may write to",
    )
}

/// The whole command line, with everything that clap adds.
pub(crate) fn built(registry: &Registry) -> Command {
    // As on every machine: the width of this terminal shall not show.
    let mut command = cli::command(registry).disable_help_subcommand(true);
    command.build();
    command
}

/// A command and those below it that people use.
fn pages(command: &Command) -> Vec<&Command> {
    let below = command
        .get_subcommands()
        .filter(|inner| !inner.is_hide_set())
        .flat_map(pages);
    std::iter::once(command).chain(below).collect()
}

/// `replimeter-sandbox-up`.
fn file_name(command: &Command) -> String {
    command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned()
}

/// `replimeter sandbox up`.
fn full_name(command: &Command) -> String {
    command
        .get_bin_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned()
}

/// The page of a command in the language of `man`.
fn page(command: &Command) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    clap_mangen::Man::new(command.clone())
        .source(concat!("replimeter ", env!("CARGO_PKG_VERSION")))
        .manual("Replimeter")
        .render(&mut bytes)
        .map_err(|error| {
            Failure::failed(
                format!("cannot write the page: {error}"),
                "please report this as a defect",
            )
        })?;
    Ok(with_usage(&String::from_utf8_lossy(&bytes), command))
}

/// The page with the usage line of `--help` for its synopsis: clap's own lists each of the many options, and
/// without their values.
fn with_usage(page: &str, command: &Command) -> String {
    const SYNOPSIS: &str = ".SH SYNOPSIS\n";
    let Some((before, rest)) = page.split_once(SYNOPSIS) else {
        return page.to_owned();
    };
    let after = rest.find(".SH ").map_or("", |at| &rest[at..]);
    let usage = command.clone().render_usage().to_string();
    let usage = usage
        .trim_start_matches("Usage: ")
        .trim()
        .replace('\\', "\\\\")
        .replace('-', "\\-");
    format!("{before}{SYNOPSIS}{usage}\n{after}")
}

/// All commands as one Markdown page.
pub(crate) fn reference(command: &Command) -> String {
    let mut text = "# Command line\n\nMade from the program by `replimeter man --markdown` (`make docs`); `replimeter COMMAND --help` says the same.\n".to_owned();
    for command in pages(command) {
        let depth = full_name(command).split(' ').count();
        text.push_str(&format!(
            "\n{} `{}`\n\n",
            "#".repeat(depth.min(3) + 1),
            full_name(command)
        ));
        if let Some(about) = command.get_about() {
            text.push_str(&format!("{}.\n\n", inert(&about.to_string())));
        }
        let usage = command.clone().render_usage().to_string();
        text.push_str(&format!(
            "```text\n{}\n```\n",
            usage.trim_start_matches("Usage: ").trim_end()
        ));
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
        let of = |argument: &&clap::Arg| {
            argument.get_help_heading().unwrap_or_default() == heading && !argument.is_hide_set()
        };
        // Every command has these two, and nobody looks them up.
        let ours =
            |argument: &&clap::Arg| !matches!(argument.get_id().as_str(), "help" | "version");
        let rows: Vec<String> = command
            .get_arguments()
            .filter(of)
            .filter(ours)
            .map(row)
            .collect();
        if rows.is_empty() {
            continue;
        }
        let title = if heading.is_empty() {
            "Argument"
        } else {
            heading
        };
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
    let mut help = argument
        .get_help()
        .map(|help| inert(&help.to_string()))
        .unwrap_or_default();
    let possible: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| format!("`{}`", value.get_name()))
        .collect();
    if !possible.is_empty() {
        help.push_str(&format!(": {}", possible.join(", ")));
    }
    let defaults: Vec<String> = argument
        .get_default_values()
        .iter()
        .map(|value| value.to_string_lossy().into_owned())
        .collect();
    if !defaults.is_empty() && argument.get_action().takes_values() {
        help.push_str(&format!(" [default: {}]", defaults.join(", ")));
    }
    format!("| `{}` | {help} |\n", name.replace('|', "\\|"))
}

/// Every key of a plan file, a table for each section, as the schema of plans has them.
pub(crate) fn plan_keys(root: &Value) -> String {
    let mut text = "# Keys of plan files\n\nMade from the program by `replimeter schema plan --markdown` (`make docs`). [Plan files](../plans.md) \
                    shows them in use and with their defaults; [plan.json](../schema/plan.json) is the same for editors.\n\n"
        .to_owned();
    let keys = |of: &Value| {
        of.get("properties")
            .and_then(Value::as_object)
            .cloned()
            .unwrap_or_default()
    };
    let (sections, plain): (Vec<_>, Vec<_>) = keys(root)
        .into_iter()
        .partition(|(_, part)| schema::resolve(root, part).get("properties").is_some());
    let table = |keys: Vec<(String, Value)>| {
        let row = |(key, part): (String, Value)| {
            let about = part
                .get("description")
                .or_else(|| schema::resolve(root, &part).get("description"));
            let about = about
                .and_then(Value::as_str)
                .unwrap_or_default()
                .replace('\n', " ");
            // What is code already is inert.
            let words = about.split('`').enumerate();
            let about: Vec<String> = words
                .map(|(index, text)| {
                    if index % 2 == 0 {
                        inert(text)
                    } else {
                        text.replace('|', "\\|")
                    }
                })
                .collect();
            format!(
                "| `{key}` | {} | {} |\n",
                kind(root, &part),
                about.join("`")
            )
        };
        format!(
            "| key | value | |\n|---|---|---|\n{}",
            keys.into_iter().map(row).collect::<String>()
        )
    };
    text.push_str(&table(plain));
    for (name, part) in sections {
        let section = schema::resolve(root, &part);
        text.push_str(&format!(
            "\n## `[{name}]`\n\n{}",
            table(keys(section).into_iter().collect())
        ));
    }
    text
}

/// What a reference stands for. Alternatives are left as they are, unlike by [`schema::resolve`].
fn follow<'a>(root: &'a Value, mut part: &'a Value) -> &'a Value {
    // Deeper than any chain of references is.
    for _ in 0..16 {
        let reference = part
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|text| text.strip_prefix('#'));
        let target = reference
            .and_then(|pointer| root.pointer(pointer))
            .or_else(|| part.pointer("/allOf/0"));
        let Some(target) = target else { break };
        part = target;
    }
    part
}

/// What a value of a plan looks like.
fn kind(root: &Value, part: &Value) -> String {
    let part = follow(root, part);
    let code = |value: &Value| match value {
        Value::String(text) => format!("`\"{}\"`", text.replace('|', "\\|")),
        other => format!("`{other}`"),
    };
    let words: Vec<String> = [
        part.get("enum")
            .and_then(Value::as_array)
            .map(|all| all.iter().map(code).collect()),
        alternatives(root, part),
    ]
    .into_iter()
    .flatten()
    .next()
    .unwrap_or_default();
    if !words.is_empty() {
        return words.join(", ");
    }
    let examples: Vec<String> = part
        .get("examples")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(code)
        .collect();
    let said = if examples.is_empty() {
        String::new()
    } else {
        format!(": {}", examples.join(", "))
    };
    match part.get("type").and_then(Value::as_str) {
        Some("boolean") => "`true`, `false`".to_owned(),
        Some("integer") => format!("whole number{said}"),
        Some("number") => format!("number{said}"),
        Some("array") => match part.get("items") {
            Some(items) => format!("list of: {}", kind(root, items)),
            None => "list".to_owned(),
        },
        Some("object") => "table".to_owned(),
        _ => format!("text{said}"),
    }
}

/// The words, or kinds of value, that a place may have.
fn alternatives(root: &Value, part: &Value) -> Option<Vec<String>> {
    let choices = ["oneOf", "anyOf"]
        .iter()
        .find_map(|word| part.get(*word).and_then(Value::as_array))?;
    let mut kinds: Vec<String> = Vec::new();
    for choice in choices {
        let said = match choice.get("const") {
            Some(Value::String(word)) => format!("`\"{word}\"`"),
            Some(other) => format!("`{other}`"),
            None => kind(root, choice),
        };
        if !kinds.contains(&said) {
            kinds.push(said);
        }
    }
    Some(kinds)
}

/// The columns of a command's samples, as they are written.
pub(crate) fn columns(entry: &dyn Entry) -> String {
    let mut text = format!(
        "## `{}`\n\n| column | type | null | meaning |\n|---|---|---|---|\n",
        entry.name()
    );
    for column in entry.columns() {
        let kind = match column.kind {
            "binary" => "text",
            "double" => "floating point, 64 bits",
            "int64" => "integer, 64 bits",
            "int32" => "integer, 32 bits",
            other => other,
        };
        text.push_str(&format!(
            "| `{}` | {kind} | {} | {} |\n",
            column.name,
            if column.optional { "yes" } else { "" },
            column.about
        ));
    }
    text
}

/// A sentence in which nothing is markup or the end of a cell.
fn inert(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('*', "\\*")
        .replace('_', "\\_")
}

#[cfg(test)]
mod tests {
    use replimeter_render::csv;
    use serde_json::json;

    use super::*;
    use replimeter_measurements::registry;

    /// A page of `docs/`.
    fn kept(name: &str) -> String {
        let path = format!("{}/../../docs/{name}", env!("CARGO_MANIFEST_DIR"));
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn the_reference_that_is_kept_is_what_the_program_says() {
        assert!(
            kept("reference/cli.md") == reference(&built(registry())),
            "docs/reference/cli.md is out of date: run `make docs`"
        );
    }

    #[test]
    fn the_schemas_that_are_kept_are_what_the_types_say() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema");
        let entries = fs::read_dir(folder).unwrap();
        let mut found: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        found.sort();
        let schemas = registry().schemas();
        let mut names: Vec<String> = schemas.map(|name| format!("{name}.json")).collect();
        names.sort();
        assert_eq!(found, names, "docs/schema: run `make docs`");
        for name in registry().schemas() {
            assert!(
                kept(&format!("schema/{name}.json")) == text(&registry().schema(name).unwrap()),
                "docs/schema/{name}.json is out of date: run `make docs`"
            );
        }
    }

    #[test]
    fn every_key_of_a_plan_is_described() {
        let root = registry().schema(schema::PLAN).unwrap();
        let sections = root["properties"].as_object().unwrap();
        assert_eq!(sections.len(), registry().entries().count() + 3);
        for (name, section) in sections {
            let section = schema::resolve(&root, section);
            for (key, value) in section["properties"].as_object().into_iter().flatten() {
                let said = value
                    .get("description")
                    .or_else(|| schema::resolve(&root, value).get("description"));
                assert!(said.is_some(), "[{name}] {key} has no description: {value}");
            }
        }
        let text = root.to_string();
        assert!(
            !text.contains("\"null\"") && !text.contains("{default}"),
            "{root:#}"
        );
    }

    #[test]
    fn every_command_with_results_has_a_table() {
        for entry in registry().entries() {
            let table = csv::table(&entry.document(), &json!({})).unwrap();
            let columns: Vec<&str> = table.trim_end().split(',').collect();
            assert!(columns.len() > 5, "{}: {table}", entry.name());
            let names: std::collections::BTreeSet<&&str> = columns.iter().collect();
            assert_eq!(names.len(), columns.len(), "{}", entry.name());
        }
    }

    #[test]
    fn the_keys_and_columns_that_are_kept_are_what_the_program_has() {
        assert!(
            kept("reference/plan-keys.md") == plan_keys(&registry().schema(schema::PLAN).unwrap()),
            "docs/reference/plan-keys.md is out of date: run `make docs`"
        );
        let page = kept("reference/columns.md");
        for entry in registry().entries() {
            assert!(
                page.contains(&columns(entry)),
                "docs/reference/columns.md is out of date: run `make docs`"
            );
            for column in entry.columns() {
                assert!(
                    column.about.len() > 4,
                    "{} {}: {}",
                    entry.name(),
                    column.name,
                    column.about
                );
            }
        }
        let measured = registry().entries().count();
        assert_eq!(page.matches("\n## ").count(), measured);
    }

    #[test]
    fn every_command_has_a_page_of_its_own() {
        let command = built(registry());
        let names: Vec<String> = pages(&command).into_iter().map(file_name).collect();
        for want in [
            "replimeter",
            "replimeter-lag",
            "replimeter-sandbox",
            "replimeter-sandbox-up",
            "replimeter-servers-add",
        ] {
            assert!(names.iter().any(|name| name == want), "{want}: {names:?}");
        }
        for command in pages(&command) {
            let page = page(command).unwrap();
            assert!(
                page.contains(".TH") && page.contains("\n.SH DESCRIPTION"),
                "{page}"
            );
            let synopsis = page
                .split(".SH SYNOPSIS\n")
                .nth(1)
                .unwrap()
                .lines()
                .next()
                .unwrap();
            assert!(
                synopsis.starts_with("replimeter") && synopsis.len() < 100,
                "{synopsis}"
            );
        }
    }
}
