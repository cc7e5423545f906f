//! All access to environment variables.

use std::{env, ffi::OsString, path::PathBuf};

use replimeter_engine::{
    Connections,
    option_file::PASSWORD_VARIABLE,
    source::{SourceError, SourceErrorKind},
};
use replimeter_instruments::backlog::StartRescuer;
use replimeter_model::target::Secret;
use replimeter_sandbox::{
    Home, RunningSandboxes, Search, binaries::split_path, reaper::ReaperProgram, source::Sandboxes,
};

/// Returns `$HOME`.
pub(crate) fn home_folder() -> Option<PathBuf> {
    env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute())
}

/// Returns Replimeter's private folder: `$REPLIMETER_HOME`; for root a folder that the servers' user can
/// access; for others their cache folder.
pub(crate) fn private_home() -> Result<Home, SourceError> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let cache =
        || absolute("XDG_CACHE_HOME").or_else(|| home_folder().map(|home| home.join(".cache")));
    let usual = || match rustix::process::geteuid().is_root() {
        true => Some(PathBuf::from("/var/cache/replimeter")),
        false => cache().map(|cache| cache.join("replimeter")),
    };
    // A shared folder is not an option: programs in it are executed.
    let root = absolute("REPLIMETER_HOME").or_else(usual).ok_or_else(|| {
        SourceError::new(
            SourceErrorKind::Usage,
            "the private folder is unknown: HOME is not set",
            "set HOME, or REPLIMETER_HOME to a folder that you own",
        )
    })?;
    Ok(Home::at(root)?)
}

/// Returns the sandboxes of the private folder, for a run with these connections.
pub(crate) fn sandboxes(
    connections: Connections,
    running: RunningSandboxes,
) -> Result<Sandboxes, SourceError> {
    let home = private_home()?;
    Ok(Sandboxes {
        search: search(&home, None),
        home,
        reaper: reaper(),
        connections,
        running,
    })
}

/// Returns where to search for server binaries.
pub(crate) fn search(home: &Home, servers: Option<PathBuf>) -> Search {
    Search {
        servers,
        path: split_path(env::var_os("PATH")),
        private: home.servers(),
        udf: udf_library(),
    }
}

/// Returns possible locations of the function library: `$REPLIMETER_UDF`, next to this program, or the
/// location of an installation.
fn udf_library() -> Vec<PathBuf> {
    const NAME: &str = "libreplimeter_udf.so";
    if let Some(named) = env::var_os("REPLIMETER_UDF").filter(|named| !named.is_empty()) {
        return vec![PathBuf::from(named)];
    }
    let program = env::current_exe().ok();
    let folder = program.as_deref().and_then(std::path::Path::parent);
    let next_to_program = folder.map(|folder| folder.join(NAME));
    let installed = folder
        .and_then(std::path::Path::parent)
        .map(|prefix| prefix.join("lib/replimeter").join(NAME));
    next_to_program.into_iter().chain(installed).collect()
}

/// Returns whether the function library exists.
pub(crate) fn has_udf() -> bool {
    udf_library().iter().any(|path| path.is_file())
}

/// Returns a password for the node, and the variable that has it: the node's own, Replimeter's, or the stock
/// client's.
///
/// # Errors
/// When the variable is not UTF-8.
pub(crate) fn password(node: &str) -> Result<Option<(Secret, String)>, SourceError> {
    // A character that is invalid in a variable's name becomes an underscore.
    let name: String = node
        .chars()
        .map(|character| {
            if character.is_ascii_alphanumeric() {
                character.to_ascii_uppercase()
            } else {
                '_'
            }
        })
        .collect();
    let own = format!("REPLIMETER_{name}_PASSWORD");
    [own.as_str(), "REPLIMETER_PASSWORD", PASSWORD_VARIABLE]
        .into_iter()
        .find_map(|name| Some((env::var_os(name)?, name)))
        .map(|(password, name)| {
            let password = password.into_string().map_err(|_| {
                SourceError::new(
                    SourceErrorKind::Usage,
                    format!("the password in {name} is not UTF-8"),
                    "set the variable in a UTF-8 locale, or use an option file (--defaults-file)",
                )
            })?;
            Ok((Secret::new(password), name.to_owned()))
        })
        .transpose()
}

/// Returns this program as the reaper of a sandbox.
fn reaper() -> Option<ReaperProgram> {
    let arguments = ["sandbox", "guard"].map(str::to_owned).to_vec();
    env::current_exe()
        .ok()
        .map(|program| ReaperProgram { program, arguments })
}

/// Returns the start of this program, with a hidden command, as the process that restores an applier when this one is killed.
pub(crate) fn rescuer() -> StartRescuer {
    Box::new(|| {
        let program = ReaperProgram {
            program: env::current_exe()?,
            arguments: ["sandbox", "restore-applier"].map(str::to_owned).to_vec(),
        };
        program.spawn(&[])
    })
}

/// Returns the variables that a sandbox's supervisor needs; never a password.
pub(crate) fn for_supervisor() -> Vec<(&'static str, OsString)> {
    const NEEDED: [&str; 5] = [
        "HOME",
        "PATH",
        "REPLIMETER_HOME",
        "REPLIMETER_UDF",
        "XDG_CACHE_HOME",
    ];
    NEEDED
        .into_iter()
        .filter_map(|name| Some((name, env::var_os(name)?)))
        .collect()
}

/// Returns `$PATH`.
pub(crate) fn path() -> Option<OsString> {
    env::var_os("PATH")
}

/// Returns the user's login name.
pub(crate) fn login_name() -> String {
    env::var("USER")
        .or_else(|_| env::var("LOGNAME"))
        .unwrap_or_else(|_| "root".to_owned())
}

/// Returns whether the terminal can draw a screen.
pub(crate) fn terminal_draws() -> bool {
    env::var_os("TERM").is_some_and(|terminal| !terminal.is_empty() && terminal != "dumb")
}

/// Returns whether the user wants colors (<https://no-color.org>).
pub(crate) fn wants_colors() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Returns whether the journals of complete runs are kept, which the tests replay.
pub(crate) fn keep_journal() -> bool {
    env::var_os("REPLIMETER_RECORD").is_some()
}

/// Returns the fault to inject, so that tests see what an internal error would leave behind.
pub(crate) fn fault() -> Option<String> {
    env::var("REPLIMETER_FAULT").ok()
}
