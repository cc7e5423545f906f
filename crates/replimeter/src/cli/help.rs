//! The help: what the parser does not add on its own.

use std::io::IsTerminal;

use clap::{
    Command,
    builder::{Resettable, StyledStr},
};
use replimeter_engine::help;
use replimeter_model::shape::form;
use replimeter_run::options::{one_target, with_help};

/// The width of lines when standard output is no terminal.
const PIPED_WIDTH: usize = 80;
/// The maximum width of lines in a terminal.
const MAX_WIDTH: usize = 100;

/// The commands by purpose, in the order of the help.
const GROUPS: [(&str, &[&str]); 6] = [
    (
        "Measure your servers, or a sandbox",
        &[
            "watch", "lag", "tap", "stale", "backlog", "exposure", "load", "front",
        ],
    ),
    (
        "Measure in sandboxes only",
        &["cost", "scale", "loss", "calibrate"],
    ),
    ("Check servers", &["doctor"]),
    ("Start servers", &["sandbox", "servers"]),
    (
        "Plans and results",
        &["run", "report", "compare", "trial", "reproduce"],
    ),
    ("Program", &["schema", "completions", "man", "help"]),
];

/// The first steps.
pub(super) const BEGIN: &str = "\
To begin:
  # a first measurement: starts two servers, removes them afterwards
  replimeter lag
  # can your servers be measured? writes nothing, asks for the password
  replimeter doctor --primary {scheme}://u@db1/ --replica {scheme}://u@db2/
  # their lag; writes only to the schema `replimeter`, and drops it
  replimeter lag --primary {scheme}://u@db1/ --replica {scheme}://u@db2/

`replimeter COMMAND --help` explains a command, its options and its report.";

/// The environment and the exit codes.
const REFERENCE: &str = "\
Environment:
  REPLIMETER_NODE_PASSWORD  Password for one of your servers, by its name:
                            REPLIMETER_PRIMARY_PASSWORD, _REPLICA1_, _NODE1_ …
  REPLIMETER_PASSWORD       Password for all of your servers
  {password}                 The same, if REPLIMETER_PASSWORD is not set
  USER, LOGNAME             User, if neither URL nor option file names one
  HOME                      Directory of the option file .my.cnf
  REPLIMETER_HOME           Private directory of sandboxes and added servers
                            [default: /var/cache/replimeter for root, for others
                            replimeter in XDG_CACHE_HOME or ~/.cache]
  REPLIMETER_UDF            Library with NOW_USEC() [default:
                            libreplimeter_udf.so next to the program, or in
                            ../lib/replimeter]
  PATH                      Directories to search for servers
  TMPDIR                    Directory of temporary files [default: /tmp]
  TERM                      Terminal; the screen of watch needs one, not dumb
  NO_COLOR                  No colors on the screen of watch, if not empty
  REPLIMETER_RECORD, REPLIMETER_FAULT   Only for tests of Replimeter

Exit codes:
  0    done
  1    an invalid measurement, a condition of compare that failed, or a problem
       that doctor found
  2    a mistake in the request (option, plan, path or name): nothing was
       started
  3    a server, the sandbox or the disk failed
  130  interrupted; partial results are kept";

/// Returns the text below the commands in the long help.
pub(super) fn all_of_it() -> String {
    format!("{BEGIN}\n\n{REFERENCE}")
}

/// Returns a command, with those below it, whose help has the words of the engines.
pub(super) fn filled(command: Command) -> Command {
    let words = |text: &StyledStr| help::filled(&text.to_string()).into();
    let text = |text: Option<&StyledStr>| Resettable::from(text.map(words));
    let texts = [
        command.get_about(),
        command.get_after_help(),
        command.get_after_long_help(),
    ];
    let [about, short, long] = texts.map(text);
    command
        .about(about)
        .after_help(short)
        .after_long_help(long)
        .mut_subcommands(filled)
}

/// Returns the program with its commands grouped by purpose in its help.
pub(super) fn grouped(program: Command) -> Command {
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n".to_owned();
    for (purpose, names) in GROUPS {
        template.push_str(&format!("\n{purpose}:\n"));
        for name in names {
            let command = program.find_subcommand(name);
            let about = command.and_then(Command::get_about);
            // The parser adds `help` later.
            let about = about.map_or_else(
                || "Print the help of a command".to_owned(),
                ToString::to_string,
            );
            template.push_str(&format!("  {name:<11}  {about}\n"));
        }
    }
    template.push_str("\nOptions:\n{options}{after-help}");
    program.help_template(template)
}

