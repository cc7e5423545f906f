//! Starting MariaDB.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    process::Command,
};

use super::REPLICATION_USER;
use crate::binaries::Install;

/// The SQL that makes the system tables, in the order in which it must run; the
/// files' prefix was renamed in the course of version 11.
const BOOTSTRAP: [&str; 5] = [
    "system_tables.sql",
    "performance_tables.sql",
    "system_tables_data.sql",
    "add_gis_sp_bootstrap.sql",
    "sys_schema.sql",
];

/// No user but ours may log in. An init file has one statement a line.
pub(super) const LOCK_ROOT: &str =
    "DELETE FROM mysql.global_priv WHERE User IN ('root', '');\nFLUSH PRIVILEGES;";

/// Completes the command for `--bootstrap` and writes its input: the server is
/// run directly, not by `mariadb-install-db`, whose children a killed tool would
/// leave behind.
pub(super) fn initialise(
    command: &mut Command,
    install: &Install,
    scratch: &Path,
) -> io::Result<File> {
    let input = scratch.join("bootstrap.sql");
    let mut file = File::create(&input)?;
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
    // The engine's default format is MIXED; modes are compared by row.
    command.args(["--binlog-format=ROW", "--skip-slave-start"]);
    if binary_log {
        command.arg("--log-slave-updates=1");
    }
}

pub(super) fn replicate(port: u16, password: &str) -> [Vec<String>; 2] {
    let change = format!(
        "CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={port}, MASTER_USER='{REPLICATION_USER}', \
         MASTER_PASSWORD='{password}', MASTER_USE_GTID=slave_pos, MASTER_CONNECT_RETRY=1"
    );
    [vec![change], vec!["START SLAVE".to_owned()]]
}
