//! Examines one program: whether it is a server that runs here, and which.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use replimeter_model::engine::Engine;

use super::{
    Install, Origin, ServerSupport, UnusableServer,
    folders::{own_libraries, plugins, tools},
};
use crate::{
    capabilities::{Capabilities, InstalledFiles},
    process,
    user::SystemUser,
};

/// Timeout for printing the version.
const VERSION_TIMEOUT: Duration = Duration::from_secs(20);

impl Install {
    /// Examines one program and runs it with `--version`.
    pub(crate) fn examine(
        program: &Path,
        origin: Origin,
        path: &[PathBuf],
    ) -> Result<Self, UnusableServer> {
        let refuse = |(cause, hint): (String, &str)| UnusableServer {
            path: program.to_owned(),
            cause,
            hint: hint.to_owned(),
        };
        let user = SystemUser::choose();
        check_reach(program, &user).map_err(refuse)?;
        check_kind(program).map_err(|cause| {
            refuse((
                cause,
                "install a server built for this machine, or run `make servers`",
            ))
        })?;
        let base = program
            .parent()
            .and_then(Path::parent)
            .unwrap_or(Path::new("/"))
            .to_owned();
        let share = share(&base).map_err(refuse)?;
        let root = if base.ends_with("usr") {
            base.parent().unwrap_or(&base)
        } else {
            &base
        };
        let surroundings = ServerSupport::of(root, &base, path);
        let (engine, version) = identity(program, &surroundings, &user).map_err(refuse)?;
        let plugins = plugins(&base);
        let capabilities = Capabilities::of(&InstalledFiles {
            engine,
            version: &version,
            base: &base,
            root,
            plugins: plugins.as_deref(),
            tools: &surroundings.tools,
        });
        Ok(Self {
            engine,
            version,
            program: program.to_owned(),
            share,
            plugins,
            origin,
            capabilities,
            surroundings,
            base,
        })
    }
}

impl ServerSupport {
    fn of(root: &Path, base: &Path, path: &[PathBuf]) -> Self {
        let (loader, libraries) = if root == Path::new("/") {
            (None, None)
        } else {
            own_libraries(root)
        };
        let tools = tools(root, base, loader.is_some(), path);
        Self {
            loader,
            libraries,
            tools,
        }
    }
}

/// Why a program cannot be used, and a hint.
type Refusal = (String, &'static str);

/// Returns an error when the servers' user cannot access its folders.
fn check_reach(program: &Path, user: &SystemUser) -> Result<(), Refusal> {
    let Some(folder) = user.blocked_at(program) else {
        return Ok(());
    };
    let cause = format!(
        "the folder {} is not accessible to the system user `{}`, which runs the servers",
        folder.display(),
        user.name
    );
    Err((
        cause,
        "let every user enter the folder (chmod o+x), or move the server",
    ))
}

/// Returns the folder of messages and character sets.
fn share(base: &Path) -> Result<PathBuf, Refusal> {
    ["share/mysql", "share/mariadb", "share"]
        .into_iter()
        .map(|share| base.join(share))
        .find(|share| share.join("english").is_dir() || share.join("charsets").is_dir())
        .ok_or_else(|| {
            let cause = format!(
                "its messages and character sets are not in {}",
                base.join("share").display()
            );
            (
                cause,
                "install or unpack the whole server, with its folder share/",
            )
        })
}

/// Returns the engine and version that a program reports.
fn identity(
    program: &Path,
    surroundings: &ServerSupport,
    user: &SystemUser,
) -> Result<(Engine, String), Refusal> {
    let question = || {
        let mut command = surroundings.command(program);
        command
            .args(["--no-defaults", "--version"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    };
    let text = ask(question, user).map_err(|cause| {
        let hint = if cause.contains("shared librar") || cause.contains("GLIBC") {
            "install the missing library with the system's package manager, or run `make servers`, which fetches a \
                server with the libraries it needs"
        } else {
            "run it by hand with --no-defaults --version; `make servers` fetches a server that runs here"
        };
        (cause, hint)
    })?;
    parse_version(&text).ok_or_else(|| {
        let cause = format!(
            "it does not answer --version like MariaDB or MySQL, but: {}",
            short(&text)
        );
        (
            cause,
            "if it is a wrapper, name the folder of the server itself with --servers DIR",
        )
    })
}

/// Checks whether the system could execute the file at all. Checked beforehand because the C
/// library passes an unknown file to the shell.
fn check_kind(program: &Path) -> Result<(), String> {
    let mut head = [0u8; 20];
    let mut file = fs::File::open(program).map_err(|error| error.to_string())?;
    let script = |head: &[u8]| head.starts_with(b"#!");
    match file.read_exact(&mut head) {
        Err(_) if !script(&head) => {
            return Err("it is not a program, but a file of a few bytes".to_owned());
        }
        _ if script(&head) => return Ok(()),
        _ if !head.starts_with(b"\x7fELF") => {
            return Err("it is not a program for this system".to_owned());
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
            "it is built for {built_for}, but this machine is {ours}"
        )),
        _ => Ok(()),
    }
}

/// Returns what a server reports about its own command line, with its name in front. A command that
/// does not run has no complaint; its start will show the cause.
pub(crate) fn complaint(
    program: &Path,
    command: impl Fn() -> Command,
    user: &SystemUser,
) -> Option<String> {
    let (_, _, err) = run(command, user).ok()?;
    let named = format!("{}: ", program.display());
    let mut errors = err.lines().filter(|line| line.contains("[ERROR]"));
    errors.find_map(|line| Some(short(line.split_once(&named)?.1)))
}

/// Runs a short command and returns its standard output, or the cause of its failure.
fn ask(command: impl Fn() -> Command, user: &SystemUser) -> Result<String, String> {
    let (status, out, err) = run(command, user)?;
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

/// Runs a short command and returns its status and both outputs, or why there are none.
fn run(
    command: impl Fn() -> Command,
    user: &SystemUser,
) -> Result<(ExitStatus, String, String), String> {
    let mut attempts = 0;
    let mut child = loop {
        match process::spawn(command(), user, None) {
            Ok(child) => break child,
            // A process that another thread is forking has this process's files open for a moment,
            // possibly a program that was just unpacked.
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
                "it did not answer within {} s",
                VERSION_TIMEOUT.as_secs()
            ));
        }
    };
    // A child process of it may hold the pipes open.
    let heard = |channel: mpsc::Receiver<String>| {
        channel
            .recv_timeout(Duration::from_secs(1))
            .unwrap_or_default()
    };
    Ok((status, heard(out), heard(err)))
}

/// Reads the start of an output in the background.
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

fn wait(child: &mut Child) -> Option<ExitStatus> {
    let began = Instant::now();
    while began.elapsed() < VERSION_TIMEOUT {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        thread::sleep(Duration::from_millis(1));
    }
    None
}

/// Returns one line of an error message.
fn short(text: &str) -> String {
    text.trim()
        .lines()
        .next()
        .unwrap_or_default()
        .chars()
        .take(300)
        .collect()
}

/// Returns the engine and version from the output of `--version`.
pub(super) fn parse_version(text: &str) -> Option<(Engine, String)> {
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
