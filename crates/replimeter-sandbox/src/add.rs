//! Adding a server of any origin to the private folder.
//!
//! A folder is linked: nothing is copied, so that an upgrade in place is seen and
//! no disk is filled. An archive is unpacked beside its future place, under a
//! hidden name that nobody looks at, and takes its place in one step after every
//! check. A killed attempt leaves only that hidden folder, whose lock nobody
//! holds then; the next attempt removes it.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::fs::{FlockOperation, flock};
use tempfile::NamedTempFile;

use crate::{
    archive::{self, Fault, LIMITS, Limits},
    binaries::{Install, Origin, Search, Unusable, programs_of},
    error::SandboxError,
    home::{Home, make_folder},
};

/// What the hidden names begin with; `scripts/get-servers` has hidden names of its own.
const HIDDEN: &str = ".add-";
const LOCK: &str = ".lock";
const TREE: &str = ".tmp";

/// How far adding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// An archive is being unpacked.
    Unpacking {
        /// Bytes of it that were read.
        done: u64,
        /// Its size in bytes.
        total: u64,
    },
    /// The server is being asked who it is.
    Checking,
}

/// A server that was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The server, in its place.
    pub install: Install,
    /// Its entry in the private folder.
    pub place: PathBuf,
    /// The folder that the entry links to, when it is a link.
    pub linked_to: Option<PathBuf>,
}

/// Adds the server in `source`, an unpacked folder or a packed archive, to the
/// private folder, under the name of its engine and version.
///
/// # Errors
/// When it is no server, cannot run here, may not be trusted or is there
/// already, or when the disk fails; the private folder is then as it was.
pub fn add(
    home: &Home,
    search: &Search,
    source: &Path,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Added, SandboxError> {
    add_within(home, search, source, LIMITS, stop, progress)
}

fn add_within(
    home: &Home,
    search: &Search,
    source: &Path,
    limits: Limits,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(Progress),
) -> Result<Added, SandboxError> {
    let task = Task {
        home,
        path: &search.path,
        source,
        stop,
    };
    let meta = fs::metadata(source).map_err(|error| task.unreadable(&error))?;
    if meta.is_dir() {
        progress(Progress::Checking);
        task.link()
    } else if meta.is_file() {
        task.unpack(meta.len(), limits, progress)
    } else {
        Err(task.refuse(
            "it is neither a folder nor a file".to_owned(),
            "give a folder or an archive",
        ))
    }
}

struct Task<'a> {
    home: &'a Home,
    path: &'a [PathBuf],
    source: &'a Path,
    stop: &'a AtomicBool,
}