/// Returns the program with the width of its help: fixed in a pipe, limited in a terminal.
#[allow(clippy::disallowed_methods, reason = "prints nothing")]
pub(super) fn wrapped(program: Command) -> Command {
    match std::io::stdout().is_terminal() {
        true => program.max_term_width(MAX_WIDTH),
        false => program.term_width(PIPED_WIDTH),
    }
}

/// Returns a command whose target options mean what its help says.
pub(super) fn with_target(command: Command) -> Command {
    match command.get_name() {
        "doctor" => one_target(command),
        "run" => with_help(
            command,
            "sandbox",
            "Shape to start, or running sandbox; may be repeated [default: the plan's]",
            &format!(
                "{}. Like the URLs of your servers, it replaces the plan's target.",
                form(|_| true)
            ),
        ),
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{super::*, GROUPS, PIPED_WIDTH, REFERENCE};
    use replimeter_instruments::load::Workload;
    use replimeter_measurements::registry;
    use replimeter_run::options::topology_file;

    /// Values for each option of the target, after the options that it depends on.
    const TARGETS: [(&str, &[&str]); 28] = [
        ("sandbox", &["--sandbox=async:1"]),
        ("primary", &["--replica=mysql://b/", "--primary=mysql://a/"]),
        ("replica", &["--primary=mysql://a/", "--replica=mysql://b/"]),
        ("node", &["--node=mysql://a/", "--node=mysql://b/"]),
        ("topology", &["--topology=FILE"]),
        (
            "defaults_file",
            &["--node=mysql://a/", "--defaults-file=FILE"],
        ),
        ("ask_password", &["--node=mysql://a/", "--ask-password"]),
        ("show_errors", &["--node=mysql://a/", "--show-errors"]),
        (
            "write_to_replica",
            &["--node=mysql://a/", "--write-to-replica"],
        ),
        (
            "unasked_replicas",
            &["--node=mysql://a/", "--unasked-replicas"],
        ),
        ("server_options", &["--server-option=sync_binlog=1"]),
        ("servers", &["--servers=/opt/mysql"]),
        ("replica_server", &["--replica-server=/opt/mysql"]),
        ("wait_point", &["--wait-point=after-sync"]),
        (
            "wait_point",
            &["--sandbox=semi-sync:1", "--wait-point=after-sync"],
        ),
        (
            "wait_point",
            &["--mode=semi-sync", "--wait-point=after-sync"],
        ),
        (
            "wait_for_replicas",
            &["--sandbox=mysql/semi-sync:2", "--wait-for-replicas=2"],
        ),
        (
            "wait_for_replicas",
            &[
                "--mode=mysql/semi-sync",
                "--replicas=2",
                "--wait-for-replicas=2",
            ],
        ),
        (
            "multi_primary",
            &["--sandbox=mysql/group:3", "--multi-primary"],
        ),
        ("link_delay", &["--link-delay=1ms"]),
        ("link_jitter", &["--link-delay=1ms", "--link-jitter=1ms"]),
        ("link_bandwidth", &["--link-bandwidth=100mbit"]),
        ("client_link_delay", &["--client-link-delay=1ms"]),
        ("flush_delay", &["--flush-delay=1ms"]),
        ("udf", &["--udf"]),
        ("federated", &["--federated"]),
        ("cpus_per_server", &["--cpus-per-server=1"]),
        ("hosts", &["--hosts"]),
    ];

    /// Returns whether there is a plan for this command line.
    fn is_accepted(name: &str, words: &[&str], file: &str) -> bool {
        let words = words.iter().map(|word| word.replace("FILE", file));
        let words = ["replimeter".to_owned(), name.to_owned()]
            .into_iter()
            .chain(words);
        let Ok(Invocation::Measure(entry, matches)) = read(registry(), words) else {
            return false;
        };
        let given = entry.given(&matches);
        given.is_ok_and(|given| entry.plan(&given).is_ok())
    }

    #[test]
    fn every_target_option_in_a_help_is_accepted() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.toml");
        fs::write(
            &file,
            "[[node]]\nname = \"a\"\nurl = \"mysql://a/\"\n[[node]]\nname = \"b\"\nurl = \"mysql://b/\"\n",
        )
        .unwrap();
        let file = file.to_str().unwrap();
        let mut refused = Vec::new();
        for entry in registry().entries() {
            let command = entry.command();
            for option in command.get_arguments() {
                let id = option.get_id().as_str();
                let heading = option.get_help_heading();
                if !matches!(heading, Some("Target" | "Sandbox")) || option.is_hide_set() {
                    continue;
                }
                let mut lines = TARGETS.iter().filter(|(known, _)| *known == id);
                if !lines.any(|(_, words)| is_accepted(entry.name(), words, file)) {
                    refused.push(format!("{} {id}", entry.name()));
                }
            }
        }
        assert!(refused.is_empty(), "{refused:#?}");
    }

    #[test]
    fn help_says_how_many_targets_a_command_accepts() {
        let two = ["--sandbox=async:1", "--sandbox=async:2"];
        for entry in registry().entries() {
            let command = entry.command();
            let sandbox = command
                .get_arguments()
                .find(|option| option.get_id() == "sandbox");
            let Some(help) = sandbox.and_then(|option| option.get_help()) else {
                continue;
            };
            assert_eq!(
                help.to_string().contains("may be repeated"),
                is_accepted(entry.name(), &two, ""),
                "{}: {help}",
                entry.name()
            );
        }
    }

    /// Returns the headings of a command's options, in the order of its help.
    fn headings(command: &clap::Command) -> Vec<&str> {
        let mut headings: Vec<&str> = Vec::new();
        for option in command.get_arguments() {
            let heading = option.get_help_heading().unwrap_or_default();
            if !headings.contains(&heading) {
                headings.push(heading);
            }
        }
        headings
    }

    #[test]
    fn headings_have_the_same_order_in_every_command() {
        let order = [
            "",
            "Target",
            "Measurement",
            "Load",
            "Sandbox",
            "Client",
            "Runs",
            "Conditions",
            "Output",
        ];
        for command in super::super::tests::all(&command(registry())) {
            let places: Vec<Option<usize>> = headings(&command)
                .iter()
                .map(|heading| order.iter().position(|known| known == heading))
                .collect();
            assert!(
                !places.contains(&None) && places.is_sorted(),
                "{}: {:?}",
                command.get_name(),
                headings(&command)
            );
        }
    }

    #[test]
    fn every_default_is_in_the_short_help() {
        for entry in registry().entries() {
            let defaults = (entry.section().defaults)();
            for option in entry.command().get_arguments() {
                let id = option.get_id().as_str();
                let help = option.get_help().map(ToString::to_string);
                let is_shown = !option.get_default_values().is_empty()
                    || help.is_some_and(|help| help.contains("[default: "));
                let has_default = defaults.contains_key(&id.replace('_', "-"));
                let is_flag = !option.get_action().takes_values();
                assert!(is_shown || is_flag || !has_default, "{} {id}", entry.name());
            }
        }
        for command in super::super::tests::all(&command(registry())) {
            for option in command.get_arguments() {
                let details = option.get_long_help().map(ToString::to_string);
                assert!(
                    !details.is_some_and(|details| details.contains("Default:")),
                    "{} {}: a default belongs into the first line",
                    command.get_name(),
                    option.get_id()
                );
            }
        }
    }

    #[test]
    fn self_test_defaults_of_cost_are_as_its_help_says() {
        let words = ["replimeter", "cost", "--modes=async", "--self-test"];
        let Ok(Invocation::Measure(entry, matches)) = read(registry(), words) else {
            panic!("it is refused")
        };
        let given = entry.given(&matches).unwrap();
        let plan = entry.plan(&given).unwrap().text().unwrap();
        let command = entry.command();
        for (id, value) in [
            ("duration", "4s"),
            ("starts", "4"),
            ("block_duration", "500ms"),
        ] {
            let option = command.get_arguments().find(|option| option.get_id() == id);
            let help = option.unwrap().get_help().unwrap().to_string();
            assert!(help.contains(&format!("self-test: {value}]")), "{help}");
            let line = format!("{} = ", id.replace('_', "-"));
            let line = plan.lines().find(|shown| shown.starts_with(&line)).unwrap();
            assert_eq!(line.rsplit("= ").next().unwrap().trim_matches('"'), value);
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let program = command(registry());
        let mut grouped: Vec<&str> = GROUPS
            .iter()
            .flat_map(|(_, names)| *names)
            .copied()
            .collect();
        let mut known: Vec<&str> = program
            .get_subcommands()
            .map(|one| one.get_name())
            .collect();
        known.push("help");
        grouped.sort_unstable();
        known.sort_unstable();
        assert_eq!(grouped, known);
    }

    #[test]
    fn help_names_every_environment_variable() {
        let source = include_str!("../environment.rs");
        let texts = source.split('"').skip(1).step_by(2);
        let is_variable = |text: &&str| {
            text.len() > 3
                && !text.starts_with("REPLIMETER_{")
                && text
                    .chars()
                    .all(|letter| letter.is_ascii_uppercase() || letter == '_')
        };
        let variables: Vec<&str> = texts.filter(is_variable).collect();
        assert!(variables.contains(&"REPLIMETER_HOME") && variables.len() > 8);
        for name in variables
            .iter()
            .chain(&["TMPDIR", "REPLIMETER_PRIMARY_PASSWORD"])
        {
            assert!(REFERENCE.contains(name), "{name}");
        }
    }

    #[test]
    fn piped_help_fits_into_80_columns() {
        let mut program = command(registry());
        program.build();
        for mut command in super::super::tests::all(&program) {
            for help in [command.render_help(), command.render_long_help()] {
                let help = help.to_string();
                let long: Vec<&str> = help
                    .lines()
                    .filter(|line| line.chars().count() > PIPED_WIDTH)
                    .collect();
                assert!(long.is_empty(), "{}: {long:#?}", command.get_name());
            }
        }
    }

    /// Who has the program only has no such file.
    #[test]
    fn no_help_names_a_file_of_the_repository() {
        let mut program = command(registry());
        program.build();
        for mut command in super::super::tests::all(&program) {
            let help = command.render_long_help().to_string();
            for folder in ["docs/", "loads/", "make "] {
                assert!(!help.contains(folder), "{}: {help}", command.get_name());
            }
        }
    }

    #[test]
    fn every_measurement_explains_the_terms_of_its_report() {
        const TITLE: &str = "\nTerms of the report:\n";
        for entry in registry().entries() {
            let help = entry.command().render_long_help().to_string();
            let Some((_, terms)) = help.split_once(TITLE) else {
                panic!("{}: {help}", entry.name())
            };
            let count = terms.lines().take_while(|line| !line.is_empty()).count();
            assert!((3..=8).contains(&count), "{}: {count}", entry.name());
        }
    }

    /// Returns the words of a line of a shell, up to a pipe or a redirection.
    fn words(line: &str) -> Vec<String> {
        let mut words = Vec::new();
        for (index, part) in line.split('\'').enumerate() {
            match index % 2 {
                0 => words.extend(part.split_whitespace().map(str::to_owned)),
                _ => words.push(part.to_owned()),
            }
        }
        let end = words
            .iter()
            .position(|word| matches!(word.as_str(), ">" | "|"));
        words.truncate(end.unwrap_or(words.len()));
        words
    }

    #[test]
    fn every_example_in_a_help_is_accepted() {
        let mut count = 0;
        for command in super::super::tests::all(&command(registry())) {
            let text = command.get_after_long_help().or(command.get_after_help());
            let text = text.map(ToString::to_string).unwrap_or_default();
            for line in text.replace("\\\n", "").lines() {
                if !line.starts_with("  replimeter ") {
                    continue;
                }
                count += 1;
                match read(registry(), words(line)) {
                    Ok(Invocation::Measure(entry, matches)) if !line.contains("--topology") => {
                        let given = entry.given(&matches);
                        let given = given.unwrap_or_else(|error| panic!("{line}: {error:?}"));
                        let plan = entry.plan(&given).map(|plan| plan.name());
                        assert!(plan.is_ok(), "{line}: {plan:?}");
                    }
                    Ok(_) => {}
                    Err(error) => panic!("{line}: {error}"),
                }
            }
        }
        assert!(count > 60, "{count} examples");
    }

    #[test]
    fn every_placeholder_in_a_help_is_known() {
        for command in super::super::tests::all(&command(registry())) {
            let texts = [command.get_after_help(), command.get_after_long_help()];
            for text in texts.into_iter().flatten() {
                let text = text.to_string();
                let braces = text.split('{').filter_map(|rest| rest.split_once('}'));
                let mut words = braces.map(|(word, _)| word);
                let left = words.find(|word| !word.contains(|letter: char| "=\n".contains(letter)));
                assert_eq!(left, None, "{}", command.get_name());
            }
        }
    }

    /// Returns the lines of a help between two others, without their indent.
    fn between(name: &str, before: &str, after: &str) -> String {
        let program = command(registry());
        let command = program.find_subcommand(name).unwrap();
        let help = command.get_after_long_help().unwrap().to_string();
        let (_, rest) = help.split_once(before).unwrap();
        let (lines, _) = rest.split_once(after).unwrap();
        lines.replace("\n  ", "\n")
    }

    #[test]
    fn files_shown_in_a_help_are_valid() {
        let workload = between("load", "A file:", "The data");
        Workload::parse("orders.toml", &workload).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cluster.toml");
        fs::write(&file, between("doctor", "found out):", "Writes nothing")).unwrap();
        assert_eq!(topology_file::read(&file).unwrap().nodes.len(), 2);
    }
}
