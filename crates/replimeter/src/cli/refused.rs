//! Errors of the parser, without the passwords of URLs that they would repeat.

use std::{error::Error as _, num::ParseIntError};

use clap::{
    Error,
    error::{ContextKind, ContextValue, ErrorKind},
};
use replimeter_model::{redact, shape::Shape};
use replimeter_run::Registry;

use super::{Invocation, command, read};
use crate::print::say;

/// Reads the command line; ends the program when there is nothing to do.
pub(crate) fn parse(registry: &'static Registry) -> Invocation {
    read(registry, std::env::args_os()).unwrap_or_else(|error| {
        let error = with_owners(registry, with_command(registry, with_tip(error)));
        let error = with_number(error);
        let error = without_passwords(registry, error);
        if !error.use_stderr() {
            error.exit()
        }
        // Without styles, and without what an argument has to control the terminal.
        say(&error.render().to_string());
        std::process::exit(error.exit_code())
    })
}

/// Subcommands of `sandbox` by words that are tried instead.
const SANDBOX_WORDS: [(&[&str], &str); 4] = [
    (
        &["start", "create", "new", "run", "launch", "add", "init"],
        "'replimeter sandbox up SHAPE' starts servers, such as async:1",
    ),
    (
        &["stop", "rm", "remove", "delete", "destroy", "kill", "end"],
        "'replimeter sandbox down NAME' stops a sandbox and removes it",
    ),
    (
        &["restart", "reset", "recreate"],
        "'replimeter sandbox down NAME' removes a sandbox; 'replimeter sandbox up SHAPE --name NAME' starts it again",
    ),
    (
        &["ls", "ps", "status", "show", "info"],
        "'replimeter sandbox list' lists sandboxes, 'replimeter sandbox env NAME' the URLs of one",
    ),
];

/// Commands by words that are tried instead; those of `sandbox` follow.
const WORDS: [(&[&str], &str); 12] = [
    (
        &["measure", "latency", "delay", "test", "start", "monitor"],
        "'replimeter lag' measures replication lag; 'replimeter sandbox up SHAPE' starts servers",
    ),
    (
        &["up", "create", "down", "stop", "rm", "ls", "list", "ps"],
        "'replimeter sandbox' starts (up), lists (list) and removes (down) servers",
    ),
    (
        &["bench", "benchmark", "throughput", "workload"],
        "'replimeter load' measures the throughput of a workload",
    ),
    (
        &["overhead", "price"],
        "'replimeter cost' compares the cost of replication modes",
    ),
    (
        &["failover", "crash", "switchover", "kill"],
        "'replimeter loss' measures the writes lost in a failover",
    ),
    (
        &["catchup", "catch-up"],
        "'replimeter backlog' measures how fast a replica catches up",
    ),
    (
        &["observe", "follow", "tail"],
        "'replimeter tap' follows the lag of real traffic",
    ),
    (
        &["check", "diagnose", "status", "preflight", "verify"],
        "'replimeter doctor' checks servers",
    ),
    (&["diff"], "'replimeter compare' compares runs"),
    (
        &["show", "open", "render", "view"],
        "'replimeter report RUN_DIR' shows a run",
    ),
    (
        &["plan", "exec", "execute"],
        "'replimeter run PLAN.toml' runs a plan file",
    ),
    (
        &["install", "download", "get", "engines"],
        "'replimeter servers' lists the servers that can be started, 'replimeter servers add' adds one",
    ),
];

/// Options for the user's servers.
const OWN_SERVERS: &[&str] = &[
    "--primary",
    "--replica",
    "--node",
    "--topology",
    "--defaults-file",
    "--ask-password",
];

/// Options that a command does not have: the command, or any when it is empty; the options, and what to use instead.
const OPTIONS: [(&str, &[&str], &str); 6] = [
    (
        "loss",
        OWN_SERVERS,
        "loss kills the primary, so it accepts only sandboxes that it starts (--sandbox SHAPE); 'replimeter exposure' reports what a crash of your servers would lose",
    ),
    (
        "sandbox",
        OWN_SERVERS,
        "'replimeter sandbox' starts servers of its own and does not use yours",
    ),
    (
        "",
        OWN_SERVERS,
        "this command does not use your servers; lag, stale, load, backlog, tap, exposure and doctor do",
    ),
    (
        "cost",
        &["--sandbox"],
        "cost starts servers for each mode; name the modes, such as '--modes async,semi-sync'",
    ),
    (
        "scale",
        &["--sandbox"],
        "scale starts servers for each number of replicas, such as '--replicas 0..4 --mode semi-sync'",
    ),
    (
        "calibrate",
        &[
            "--wait-point",
            "--wait-for-replicas",
            "--multi-primary",
            "--link-jitter",
            "--link-bandwidth",
        ],
        "calibrate delays the link of async:N by fixed times; '--link-delay 1ms,10ms' sets them",
    ),
];