impl Task<'_> {
    fn refuse(&self, reason: String, hint: impl Into<String>) -> SandboxError {
        SandboxError::Refused {
            path: self.source.to_owned(),
            reason,
            hint: hint.into(),
        }
    }

    fn unreadable(&self, error: &io::Error) -> SandboxError {
        self.refuse(
            format!("it cannot be read: {error}"),
            "give a folder or an archive that this user may read",
        )
    }

    fn unusable(&self, unusable: Unusable, root: &Path) -> SandboxError {
        // Below a hidden folder that will be gone: the path inside of the server says more.
        let path = unusable
            .path
            .strip_prefix(root)
            .unwrap_or(&unusable.path)
            .display();
        self.refuse(
            format!("its server {path} cannot be used: {}", unusable.cause),
            unusable.hint,
        )
    }

    fn link(&self) -> Result<Added, SandboxError> {
        let folder = self
            .source
            .canonicalize()
            .map_err(|error| self.unreadable(&error))?;
        fs::read_dir(&folder).map_err(|error| self.unreadable(&error))?;
        if let Some(path) = self.home.user().blocked_at(&folder) {
            return Err(SandboxError::Unreachable {
                path,
                user: self.home.user().name.clone(),
            });
        }
        let (root, programs) = self.locate(&folder)?;
        if let Some(path) = programs
            .iter()
            .find_map(|program| self.home.user().blocked_at(program))
        {
            return Err(SandboxError::Unreachable {
                path,
                user: self.home.user().name.clone(),
            });
        }
        let root = root
            .canonicalize()
            .map_err(|error| self.unreadable(&error))?;
        let install = self.examine(&root, &programs)?;
        let ground = Ground::prepare(self.home)?;
        let place = self.free_place(&ground, &install)?;
        self.interrupted()?;
        symlink(&root, &place).map_err(|error| self.taken(&place, error))?;
        ground.keep();
        Ok(Added {
            install,
            place,
            linked_to: Some(root),
        })
    }

    fn unpack(
        &self,
        total: u64,
        limits: Limits,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Added, SandboxError> {
        let file = File::open(self.source).map_err(|error| self.unreadable(&error))?;
        let ground = Ground::prepare(self.home)?;
        let workshop = Workshop::open(&ground.servers)?;
        let tree = &workshop.tree;
        let told = &mut |done| progress(Progress::Unpacking { done, total });
        let blame = |fault| match fault {
            Fault::Archive { reason, hint } => self.refuse(reason, hint),
            Fault::Sandbox(error) => error,
        };
        let links = archive::unpack(file, tree, limits, self.stop, told).map_err(blame)?;
        progress(Progress::Checking);
        // Until now nobody else could look inside.
        fs::set_permissions(tree, fs::Permissions::from_mode(0o755))
            .map_err(SandboxError::disk("set the permissions of", tree))?;
        let (root, mut programs) = self.locate(tree)?;
        // A folder around the server is left away: links must not have counted on it.
        if let Some((link, target)) =
            links.leading_out_of(root.strip_prefix(tree).unwrap_or(Path::new("")))
        {
            return Err(blame(archive::leads_out(&link, &target)));
        }
        programs.retain(|program| {
            program
                .parent()
                .and_then(Path::parent)
                .is_some_and(|base| base.starts_with(&root))
        });
        let install = self.examine(&root, &programs)?;
        let place = self.free_place(&ground, &install)?;
        self.interrupted()?;
        fs::rename(&root, &place).map_err(|error| self.taken(&place, error))?;
        let moved = install
            .program
            .strip_prefix(&root)
            .map(|inside| place.join(inside))
            .unwrap_or(install.program);
        let install = Install::examine(&moved, Origin::Private, self.path).map_err(|unusable| {
            let _ = fs::remove_dir_all(&place);
            self.unusable(unusable, &place)
        })?;
        ground.keep();
        Ok(Added {
            install,
            place,
            linked_to: None,
        })
    }

    /// The server's own folder, this one or one directly below it, and its programs.
    fn locate(&self, folder: &Path) -> Result<(PathBuf, Vec<PathBuf>), SandboxError> {
        let programs = programs_of(folder);
        if !programs.is_empty() {
            return Ok((folder.to_owned(), programs));
        }
        let mut names: Vec<String> = Vec::new();
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)
            .map_err(|error| self.unreadable(&error))?
            .flatten()
        {
            names.push(entry.file_name().to_string_lossy().into_owned());
            let programs = programs_of(&entry.path());
            if !programs.is_empty() {
                found.push((entry.path(), programs));
            }
        }
        names.sort();
        if found.len() > 1 {
            let mut names: Vec<String> = found
                .iter()
                .filter_map(|(root, _)| root.file_name())
                .map(|name| name.to_string_lossy().into_owned())
                .collect();
            names.sort();
            return Err(self.refuse(
                format!("it holds several servers: {}", listed(&names)),
                "add them one by one",
            ));
        }
        found.pop().ok_or_else(|| {
            self.refuse(
                format!("it is not a server: no mariadbd or mysqld inside; it holds {}", listed(&names)),
                "give the folder that has usr/sbin, sbin or bin with mariadbd or mysqld in it, or an archive of it; sources \
                 must be built first",
            )
        })
    }

    fn examine(&self, root: &Path, programs: &[PathBuf]) -> Result<Install, SandboxError> {
        let mut first = None;
        for program in programs {
            match Install::examine(program, Origin::Private, self.path) {
                Ok(install) => return Ok(install),
                Err(unusable) => {
                    first.get_or_insert(unusable);
                }
            }
        }
        Err(match first {
            Some(unusable) => self.unusable(unusable, root),
            None => self.refuse(
                "its server is not in a folder of its own, such as bin".to_owned(),
                "pack the server whole",
            ),
        })
    }

    fn free_place(&self, ground: &Ground, install: &Install) -> Result<PathBuf, SandboxError> {
        let place = ground
            .servers
            .join(format!("{}-{}", install.engine.name(), install.version));
        // A link that leads nowhere takes the place, too.
        if fs::symlink_metadata(&place).is_ok() {
            return Err(self.there_already(&place));
        }
        Ok(place)
    }

    fn there_already(&self, place: &Path) -> SandboxError {
        let removal = if place.is_symlink() { "rm" } else { "rm -r" };
        self.refuse(
            format!("{} is there already", place.display()),
            format!(
                "remove it with `{removal} {0}`; or keep both by giving that one another name, such as {0}-old",
                place.display()
            ),
        )
    }

    /// The error when the last step fails: somebody else may have been faster.
    fn taken(&self, place: &Path, error: io::Error) -> SandboxError {
        match error.kind() {
            io::ErrorKind::AlreadyExists
            | io::ErrorKind::DirectoryNotEmpty
            | io::ErrorKind::NotADirectory => self.there_already(place),
            _ => SandboxError::disk("create", place)(error),
        }
    }

    fn interrupted(&self) -> Result<(), SandboxError> {
        if self.stop.load(Ordering::Relaxed) {
            Err(SandboxError::Interrupted)
        } else {
            Ok(())
        }
    }
}

