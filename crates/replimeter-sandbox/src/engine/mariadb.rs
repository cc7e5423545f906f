//! Starts MariaDB.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use super::REPLICATION_USER;
use crate::binaries::Install;

/// The SQL files that create the system tables, in the required order; their prefix was renamed
/// during version 11.
const BOOTSTRAP: [&str; 4] = [
    "system_tables.sql",
    "performance_tables.sql",
    "system_tables_data.sql",
    "add_gis_sp_bootstrap.sql",
];
/// The last one, which versions before 10.6 do not have.
const SYS_SCHEMA: &str = "sys_schema.sql";

/// Only Replimeter's users may log in. An init file has one statement per line.
pub(super) const LOCK_ROOT: &str =
    "DELETE FROM mysql.global_priv WHERE User IN ('root', '');\nFLUSH PRIVILEGES;";

/// Completes the command for `--bootstrap` and writes its input: the server is run directly, not
/// through `mariadb-install-db`, whose child processes a killed tool would leave behind.
pub(super) fn initialize(
    command: &mut Command,
    install: &Install,
    scratch: &Path,
) -> io::Result<File> {
    let input = scratch.join("bootstrap.sql");
    let mut file = File::create_new(&input)?;
    file.write_all(
        b"CREATE DATABASE IF NOT EXISTS mysql;\nUSE mysql;\nSET @auth_root_socket=NULL;\nSET @skip_auth_anonymous=1;\n",
    )?;
    for name in BOOTSTRAP {
        let path = bootstrap_file(&install.share, name).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("{name} is missing in {}", install.share.display()),
            )
        })?;
        file.write_all(&fs::read(path)?)?;
        file.write_all(b"\n")?;
    }
    if let Some(path) = bootstrap_file(&install.share, SYS_SCHEMA) {
        file.write_all(&fs::read(path)?)?;
        file.write_all(b"\n")?;
    }
    command.args([
        "--bootstrap",
        "--log-warnings=0",
        "--enforce-storage-engine=",
        "--max-allowed-packet=8M",
        "--net-buffer-length=16K",
    ]);
    File::open(input)
}

fn bootstrap_file(share: &Path, name: &str) -> Option<PathBuf> {
    ["mariadb_", "mysql_", "maria_"]
        .into_iter()
        .map(|prefix| share.join(format!("{prefix}{name}")))
        .find(|path| path.exists())
}

pub(super) fn serve(command: &mut Command, binary_log: bool) {
    // MariaDB's default is MIXED; modes are compared by row.
    command.args(["--binlog-format=ROW", "--skip-slave-start"]);
    if binary_log {
        command.arg("--log-slave-updates=1");
    }
}

// MariaDB 11.4 demands TLS of its source unless told otherwise; channels of all versions are in plain text.
pub(super) fn replicate(port: u16, password: &str) -> [Vec<String>; 2] {
    let change = format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{REPLICATION_USER}', \
         MASTER_PASSWORD='{password}', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1, MASTER_SSL=0"
    );
    [vec![change], vec!["START SLAVE".to_owned()]]
}
