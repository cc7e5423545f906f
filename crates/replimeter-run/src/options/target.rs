//! Options for the target of a measurement or an examination, which several commands share.

use std::{ffi::OsString, fmt, path::PathBuf};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, parser::ValueSource};
use replimeter_engine::source::Allowed;
use replimeter_model::{
    engine::EXAMPLE_URL,
    plan::TargetSettings,
    redact,
    shape::{form, node_name},
    target::{Endpoint, NodeSpec, PRIMARY, Passwords, Role, replica_name},
    warning::{Warning, WarningCode},
};

use super::command_line::CommandLineSettings;
use crate::{cli_error::CliError, options::topology_file};

/// Returns whether an option applies to the servers of a sandbox.
pub fn is_sandbox_option(option: &Arg) -> bool {
    option.get_help_heading() == Some("Sandbox")
}

/// Adds the options of the target that a command accepts.
pub fn sandbox_options(command: Command, takes: fn(&Arg) -> bool) -> Command {
    let all = TargetSettings::augment_args(Command::new("target"));
    let options = all.get_arguments().filter(|option| takes(option));
    command.args(options.cloned())
}

/// Returns the target of a command that has only some of its options, by parsing the given ones
/// again.
pub fn target_of(matches: &ArgMatches) -> Result<TargetSettings, clap::Error> {
    let all = TargetSettings::augment_args(Command::new("target").no_binary_name(true));
    let mut words: Vec<OsString> = Vec::new();
    for option in all.get_arguments() {
        let (id, long) = (option.get_id(), option.get_long().unwrap_or_default());
        let there = matches.ids().any(|there| there == id);
        if !there || matches.value_source(id.as_str()) != Some(ValueSource::CommandLine) {
            continue;
        }
        if !option.get_action().takes_values() {
            words.push(format!("--{long}").into());
            continue;
        }
        for value in matches.get_raw(id.as_str()).into_iter().flatten() {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            words.push(word);
        }
    }
    TargetSettings::from_arg_matches(&all.try_get_matches_from(words)?)
}

/// Returns the command with this text of an option in the short help, followed by the details in the long one.
pub fn with_help(command: Command, id: &str, short: &str, details: &str) -> Command {
    let long = match details {
        "" => short.to_owned(),
        details => format!("{short}\n\n{details}"),
    };
    command.mut_args(|option| match option.get_id() == id {
        true => option.help(short.to_owned()).long_help(long.clone()),
        false => option,
    })
}

/// Says in the help that a command accepts one target per run.
pub fn one_target(command: Command) -> Command {
    with_help(
        command,
        "sandbox",
        "Shape to start, or name of a running sandbox [default: async:1]",
        &format!(
            "{}; its servers are removed after the run. A running sandbox stays. One per run.",
            form(|_| true)
        ),
    )
}

/// Says in the help that a command measures both wait points unless one is given.
pub fn with_both_wait_points(command: Command) -> Command {
    with_help(
        command,
        "wait_point",
        "When a semi-synchronous primary waits [default: both, one after the other]",
        "",
    )
}

/// Settings of the servers of a sandbox that outlives the command: without those of a run.
#[derive(Clone, Debug)]
pub struct SandboxArgs(pub TargetSettings);

impl Args for SandboxArgs {
    fn augment_args(command: Command) -> Command {
        sandbox_options(command, |option| {
            let of_a_run = option.get_long().is_some_and(TargetSettings::is_of_a_run);
            is_sandbox_option(option) && !of_a_run
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SandboxArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        target_of(matches).map(Self)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.0 = target_of(matches)?;
        Ok(())
    }
}

/// The text of a server's URL, which may contain a password.
#[derive(Clone)]
pub struct UrlText(String);

impl fmt::Debug for UrlText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact::url(&self.0))
    }
}

impl From<String> for UrlText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

/// What is measured.
#[derive(Debug, Args)]
pub struct TargetArgs {
    #[command(flatten)]
    settings: TargetSettings,

    #[command(flatten)]
    reach: ConnectionOptions,
}

