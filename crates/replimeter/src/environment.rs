//! Everything that is read from the environment.

use std::{env, ffi::OsString, path::PathBuf};

use replimeter_engine::source::{SourceError, SourceErrorKind};
use replimeter_model::target::Secret;
use replimeter_sandbox::{
    Home, Search, binaries::split_path, guard::GuardProgram, source::Sandboxes,
};

/// `$HOME`.
pub(crate) fn home_folder() -> Option<PathBuf> {
    env::var_os("HOME")
        .map(PathBuf::from)
        .filter(|home| home.is_absolute())
}

/// Replimeter's private folder: `$REPLIMETER_HOME`; for root a folder that the
/// servers' user can reach; for others their cache folder.
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
    // No shared folder will do instead: what lies there is executed.
    let root = absolute("REPLIMETER_HOME").or_else(usual).ok_or_else(|| {
        SourceError::new(
            SourceErrorKind::Usage,
            "the private folder is unknown: HOME is not set",
            "set HOME, or REPLIMETER_HOME to a folder that you own",
        )
    })?;
    Ok(Home::at(root)?)
}

/// Starts sandboxes in the private folder, and finds those that are there.
pub(crate) fn sandboxes() -> Result<Sandboxes, SourceError> {
    let home = private_home()?;
    Ok(Sandboxes {
        search: search(&home, None),
        home,
        guard: guard(),
    })
}

/// Where server binaries are looked for.
pub(crate) fn search(home: &Home, servers: Option<PathBuf>) -> Search {
    Search {
        servers,
        path: split_path(env::var_os("PATH")),
        private: home.servers(),
        udf: udf_library(),
    }
}

/// Where the library of our functions may be: where `$REPLIMETER_UDF` says, or beside
/// this program, or where an installation would have it.
fn udf_library() -> Vec<PathBuf> {
    const NAME: &str = "libreplimeter_udf.so";
    if let Some(named) = env::var_os("REPLIMETER_UDF").filter(|named| !named.is_empty()) {
        return vec![PathBuf::from(named)];
    }
    let program = env::current_exe().ok();
    let folder = program.as_deref().and_then(std::path::Path::parent);
    let beside = folder.map(|folder| folder.join(NAME));
    let installed = folder
        .and_then(std::path::Path::parent)
        .map(|prefix| prefix.join("lib/replimeter").join(NAME));
    beside.into_iter().chain(installed).collect()
}

/// Whether the library of our functions is there.
pub(crate) fn has_udf() -> bool {
    udf_library().iter().any(|path| path.is_file())
}

/// A password for the node: its own variable, ours, or the stock client's.
pub(crate) fn password(node: &str) -> Option<Secret> {
    // What no variable's name can hold becomes an underscore.
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
    [own.as_str(), "REPLIMETER_PASSWORD", "MYSQL_PWD"]
        .into_iter()
        .find_map(|name| env::var(name).ok())
        .map(Secret::new)
}

/// This program as the guard of a sandbox.
fn guard() -> Option<GuardProgram> {
    let arguments = ["sandbox", "guard"].map(str::to_owned).to_vec();
    env::current_exe()
        .ok()
        .map(|program| GuardProgram { program, arguments })
}

/// What the keeper of a sandbox needs of the environment; never a password.
pub(crate) fn for_keeper() -> Vec<(&'static str, OsString)> {
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

/// `$PATH`.
pub(crate) fn path() -> Option<OsString> {
    env::var_os("PATH")
}

/// The user's login name.
pub(crate) fn login_name() -> String {
    env::var("USER")
        .or_else(|_| env::var("LOGNAME"))
        .unwrap_or_else(|_| "root".to_owned())
}

/// Where to record what a measurement hands to summing up, so that the tests can sum it up
/// again.
pub(crate) fn record() -> Option<PathBuf> {
    env::var_os("REPLIMETER_RECORD").map(PathBuf::from)
}

/// A fault to commit on purpose, so that the tests can see what a defect of ours
/// would leave behind.
pub(crate) fn fault() -> Option<String> {
    env::var("REPLIMETER_FAULT").ok()
}
