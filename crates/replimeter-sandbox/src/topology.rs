//! Starting a sandbox: servers in parallel, replication, and the proof that it
//! works.

use std::{
    fs,
    io::{self, Read, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use replimeter_model::{
    manifest::SandboxRecord,
    shape::Shape,
    target::{Endpoint, PRIMARY, Secret, ServerOption, SslMode, replica_name},
};
use replimeter_server::{ErrorKind, Node, ServerError, Session, flavour};

use crate::{
    binaries::{Install, Search},
    copy,
    engine::{self, ServerSpec},
    error::SandboxError,
    home::{Home, Place},
    ports, process,
    registry::Entry,
    seed,
};

/// How long a server may take to answer, and replication to work.
const READY: Duration = Duration::from_secs(60);
/// How long our user may be unknown to a server that answers already.
const LET_IN: Duration = Duration::from_secs(10);
/// How often a server is started with another port when its own was taken.
const PORT_TRIES: u32 = 5;
/// How long an answer may take while a sandbox starts.
const ANSWER: Duration = Duration::from_secs(20);

/// What to start.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Which servers.
    pub shape: Shape,
    /// Options for all of them.
    pub options: Vec<ServerOption>,
    /// Where to look for binaries.
    pub search: Search,
    /// The private folder.
    pub home: Home,
}

/// Running servers of ours; ended and removed when dropped.
#[derive(Debug)]
pub struct Sandbox {
    entry: Arc<Entry>,
    nodes: Vec<Node>,
    pids: Vec<u32>,
    record: SandboxRecord,
    // Last: the folder's lock is let go after the folder is gone.
    _place: Place,
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // `close` reports failures; here the next start removes what stays.
        let _ = self.entry.destroy();
    }
}

/// A server that answers.
struct Started {
    node: Node,
    pid: u32,
    log: PathBuf,
    command_line: Vec<String>,
}

impl Sandbox {
    /// Starts the servers and waits until a row written on the primary was read
    /// on every replica.
    ///
    /// `stop` is looked at all the while; when it becomes true everything is
    /// taken down again.
    ///
    /// # Errors
    /// When there is no binary, a server does not start, or replication does not
    /// work; nothing is left behind then.
    pub fn start(settings: &Settings, stop: &AtomicBool) -> Result<Self, SandboxError> {
        let began = Instant::now();
        let install = Install::find(&settings.search, settings.shape.engine())?;
        if let Some(path) = settings.home.user().blocked_at(&install.program) {
            return Err(SandboxError::Unreachable { path, user: settings.home.user().name.clone() });
        }
        let place = settings.home.claim()?;
        let mut sandbox = Self {
            entry: Entry::register(place.path.clone()),
            nodes: Vec::new(),
            pids: Vec::new(),
            record: SandboxRecord {
                binaries: install.program.display().to_string(),
                file_system: file_system(&place.path),
                system_user: settings.home.user().name.clone(),
                ..SandboxRecord::default()
            },
            _place: place,
        };
        // From here on an early return drops the sandbox, and so ends and removes it.
        let password = random_password().map_err(SandboxError::disk("read", Path::new("/dev/urandom")))?;
        sandbox.write_credentials(&password)?;
        let seed = seed::ensure(&settings.home, &sandbox._place, &sandbox.entry.servers, &install, &settings.options, stop)?;
        sandbox.record.seed_from_cache = seed.from_cache;
        let starter = Starter { settings, install: &install, password: &password, seed: &seed.path, entry: &sandbox.entry, stop };
        let started = starter.start_all()?;
        starter.prove(&started)?;
        sandbox.record.start_us = began.elapsed().as_secs_f64() * 1e6;
        settle(&sandbox.entry.folder);
        for server in &started {
            sandbox.record.command_lines.insert(server.node.name.clone(), server.command_line.clone());
        }
        sandbox.pids = started.iter().map(|server| server.pid).collect();
        sandbox.nodes = started.into_iter().map(|server| server.node).collect();
        Ok(sandbox)
    }

    /// The servers; the primary first.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The servers' process ids, in the same order.
    #[must_use]
    pub fn pids(&self) -> &[u32] {
        &self.pids
    }

    /// How it came to be.
    #[must_use]
    pub fn record(&self) -> &SandboxRecord {
        &self.record
    }

    /// Whether the data lies in memory, where a flush costs nothing.
    #[must_use]
    pub fn in_memory(&self) -> bool {
        self.record.file_system == "tmpfs"
    }

    /// Ends the servers and removes everything.
    ///
    /// # Errors
    /// When the folder cannot be removed.
    pub fn close(self) -> Result<(), SandboxError> {
        self.entry.destroy()
    }