/// Returns the error, with the right way of writing what was probably meant: the name of a subcommand, or an option
/// for a target.
fn with_tip(mut error: Error) -> Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let in_command = |name: &str| {
        let name = format!(" {name} ");
        usage.as_ref().is_some_and(|usage| usage.contains(&name))
    };
    let tip = match (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        (ErrorKind::InvalidSubcommand, Some(ContextValue::String(word))) => {
            let word = word.to_lowercase();
            let words: &[_] = match in_command("sandbox") {
                true => &SANDBOX_WORDS,
                false if in_command("servers") => &[],
                false => &WORDS,
            };
            let known = words
                .iter()
                .find(|(tried, _)| tried.contains(&word.as_str()));
            let shape = word.parse::<Shape>().ok();
            known.map(|(_, tip)| (*tip).to_owned()).or_else(|| {
                let shape = shape?;
                Some(format!(
                    "'replimeter sandbox up {shape}' starts such servers"
                ))
            })
        }
        (ErrorKind::UnknownArgument, _) => match error.get(ContextKind::InvalidArg) {
            Some(ContextValue::String(word)) if word.contains("://") => Some(
                "give your servers as '--primary URL --replica URL', or as '--node URL' each"
                    .to_owned(),
            ),
            Some(ContextValue::String(word)) if word.starts_with("--") => OPTIONS
                .iter()
                .find(|(name, tried, _)| {
                    (name.is_empty() || in_command(name)) && tried.contains(&word.as_str())
                })
                .map(|(.., tip)| (*tip).to_owned()),
            Some(ContextValue::String(word))
                if word.starts_with('-') && word.chars().any(|c| c.is_ascii_digit()) =>
            {
                Some("a setting cannot be negative".to_owned())
            }
            Some(ContextValue::String(word)) => {
                let shape = word.parse::<Shape>().ok();
                shape.map(|shape| format!("give the shape as '--sandbox {shape}'"))
            }
            _ => None,
        },
        _ => None,
    };
    if let Some(tip) = tip {
        // One that is only spelled like it is not meant.
        error.remove(ContextKind::SuggestedSubcommand);
        error.remove(ContextKind::SuggestedArg);
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// Returns the error of a value that is not a whole number in plain words.
fn with_number(error: Error) -> Error {
    let is_number = error
        .source()
        .and_then(|cause| cause.downcast_ref::<ParseIntError>());
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text),
        _ => None,
    };
    match (
        is_number,
        text(ContextKind::InvalidValue),
        text(ContextKind::InvalidArg),
    ) {
        (Some(_), Some(value), Some(option)) if !value.contains('@') => {
            let message = format!(
                "invalid value '{value}' for '{option}': write a whole number, such as 1000\n\nFor more information, try '--help'.\n"
            );
            Error::raw(ErrorKind::ValueValidation, message)
        }
        _ => error,
    }
}

/// Returns the error, with the commands that have an unknown option.
fn with_owners(registry: &Registry, mut error: Error) -> Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let Some(long) = option.strip_prefix("--") else {
        return error;
    };
    if error.kind() != ErrorKind::UnknownArgument || error.get(ContextKind::Suggested).is_some() {
        return error;
    }
    let mut all = command(registry);
    all.build();
    let has_option = |command: &&clap::Command| {
        let mut options = command.get_arguments();
        options.any(|option| option.get_long() == Some(long))
    };
    let owners = all.get_subcommands().filter(has_option);
    let owners: Vec<&str> = owners.map(clap::Command::get_name).collect();
    if owners.is_empty() {
        return error;
    }
    let tip = format!("{option} is an option of {}", owners.join(", "));
    // An option that is only spelled like it is not meant.
    error.remove(ContextKind::SuggestedArg);
    let tips = ContextValue::StyledStrs(vec![tip.into()]);
    error.insert(ContextKind::Suggested, tips);
    let used = usage.as_deref().and_then(|usage| usage.split(' ').nth(2));
    if let Some(used) = used.and_then(|name| all.find_subcommand_mut(name)) {
        let usage = ContextValue::StyledStr(used.render_usage());
        error.insert(ContextKind::Usage, usage);
    }
    error
}