/// Names for a sentence.
fn listed(names: &[String]) -> String {
    const MOST: usize = 8;
    match names {
        [] => "nothing".to_owned(),
        names if names.len() <= MOST => names.join(", "),
        names => format!(
            "{} and {} more",
            names[..MOST].join(", "),
            names.len() - MOST
        ),
    }
}

/// The folder of servers; gone again when it was made for nothing.
struct Ground {
    servers: PathBuf,
    /// The folders that were made for it, the outer one first.
    made: Vec<PathBuf>,
}

impl Ground {
    fn prepare(home: &Home) -> Result<Self, SandboxError> {
        let servers = home.servers();
        let root = servers.parent().unwrap_or(&servers).to_owned();
        // As root, servers run as another user, who must reach them.
        let (outer, inner) = if home.user().become_ids.is_some() {
            (0o711, 0o755)
        } else {
            (0o700, 0o700)
        };
        let mut ground = Self {
            servers: servers.clone(),
            made: Vec::new(),
        };
        for (folder, mode) in [(root, outer), (servers, inner)] {
            if !folder.exists() {
                ground.made.push(folder.clone());
            }
            make_folder(&folder, mode)?;
        }
        if let Some(path) = home.user().blocked_at(&ground.servers) {
            return Err(SandboxError::Unreachable {
                path,
                user: home.user().name.clone(),
            });
        }
        Ok(ground)
    }

    fn keep(mut self) {
        self.made.clear();
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for folder in self.made.iter().rev() {
            // It fails when somebody else has put something there.
            let _ = fs::remove_dir(folder);
        }
    }
}

/// A hidden folder to unpack into, with a lock file beside it that is held as
/// long as this lives. The lock is there before the folder and goes after it, so
/// that a folder whose lock is missing or free is nobody's.
struct Workshop {
    tree: PathBuf,
    _lock: NamedTempFile,
}

impl Workshop {
    fn open(servers: &Path) -> Result<Self, SandboxError> {
        remove_abandoned(servers);
        let disk = |error| SandboxError::disk("create a file in", servers)(error);
        loop {
            let lock = tempfile::Builder::new()
                .prefix(HIDDEN)
                .suffix(LOCK)
                .tempfile_in(servers)
                .map_err(disk)?;
            // Somebody who cleans up may have taken it, in the moment before it was locked.
            if flock(lock.as_file(), FlockOperation::NonBlockingLockExclusive).is_err()
                || !lock.path().exists()
            {
                continue;
            }
            let tree = tree_of(lock.path());
            fs::create_dir(&tree).map_err(SandboxError::disk("create the folder", &tree))?;
            let workshop = Self { tree, _lock: lock };
            fs::set_permissions(&workshop.tree, fs::Permissions::from_mode(0o700))
                .map_err(SandboxError::disk("set the permissions of", &workshop.tree))?;
            return Ok(workshop);
        }
    }
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // What cannot be removed now, the next attempt removes.
        let _ = fs::remove_dir_all(&self.tree);
    }
}

fn tree_of(lock: &Path) -> PathBuf {
    lock.with_extension(TREE.trim_start_matches('.'))
}