    /// The password, where the user who started the sandbox finds it.
    fn write_credentials(&self, password: &str) -> Result<(), SandboxError> {
        let path = self.entry.folder.join("credentials.cnf");
        let text = format!("[client]\nuser={}\npassword={password}\nhost=127.0.0.1\n", engine::ADMIN_USER);
        write_private(&path, &text).map_err(SandboxError::disk("write", &path))
    }
}

/// Has the kernel write what the copies of the data directories left in its
/// cache; otherwise the first flush of a measured transaction waits for all of it
/// (0.4 s was seen).
fn settle(folder: &Path) {
    if let Ok(folder) = fs::File::open(folder) {
        let _ = rustix::fs::syncfs(folder);
    }
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    fs::OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?.write_all(text.as_bytes())
}

fn random_password() -> io::Result<String> {
    let mut bytes = [0u8; 16];
    fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The name of the file system under a folder; its number when it has none here.
fn file_system(path: &Path) -> String {
    let Ok(stat) = rustix::fs::statfs(path) else { return "unknown".to_owned() };
    // Numbers from statfs(2).
    match stat.f_type as u64 {
        0xEF53 => "ext4".to_owned(),
        0x0102_1994 => "tmpfs".to_owned(),
        0x5846_5342 => "xfs".to_owned(),
        0x9123_683E => "btrfs".to_owned(),
        0x794C_7630 => "overlayfs".to_owned(),
        0x2FC1_2FC1 => "zfs".to_owned(),
        number => format!("{number:#x}"),
    }
}

/// Everything that starting one of the servers needs.
struct Starter<'a> {
    settings: &'a Settings,
    install: &'a Install,
    password: &'a str,
    seed: &'a Path,
    entry: &'a Arc<Entry>,
    stop: &'a AtomicBool,
}

