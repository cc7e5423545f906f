//! The help: what the parser does not add on its own.

use clap::Command;
use replimeter_run::options::{one_target, with_text};

/// Returns a command whose target options mean what its help says.
pub(super) fn with_target(command: Command) -> Command {
    match command.get_name() {
        "doctor" => one_target(command),
        "run" => command.mut_arg("sandbox", |option| {
            with_text(
                option,
                "Shape to start, or running sandbox, in place of the plan's; may be repeated",
                "A shape is `[mariadb/|mysql/]MODE:N` with the modes none, async:N, semi-sync:N, chain:N, galera:N and \
                 group:N. As the URLs of your servers, it replaces the plan's target.",
            )
        }),
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
}
