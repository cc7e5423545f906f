//! The help: what the parser does not add on its own.

use clap::Command;
use replimeter_run::options::{one_target, with_help};

/// Returns a command whose target options mean what its help says.
pub(super) fn with_target(command: Command) -> Command {
    match command.get_name() {
        "doctor" => one_target(command),
        "run" => with_help(
            command,
            "sandbox",
            "Shape to start, or running sandbox; may be repeated [default: the plan's]",
            "A shape is `[mariadb/|mysql/]MODE:N` with the modes none, async:N, semi-sync:N, chain:N, galera:N and \
             group:N. Like the URLs of your servers, it replaces the plan's target.",
        ),
        _ => command,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::*;
    use replimeter_measurements::registry;

    /// Values for each option of the target, after the options that it depends on.
    const TARGETS: [(&str, &[&str]); 22] = [
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
        ("udf", &["--udf"]),
        ("federated", &["--federated"]),
        ("cpus_per_server", &["--cpus-per-server=1"]),
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
                if !matches!(heading, Some("Target" | "Sandbox")) {
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
}
