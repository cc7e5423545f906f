//! Folders that commands run in.

use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{FOLDER, REPOSITORY, page::escaped, repository};
use crate::{CommandOutput, LIMIT, binary, wait};

/// Length of the path of a folder for commands, in bytes.
const LENGTH_OF_PATHS: usize = 64;

/// Folders for commands: one to run in, and an empty home. Their paths have the same length on every machine, since it
/// determines where lines with a path are wrapped.
#[derive(Debug)]
pub struct CommandFolders {
    /// Removes them when dropped.
    _kept: tempfile::TempDir,
    folder: PathBuf,
    home: PathBuf,
}

impl Default for CommandFolders {
    fn default() -> Self {
        let kept = tempfile::Builder::new().prefix("net-").tempdir().unwrap();
        let of_length = |name: &str| {
            let missing = LENGTH_OF_PATHS
                .checked_sub(kept.path().as_os_str().len() + 1)
                .filter(|missing| *missing >= name.len());
            let missing = missing.unwrap_or_else(|| {
                panic!(
                    "{} is too long a path: name a shorter one by TMPDIR",
                    kept.path().display()
                )
            });
            let folder = kept
                .path()
                .join(format!("{name}{}", "-".repeat(missing - name.len())));
            fs::create_dir(&folder).unwrap();
            folder
        };
        let (folder, home) = (of_length("folder"), of_length("home"));
        Self {
            _kept: kept,
            folder,
            home,
        }
    }
}

impl CommandFolders {
    /// Returns the folder that commands run in.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Runs the tool, with these variables of the environment only.
    #[must_use]
    pub fn run<S: AsRef<std::ffi::OsStr>>(
        &self,
        args: &[S],
        variables: &BTreeMap<String, String>,
        stdin: &str,
    ) -> CommandOutput {
        let mut command = Command::new(binary());
        command
            .args(args)
            .current_dir(self.folder())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("REPLIMETER_HOME", self.home.join("private"));
        command
            .env("COLUMNS", "100")
            .env("USER", "tester")
            .env("PATH", &self.home)
            .envs(variables);
        let mut child = command.spawn().unwrap();
        // A command that does not read its input may have ended already.
        let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
        wait(child, LIMIT)
    }

    /// Returns the text with placeholders for folders of this machine.
    #[must_use]
    pub fn anywhere(&self, text: &str) -> String {
        let folders = [
            (self.folder(), FOLDER),
            (&self.home, "/HOME"),
            (&repository(), REPOSITORY),
        ];
        folders
            .iter()
            .fold(text.to_owned(), |text, (folder, name)| {
                let folder = folder.to_str().unwrap();
                text.replace(folder, name)
                    .replace(&escaped(folder), &escaped(name))
            })
    }

    /// Returns the files and folders in the folder, sorted.
    #[must_use]
    pub fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let mut folders = vec![self.folder().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                names.push(
                    path.strip_prefix(self.folder())
                        .unwrap()
                        .display()
                        .to_string(),
                );
                if path.is_dir() {
                    folders.push(path);
                }
            }
        }
        names.sort();
        names
    }
}
