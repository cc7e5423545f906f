//! Starts one server, and waits until it is ready.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{ErrorKind, Node, Session, namespace::Namespace, sync::lock};
use replimeter_model::{
    replication::Mode,
    server_option::ServerOption,
    target::{Role, Secret},
};

use super::{PROVIDER_OPTIONS, Ports, Started, Starter};
use crate::{
    access,
    binaries::Install,
    copy,
    cpus::CpuShares,
    engine::{self, ServerSpec},
    error::{SandboxError, check_interrupted},
    flush::FlushDelay,
    member::{Member, role_of},
    process::{self, READY},
    registry::Entry,
    user::SystemUser,
};

/// How long a server that already answers may refuse the user.
const LET_IN: Duration = Duration::from_secs(10);
/// Timeout of an answer while a sandbox starts.
const ANSWER: Duration = Duration::from_secs(20);

/// The context of a server's start: its sandbox, its share of the machine, its network and its log.
pub(crate) struct ServerPlacement<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) shares: &'a CpuShares,
    pub(crate) flush: Option<&'a FlushDelay>,
    /// Its number in the sandbox.
    pub(crate) index: usize,
    /// The user that runs it.
    pub(crate) user: &'a SystemUser,
    pub(crate) namespace: Option<&'a Namespace>,
    pub(crate) log: &'a Path,
}

impl ServerPlacement<'_> {
    /// Spawns a server's program; returns its index in the sandbox, and its process id.
    pub(crate) fn spawn(
        &self,
        program: &Path,
        mut command: Command,
    ) -> Result<(usize, u32), SandboxError> {
        let servers = &self.entry.servers;
        command
            .env(process::MARK, &self.entry.folder)
            .env(process::TOKEN, &self.entry.token);
        self.shares.prepare(&mut command, self.index);
        if let Some(flush) = self.flush {
            flush.prepare(&mut command);
        }
        process::log_to(&mut command, self.log)
            .map_err(SandboxError::disk("open the log", self.log))?;
        let failed = |source| SandboxError::Spawn {
            program: program.display().to_string(),
            source,
        };
        let child = process::spawn(command, self.user, self.namespace).map_err(failed)?;
        let number = servers.adopt(child);
        // Before it has done any measured work; its threads inherit the limit.
        let pid = servers.pid(number).unwrap_or_default();
        if let Err(error) = self.shares.add_process(pid, self.index) {
            servers.kill(number);
            return Err(error);
        }
        Ok((number, pid))
    }
}

