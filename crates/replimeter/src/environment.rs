//! Everything that is read from the environment.

use std::{env, path::PathBuf};

use replimeter_model::target::Secret;
use replimeter_sandbox::{Home, Search, binaries::split_path};

/// `$HOME`.
pub(crate) fn home_folder() -> Option<PathBuf> {
    env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute())
}

/// Replimeter's private folder: `$REPLIMETER_HOME`; for root a folder that the
/// servers' user can reach; for others their cache folder.
pub(crate) fn private_home() -> Home {
    let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let root = absolute("REPLIMETER_HOME").unwrap_or_else(|| {
        if rustix::process::geteuid().is_root() {
            return PathBuf::from("/var/cache/replimeter");
        }
        let cache = absolute("XDG_CACHE_HOME").or_else(|| home_folder().map(|home| home.join(".cache")));
        cache.unwrap_or_else(env::temp_dir).join("replimeter")
    });
    Home::at(root)
}

/// Where server binaries are looked for.
pub(crate) fn search(home: &Home, servers: Option<PathBuf>) -> Search {
    Search { servers, path: split_path(env::var_os("PATH")), private: home.servers() }
}

/// A password for the node: its own variable, ours, or the stock client's.
pub(crate) fn password(node: &str) -> Option<Secret> {
    let own = format!("REPLIMETER_{}_PASSWORD", node.to_uppercase());
    [own.as_str(), "REPLIMETER_PASSWORD", "MYSQL_PWD"].into_iter().find_map(|name| env::var(name).ok()).map(Secret::new)
}

/// The user's login name.
pub(crate) fn login_name() -> String {
    env::var("USER").or_else(|_| env::var("LOGNAME")).unwrap_or_else(|_| "root".to_owned())
}

/// A fault to commit on purpose, so that the tests can see what a defect of ours
/// would leave behind.
pub(crate) fn fault() -> Option<String> {
    env::var("REPLIMETER_FAULT").ok()
}