/// Removes what killed attempts left.
fn remove_abandoned(servers: &Path) {
    for entry in fs::read_dir(servers).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with(HIDDEN) || !name.ends_with(LOCK) {
            continue;
        }
        let path = entry.path();
        let Ok(lock) = File::options().write(true).open(&path) else {
            continue;
        };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(tree_of(&path));
            let _ = fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    static NEVER: AtomicBool = AtomicBool::new(false);
    const SERVER: &str = "#!/bin/sh\necho 'mysqld  Ver 9.9.1-3 for Linux on x86_64'\n";

    struct Area {
        outer: tempfile::TempDir,
    }

    impl Area {
        fn new() -> Self {
            let outer = tempfile::tempdir().unwrap();
            fs::set_permissions(outer.path(), fs::Permissions::from_mode(0o755)).unwrap();
            Self { outer }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.outer.path().join(name)
        }

        fn home(&self) -> Home {
            Home::at(self.path("home")).unwrap()
        }

        /// An archive of files; what lies in `bin` or `sbin` is executable.
        fn archive(&self, files: &[(&str, &str)]) -> PathBuf {
            let mut builder = Builder::new(Vec::new());
            for (path, content) in files {
                let mut header = Header::new_gnu();
                header.set_mode(if path.contains("bin/") { 0o700 } else { 0o600 });
                header.set_size(content.len() as u64);
                builder
                    .append_data(&mut header, path, content.as_bytes())
                    .unwrap();
            }
            let path = self.path("server.tar");
            fs::write(&path, builder.into_inner().unwrap()).unwrap();
            path
        }

        fn folder(&self, files: &[(&str, &str)]) -> PathBuf {
            let folder = self.path("folder");
            for (path, content) in files {
                let path = folder.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, content).unwrap();
                fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
            }
            folder
        }

        fn add(&self, source: &Path) -> Result<Added, SandboxError> {
            add(
                &self.home(),
                &Search::default(),
                source,
                &NEVER,
                &mut |_| {},
            )
        }

        /// Checks that it is refused with these words and that nothing is left of it.
        fn refused(&self, source: &Path, wanted: &str) {
            let error = self.add(source).unwrap_err();
            let text = format!("{error} {}", error.hint());
            assert!(text.contains(wanted), "{text}");
            assert!(
                !self.path("home").exists(),
                "something was left behind after: {text}"
            );
        }

        fn entries(&self) -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(self.home().servers())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    #[test]
    fn an_archive_with_or_without_a_folder_around_it() {
        for around in ["", "mysql-9.9.1-linux/"] {
            let area = Area::new();
            let (program, text) = (
                format!("{around}bin/mysqld"),
                format!("{around}share/english/errmsg.sys"),
            );
            let mut heard = Vec::new();
            let archive = area.archive(&[(&program, SERVER), (&text, "x")]);
            let added = add(
                &area.home(),
                &Search::default(),
                &archive,
                &NEVER,
                &mut |progress| heard.push(progress),
            )
            .unwrap();
            assert_eq!(added.install.version, "9.9.1");
            assert_eq!(area.entries(), ["mysql-9.9.1"]);
            assert!(
                added
                    .install
                    .program
                    .ends_with("servers/mysql-9.9.1/bin/mysqld")
            );
            assert_eq!(added.linked_to, None);
            assert_eq!(heard.last(), Some(&Progress::Checking));
            let search = Search {
                private: area.home().servers(),
                ..Search::default()
            };
            let found = Install::all(&search);
            assert!(found.contains(&added.install), "{found:?}");

            let error = area.add(&archive).unwrap_err();
            assert!(error.to_string().contains("is there already"), "{error}");
            assert!(error.hint().contains("`rm -r "), "{}", error.hint());
            assert_eq!(area.entries(), ["mysql-9.9.1"]);
        }
    }

    #[test]
    fn a_folder_is_linked_and_the_link_says_where_to() {
        let area = Area::new();
        let folder = area.folder(&[
            ("top/usr/sbin/mysqld", SERVER),
            ("top/usr/share/mysql/english/errmsg.sys", "x"),
        ]);
        let added = area.add(&folder).unwrap();
        let root = folder.join("top").canonicalize().unwrap();
        assert_eq!(added.linked_to.as_ref(), Some(&root));
        assert_eq!(fs::read_link(&added.place).unwrap(), root);
        let error = area.add(&folder).unwrap_err();
        assert!(error.hint().contains("`rm /"), "{}", error.hint());
        fs::remove_dir_all(&folder).unwrap();
        let search = Search {
            private: area.home().servers(),
            ..Search::default()
        };
        assert!(
            Install::survey(&search)
                .unusable
                .iter()
                .any(|found| found.path == added.place)
        );
    }

    #[test]
    fn what_is_no_server_is_refused_and_leaves_nothing() {
        let area = Area::new();
        area.refused(&area.path("nothing"), "cannot be read");
        let empty = area.path("empty");
        fs::create_dir(&empty).unwrap();
        area.refused(
            &empty,
            "it is not a server: no mariadbd or mysqld inside; it holds nothing",
        );
        let text = area.path("letter.tar.gz");
        fs::write(&text, "Dear reader").unwrap();
        area.refused(&text, "it is no archive");
        area.refused(Path::new("/dev/null"), "neither a folder nor a file");
        area.refused(
            &area.archive(&[("src/sql/main.cc", "int main;"), ("README", "x")]),
            "it holds README, src",
        );
        area.refused(
            &area.archive(&[("mysqld", SERVER), ("share/english/x", "")]),
            "not in a folder of its own",
        );
        area.refused(
            &area.archive(&[("bin/mysqld", SERVER)]),
            "its server bin/mysqld cannot be used: its messages",
        );
        let fails = "#!/bin/sh\necho 'GLIBC_9.99 not found' >&2\nexit 1\n";
        area.refused(
            &area.archive(&[("bin/mysqld", fails), ("share/english/x", "")]),
            "GLIBC_9.99 not found",
        );
        let two = [("a/bin/mysqld", SERVER), ("b/bin/mysqld", SERVER)];
        area.refused(&area.archive(&two), "it holds several servers: a, b");
        area.refused(&area.folder(&two), "it holds several servers: a, b");
    }

    #[test]
    fn too_large_or_unwanted_leaves_nothing() {
        let area = Area::new();
        let archive = area.archive(&[("bin/mysqld", SERVER), ("share/english/x", "")]);
        let limits = Limits {
            bytes: 1000,
            entries: 10,
        };
        let error = add_within(
            &area.home(),
            &Search::default(),
            &archive,
            limits,
            &NEVER,
            &mut |_| {},
        )
        .unwrap_err();
        assert!(
            error.to_string().contains("larger than any server"),
            "{error}"
        );
        let stop = AtomicBool::new(true);
        let error = add(
            &area.home(),
            &Search::default(),
            &archive,
            &stop,
            &mut |_| {},
        )
        .unwrap_err();
        assert!(matches!(error, SandboxError::Interrupted));
        assert!(!area.path("home").exists());
    }

    #[test]
    fn a_link_into_a_folder_that_is_left_away_is_refused() {
        let area = Area::new();
        let mut builder = Builder::new(Vec::new());
        for (path, mode, content) in [
            ("top/bin/mysqld", 0o755, SERVER),
            ("top/share/english/x", 0o644, ""),
            ("beside/x", 0o644, ""),
        ] {
            let mut header = Header::new_gnu();
            header.set_mode(mode);
            header.set_size(content.len() as u64);
            builder
                .append_data(&mut header, path, content.as_bytes())
                .unwrap();
        }
        let mut header = Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        builder
            .append_link(&mut header, "top/lib", "../beside")
            .unwrap();
        let path = area.path("server.tar");
        fs::write(&path, builder.into_inner().unwrap()).unwrap();
        area.refused(&path, "the link lib leads out of the archive, to ../beside");
    }

    #[test]
    fn what_a_killed_attempt_left_goes_and_what_is_under_way_stays() {
        let area = Area::new();
        let archive = area.archive(&[("bin/mysqld", SERVER), ("share/english/x", "")]);
        let ground = Ground::prepare(&area.home()).unwrap();
        let under_way = Workshop::open(&ground.servers).unwrap();
        fs::create_dir_all(ground.servers.join(".add-dead.tmp/bin")).unwrap();
        fs::write(ground.servers.join(".add-dead.lock"), "").unwrap();
        fs::create_dir_all(ground.servers.join(".mysql-1.tmp")).unwrap();
        area.add(&archive).unwrap();
        let mut expected = vec![".mysql-1.tmp".to_owned(), "mysql-9.9.1".to_owned()];
        for path in [&under_way.tree, under_way._lock.path()] {
            expected.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
        expected.sort();
        assert_eq!(area.entries(), expected);
        drop(under_way);
        assert_eq!(area.entries(), [".mysql-1.tmp", "mysql-9.9.1"]);
    }
}
