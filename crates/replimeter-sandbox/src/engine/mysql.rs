//! Starting MySQL.

use std::process::Command;

use super::REPLICATION_USER;

pub(super) fn initialise(command: &mut Command) {
    command.args(["--initialize-insecure", "--secure-file-priv=NULL"]);
}

/// No user but ours may log in with an empty password.
pub(super) fn lock_root(password: &str) -> String {
    format!("ALTER USER 'root'@'localhost' IDENTIFIED BY '{password}';")
}

pub(super) fn serve(command: &mut Command) {
    command.args([
        "--gtid-mode=ON",
        "--enforce-gtid-consistency=ON",
        "--log-replica-updates=1",
        "--skip-replica-start",
        "--secure-file-priv=NULL",
        "--mysqlx=OFF",
    ]);
}

pub(super) fn replicate(port: u16, password: &str) -> [String; 2] {
    let change = format!(
        "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={port}, SOURCE_USER='{REPLICATION_USER}', \
         SOURCE_PASSWORD='{password}', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1"
    );
    [change, "START REPLICA".to_owned()]
}
