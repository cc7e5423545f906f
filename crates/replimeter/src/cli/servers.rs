//! `replimeter servers`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use replimeter_run::options::FormArgs;

/// `replimeter servers`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    mut_arg("json", |json| json.help("Print one JSON document instead of the list")),
    after_long_help = "\
Examples:
  replimeter servers
  replimeter servers --servers /opt/mariadb --json
  replimeter servers add /opt/mariadb-11.4.2-linux-systemd-x86_64

A server that cannot be used is listed with the reason, a missing capability
with what it needs."
)]
pub(crate) struct ServersArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServersCommand>,

    /// List the servers of this directory only [default: all that are found]
    ///
    /// Without it they are searched in PATH, in the usual directories and in the private one (REPLIMETER_HOME), which
    /// `replimeter servers add` fills.
    #[arg(long, value_name = "DIR")]
    pub(crate) servers: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) form: FormArgs<1>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Add a server to the private directory, after every check
    Add(AddArgs),
}

/// `replimeter servers add`.
#[derive(Debug, Args)]
#[command(mut_arg("json", |json| json.help("Print one JSON document, with the server as in the list")))]
#[command(after_long_help = "\
Examples:
  replimeter servers add /opt/mariadb-11.4.2-linux-systemd-x86_64

The server is linked: leave it where it is. It gets the name of its engine and
version, such as mariadb-11.4.2, in `servers` of the private directory
(REPLIMETER_HOME). To remove a server, remove its entry there.")]
pub(crate) struct AddArgs {
    /// Directory of an unpacked server
    #[arg(value_name = "DIR")]
    pub(crate) source: PathBuf,

    #[command(flatten)]
    pub(crate) form: FormArgs<1>,
}
