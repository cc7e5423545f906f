//! Differences between the engines in starting servers.

mod mariadb;
mod mysql;

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use replimeter_model::{engine::Engine, replication::Mode, server_option::ServerOption};

use crate::{binaries::Install, capabilities::SemiSync};

/// The user with which replicas log in to the primary.
pub(crate) const REPLICATION_USER: &str = "replimeter_repl";
/// The user with which Replimeter logs in.
pub(crate) const ADMIN_USER: &str = "replimeter";

/// The file name of the stamp library.
pub(crate) const UDF_LIBRARY: &str = "libreplimeter_udf.so";

/// A server to be started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ServerSpec<'a> {
    /// Its binary.
    pub(crate) install: &'a Install,
    /// Its data directory.
    pub(crate) data: &'a Path,
    /// SQL that it executes before it accepts connections.
    pub(crate) init_file: &'a Path,
    /// Its TCP port.
    pub(crate) port: u16,
    /// Its `server_id`.
    pub(crate) server_id: u32,
    /// Whether it is a replica.
    pub(crate) replica: bool,
    /// Whether it has a binary log.
    pub(crate) binary_log: bool,
    /// Its own plugin folder, if any.
    pub(crate) plugins: Option<&'a Path>,
    /// Arguments for its replication mode.
    pub(crate) arguments: &'a [String],
    /// The user's options; they come last and so override Replimeter's.
    pub(crate) options: &'a [ServerOption],
}

/// Returns a server's own folder for temporary files, next to its data directory. It must not be
/// shared: at its start MariaDB removes all files `#sql*` in it, including temporary tables of
/// running servers.
pub(crate) fn temporary_folder(data: &Path) -> PathBuf {
    data.with_file_name("tmp")
}

/// Sets the paths that every server needs, wherever it was unpacked.
fn paths(command: &mut Command, install: &Install, data: &Path, plugins: Option<&Path>) {
    installation(command, install, plugins);
    command
        .arg(option("datadir", data))
        .arg(option("tmpdir", &temporary_folder(data)));
}

fn option(name: &str, path: &Path) -> String {
    format!("--{name}={}", path.display())
}

/// Sets the paths of the installation.
fn installation(command: &mut Command, install: &Install, plugins: Option<&Path>) {
    command
        .arg("--no-defaults")
        .arg(option("basedir", &install.base));
    if install.share.join("english").is_dir() {
        command.arg(option("lc-messages-dir", &install.share));
    }
    let charsets = install.share.join("charsets");
    if charsets.is_dir() {
        command.arg(option("character-sets-dir", &charsets));
    }
    if let Some(plugins) = plugins.or(install.plugins.as_deref()) {
        command.arg(option("plugin-dir", plugins));
    }
}