impl Starter<'_> {
    fn interrupted(&self) -> Result<(), SandboxError> {
        if self.stop.load(Ordering::Relaxed) { Err(SandboxError::Interrupted) } else { Ok(()) }
    }

    /// Starts every server at once and makes the replicas replicate.
    fn start_all(&self) -> Result<Vec<Started>, SandboxError> {
        let count = self.settings.shape.replicas();
        let started: Vec<Result<Started, SandboxError>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..=count)
                .map(|index| {
                    scope.spawn(move || {
                        let name =
                            index.checked_sub(1).map_or_else(|| PRIMARY.to_owned(), |replica| replica_name(replica as usize));
                        self.start_one(&name, index + 1)
                    })
                })
                .collect();
            threads.into_iter().map(join).collect()
        });
        let started = started.into_iter().collect::<Result<Vec<_>, _>>()?;
        let port = started[0].node.endpoint.port;
        thread::scope(|scope| {
            let threads: Vec<_> = started[1..]
                .iter()
                .map(|server| {
                    scope.spawn(move || -> Result<(), SandboxError> {
                        let mut session = Session::open(&server.node)?;
                        for statement in engine::replicate(self.install.engine, port, self.password) {
                            session.run("cannot set up replication", &statement)?;
                        }
                        Ok(())
                    })
                })
                .collect();
            threads.into_iter().try_for_each(join)
        })?;
        Ok(started)
    }

    fn start_one(&self, name: &str, server_id: u32) -> Result<Started, SandboxError> {
        let folder = self.entry.folder.join(name);
        let disk = SandboxError::disk;
        fs::create_dir(&folder).map_err(disk("create the folder", &folder))?;
        let data = folder.join("data");
        let user = self.settings.home.user();
        copy::folder(self.seed, &data, user)?;
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700)).map_err(disk("set the permissions of", &data))?;
        let init_file = folder.join("init.sql");
        write_private(&init_file, &engine::users(self.install.engine, self.password)).map_err(disk("write", &init_file))?;
        for path in [&folder, &init_file] {
            user.own(path).map_err(disk("change the owner of", path))?;
        }
        let log = folder.join("server.log");
        for attempt in 1.. {
            self.interrupted()?;
            let port = ports::reserve().map_err(disk("reserve a port for", &folder))?;
            let spec = ServerSpec {
                install: self.install,
                data: &data,
                init_file: &init_file,
                port,
                server_id,
                replica: name != PRIMARY,
                options: &self.settings.options,
            };
            let mut command = engine::serve(&spec);
            let _ = fs::remove_file(&log);
            process::log_to(&mut command, &log).map_err(disk("open the log", &log))?;
            let command_line: Vec<String> = std::iter::once(command.get_program())
                .chain(command.get_args())
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            let spawn = |source| SandboxError::Spawn { program: self.install.program.display().to_string(), source };
            let number = self.entry.servers.adopt(process::spawn(command, user).map_err(spawn)?);
            let node = self.node(name, port);
            match self.wait_for_answer(&node, number, &log) {
                Ok(()) => {
                    // The password in it is needed no longer.
                    fs::remove_file(&init_file).map_err(disk("remove", &init_file))?;
                    let pid = self.entry.servers.pid(number).unwrap_or_default();
                    return Ok(Started { node, pid, log, command_line });
                }
                Err(SandboxError::Died { log: text, .. }) if attempt < PORT_TRIES && port_taken(&text) => {}
                Err(error) => {
                    self.entry.servers.kill(number);
                    return Err(error);
                }
            }
        }
        unreachable!("the loop ends by returning")
    }

    fn node(&self, name: &str, port: u16) -> Node {
        Node {
            name: name.to_owned(),
            endpoint: Endpoint {
                user: Some(engine::ADMIN_USER.to_owned()),
                host: "127.0.0.1".to_owned(),
                port,
                // Loopback between our own processes: encryption would only be measured along.
                ssl_mode: SslMode::Disabled,
                ssl_ca: None,
                ssl_cert: None,
                ssl_key: None,
            },
            user: engine::ADMIN_USER.to_owned(),
            password: Some(Secret::new(self.password)),
            answer: ANSWER,
        }
    }

    fn wait_for_answer(&self, node: &Node, number: usize, log: &Path) -> Result<(), SandboxError> {
        let began = Instant::now();
        loop {
            self.interrupted()?;
            if let Some(status) = self.entry.servers.ended(number) {
                return Err(SandboxError::Died {
                    node: node.name.clone(),
                    status: process::describe(status),
                    log: process::log_tail(log),
                });
            }
            match Session::open(node) {
                Ok(_) => return Ok(()),
                Err(error) if began.elapsed() > READY || (error.kind == ErrorKind::AccessDenied && began.elapsed() > LET_IN) => {
                    return Err(not_ready(&node.name, error.to_string(), log));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Writes a row on the primary and waits until every replica shows it.
    fn prove(&self, started: &[Started]) -> Result<(), SandboxError> {
        let mut primary = Session::open(&started[0].node)?;
        let doing = "cannot write the sentinel row";
        let token = self.password.get(..16).unwrap_or(self.password).chars().rev().collect::<String>();
        primary.run(doing, "CREATE DATABASE replimeter")?;
        primary.run(doing, "CREATE TABLE replimeter.sentinel (token VARCHAR(32) PRIMARY KEY) ENGINE=InnoDB")?;
        primary.run(doing, &format!("INSERT INTO replimeter.sentinel VALUES ('{token}')"))?;
        thread::scope(|scope| {
            let threads: Vec<_> = started[1..].iter().map(|server| scope.spawn(|| self.await_sentinel(server, &token))).collect();
            threads.into_iter().try_for_each(join)
        })?;
        primary.run("cannot remove the sentinel row", "DROP DATABASE replimeter")?;
        Ok(())
    }

    fn await_sentinel(&self, server: &Started, token: &str) -> Result<(), SandboxError> {
        let began = Instant::now();
        let mut session = Session::open(&server.node)?;
        let select = format!("SELECT token FROM replimeter.sentinel WHERE token='{token}'");
        loop {
            self.interrupted()?;
            match session.value("cannot read the sentinel row", &select) {
                Ok(Some(_)) => return Ok(()),
                // Neither schema nor table may have arrived yet.
                Ok(None) => {}
                Err(ServerError { kind: ErrorKind::Statement(_), .. }) => {}
                Err(error) => return Err(error.into()),
            }
            let state = self.replication_state(&mut session, server)?;
            if began.elapsed() > READY {
                return Err(not_ready(&server.node.name, state, &server.log));
            }
            thread::sleep(Duration::from_millis(3));
        }
    }

    /// The replica's state in words, or an error when it cannot come right.
    fn replication_state(&self, session: &mut Session, server: &Started) -> Result<String, SandboxError> {
        let channels = flavour::channels(self.install.engine, session)?;
        let broken = |state: String| SandboxError::NotReplicating { node: server.node.name.clone(), state };
        let Some(channel) = channels.first() else { return Err(broken("it is no replica".to_owned())) };
        if let Some(reason) = channel.filters.swallows("replimeter", "sentinel") {
            return Err(broken(format!("its replication filter {reason}")));
        }
        if !channel.sql_error.is_empty() || (channel.io_running == "No" && !channel.io_error.is_empty()) {
            return Err(broken(channel.state()));
        }
        Ok(channel.state())
    }
}

fn not_ready(node: &str, state: String, log: &Path) -> SandboxError {
    SandboxError::NotReady { node: node.to_owned(), seconds: READY.as_secs(), state, log: process::log_tail(log) }
}

fn port_taken(log: &str) -> bool {
    log.contains("Address already in use") || log.contains("Bind on TCP/IP port")
}

/// A thread's result; its panic becomes ours, so that the sandbox is dropped.
fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}