/// Connection options of the user's servers; URLs here may contain passwords, which plans must not.
#[derive(Debug, Args)]
#[command(next_help_heading = "Target")]
struct ConnectionOptions {
    /// URL of your primary, such as mysql://user@host:3306/
    ///
    /// Leave the password out: other users of the machine could see it in the process list.
    /// Parameters: ?ssl-mode=verify-identity&ssl-ca=FILE, where ssl-mode is disabled, preferred, required, verify-ca or
    /// verify-identity; ssl-cert, ssl-key, get-server-public-key. Through a Unix socket:
    /// mysql://user@localhost/?socket=/run/mysqld/mysqld.sock.
    #[arg(long, value_name = "URL")]
    primary: Option<UrlText>,

    /// URL of a replica of your primary; may be repeated
    #[arg(long, value_name = "URL")]
    replica: Vec<UrlText>,

    /// URL of a node of your Galera cluster or group; may be repeated
    ///
    /// Rows are written to the first one, or to the group's primary.
    #[arg(long, value_name = "URL", conflicts_with_all = ["primary", "replica"])]
    node: Vec<UrlText>,

    /// File that names your servers, their URLs and roles
    ///
    /// `replimeter doctor --help` shows one.
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["primary", "replica", "node"])]
    topology: Option<PathBuf>,

    /// Ask at the terminal for one password for all servers
    #[arg(long, display_order = 101)]
    ask_password: bool,

    /// Show the texts of your servers' replication errors, which can quote data
    ///
    /// Without it, messages and results have the number of an error only.
    #[arg(long, display_order = 102)]
    show_errors: bool,

    /// Write to a primary that is itself a replica of a server that you do not name
    ///
    /// What a run writes there is an errant transaction: its source never gets it, and a MariaDB with gtid_strict_mode
    /// stops replicating. Without this option such a primary is refused. Commands that only read ignore it.
    #[arg(long, display_order = 103)]
    write_to_replica: bool,

    /// Run a workload though a replica that you do not name could not be asked
    ///
    /// A table of its own in the schema `replimeter` with the name of one of the workload's would be replaced there (MariaDB), or
    /// stop its replication (MySQL). Without this option such a run is refused; naming the replica is better.
    #[arg(long, display_order = 104)]
    unasked_replicas: bool,
}

impl TargetArgs {
    /// Returns the target for a plan, and the passwords in its URLs.
    pub fn given(&self) -> Result<CommandLineSettings, CliError> {
        let Self { settings, reach } = self;
        let mut passwords = Passwords::new();
        let mut warnings = Vec::new();
        let mut read = |name: String, UrlText(text): &UrlText| -> Result<Endpoint, CliError> {
            let (endpoint, password) = Endpoint::parse(text).map_err(|error| {
                CliError::usage(error.to_string(), format!("write it as {EXAMPLE_URL}"))
            })?;
            if let Some(password) = password {
                warnings.push(Warning::new(
                    WarningCode::PasswordInUrl,
                    format!(
                        "the URL of {name} carries a password, which other users of this machine can see in the list of processes"
                    ),
                    "put it into an option file (--defaults-file) or into REPLIMETER_PASSWORD",
                ));
                passwords.insert(name, password);
            }
            Ok(endpoint)
        };
        let primary = reach
            .primary
            .as_ref()
            .map(|url| read(PRIMARY.to_owned(), url))
            .transpose()?;
        let replicas = (0..)
            .zip(&reach.replica)
            .map(|(index, url)| read(replica_name(index), url))
            .collect::<Result<_, _>>()?;
        let mut nodes = Vec::new();
        for (index, url) in reach.node.iter().enumerate() {
            let name = node_name(index);
            let url = read(name.clone(), url)?;
            nodes.push(NodeSpec {
                name,
                role: Some(Role::Node),
                source: None,
                url,
            });
        }
        let mut defaults_file = settings.defaults_file.clone();
        if let Some(path) = &reach.topology {
            let file = topology_file::read(path)?;
            nodes = file.nodes;
            defaults_file = defaults_file.or(file.defaults_file);
        }
        Ok(CommandLineSettings {
            target: TargetSettings {
                primary,
                replicas,
                nodes,
                defaults_file,
                ..settings.clone()
            },
            passwords,
            topology: reach.topology.clone(),
            ask_password: reach.ask_password,
            show_errors: reach.show_errors,
            allowed: Allowed {
                write_to_replica: reach.write_to_replica,
                unasked_replicas: reach.unasked_replicas,
            },
            warnings,
            ..CommandLineSettings::default()
        })
    }
}