/// Returns the command with which a server parses these options and prints its help, but does not start. `nowhere` is
/// a folder that does not exist.
pub(crate) fn parse_options(
    install: &Install,
    arguments: &[String],
    options: &[ServerOption],
    nowhere: &Path,
) -> Command {
    let mut command = install.command();
    installation(&mut command, install, None);
    command
        .arg(option("datadir", nowhere))
        .args(arguments)
        // An option that lacks its value would take the next word.
        .args(["--verbose", "--help"])
        .args(options.iter().map(|option| format!("--{option}")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

/// Returns the command that initializes an empty data directory, with its input from `scratch` if
/// it needs any.
pub(crate) fn initialize(
    install: &Install,
    data: &Path,
    options: &[ServerOption],
    scratch: &Path,
) -> std::io::Result<(Command, Option<File>)> {
    let mut command = install.command();
    paths(&mut command, install, data, None);
    let input = match install.engine {
        Engine::MariaDb => Some(mariadb::initialize(&mut command, install, scratch)?),
        Engine::MySql => {
            mysql::initialize(&mut command);
            None
        }
    };
    command.args(options.iter().map(|option| format!("--{option}")));
    Ok((command, input))
}

/// Returns whether an option affects the data directory itself and so belongs to its template.
pub(crate) fn shapes_template(option: &ServerOption) -> bool {
    let name = option.name.strip_prefix("loose_").unwrap_or(&option.name);
    name.starts_with("innodb_") && !name.starts_with("innodb_flush")
        || matches!(name, "lower_case_table_names" | "aria_log_file_size")
}

/// Returns the command that runs a server.
pub(crate) fn serve(spec: &ServerSpec<'_>) -> Command {
    let mut command = spec.install.command();
    paths(&mut command, spec.install, spec.data, spec.plugins);
    command
        // Relative to the data directory: an absolute path may exceed a socket's 107 bytes.
        .args([
            "--socket=server.sock",
            "--pid-file=server.pid",
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
        ])
        .args([
            if spec.binary_log {
                "--log-bin=binlog"
            } else {
                "--skip-log-bin"
            },
            "--relay-log=relay",
            "--report-host=127.0.0.1",
        ])
        .arg(format!("--port={}", spec.port))
        .arg(format!("--report-port={}", spec.port))
        .arg(format!("--server-id={}", spec.server_id))
        .arg(format!("--init-file={}", spec.init_file.display()));
    match spec.install.engine {
        Engine::MariaDb => mariadb::serve(&mut command, spec.binary_log),
        Engine::MySql => mysql::serve(&mut command, spec.binary_log),
    }
    if spec.replica {
        command.arg("--read-only=1");
    }
    command.args(spec.arguments);
    command.args(spec.options.iter().map(|option| format!("--{option}")));
    command
}

/// Returns the command that runs a server as a Galera cluster of one node, for its template; it
/// accepts no connections.
pub(crate) fn found_galera(
    install: &Install,
    data: &Path,
    library: &Path,
    port: u16,
    options: &[ServerOption],
) -> Command {
    let mut command = install.command();
    paths(&mut command, install, data, None);
    command
        .args([
            "--socket=server.sock",
            "--pid-file=server.pid",
            "--skip-networking",
            "--wsrep-on=ON",
            "--wsrep-new-cluster",
        ])
        .args([
            "--wsrep-cluster-address=gcomm://",
            "--innodb-autoinc-lock-mode=2",
            "--binlog-format=ROW",
        ])
        .args([
            "--wsrep-gtid-mode=ON",
            "--wsrep-gtid-domain-id=1",
            "--server-id=1",
        ])
        .arg(format!("--wsrep-provider={}", library.display()))
        .arg(format!("--wsrep-node-address=127.0.0.1:{port}"))
        .arg(format!(
            "--wsrep-provider-options=base_port={port};gmcast.listen_addr=tcp://127.0.0.1:{port}"
        ))
        .args(options.iter().map(|option| format!("--{option}")));
    command
}

/// Returns the arguments for semi-synchronous replication; both sides on every server, so that
/// roles can change.
pub(crate) fn semi_sync_arguments(install: &Install) -> Vec<String> {
    match &install.capabilities.semi_sync {
        Some(SemiSync::Plugins { source, replica }) => {
            vec![
                format!("--plugin-load-add={source}"),
                format!("--plugin-load-add={replica}"),
            ]
        }
        Some(SemiSync::BuiltIn) | None => Vec::new(),
    }
}

/// Returns the arguments for the FEDERATED engine.
pub(crate) fn federated_arguments(install: &Install) -> Vec<String> {
    let there = |name: &&str| {
        install
            .plugins
            .as_ref()
            .is_some_and(|folder| folder.join(name).is_file())
    };
    match ["ha_federatedx.so", "ha_federated.so"]
        .iter()
        .copied()
        .find(|name| there(name))
    {
        Some(plugin) => vec![format!("--plugin-load-add={plugin}")],
        // Built in and disabled.
        None => vec!["--federated".to_owned()],
    }
}

/// Returns the statements that define the stamp functions.
pub(crate) fn functions() -> [String; 2] {
    [("now_usec", "STRING"), ("now_nsec", "INTEGER")].map(|(name, returns)| {
        format!("CREATE FUNCTION {name} RETURNS {returns} SONAME '{UDF_LIBRARY}'")
    })
}

/// Returns the SQL of the init file: Replimeter's users and, if requested, the stamp functions;
/// never in a binary log.
pub(crate) fn init_sql(engine: Engine, mode: Mode, password: &str, udf: bool) -> String {
    let own = match engine {
        Engine::MariaDb => mariadb::LOCK_ROOT.to_owned(),
        Engine::MySql => mysql::lock_root(password),
    };
    // Each node of a cluster creates its own users: nothing distinguishes the nodes.
    let local = if mode == Mode::Galera {
        "SET SESSION wsrep_on=0;"
    } else {
        "SET SESSION sql_log_bin=0;"
    };
    let functions = if udf {
        functions().map(|sql| format!("{sql};\n")).concat()
    } else {
        String::new()
    };
    [
        local.to_owned(),
        "SET SESSION sql_log_bin=0;".to_owned(),
        own,
        format!("CREATE USER '{ADMIN_USER}'@'127.0.0.1' IDENTIFIED BY '{password}';"),
        format!("GRANT ALL PRIVILEGES ON *.* TO '{ADMIN_USER}'@'127.0.0.1' WITH GRANT OPTION;"),
        // Over the socket.
        format!("CREATE USER '{ADMIN_USER}'@'localhost' IDENTIFIED BY '{password}';"),
        format!("GRANT ALL PRIVILEGES ON *.* TO '{ADMIN_USER}'@'localhost' WITH GRANT OPTION;"),
        format!("CREATE USER '{REPLICATION_USER}'@'127.0.0.1' IDENTIFIED BY '{password}';"),
        format!("GRANT REPLICATION SLAVE ON *.* TO '{REPLICATION_USER}'@'127.0.0.1';"),
        functions,
    ]
    .iter()
    .map(|line| format!("{line}\n"))
    .collect()
}

/// Returns the statements that make a server a replica of the one at `port`, each followed by its
/// form for older servers.
pub(crate) fn replicate(engine: Engine, port: u16, password: &str) -> [Vec<String>; 2] {
    match engine {
        Engine::MariaDb => mariadb::replicate(port, password),
        Engine::MySql => mysql::replicate(port, password),
    }
}