impl Starter<'_> {
    /// Starts the server of this number.
    pub(super) fn start_one(
        &self,
        index: usize,
        names: &[String],
        ports: &[Ports],
        namespace: Option<&Namespace>,
    ) -> Result<Started, SandboxError> {
        let name = &names[index];
        let role = role_of(self.mode(), index);
        let is_replica = role == Role::Replica;
        let install = if is_replica {
            &self.installs.replica
        } else {
            &self.installs.primary
        };
        let folder = self.entry.folder.join(name);
        let data = folder.join("data");
        let init_file = self.lay_out(install, is_replica, &folder, &data)?;
        let arguments = self.arguments(install, &data, index, names, ports)?;
        let plugins = self.plugin_folder(install, &folder)?;
        let options = self.options(name);
        let log = folder.join("server.log");
        check_interrupted(self.stop)?;
        let spec = ServerSpec {
            install,
            data: &data,
            init_file: &init_file,
            port: ports[index].sql,
            server_id: self.identity.server_id(index),
            replica: is_replica,
            binary_log: self.settings.spec.binary_log,
            plugins: plugins.as_deref(),
            arguments: &arguments,
            options: &options,
        };
        let command = engine::serve(&spec);
        let command_line: Vec<String> = std::iter::once(command.get_program())
            .chain(command.get_args())
            .map(|word| word.to_string_lossy().into_owned())
            .collect();
        let spot = ServerPlacement {
            entry: self.entry,
            shares: &self.shares,
            flush: self.flush.as_ref(),
            index,
            user: self.settings.home.user(),
            namespace,
            log: &log,
        };
        let (number, pid) = spot.spawn(&install.program, command)?;
        let node = self.node(name, ports[index].sql, namespace);
        if let Err(error) = self.wait_for_answer(&node, number, &log) {
            self.entry.servers.kill(number);
            return Err(error);
        }
        if let Some(flush) = &self.flush {
            flush.check(name, pid)?;
        }
        // The password in it is no longer needed.
        fs::remove_file(&init_file).map_err(SandboxError::disk("remove", &init_file))?;
        let version = format!("{} {}", install.engine.product(), install.version);
        Ok(Started {
            member: Member {
                client_node: node.clone(),
                node,
                role,
                source: None,
                pid,
                folder,
                number,
                version,
            },
            command_line,
        })
    }

    /// Returns the arguments for the mode; for Galera it also writes a file into the data
    /// directory.
    fn arguments(
        &self,
        install: &Install,
        data: &Path,
        index: usize,
        names: &[String],
        ports: &[Ports],
    ) -> Result<Vec<String>, SandboxError> {
        let mut arguments = match self.mode() {
            Mode::Galera => {
                self.write_view(data, index, names.len())?;
                self.galera_arguments(install, index, names, ports)?
            }
            Mode::Group => self.group_arguments(index, ports),
            Mode::SemiSync => engine::semi_sync_arguments(install),
            Mode::None | Mode::Async | Mode::Chain => Vec::new(),
        };
        if self.settings.spec.federated {
            arguments.extend(engine::federated_arguments(install));
        }
        Ok(arguments)
    }

    /// Creates a server's folder, with its data and its init file, whose path is returned.
    fn lay_out(
        &self,
        install: &Install,
        is_replica: bool,
        folder: &Path,
        data: &Path,
    ) -> Result<PathBuf, SandboxError> {
        let (disk, user) = (SandboxError::disk, self.settings.home.user());
        fs::create_dir(folder).map_err(disk("create the folder", folder))?;
        copy::data(&self.templates[usize::from(is_replica)].path, data, user)?;
        copy::empty_folder(&engine::temporary_folder(data), user)?;
        let init_file = folder.join("init.sql");
        let udf = self.installs.udf.is_some();
        let sql = engine::init_sql(install.engine, self.mode(), self.password, udf);
        access::write_private(&init_file, &sql).map_err(disk("write", &init_file))?;
        // Replimeter keeps the folder: it writes a log there, which a link must not redirect.
        fs::set_permissions(folder, fs::Permissions::from_mode(0o711))
            .map_err(disk("set the permissions of", folder))?;
        user.own(&init_file)
            .map_err(disk("change the owner of", &init_file))?;
        Ok(init_file)
    }

    /// Returns the user's options for a server.
    fn options(&self, name: &str) -> Vec<ServerOption> {
        self.settings
            .spec
            .server_options
            .iter()
            .filter(|option| option.is_for(name))
            .filter(|option| self.mode() != Mode::Galera || option.option.name != PROVIDER_OPTIONS)
            .map(|option| option.option.clone())
            .collect()
    }

    fn node(&self, name: &str, port: u16, namespace: Option<&Namespace>) -> Node {
        let endpoint = access::endpoint(engine::ADMIN_USER, port);
        Node {
            password: Some(Secret::new(self.password)),
            namespace: namespace.cloned(),
            connections: self.settings.connections.clone(),
            ..Node::new(name, endpoint, engine::ADMIN_USER, ANSWER)
        }
    }

    fn wait_for_answer(&self, node: &Node, number: usize, log: &Path) -> Result<(), SandboxError> {
        let began = Instant::now();
        loop {
            check_interrupted(self.stop)?;
            self.check_running(&node.name, number, log)?;
            match Session::open(node) {
                Ok(_) => return Ok(()),
                Err(error)
                    if began.elapsed() > READY
                        || (error.kind == ErrorKind::AccessDenied && began.elapsed() > LET_IN) =>
                {
                    return Err(not_ready(&node.name, error.to_string(), log));
                }
                Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Returns an error with the end of its log when the server, or another one, has ended: waiting
    /// is useless then.
    pub(super) fn check_running(
        &self,
        name: &str,
        number: usize,
        log: &Path,
    ) -> Result<(), SandboxError> {
        let mut first = lock(&self.died);
        if let Some(status) = self.entry.servers.ended(number) {
            first.get_or_insert_with(|| SandboxError::Died {
                node: name.to_owned(),
                status: process::describe(status),
                log: process::log_tail(log),
            });
        }
        match &*first {
            None => Ok(()),
            Some(_) => Err(SandboxError::Interrupted),
        }
    }

    /// Polls `state` of one server until it returns `Ok(None)`; the text of `Ok(Some(words))` is
    /// shown on timeout.
    pub(super) fn await_state(
        &self,
        server: &Started,
        mut state: impl FnMut(&mut Session) -> Result<Option<String>, SandboxError>,
    ) -> Result<(), SandboxError> {
        let began = Instant::now();
        let (name, log) = (&server.member.node.name, server.member.log());
        let mut session = Session::open(&server.member.node)?;
        loop {
            check_interrupted(self.stop)?;
            self.check_running(name, server.member.number, &log)?;
            let words = match state(&mut session) {
                Ok(None) => return Ok(()),
                Ok(Some(words)) => words,
                // A node that joins a cluster may close its connections.
                Err(SandboxError::Server(error))
                    if matches!(error.kind, ErrorKind::Lost | ErrorKind::Timeout) =>
                {
                    if let Ok(again) = Session::open(&server.member.node) {
                        session = again;
                    }
                    error.to_string()
                }
                Err(error) => return Err(error),
            };
            if began.elapsed() > READY {
                return Err(not_ready(name, words, &log));
            }
            thread::sleep(Duration::from_millis(3));
        }
    }
}

pub(super) fn not_ready(node: &str, state: String, log: &Path) -> SandboxError {
    SandboxError::NotReady {
        node: node.to_owned(),
        seconds: READY.as_secs(),
        state,
        log: process::log_tail(log),
    }
}
