//! Shared code of the suites: running the tool as a user would, on real
//! servers.

mod balancer;
pub mod binlog;
mod browser;
mod connections;
mod folders;
pub mod harness;
pub mod http;
mod memory;
pub mod net;
mod programs;
mod set_clock;
mod shared;
pub mod synthetic;
#[cfg(test)]
mod tidy;
mod usage;

pub use balancer::Balancer;
pub use browser::{OpenPage, browser, headless};
pub use connections::{await_no_connections, most_connections};
pub use folders::{binary, folder, home, private_home, scratch, server_folder, servers};
pub use memory::memory_kib;
pub use programs::{children_named, folders_left, has_ended, has_program, run_unprivileged};
pub use set_clock::{NO_FAKETIME, libfaketime, servers_with_a_clock_to_set, set_clock};
pub use shared::{Shared, shared};

use std::{
    ffi::{OsStr, OsString},
    fs,
    io::Read,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::{Node, Session, identity::RecordedIdentity};
use replimeter_model::{sandbox::SandboxSpec, schema::PLAN};
use replimeter_run::run_dir::FILES;
use replimeter_sandbox::{Home, Member, Sandbox, SandboxError, Search, Settings};
use serde_json::Value;

use crate::folders::common_home;

/// Exit code and output of the tool.
#[derive(Debug)]
pub struct CommandOutput {
    /// The exit code; `None` if a signal ended the tool.
    pub code: Option<i32>,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Returns the plan that a dry run printed, without the effects after it.
    #[must_use]
    pub fn planned(&self) -> &str {
        let end = self
            .stdout
            .find("\n# Effects of this run:")
            .expect("a dry run lists its effects");
        &self.stdout[..end]
    }

    /// Returns the output of the process.
    #[must_use]
    pub fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Returns the one JSON document on standard output, whose schema describes every key.
    #[must_use]
    pub fn json(&self) -> Value {
        let document = serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error} in {self:#?}"));
        assert_described(&document);
        document
    }

    /// Returns standard output without line breaks.
    #[must_use]
    pub fn words(&self) -> String {
        self.stdout.split_whitespace().collect::<Vec<_>>().join(" ")
    }

    /// Checks the exit code.
    #[must_use]
    pub fn with_code(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// Checks that standard error contains a text.
    #[must_use]
    pub fn stderr_contains(self, wanted: &str) -> Self {
        assert!(
            self.stderr.contains(wanted),
            "`{wanted}` is missing in {self:#?}"
        );
        self
    }
}

/// Checks a document against the schema that it states, which must describe every key in it.
///
/// # Panics
/// If it does not match.
pub fn assert_described(document: &Value) {
    let stated = document["schema"]
        .as_str()
        .unwrap_or_else(|| panic!("a document without a schema: {document}"));
    let name = stated
        .strip_prefix("replimeter.")
        .and_then(|rest| rest.split('/').next());
    assert_valid(
        name.unwrap_or_else(|| panic!("{stated} is not a schema of Replimeter")),
        document,
    );
}

/// Checks a value against one of Replimeter's schemas, which must describe every key in it.
///
/// # Panics
/// If it does not match.
pub fn assert_valid(name: &str, value: &Value) {
    let errors = violations(name, value);
    assert!(
        errors.is_empty(),
        "not as docs/schema/{name}.json says:\n{}",
        errors.join("\n")
    );
}

/// Returns the places where a value does not match one of Replimeter's schemas.
#[must_use]
pub fn violations(name: &str, value: &Value) -> Vec<String> {
    let path = net::repository().join(format!("docs/schema/{name}.json"));
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("schema `{name}`: {error}"));
    let mut schema: Value = serde_json::from_str(&text).unwrap();
    close(&mut schema);
    let validator = jsonschema::validator_for(&schema)
        .unwrap_or_else(|error| panic!("the schema {name}: {error}"));
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

/// Makes a schema reject keys that it does not describe: a document of a later version may
/// have more, one of this version may not.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            if object.contains_key("properties") && !object.contains_key("additionalProperties") {
                object.insert("additionalProperties".to_owned(), Value::Bool(false));
            }
            object.values_mut().for_each(close);
        }
        Value::Array(array) => array.iter_mut().for_each(close),
        _ => {}
    }
}

