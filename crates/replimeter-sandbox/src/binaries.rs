//! Finding server binaries and what belongs to them.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    ffi::OsString,
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use replimeter_model::engine::Engine;

use crate::{
    abilities::{Abilities, Ability, Files, version_numbers},
    error::SandboxError,
    process,
    user::SystemUser,
};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Search {
    /// The one folder the user named; nothing else is looked at then.
    pub servers: Option<PathBuf>,
    /// The folders of `PATH`.
    pub path: Vec<PathBuf>,
    /// The folder that `make servers` unpacks into.
    pub private: PathBuf,
    /// Where the library of our functions may be; the first that is there counts.
    pub udf: Vec<PathBuf>,
}

/// Folders in which distributions and vendors put servers that are not on PATH.
const USUAL: [&str; 8] = [
    "/usr/sbin",
    "/usr/local/sbin",
    "/usr/libexec",
    "/usr/local/libexec",
    "/usr/local/mysql/bin",
    "/usr/local/mariadb/bin",
    "/opt/mysql/bin",
    "/opt/mariadb/bin",
];

/// Folders of a server's root in which its binary may lie.
const INSIDE: [&str; 7] = [
    "usr/sbin",
    "usr/libexec",
    "usr/bin",
    "sbin",
    "bin",
    "libexec",
    "",
];

/// The names of a server's binary.
const NAMES: [&str; 2] = ["mariadbd", "mysqld"];

/// Where a server's scripts find the system's own tools, whatever PATH says.
const STANDARD: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// How long a server may take to say its version.
const PATIENCE: Duration = Duration::from_secs(20);

/// In which way a server was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the folder that the user named.
    Named,
    /// On PATH or in a usual folder.
    System,
    /// In the private folder.
    Private,
}

impl Origin {
    /// The word for it in lists.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Named => "named",
            Self::System => "system",
            Self::Private => "private",
        }
    }
}

/// A server's binary and the folders that belong to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Which engine it is, by its own word.
    pub engine: Engine,
    /// The version number it states.
    pub version: String,
    /// The binary, links resolved.
    pub program: PathBuf,
    /// `--basedir`.
    pub base: PathBuf,
    /// Messages, character sets and bootstrap SQL.
    pub share: PathBuf,
    /// `--plugin-dir`, when found.
    pub plugins: Option<PathBuf>,
    /// In which way it was found.
    pub origin: Origin,
    /// What it can do.
    pub abilities: Abilities,
    /// What it needs to run.
    surroundings: Surroundings,
}

/// What a server's binary needs around it to run.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Surroundings {
    /// The dynamic loader that came with an unpacked server, when it needs a
    /// newer C library than the system's.
    loader: Option<PathBuf>,
    /// Libraries that came with an unpacked server.
    libraries: Option<PathBuf>,
    /// Where its scripts look for programs: its own folders, then the user's PATH.
    tools: Vec<PathBuf>,
}

/// Something that looks like a server and cannot be used as one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unusable {
    /// The program, or the entry of the private folder.
    pub path: PathBuf,
    /// Why not.
    pub cause: String,
    /// What to try.
    pub hint: String,
}

/// Everything that was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Servers, the best first: MariaDB before MySQL, then the newest first.
    pub installs: Vec<Install>,
    /// What had to be passed over.
    pub unusable: Vec<Unusable>,
}