/// Returns the error, with the command that has the name of an unknown option.
fn with_command(registry: &Registry, mut error: Error) -> Error {
    let usage = error.get(ContextKind::Usage).map(ToString::to_string);
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg)
        && error.kind() == ErrorKind::UnknownArgument
        && let Some(entry) = registry.get(option.trim_start_matches("--"))
        && !usage.is_some_and(|usage| usage.contains(&format!("replimeter {} ", entry.name())))
    {
        let tip = format!("use 'replimeter {}', a command of its own", entry.name());
        let tips = ContextValue::StyledStrs(vec![tip.into()]);
        error.insert(ContextKind::Suggested, tips);
    }
    error
}

/// Returns the error without the user and password of URLs.
fn without_passwords(registry: &Registry, error: Error) -> Error {
    // An `@` alone is in --load <WORKLOAD:THREADS@NODE> and its values too.
    let is_url = |text: &str| {
        text.contains("://") && redact::url(text) != text
            || text.contains('@')
                && !text.starts_with("--")
                && error.kind() != ErrorKind::ValueValidation
    };
    let shown = |kind: ContextKind, value: &ContextValue| match value {
        _ if kind == ContextKind::Usage => None,
        ContextValue::String(text) if is_url(text) => Some(ContextValue::String(redact::url(text))),
        // Suggestions for writing it differently.
        ContextValue::Strings(texts) if texts.iter().any(|text| is_url(text)) => {
            Some(ContextValue::None)
        }
        ContextValue::StyledStr(text) if is_url(&text.to_string()) => Some(ContextValue::None),
        ContextValue::StyledStrs(texts) if texts.iter().any(|text| is_url(&text.to_string())) => {
            Some(ContextValue::None)
        }
        _ => None,
    };
    if error
        .context()
        .all(|(kind, value)| shown(kind, value).is_none())
    {
        return error;
    }
    // Created again without its cause, which may repeat pieces of the value.
    let mut safe = Error::new(error.kind()).with_cmd(&command(registry));
    for (kind, value) in error.context() {
        safe.insert(kind, shown(kind, value).unwrap_or_else(|| value.clone()));
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;
    use replimeter_measurements::registry;

    fn refused(args: &[&str]) -> String {
        let args = std::iter::once("replimeter").chain(args.iter().copied());
        let Err(error) = read(registry(), args) else {
            panic!("it is not refused")
        };
        without_passwords(registry(), with_number(error)).to_string()
    }

    #[test]
    fn url_is_never_repeated_with_its_password() {
        let url = "mysql://dba:12/secret@h/";
        for (args, want) in [
            (vec!["lag", url], "unexpected argument '…@h' found"),
            (
                vec!["doctor", "dba:12/secret@h/"],
                "unexpected argument '…@h' found",
            ),
            (vec![url], "unrecognized subcommand '…@h'"),
            (
                vec!["lag", "--sandbox", url],
                "invalid value '…@h' for '--sandbox",
            ),
            (
                vec!["lag", "--sandbox=mysql://dba:12/secret@h"],
                "invalid value '…@h' for '--sandbox",
            ),
            (
                vec!["lag", "--pace", url],
                "invalid value '…@h' for '--pace",
            ),
            (
                vec!["lag", &format!("--json={url}")],
                "unexpected value '…@h' for '--json'",
            ),
            (
                vec!["lag", "--rounds", url],
                "invalid value '…@h' for '--rounds",
            ),
        ] {
            let text = refused(&args);
            assert!(
                text.contains(want) && !text.contains("secret") && text.contains("--help"),
                "{text}"
            );
        }
    }

    #[test]
    fn word_in_place_of_a_number_is_refused_plainly() {
        for value in ["ten", "5,000", "99999999999999999999999"] {
            let text = refused(&["lag", "--rounds", value]);
            let want = format!("invalid value '{value}' for '--rounds <N>': write a whole number");
            assert!(text.contains(&want), "{text}");
        }
    }

    #[test]
    fn refused_value_is_repeated_with_the_cause() {
        let text = refused(&["lag", "--load", "insert@primary"]);
        assert!(
            text.contains("insert@primary") && text.contains("is not a load"),
            "{text}"
        );
        let text = refused(&["lag", "--server-option", "wsrep_cluster_address=gcomm://x"]);
        assert!(
            text.contains("gcomm://x") && text.contains("the sandbox sets"),
            "{text}"
        );
        let text = refused(&["lag", "--load"]);
        assert!(text.contains("--load <WORKLOAD:THREADS@NODE>"), "{text}");
        assert!(refused(&["lag", "--rouns", "5"]).contains("--rounds"));
    }

    #[test]
    fn first_guess_at_a_command_names_the_right_one() {
        for (line, want) in [
            ("sandbox start async:1", "replimeter sandbox up SHAPE"),
            ("sandbox create", "replimeter sandbox up SHAPE"),
            ("sandbox run", "replimeter sandbox up SHAPE"),
            ("sandbox async:2", "replimeter sandbox up async:2"),
            ("sandbox stop work", "replimeter sandbox down NAME"),
            ("sandbox rm work", "replimeter sandbox down NAME"),
            ("sandbox delete work", "replimeter sandbox down NAME"),
            ("sandbox restart work", "replimeter sandbox down NAME"),
            ("sandbox ls", "replimeter sandbox list"),
            ("sandbox dwon", "'down'"),
            ("measure", "replimeter lag"),
            ("start", "replimeter sandbox up SHAPE"),
            ("stop", "removes (down) servers"),
            ("ls", "lists (list)"),
            ("benchmark", "replimeter load"),
            ("failover", "replimeter loss"),
            ("check", "replimeter doctor"),
            ("diff", "replimeter compare"),
            ("galera:3", "replimeter sandbox up galera:3"),
            ("lag async:1", "--sandbox async:1"),
            ("cost --primary mysql://u@h/", "does not use your servers"),
            ("loss --primary mysql://u@h/", "replimeter exposure"),
            ("loss --topology cluster.toml", "--sandbox SHAPE"),
            ("calibrate --replica mysql://u@h/", "lag, stale, load"),
            ("cost --sandbox async:1", "--modes async"),
            ("scale --sandbox async:1", "--replicas 0..4"),
            ("calibrate --link-jitter 1ms", "--link-delay 1ms,10ms"),
            ("doctor mysql://u@h/", "--primary URL --replica URL"),
            ("lag --duration -5s", "cannot be negative"),
        ] {
            let args = std::iter::once("replimeter").chain(line.split(' '));
            let Err(error) = read(registry(), args) else {
                panic!("{line} is not refused")
            };
            let text = without_passwords(registry(), with_tip(error)).to_string();
            let tip = text.split_once("tip: ").map(|(_, tip)| tip);
            assert!(tip.is_some_and(|tip| tip.contains(want)), "{line}: {text}");
        }
    }

    /// A word that is a command is never refused, so a tip for it would be useless.
    #[test]
    fn words_with_a_tip_are_no_commands() {
        let all = command(registry());
        let known = |name: &str, words: &[(&[&str], &str)]| {
            let parent = match name {
                "" => Some(&all),
                name => all.find_subcommand(name),
            };
            let words = words.iter().flat_map(|(tried, _)| *tried);
            for word in words {
                assert!(
                    parent.unwrap().find_subcommand(word).is_none(),
                    "{name} {word}"
                );
            }
        };
        known("", &WORDS);
        known("sandbox", &SANDBOX_WORDS);
    }

    #[test]
    fn option_named_like_a_command_points_to_it() {
        let Err(error) = read(registry(), ["replimeter", "lag", "--backlog", "30s"]) else {
            panic!("it is not refused")
        };
        let text = with_command(registry(), error).to_string();
        assert!(text.contains("use 'replimeter backlog'"), "{text}");
    }

    #[test]
    fn option_of_other_commands_names_them() {
        for (line, want) in [
            ("cost --udf", "--udf is an option of lag"),
            ("scale --multi-primary", "is an option of lag, backlog"),
            ("load --rounds 5", "is an option of lag, calibrate, stale"),
            ("loss --primary mysql://u@h/", "replimeter exposure"),
        ] {
            let args = std::iter::once("replimeter").chain(line.split(' '));
            let Err(error) = read(registry(), args) else {
                panic!("{line} is not refused")
            };
            let text = with_owners(registry(), with_tip(error)).to_string();
            assert!(text.contains(want), "{line}: {text}");
        }
    }

    #[test]
    fn debug_output_holds_no_password() {
        let args = [
            "replimeter",
            "doctor",
            "--primary",
            "mysql://dba:12/secret@h/",
            "--replica",
            "mysql://dba:secret@i/",
        ];
        let Ok(Invocation::Other(command)) = read(registry(), args) else {
            panic!("doctor is no measurement")
        };
        let text = format!("{command:?}");
        assert!(
            text.contains("…@h") && text.contains("…@i") && !text.contains("secret"),
            "{text}"
        );
    }
}