/// Checks the files of a run against their schemas: plan, manifest and summary.
///
/// # Panics
/// If one of them does not match.
pub fn assert_run_described(run: &Path) {
    let text = |name: &str| {
        fs::read_to_string(run.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    assert_plan_described(&text("plan.toml"));
    for name in ["manifest.json", "summary.json"] {
        assert_described(&serde_json::from_str(&text(name)).unwrap());
    }
    for entry in fs::read_dir(run).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        // A reproduction has runs in it.
        let known = FILES.contains(&name) || path.join("plan.toml").exists();
        assert!(known, "{name} is not among the files of a run directory");
    }
}

/// Checks a plan's text against the schema of plans.
///
/// # Panics
/// If it does not match.
pub fn assert_plan_described(text: &str) {
    let plan: toml::Table =
        toml::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"));
    assert_valid(PLAN, &serde_json::to_value(plan).unwrap());
}

/// A folder to run the tool in, isolated from the user's settings.
#[derive(Debug)]
pub struct TestEnvironment {
    /// Removed with its contents when dropped.
    _outer: tempfile::TempDir,
    folder: PathBuf,
    home: PathBuf,
}

impl Default for TestEnvironment {
    fn default() -> Self {
        Self::new()
    }
}

impl TestEnvironment {
    /// Creates a new folder.
    #[must_use]
    pub fn new() -> Self {
        let outer = folders::folder();
        let folder = outer.path().join("work");
        fs::create_dir(&folder).unwrap();
        let home = private_home(outer.path());
        usage::folder(&home);
        Self {
            _outer: outer,
            folder,
            home,
        }
    }

    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns its private folder: its own sandboxes, and the servers and templates that all tests share.
    #[must_use]
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Returns the process ids of the running database servers that it has started.
    #[must_use]
    pub fn servers(&self) -> Vec<i32> {
        servers_below(&self.home().join("sandboxes"))
    }

    /// Returns the tool with these arguments, not yet started.
    #[must_use]
    pub fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(args)
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
            .env("REPLIMETER_HOME", self.home())
            .env("HOME", self.folder())
            .env_remove("MYSQL_PWD")
            .env("COLUMNS", "100");
        command
    }

    /// Returns the tool with these arguments and at most this number of open files, not yet started.
    #[must_use]
    pub fn command_with_files<S: AsRef<OsStr>>(&self, files: u32, args: &[S]) -> Command {
        let limited = format!("ulimit -n {files}; exec \"$0\" \"$@\"");
        let command = self.command(args);
        let program = command.get_program().to_owned();
        let shell = ["-c".into(), limited.into(), program];
        let args: Vec<OsString> = shell
            .into_iter()
            .chain(command.get_args().map(ToOwned::to_owned))
            .collect();
        let mut shell = Command::new("sh");
        shell
            .args(args)
            .envs(
                command
                    .get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            )
            .current_dir(self.folder())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        shell
    }

    /// Runs the tool to its end.
    #[must_use]
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> CommandOutput {
        CommandOutput::of(self.command(args).output().unwrap())
    }

    /// Returns the one run directory below the folder.
    #[must_use]
    pub fn only_run(&self) -> PathBuf {
        let runs = self.runs();
        assert_eq!(runs.len(), 1, "{runs:?}");
        if runs[0].join("summary.json").exists() {
            assert_run_described(&runs[0]);
        }
        runs[0].clone()
    }

    /// Returns all run directories.
    #[must_use]
    pub fn runs(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.folder().join("replimeter-runs"));
        entries
            .map(|entries| entries.map(|entry| entry.unwrap().path()).collect())
            .unwrap_or_default()
    }
}