impl Surroundings {
    fn command(&self, program: &Path) -> Command {
        let mut command = match (&self.loader, &self.libraries) {
            (Some(loader), Some(libraries)) => {
                let mut command = Command::new(loader);
                command.arg("--library-path").arg(libraries).arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.envs(self.environment());
        command
    }

    /// PATH for the scripts that a server starts (`wsrep_sst_rsync`, which starts
    /// `rsync` and `lsof`), and the folder of the libraries that came with an
    /// unpacked server and its tools.
    fn environment(&self) -> Vec<(String, OsString)> {
        let mut environment = Vec::new();
        // A folder with a colon in its name cannot be in PATH at all.
        if let Ok(path) = std::env::join_paths(&self.tools) {
            environment.push(("PATH".to_owned(), path));
        }
        if let (None, Some(libraries)) = (&self.loader, &self.libraries) {
            environment.push((
                "LD_LIBRARY_PATH".to_owned(),
                libraries.clone().into_os_string(),
            ));
        }
        environment
    }
}

impl Install {
    /// A command that runs the binary, by its own loader when it has one, in an
    /// environment in which it finds its libraries and scripts.
    #[must_use]
    pub fn command(&self) -> Command {
        self.surroundings.command(&self.program)
    }

    /// A command that runs another program of the same installation.
    pub(crate) fn client(&self, program: &Path) -> Command {
        self.surroundings.command(program)
    }

    /// The variables that [`Install::command`] sets, for the server's other
    /// programs.
    #[must_use]
    pub fn environment(&self) -> Vec<(String, OsString)> {
        self.surroundings.environment()
    }

    /// Every server found, the best first: MariaDB before MySQL, then the newest
    /// first. What cannot be used is passed over; [`Install::survey`] names it.
    #[must_use]
    pub fn all(search: &Search) -> Vec<Self> {
        Self::survey(search).installs
    }

    /// Every server found, and everything that looks like one and cannot be used.
    #[must_use]
    pub fn survey(search: &Search) -> Survey {
        let mut survey = Survey::default();
        let mut seen = BTreeSet::new();
        for (folder, origin) in folders(search, &mut survey.unusable) {
            for program in programs(&folder) {
                if seen.insert(program.clone()) {
                    match Self::examine(&program, origin, &search.path) {
                        Ok(install) => survey.installs.push(install),
                        Err(unusable) => survey.unusable.push(unusable),
                    }
                }
            }
        }
        // Stable: of two equal ones the system's comes first.
        survey.installs.sort_by_key(|install| {
            (
                install.engine != Engine::MariaDb,
                Reverse(version_numbers(&install.version)),
            )
        });
        survey
    }

    /// The best server of the engine (of any when `None`).
    ///
    /// # Errors
    /// When there is none: where it was looked for, and what could not be used.
    pub fn find(search: &Search, engine: Option<Engine>) -> Result<Self, SandboxError> {
        // Every server can do this.
        Self::pick(search, engine, None, Ability::Async)
    }

    /// The first server found that is of the engine, has a version that begins so, and
    /// has the ability.
    ///
    /// # Errors
    /// When there is none: where it was looked for, what was found, or what to install.
    pub(crate) fn pick(
        search: &Search,
        engine: Option<Engine>,
        version: Option<&str>,
        ability: Ability,
    ) -> Result<Self, SandboxError> {
        let survey = Self::survey(search);
        let of_engine = || {
            survey
                .installs
                .iter()
                .filter(|install| engine.is_none_or(|engine| install.engine == engine))
        };
        let mut fitting = of_engine()
            .filter(|install| version.is_none_or(|version| is_version(&install.version, version)));
        let Some(first) = fitting.clone().next() else {
            return Err(match version {
                None => survey.none(search, engine),
                Some(version) => {
                    let known: Vec<String> = survey
                        .installs
                        .iter()
                        .map(|install| format!("{} {}", install.engine.product(), install.version))
                        .collect();
                    SandboxError::Impossible {
                        what: format!(
                            "no server for the replicas: `{version}` is neither a folder nor a version of {} that was found",
                            engine.map_or("a server", Engine::product)
                        ),
                        hint: format!(
                            "found: {}; `replimeter servers` lists them, `replimeter servers add` adds one",
                            known.join(", ")
                        ),
                    }
                }
            });
        };
        if let Some(able) = fitting.find(|install| install.abilities.has(ability)) {
            return Ok(able.clone());
        }
        let lacking = first.abilities.require(ability).err();
        let hint = lacking.map_or_else(String::new, |missing| missing.hint);
        Err(SandboxError::Impossible {
            what: format!(
                "{} {} ({}) has no {}",
                first.engine.product(),
                first.version,
                first.program.display(),
                ability.name()
            ),
            hint,
        })
    }

    /// Looks at one program and asks it who it is.
    pub(crate) fn examine(
        program: &Path,
        origin: Origin,
        path: &[PathBuf],
    ) -> Result<Self, Unusable> {
        let refuse = |cause: String, hint: &str| Unusable {
            path: program.to_owned(),
            cause,
            hint: hint.to_owned(),
        };
        let user = SystemUser::choose();
        if let Some(folder) = user.blocked_at(program) {
            let cause = format!(
                "the folder {} cannot be entered by the system user `{}`, as whom servers run",
                folder.display(),
                user.name
            );
            return Err(refuse(
                cause,
                "let every user enter the folder (chmod o+x), or put the server somewhere else",
            ));
        }
        check_kind(program).map_err(|cause| {
            refuse(
                cause,
                "install a server that is built for this machine, or run `make servers`",
            )
        })?;
        let base = program
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("/"))
            .to_owned();
        let share = ["share/mysql", "share/mariadb", "share"]
            .into_iter()
            .map(|share| base.join(share))
            .find(|share| share.join("english").is_dir() || share.join("charsets").is_dir())
            .ok_or_else(|| {
                let cause = format!(
                    "its messages and character sets are not in {}",
                    base.join("share").display()
                );
                refuse(
                    cause,
                    "install or unpack the server whole, with its folder share/",
                )
            })?;
        let root = if base.ends_with("usr") {
            base.parent().unwrap_or(&base)
        } else {
            &base
        }
        .to_owned();
        let (loader, libraries) = if root == Path::new("/") {
            (None, None)
        } else {
            own_libraries(&root)
        };
        let tools = tools(&root, &base, loader.is_some(), path);
        let surroundings = Surroundings {
            loader,
            libraries,
            tools,
        };
        let question = || {
            let mut command = surroundings.command(program);
            command
                .args(["--no-defaults", "--version"])
                .stdin(Stdio::null())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
            command
        };
        let text = ask(question, &user).map_err(|cause| {
            let hint = if cause.contains("shared librar") || cause.contains("GLIBC") {
                "install the library that it names with the system's package manager, or run `make servers`, which fetches a \
                 server with the libraries it needs"
            } else {
                "run it by hand with --no-defaults --version; `make servers` fetches a server that runs here"
            };
            refuse(cause, hint)
        })?;
        let (engine, version) = stated(&text).ok_or_else(|| {
            let cause = format!(
                "it does not answer --version as MariaDB or MySQL do, but: {}",
                short(&text)
            );
            refuse(
                cause,
                "is it a wrapper? name the folder of the server itself with --servers DIR",
            )
        })?;
        let plugins = plugins(&base);
        let abilities = Abilities::of(&Files {
            engine,
            version: &version,
            base: &base,
            root: &root,
            plugins: plugins.as_deref(),
            tools: &surroundings.tools,
        });
        Ok(Self {
            engine,
            version,
            program: program.to_owned(),
            base,
            share,
            plugins,
            origin,
            abilities,
            surroundings,
        })
    }
}

/// Whether a version is the one named, or one of that series: 10.11 is not 10.1.
fn is_version(version: &str, wanted: &str) -> bool {
    version
        .strip_prefix(wanted)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

impl Survey {
    /// The error for a search that did not find what was wanted (anything when `None`).
    #[must_use]
    pub fn none(&self, search: &Search, engine: Option<Engine>) -> SandboxError {
        SandboxError::NoBinary {
            wanted: engine
                .map_or("MariaDB or MySQL", Engine::product)
                .to_owned(),
            searched: match &search.servers {
                Some(servers) => vec![servers.display().to_string()],
                None => vec![
                    "PATH".to_owned(),
                    USUAL.join(", "),
                    search.private.display().to_string(),
                ],
            },
            unusable: self
                .unusable
                .iter()
                .map(|found| format!("{}: {}", found.path.display(), found.cause))
                .collect(),
        }
    }
}

/// The servers' programs in a folder, links resolved, each once.
fn programs(folder: &Path) -> Vec<PathBuf> {
    let mut programs: Vec<PathBuf> = NAMES
        .iter()
        .filter_map(|name| folder.join(name).canonicalize().ok())
        .filter(|program| program.is_file())
        .collect();
    programs.dedup();
    programs
}

/// The programs of the server whose root this folder is.
pub(crate) fn programs_of(root: &Path) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let all = INSIDE
        .iter()
        .flat_map(|folder| programs(&root.join(folder)));
    all.filter(|program| seen.insert(program.clone())).collect()
}

/// Every folder a binary may be in, in order of preference.
fn folders(search: &Search, unusable: &mut Vec<Unusable>) -> Vec<(PathBuf, Origin)> {
    let inside = |root: &Path, origin: Origin| INSIDE.map(|folder| (root.join(folder), origin));
    if let Some(servers) = &search.servers {
        let below = roots_in(servers, unusable);
        let roots = std::iter::once(servers).chain(&below);
        return roots.flat_map(|root| inside(root, Origin::Named)).collect();
    }
    let private = roots_in(&search.private, unusable);
    let system = search
        .path
        .iter()
        .cloned()
        .chain(USUAL.map(PathBuf::from))
        .map(|folder| (folder, Origin::System));
    system
        .chain(
            private
                .iter()
                .flat_map(|root| inside(root, Origin::Private)),
        )
        .collect()
}

/// The folders in a folder of servers. Those with a leading dot are still being
/// unpacked.
fn roots_in(folder: &Path, unusable: &mut Vec<Unusable>) -> Vec<PathBuf> {
    let mut roots = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if entry.file_name().to_string_lossy().starts_with('.') {
            continue;
        }
        match fs::metadata(&path) {
            Ok(meta) if meta.is_dir() => roots.push(path),
            Err(error) if path.is_symlink() => {
                let target = fs::read_link(&path).unwrap_or_default();
                unusable.push(Unusable {
                    cause: format!(
                        "it links to {}, which cannot be used: {error}",
                        target.display()
                    ),
                    hint: format!(
                        "put the folder back, or forget it with `rm {}`",
                        path.display()
                    ),
                    path,
                });
            }
            _ => {}
        }
    }
    roots.sort();
    roots
}

