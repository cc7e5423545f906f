//! Clients for a managed sandbox: option files, and the server's own client programs at the front
//! of PATH, with the credentials set.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::Write,
    os::unix::{
        fs::{OpenOptionsExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
};

use replimeter_engine::option_file::PASSWORD_VARIABLE;

use super::{ManagedNode, ManagedSandbox};
use crate::{
    access::{endpoint, write_private},
    binaries::Install,
    error::SandboxError,
    process,
    sandbox::Sandbox,
};

/// The folder of option files, one for each server.
const OPTIONS: &str = "clients";
/// The folder of client programs.
const PROGRAMS: &str = "bin";
/// Client programs that read option files.
const CLIENTS: [&str; 10] = [
    "mariadb",
    "mysql",
    "mariadb-admin",
    "mysqladmin",
    "mariadb-binlog",
    "mysqlbinlog",
    "mariadb-dump",
    "mysqldump",
    "mariadb-slap",
    "mysqlslap",
];

/// Quotes any text as one shell word.
#[must_use]
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Writes the option files and the client programs into a sandbox's folder.
pub(super) fn write_client_files(sandbox: &Sandbox, install: &Install) -> Result<(), SandboxError> {
    let folder = sandbox.folder();
    for name in [OPTIONS, PROGRAMS] {
        let path = folder.join(name);
        fs::create_dir(&path)
            .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o700)))
            .map_err(SandboxError::disk("create the folder", &path))?;
    }
    for member in sandbox.members() {
        let path = folder
            .join(OPTIONS)
            .join(format!("{}.cnf", member.node.name));
        let password = member
            .node
            .password
            .as_ref()
            .map_or("", |password| password.reveal());
        let text = format!(
            "[client]\nuser={}\npassword={password}\nhost=127.0.0.1\nport={}\n",
            member.node.user, member.node.endpoint.port
        );
        write_private(&path, &text).map_err(SandboxError::disk("write", &path))?;
    }
    for name in CLIENTS {
        if let Some(text) = program(install, name) {
            let path = folder.join(PROGRAMS).join(name);
            let mut file = File::options()
                .create_new(true)
                .write(true)
                .mode(0o700)
                .open(&path)
                .map_err(SandboxError::disk("write", &path))?;
            file.write_all(text.as_bytes())
                .map_err(SandboxError::disk("write", &path))?;
        }
    }
    Ok(())
}

/// Returns a script that runs one of the server's own clients with its libraries and, unless the
/// user names option files, with the sandbox's option file.
fn program(install: &Install, name: &str) -> Option<String> {
    let path = install.base.join("bin").join(name);
    if !path.is_file() {
        return None;
    }
    let command = install.client(&path);
    let words: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| quoted(&word.to_string_lossy()))
        .collect();
    let libraries = command
        .get_envs()
        .find(|(name, _)| *name == "LD_LIBRARY_PATH")
        .and_then(|(_, value)| value);
    let libraries = libraries.map_or_else(String::new, |value| {
        format!("LD_LIBRARY_PATH={} ", quoted(&value.to_string_lossy()))
    });
    let words = words.join(" ");
    Some(format!(
        "#!/bin/sh\ncase \"${{1:-}}\" in\n--defaults* | --no-defaults) exec env {libraries}{words} \"$@\" ;;\nesac\n\
         exec env {libraries}{words} --defaults-file=\"$REPLIMETER_DEFAULTS_FILE\" \"$@\"\n"
    ))
}

impl ManagedSandbox {
    /// Returns the server of this name.
    ///
    /// # Errors
    /// When it does not exist; lists the existing ones.
    pub fn node(&self, name: &str) -> Result<&ManagedNode, SandboxError> {
        self.details()
            .nodes
            .iter()
            .find(|node| node.name == name)
            .ok_or_else(|| {
                let names: Vec<&str> = self
                    .details()
                    .nodes
                    .iter()
                    .map(|node| node.name.as_str())
                    .collect();
                SandboxError::Name {
                    name: self.details().name.to_string(),
                    reason: format!("it has no server `{name}`"),
                    hint: format!("name one of {}", names.join(", ")),
                }
            })
    }

    /// Returns the environment variables with which clients reach one server.
    #[must_use]
    pub fn environment(&self, node: &ManagedNode) -> Vec<(&'static str, String)> {
        let (user, password) = self.credentials();
        let options = self
            .folder()
            .join(OPTIONS)
            .join(format!("{}.cnf", node.name));
        vec![
            ("MYSQL_HOST", "127.0.0.1".to_owned()),
            ("MYSQL_TCP_PORT", node.port.to_string()),
            ("MYSQL_UNIX_PORT", node.socket.display().to_string()),
            (PASSWORD_VARIABLE, password.reveal().to_owned()),
            ("REPLIMETER_USER", user.to_owned()),
            ("REPLIMETER_URL", endpoint(user, node.port).to_string()),
            ("REPLIMETER_DEFAULTS_FILE", options.display().to_string()),
        ]
    }

    /// Returns PATH with the sandbox's client programs at the front.
    fn path(&self, path: Option<OsString>) -> OsString {
        let own = self.folder().join(PROGRAMS);
        let rest: Vec<PathBuf> = path
            .as_ref()
            .map(|path| std::env::split_paths(path).collect())
            .unwrap_or_default();
        std::env::join_paths(std::iter::once(own).chain(rest))
            .unwrap_or_else(|_| path.unwrap_or_default())
    }

    /// Replaces this process by a command with the environment of one server; returns only on
    /// failure.
    #[must_use]
    pub fn exec(
        &self,
        node: &ManagedNode,
        command: &[OsString],
        path: Option<OsString>,
    ) -> SandboxError {
        let Some((program, arguments)) = command.split_first() else {
            return SandboxError::Managed {
                name: String::new(),
                state: "no command was given".to_owned(),
                hint: String::new(),
            };
        };
        let path = self.path(path);
        let found = resolve(program.as_ref(), &path);
        // The user's own program, with the user's own environment.
        let mut command = process::users_command(found.as_deref().unwrap_or(program.as_ref()));
        command
            .args(arguments)
            .env("PATH", path)
            .envs(self.environment(node));
        let program = program.to_string_lossy().into_owned();
        if found.is_none() {
            return SandboxError::Impossible {
                what: format!("cannot run {program}: it is not on PATH, and the sandbox's server does not include it"),
                hint: "install it (Debian has clients in mariadb-client; a vendor's archive of the server has them too)".to_owned(),
            };
        }
        SandboxError::Spawn {
            program,
            source: command.exec(),
        }
    }
}

/// Returns the path of a program; std would search this process's own PATH.
fn resolve(program: &Path, path: &OsString) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return Some(program.to_owned());
    }
    let runs = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    std::env::split_paths(path)
        .map(|folder| folder.join(program))
        .find(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_survive_the_shell() {
        assert_eq!(quoted("a'b c"), r"'a'\''b c'");
    }

    #[test]
    fn client_programs_are_found_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        for place in [&one, &two] {
            fs::create_dir(place).unwrap();
        }
        fs::write(two.join("client"), "").unwrap();
        fs::set_permissions(two.join("client"), fs::Permissions::from_mode(0o755)).unwrap();
        // Not an executable program.
        fs::write(one.join("client"), "").unwrap();
        let path = std::env::join_paths([&one, &two]).unwrap();
        assert_eq!(
            resolve(Path::new("client"), &path),
            Some(two.join("client"))
        );
        assert_eq!(resolve(Path::new("other"), &path), None);
    }
}
