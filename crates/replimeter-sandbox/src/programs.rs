//! Programs other than servers, such as a load balancer.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use replimeter_engine::source::{Program, ProgramSpec, SourceError, SourceErrorKind};
use rustix::fs::OFlags;

use crate::{
    access::write_private,
    binaries::{Search, USUAL, own_libraries},
    home::{Home, SandboxFolder},
    process,
    user::SystemUser,
};

/// The most that is kept of what a program wrote last, in bytes.
const MAX_OUTPUT: u64 = 4096;

/// Returns the path of an installed program: on PATH, where distributions put servers, or in the private folder.
///
/// # Errors
/// When it is not installed.
pub fn find(search: &Search, name: &str) -> Result<PathBuf, SourceError> {
    let usual = USUAL.iter().map(PathBuf::from);
    let private = fs::read_dir(&search.private)
        .into_iter()
        .flatten()
        .flatten();
    let private =
        private.flat_map(|root| ["usr/sbin", "usr/bin"].map(|folder| root.path().join(folder)));
    let folders = search.path.iter().cloned().chain(usual).chain(private);
    let runs = |path: &PathBuf| {
        fs::metadata(path)
            .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
    };
    folders
        .map(|folder| folder.join(name))
        .find(runs)
        .ok_or_else(|| {
            SourceError::new(
                SourceErrorKind::Unavailable,
                format!("the program {name} is not installed"),
                format!(
                    "install it; on Debian and Ubuntu: apt-get install {}",
                    package(name)
                ),
            )
        })
}

/// Returns the package of Debian that contains a program.
fn package(program: &str) -> &str {
    match program {
        "ab" => "apache2-utils",
        other => other,
    }
}

/// Returns the folder of the libraries that were unpacked with a program of the private folder.
fn libraries(program: &Path) -> Option<PathBuf> {
    let root = program.parent()?.parent()?.parent()?;
    let is_private = root != Path::new("/") && root != Path::new("/usr");
    is_private.then(|| own_libraries(root).1).flatten()
}

/// Starts a program as the user of servers, in a new folder among those of sandboxes, which the next start removes if this process is
/// killed.
///
/// # Errors
/// When the system refuses.
pub fn start(home: &Home, spec: ProgramSpec<'_>) -> Result<Box<dyn Program>, SourceError> {
    let name = spec.path.display().to_string();
    let folder = ProgramFolder(home.create_folder(None)?);
    let started = begin(folder, home.user(), spec).map_err(|error| {
        SourceError::new(
            SourceErrorKind::Failed,
            format!("cannot start {name}: {error}"),
            "check the free space and the limits of processes and open files",
        )
    })?;
    Ok(Box::new(started))
}

fn begin(
    folder: ProgramFolder,
    user: &SystemUser,
    spec: ProgramSpec<'_>,
) -> io::Result<StartedProgram> {
    let files = folder.files();
    DirBuilder::new().mode(0o700).create(&files)?;
    for (name, text) in spec.files {
        let path = files.join(name);
        write_private(&path, text)?;
        user.own(&path)?;
    }
    // Last: its owner could put links there.
    user.own(&files)?;
    let log = tempfile::tempfile()?;
    let mut command = process::command(spec.path);
    if let Some(libraries) = libraries(spec.path) {
        command.env("LD_LIBRARY_PATH", libraries);
    }
    command
        .args(spec.arguments)
        .current_dir(&files)
        .stdin(spec.stdin.map_or_else(Stdio::null, Stdio::from))
        .stdout(log.try_clone()?)
        .stderr(log.try_clone()?);
    Ok(StartedProgram {
        child: process::spawn(command, user, None)?,
        folder: Some(folder),
        log,
    })
}

/// The folder of a program, removed when dropped.
struct ProgramFolder(SandboxFolder);

impl ProgramFolder {
    /// Returns the part that belongs to the program's user: the lock does not.
    fn files(&self) -> PathBuf {
        self.0.path.join("files")
    }
}

impl Drop for ProgramFolder {
    fn drop(&mut self) {
        // The next start removes what is left.
        let _ = fs::remove_dir_all(&self.0.path);
    }
}

struct StartedProgram {
    child: Child,
    folder: Option<ProgramFolder>,
    /// Its output; the file has no name.
    log: File,
}

impl Program for StartedProgram {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn ended(&mut self) -> Option<(bool, String)> {
        let status = self.child.try_wait().ok().flatten()?;
        let output = process::tail(&mut self.log, MAX_OUTPUT).unwrap_or_default();
        let ended = process::describe(status);
        Some((status.success(), format!("{ended}: {}", output.trim())))
    }

    fn read_file(&self, name: &str, most: u64) -> io::Result<String> {
        let folder = self.folder.as_ref().ok_or(io::ErrorKind::NotFound)?;
        // Its user could put a link there.
        let mut file = File::options()
            .read(true)
            .custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed())
            .open(folder.files().join(name))?
            .take(most);
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(text)
    }

    fn remove_files(&mut self) {
        self.folder = None;
    }
}

impl Drop for StartedProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    /// Starts a program in this private folder, with one file.
    fn started(folder: &Path, path: &str, argument: &str, text: &str) -> Box<dyn Program> {
        // The servers' user must reach it.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let spec = ProgramSpec {
            path: Path::new(path),
            arguments: &[argument],
            files: &[("script", text)],
            stdin: None,
        };
        let home = Home::at(folder.to_owned()).unwrap();
        start(&home, spec).unwrap()
    }

    fn run(script: &str) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut program = started(folder.path(), "/bin/sh", "script", script);
        loop {
            if let Some(ended) = program.ended() {
                return ended;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn output_and_end_of_a_program_are_known() {
        let (succeeded, text) = run("echo one; echo two >&2; exit 3");
        assert!(
            !succeeded && text.contains("exit status: 3") && text.ends_with("one\ntwo"),
            "{text}"
        );
        assert!(run("cat script").0);
    }

    #[test]
    fn written_file_of_a_program_is_read_and_a_link_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let script = "echo 12345 > out; ln -s out link";
        let mut program = started(folder.path(), "/bin/sh", "script", script);
        while program.ended().is_none() {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(program.read_file("out", 3).unwrap(), "123");
        assert!(program.read_file("link", 10).is_err());
        assert!(program.read_file("other", 10).is_err());
    }

    #[test]
    fn dropped_program_is_killed_and_its_folder_removed() {
        let root = tempfile::tempdir().unwrap();
        let mut program = started(root.path(), "/bin/sleep", "1000", "text");
        assert!(program.ended().is_none());
        let process = PathBuf::from(format!("/proc/{}", program.pid()));
        let files = fs::read_link(process.join("cwd")).unwrap();
        // The next start removes it there.
        assert!(files.starts_with(root.path().join("sandboxes")));
        assert!(files.join("script").exists());
        drop(program);
        assert!(!files.parent().unwrap().exists() && !process.exists());
    }

    #[test]
    fn missing_program_is_named_with_its_package() {
        let search = Search {
            servers: None,
            path: vec![PathBuf::from("/nowhere")],
            private: PathBuf::from("/nowhere"),
            udf: Vec::new(),
        };
        let error = find(&search, "ab").unwrap_err();
        // Where it is installed in a usual folder, this machine has it.
        assert!(error.hint.contains("apache2-utils"), "{error:?}");
    }
}