fn plugins(base: &Path) -> Option<PathBuf> {
    [
        "lib/mysql/plugin",
        "lib/plugin",
        "lib64/mysql/plugin",
        "lib64/mariadb/plugin",
        "lib/mariadb/plugin",
    ]
    .into_iter()
    .map(|folder| base.join(folder))
    .find(|folder| folder.is_dir())
}

/// Where a server's scripts look for programs.
fn tools(root: &Path, base: &Path, foreign: bool, path: &[PathBuf]) -> Vec<PathBuf> {
    let own = [
        base.join("bin"),
        base.join("sbin"),
        root.join("usr/bin"),
        root.join("usr/sbin"),
        root.join("bin"),
    ];
    // Programs made for a C library that the system lacks run by their own loader
    // only, and would hide the system's.
    let own = own.into_iter().filter(|folder| !foreign && folder.is_dir());
    let mut tools: Vec<PathBuf> = Vec::new();
    for folder in own
        .chain(path.iter().cloned())
        .chain(STANDARD.map(PathBuf::from))
    {
        if !tools.contains(&folder) {
            tools.push(folder);
        }
    }
    tools
}

/// Whether the system could execute the file at all. Asked beforehand because
/// the C library hands a file it does not know to the shell.
fn check_kind(program: &Path) -> Result<(), String> {
    let mut head = [0u8; 20];
    let mut file = fs::File::open(program).map_err(|error| error.to_string())?;
    let script = |head: &[u8]| head.starts_with(b"#!");
    match file.read_exact(&mut head) {
        Err(_) if !script(&head) => {
            return Err("it is no program, but a file of a few bytes".to_owned());
        }
        _ if script(&head) => return Ok(()),
        _ if !head.starts_with(b"\x7fELF") => {
            return Err("it is no program for this system".to_owned());
        }
        _ => {}
    }
    let machine = if head[5] == 2 {
        u16::from_be_bytes([head[18], head[19]])
    } else {
        u16::from_le_bytes([head[18], head[19]])
    };
    // The numbers of the ELF specification.
    let known = [
        (3, "x86"),
        (62, "x86_64"),
        (40, "arm"),
        (183, "aarch64"),
        (21, "powerpc64"),
        (22, "s390x"),
        (243, "riscv64"),
    ];
    let ours = std::env::consts::ARCH;
    match known.iter().find(|(number, _)| *number == machine) {
        Some((_, built_for)) if *built_for != ours => Err(format!(
            "it is built for {built_for}, and this machine is {ours}"
        )),
        _ => Ok(()),
    }
}

