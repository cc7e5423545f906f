//! Starts MySQL.

use std::process::Command;

use super::REPLICATION_USER;

pub(super) fn initialize(command: &mut Command) {
    command.args(["--initialize-insecure", "--secure-file-priv=NULL"]);
}

/// Returns the statements that lock root: only Replimeter's users may log in.
pub(super) fn lock_root(password: &str) -> String {
    format!("ALTER USER 'root'@'localhost' IDENTIFIED BY '{password}';")
}

pub(super) fn serve(command: &mut Command, binary_log: bool) {
    command.args([
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--secure-file-priv=NULL",
        // Off by default, and on for MariaDB: data sets are filled faster.
        "--local-infile=ON",
        // Each under its new and its old name: a server ignores the one it does not support.
        if binary_log {
            "--loose-log-replica-updates=1"
        } else {
            "--loose-log-replica-updates=0"
        },
        if binary_log {
            "--loose-log-slave-updates=1"
        } else {
            "--loose-log-slave-updates=0"
        },
        "--loose-skip-replica-start=1",
        "--loose-skip-slave-start=1",
        "--loose-mysqlx=OFF",
    ]);
}

pub(super) fn replicate(port: u16, password: &str) -> [Vec<String>; 2] {
    // The same settings under the names since 8.0.23 and before.
    let change = |to: &str, of: &str, key: &str| {
        format!(
            "CHANGE {to} TO {of}_HOST='127.0.0.1', {of}_PORT={port}, {of}_USER='{REPLICATION_USER}', {of}_PASSWORD='{password}', \
             {of}_AUTO_POSITION=1, {key}=1, {of}_CONNECT_RETRY=1"
        )
    };
    [
        vec![
            change("REPLICATION SOURCE", "SOURCE", "GET_SOURCE_PUBLIC_KEY"),
            change("MASTER", "MASTER", "GET_MASTER_PUBLIC_KEY"),
        ],
        vec!["START REPLICA".to_owned(), "START SLAVE".to_owned()],
    ]
}