/// Reads a pipe to its end, so that its writer does not block.
fn drained(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            pipe.read_to_end(&mut bytes).unwrap();
        }
        bytes
    })
}

/// Waits for the tool with a time limit, so that a tool that hangs fails the test.
#[must_use]
pub fn wait(mut child: Child, limit: Duration) -> CommandOutput {
    let began = Instant::now();
    let (stdout, stderr) = (drained(child.stdout.take()), drained(child.stderr.take()));
    let (status, late) = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break (status, false);
        }
        if began.elapsed() > limit {
            child.kill().unwrap();
            break (child.wait().unwrap(), true);
        }
        thread::sleep(Duration::from_millis(5));
    };
    let ended = CommandOutput::of(Output {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    });
    assert!(!late, "the tool did not end within {limit:?}: {ended:#?}");
    ended
}

/// Waits until a condition holds.
pub fn wait_until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Starts servers for a suite.
#[must_use]
pub fn start(shape: &str, options: &[&str]) -> Sandbox {
    let sandbox = start_unaccounted(shape, options);
    usage::started(sandbox.pids());
    sandbox
}

/// Starts servers that do not count for the running test.
fn start_unaccounted(shape: &str, options: &[&str]) -> Sandbox {
    let spec = SandboxSpec {
        server_options: options
            .iter()
            .map(|option| option.parse().unwrap())
            .collect(),
        ..SandboxSpec::of(shape.parse().unwrap())
    };
    start_settings(spec).unwrap_or_else(|error| panic!("{error}\n{}", error.hint()))
}

/// Starts servers for a suite with all settings.
///
/// # Errors
/// Those of starting a sandbox.
pub fn start_spec(spec: SandboxSpec) -> Result<Sandbox, SandboxError> {
    let sandbox = start_settings(spec)?;
    usage::started(sandbox.pids());
    Ok(sandbox)
}

fn start_settings(spec: SandboxSpec) -> Result<Sandbox, SandboxError> {
    let home = Home::at(common_home().to_owned()).unwrap();
    let search = search(&home, spec.servers.clone());
    let settings = Settings {
        spec: spec.clone(),
        ..Settings::of(spec.shape, search, home)
    };
    Sandbox::start(&settings, &AtomicBool::new(false))
}

/// Returns the places where server binaries are searched.
fn search(home: &Home, servers: Option<PathBuf>) -> Search {
    let path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).collect();
    let udf = vec![binary().with_file_name("libreplimeter_udf.so")];
    Search {
        servers,
        path,
        private: home.servers(),
        udf,
    }
}

/// Time limit of a command or a state of servers. It ends a test that hangs; a machine that is busy for a minute
/// does not fail a test.
pub const LIMIT: Duration = Duration::from_secs(240);

/// Opens a session on a server of a sandbox.
#[must_use]
pub fn session(node: &Node) -> Session {
    // A test may change what the server is known by.
    let node = Node {
        identity: RecordedIdentity::default(),
        ..node.clone()
    };
    Session::open(&node).unwrap()
}

/// Runs a statement.
pub fn sql(node: &Node, statement: &str) {
    session(node)
        .run("test", statement)
        .unwrap_or_else(|error| panic!("{statement}: {error}"));
}

/// Returns the first value of a statement's first row.
#[must_use]
pub fn value(node: &Node, statement: &str) -> Option<String> {
    session(node).value("test", statement).unwrap()
}

/// Returns a statement about `replimeter.probe` with the name that a run's table has on this server; the name of no table
/// without one.
#[must_use]
pub fn of_run(node: &Node, statement: &str) -> String {
    of_run_in(&mut session(node), statement)
}

/// Like [`of_run`], over an existing connection.
pub fn of_run_in(session: &mut Session, statement: &str) -> String {
    let table = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'replimeter' AND table_name LIKE 'probe\\_%'";
    let table = session.value("test", table).unwrap();
    statement.replace("probe", table.as_deref().unwrap_or("no_run"))
}