/// Runs a short command and returns its standard output, or why there is none.
fn ask(command: impl Fn() -> Command, user: &SystemUser) -> Result<String, String> {
    let mut attempts = 0;
    let mut child = loop {
        match process::spawn(command(), user, None) {
            Ok(child) => break child,
            // A process that another thread is just forking has our files open for a
            // moment; one that was unpacked just now may be among them.
            Err(error)
                if error.kind() == std::io::ErrorKind::ExecutableFileBusy && attempts < 50 =>
            {
                attempts += 1;
                thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(format!("it cannot be started: {error}")),
        }
    };
    let (out, err) = (listen(child.stdout.take()), listen(child.stderr.take()));
    let status = match wait(&mut child) {
        Some(status) => status,
        None => {
            let _ = child.kill();
            let _ = child.wait();
            return Err(format!(
                "it did not answer --version within {} s",
                PATIENCE.as_secs()
            ));
        }
    };
    // A child of its own may hold the pipes open.
    let heard = |channel: mpsc::Receiver<String>| {
        channel
            .recv_timeout(Duration::from_secs(1))
            .unwrap_or_default()
    };
    let (out, err) = (heard(out), heard(err));
    if status.success() {
        return Ok(out);
    }
    let complaint = err.lines().rev().find(|line| !line.trim().is_empty());
    Err(match complaint {
        Some(line) => format!(
            "it does not run ({}): {}",
            process::describe(status),
            short(line)
        ),
        None => format!("it does not run ({})", process::describe(status)),
    })
}

/// Reads the beginning of an output in the background.
fn listen(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(pipe) = pipe {
            let _ = pipe.take(64 * 1024).read_to_end(&mut bytes);
        }
        let _ = sender.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    receiver
}

fn wait(child: &mut Child) -> Option<std::process::ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// A line of an error message.
fn short(text: &str) -> String {
    text.trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(300)
        .collect()
}

/// The loader and library folder of an unpacked server's own root.
fn own_libraries(root: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
    let triplets = ["x86_64-linux-gnu", "aarch64-linux-gnu"];
    let folder = triplets
        .into_iter()
        .flat_map(|triplet| {
            [
                root.join("usr/lib").join(triplet),
                root.join("lib").join(triplet),
            ]
        })
        .chain([root.join("usr/lib64")])
        .find(|folder| folder.is_dir());
    let loader = folder.as_ref().and_then(|folder| {
        ["ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"]
            .into_iter()
            .map(|name| folder.join(name))
            .find(|loader| loader.exists())
    });
    (loader, folder)
}

/// Engine and number from the answer to `--version`.
fn stated(text: &str) -> Option<(Engine, String)> {
    let (_, rest) = text.split_once(" Ver ")?;
    let number: String = rest
        .trim_start()
        .chars()
        .take_while(|byte| byte.is_ascii_digit() || *byte == '.')
        .collect();
    let engine = if rest.contains("MariaDB") {
        Engine::MariaDb
    } else {
        Engine::MySql
    };
    (!number.is_empty()).then_some((engine, number))
}

/// Splits a `PATH` variable.
#[must_use]
pub fn split_path(path: Option<OsString>) -> Vec<PathBuf> {
    path.map(|path| {
        std::env::split_paths(&path)
            .filter(|folder| folder.is_absolute())
            .collect()
    })
    .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn engine_and_version_by_their_own_word() {
        let maria = "/usr/sbin/mariadbd  Ver 10.11.6-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64 (Debian 12)";
        assert_eq!(stated(maria), Some((Engine::MariaDb, "10.11.6".to_owned())));
        let mysql = "/usr/sbin/mysqld  Ver 8.0.36-0ubuntu0.22.04.1 for Linux on x86_64 ((Ubuntu))";
        assert_eq!(stated(mysql), Some((Engine::MySql, "8.0.36".to_owned())));
        assert_eq!(stated("hello"), None);
    }

    /// A server of shell that answers `--version`, in a folder every user may enter.
    fn fake(root: &Path, program: &str, text: &str) {
        let path = root.join(program);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::create_dir_all(
            path.parent()
                .unwrap()
                .parent()
                .unwrap()
                .join("share/english"),
        )
        .unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn open_folder() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        folder
    }

    fn answer(version: &str) -> String {
        format!("#!/bin/sh\necho \"server  Ver {version} for Linux on x86_64\"\n")
    }

    #[test]
    fn the_best_server_comes_first_and_each_once() {
        let folder = open_folder();
        fake(folder.path(), "a/bin/mysqld", &answer("9.7.4"));
        fake(
            folder.path(),
            "b/usr/sbin/mariadbd",
            &answer("10.6.20-MariaDB"),
        );
        fake(folder.path(), "c/bin/mariadbd", &answer("10.11.6-MariaDB"));
        symlink("mariadbd", folder.path().join("c/bin/mysqld")).unwrap();
        symlink("c", folder.path().join("linked")).unwrap();
        fake(
            folder.path(),
            ".hidden/bin/mariadbd",
            &answer("12.0.1-MariaDB"),
        );
        let search = Search {
            servers: Some(folder.path().to_owned()),
            ..Search::default()
        };
        let survey = Install::survey(&search);
        let versions: Vec<&str> = survey
            .installs
            .iter()
            .map(|install| install.version.as_str())
            .collect();
        assert_eq!(versions, ["10.11.6", "10.6.20", "9.7.4"], "{survey:?}");
        assert_eq!(survey.unusable, []);
        assert_eq!(Install::find(&search, None).unwrap().version, "10.11.6");
        assert_eq!(
            Install::find(&search, Some(Engine::MySql)).unwrap().version,
            "9.7.4"
        );
        assert!(
            Install::all(&search)
                .iter()
                .all(|install| install.origin == Origin::Named)
        );
        let search = Search {
            private: folder.path().to_owned(),
            ..Search::default()
        };
        assert!(
            Install::all(&search)
                .iter()
                .any(|install| install.origin == Origin::Private)
        );
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_cause() {
        let folder = open_folder();
        let mut foreign = b"\x7fELF\x02\x01\x01".to_vec();
        foreign.resize(64, 0);
        // A machine that none of ours is.
        foreign[18] = 21;
        for (root, content) in [
            ("foreign", foreign),
            ("letter", b"Dear reader, this is no program at all".to_vec()),
            ("library", b"#!/bin/sh\necho 'error while loading shared libraries: libaio.so.1' >&2\nexit 127\n".to_vec()),
            ("wrapper", b"#!/bin/sh\necho hello\n".to_vec()),
        ] {
            fake(folder.path(), &format!("{root}/bin/mysqld"), "");
            fs::write(folder.path().join(root).join("bin/mysqld"), content).unwrap();
        }
        fake(folder.path(), "bare/bin/mysqld", &answer("9.7.4"));
        fs::remove_dir_all(folder.path().join("bare/share")).unwrap();
        symlink("/no/such/folder", folder.path().join("gone")).unwrap();
        let survey = Install::survey(&Search {
            servers: Some(folder.path().to_owned()),
            ..Search::default()
        });
        assert_eq!(survey.installs, []);
        for (root, cause, hint) in [
            (
                "foreign",
                "it is built for powerpc64, and this machine is",
                "make servers",
            ),
            ("letter", "no program", "make servers"),
            ("library", "libaio.so.1", "install the library"),
            ("wrapper", "but: hello", "--servers DIR"),
            (
                "bare",
                "its messages and character sets are not in",
                "whole",
            ),
            ("gone", "links to /no/such/folder", "rm "),
        ] {
            let found = survey.unusable.iter().find(|found| {
                found
                    .path
                    .starts_with(folder.path().canonicalize().unwrap().join(root))
            });
            let found = found.unwrap_or_else(|| panic!("{root} is missing in {survey:?}"));
            assert!(
                found.cause.contains(cause) && found.hint.contains(hint),
                "{found:?}"
            );
        }
        let error = survey.none(&Search::default(), None).to_string();
        assert!(
            error.contains("cannot be used") && error.contains("libaio.so.1"),
            "{error}"
        );
    }

    #[test]
    fn scripts_find_the_servers_own_tools_first() {
        let folder = open_folder();
        fake(
            folder.path(),
            "usr/sbin/mariadbd",
            &answer("10.11.6-MariaDB"),
        );
        fake(folder.path(), "usr/bin/wsrep_sst_rsync", "");
        fs::create_dir_all(folder.path().join("usr/lib/x86_64-linux-gnu")).unwrap();
        let path = vec![PathBuf::from("/usr/local/bin")];
        let search = Search {
            servers: Some(folder.path().to_owned()),
            path,
            ..Search::default()
        };
        let install = Install::find(&search, None).unwrap();
        let environment: std::collections::BTreeMap<_, _> =
            install.environment().into_iter().collect();
        let root = folder.path().canonicalize().unwrap();
        let path = environment["PATH"].to_str().unwrap();
        assert!(
            path.starts_with(&format!("{}:", root.join("usr/bin").display())),
            "{path}"
        );
        assert!(path.contains(":/usr/local/bin:/usr/bin:/bin"), "{path}");
        assert_eq!(
            environment["LD_LIBRARY_PATH"],
            root.join("usr/lib/x86_64-linux-gnu")
        );
    }

    #[test]
    fn a_folder_without_servers_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let search = Search {
            servers: Some(folder.path().to_owned()),
            ..Search::default()
        };
        let error = Install::find(&search, None).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&folder.path().display().to_string()),
            "{error}"
        );
        assert!(error.hint().contains("make servers"));
    }
}
