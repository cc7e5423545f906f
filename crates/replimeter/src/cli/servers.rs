//! `replimeter servers`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `replimeter servers`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "\
Examples:
  replimeter servers                               everything that is found, the best first
  replimeter servers --servers /opt/mariadb --json
  replimeter servers add mysql-9.7.0-linux-glibc2.28-x86_64.tar.xz

docs/reference/servers.md says where servers are looked for and what each ability needs."
)]
pub(crate) struct ServersArgs {
    #[command(subcommand)]
    pub(crate) command: Option<ServersCommand>,

    /// Look into this folder only [default: PATH, the usual folders, then the private one of `make servers`]
    #[arg(long, value_name = "DIR")]
    pub(crate) servers: Option<PathBuf>,

    /// Print one JSON document on standard output instead of the list
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is done with servers.
#[derive(Debug, Subcommand)]
pub(crate) enum ServersCommand {
    /// Add a server to the private folder: an unpacked one is linked, a packed one unpacked, both after every check
    Add(AddArgs),
}

/// `replimeter servers add`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  replimeter servers add /opt/mariadb-11.4.2-linux-systemd-x86_64
  replimeter servers add mysql-9.7.0-linux-glibc2.28-x86_64.tar.xz

The server gets the name of its engine and version, such as mariadb-11.4.2, in the folder `servers`
of the private folder (REPLIMETER_HOME). A folder is linked: leave it where it is. To remove a server,
remove its entry there.")]
pub(crate) struct AddArgs {
    /// The folder of an unpacked server, or a tar archive of one: plain or packed with gzip, xz or zstd
    #[arg(value_name = "DIR|TARBALL")]
    pub(crate) source: PathBuf,

    /// Print one JSON document on standard output, with the server as in the list
    #[arg(long)]
    pub(crate) json: bool,
}