/// Returns whether the server has no schema or table of Replimeter.
#[must_use]
pub fn clean(node: &Node) -> bool {
    value(
        node,
        "SELECT 1 FROM information_schema.schemata WHERE schema_name = 'replimeter'",
    )
    .is_none()
}

/// Returns a server of a sandbox as a client on its machine names it, by its Unix socket.
#[must_use]
pub fn by_socket(member: &Member) -> Node {
    let mut node = member.node.clone();
    node.endpoint.socket = Some(member.socket());
    node
}

/// Returns the node's URL for a user, without a password.
#[must_use]
pub fn url(node: &Node, user: &str) -> String {
    match &node.endpoint.socket {
        Some(path) => format!("mysql://{user}@localhost/?socket={}", path.display()),
        None => format!("mysql://{user}@{}/", node.endpoint.address()),
    }
}

/// Returns the password of a sandbox's servers.
#[must_use]
pub fn password(node: &Node) -> &str {
    node.password.as_ref().unwrap().reveal()
}

/// Returns the process ids of database servers whose data is below a folder.
#[must_use]
pub fn servers_below(folder: &Path) -> Vec<i32> {
    let Ok(folder) = folder.canonicalize() else {
        return Vec::new();
    };
    let numbers = fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok());
    numbers
        .filter(|number: &i32| {
            let command = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
            let text = String::from_utf8_lossy(&command).into_owned();
            text.contains("--datadir=") && text.contains(&*folder.to_string_lossy())
        })
        .collect()
}

/// Returns the process ids of the database servers that a running tool has started.
#[must_use]
pub fn servers_of(tool: &Child) -> Vec<i32> {
    let parent = tool.id().to_string();
    let ours = |server: &i32| {
        // State and parent follow the name, which may contain any character.
        let stat = fs::read_to_string(format!("/proc/{server}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .and_then(|rest| rest.split_whitespace().nth(1))
            == Some(parent.as_str())
    };
    servers_below(scratch()).into_iter().filter(ours).collect()
}

/// A server that was restarted instead of a sandbox's server; ends when dropped.
pub struct RestartedServer(Child);

impl Drop for RestartedServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Shuts a server of a sandbox down, and restarts it with the same settings.
///
/// # Panics
/// If it does not end, or does not start.
pub fn restart(member: &Member) -> RestartedServer {
    let proc = PathBuf::from(format!("/proc/{}", member.pid));
    let strings = |name: &str| -> Vec<OsString> {
        let bytes = fs::read(proc.join(name)).unwrap();
        bytes
            .split(|byte| *byte == 0)
            .filter(|part| !part.is_empty())
            .map(|part| OsString::from_vec(part.to_vec()))
            .collect()
    };
    let (words, environment) = (strings("cmdline"), strings("environ"));
    let folder = fs::read_link(proc.join("cwd")).unwrap();
    let owner = fs::metadata(&proc).unwrap();
    let program = fs::read_link(proc.join("exe")).unwrap();
    let mut command = Command::new(program);
    // The file of its first statements was removed after the first start.
    let words = words[1..]
        .iter()
        .filter(|word| !word.as_bytes().starts_with(b"--init-file"));
    command
        .args(words)
        .current_dir(folder)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    for pair in &environment {
        if let Some(at) = pair.as_bytes().iter().position(|byte| *byte == b'=') {
            command.env(
                OsStr::from_bytes(&pair.as_bytes()[..at]),
                OsStr::from_bytes(&pair.as_bytes()[at + 1..]),
            );
        }
    }
    if owner.uid() != rustix::process::getuid().as_raw() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    // The shutdown closes the connection.
    let _ = session(&member.node).run("test", "SHUTDOWN");
    wait_until("the server has ended", LIMIT, || {
        fs::read_to_string(proc.join("stat")).map_or(true, |stat| stat.contains(") Z "))
    });
    let again = RestartedServer(command.spawn().unwrap());
    usage::started([again.0.id()]);
    wait_until("the server answers again", LIMIT, || {
        Session::open(&member.node).is_ok()
    });
    again
}
