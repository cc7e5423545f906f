//! Adds a server of any origin to the private folder, as a link to its own folder: nothing is copied, so an upgrade in
//! place takes effect and no disk space is used.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use crate::{
    binaries::{Install, Origin, Search, programs_of},
    error::{SandboxError, check_interrupted},
    home::{Home, make_folder},
};

/// A server that was added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Added {
    /// The server.
    pub install: Install,
    /// Its entry in the private folder, a link.
    pub place: PathBuf,
    /// The folder that the entry links to.
    pub folder: PathBuf,
}

/// Adds the unpacked server in the folder `source`, or in a folder directly in it, to the private folder, under the name
/// of its engine and version.
///
/// # Errors
/// When it is not a server, cannot run here, is not trustworthy or already exists, or when the disk fails; no server is
/// added then.
pub fn add(
    home: &Home,
    search: &Search,
    source: &Path,
    stop: &AtomicBool,
) -> Result<Added, SandboxError> {
    let refuse = |reason: String, hint: String| SandboxError::Refused {
        path: source.to_owned(),
        reason,
        hint,
    };
    let unreadable = |error: io::Error| {
        refuse(
            format!("it cannot be read: {error}"),
            "give a folder that this user may read".to_owned(),
        )
    };
    let folder = source.canonicalize().map_err(unreadable)?;
    if !folder.is_dir() {
        return Err(refuse(
            "it is a file, not a folder".to_owned(),
            format!(
                "unpack an archive with `tar -xf {} -C FOLDER`, and add FOLDER; or run `make servers` in the folder of \
                the sources",
                source.display()
            ),
        ));
    }
    let entries = fs::read_dir(&folder).map_err(unreadable)?.flatten();
    let mut inside: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    inside.sort();
    home.check_reach(&folder)?;

    let mut found = servers_in(std::slice::from_ref(&folder));
    if found.is_empty() {
        found = servers_in(&inside);
    }
    let Some(((root, program), others)) = found.split_first() else {
        return Err(refuse(
            format!("no mariadbd or mysqld in it; it contains {}", listed(&inside)),
            "give the folder whose usr/sbin, sbin or bin contains mariadbd or mysqld; build sources first".to_owned(),
        ));
    };
    if others.iter().any(|(other, _)| other != root) {
        let mut roots: Vec<PathBuf> = found.iter().map(|(root, _)| root.clone()).collect();
        roots.dedup();
        return Err(refuse(
            format!("it contains several servers: {}", listed(&roots)),
            "add them one by one".to_owned(),
        ));
    }
    found
        .iter()
        .try_for_each(|(_, program)| home.check_reach(program))?;
    let root = root.canonicalize().map_err(unreadable)?;
    let examine = |program: &Path| Install::examine(program, Origin::Private, &search.path);
    let install = others.iter().fold(examine(program), |best, (_, program)| {
        best.or_else(|unusable| examine(program).map_err(|_| unusable))
    });
    let install = install.map_err(|unusable| {
        let path = unusable.path.strip_prefix(&root).unwrap_or(&unusable.path);
        refuse(
            format!(
                "its server {} cannot be used: {}",
                path.display(),
                unusable.cause
            ),
            unusable.hint,
        )
    })?;

    let servers = home.servers();
    home.check_reach(&servers)?;
    check_interrupted(stop)?;
    // As root, servers run as another user, who must have access to them.
    let (outer, inner) = if home.user().become_ids.is_some() {
        (0o711, 0o755)
    } else {
        (0o700, 0o700)
    };
    make_folder(home.root(), outer)?;
    make_folder(&servers, inner)?;
    let place = servers.join(format!("{}-{}", install.engine.name(), install.version));
    symlink(&root, &place).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let removal = if place.is_symlink() { "rm" } else { "rm -r" };
            refuse(
                format!("{} already exists", place.display()),
                format!(
                    "remove it with `{removal} {0}`; or keep both: rename it, for example to {0}-old",
                    place.display()
                ),
            )
        }
        _ => SandboxError::disk("create", &place)(error),
    })?;
    Ok(Added {
        install,
        place,
        folder: root,
    })
}

/// Returns the programs of the servers that have one of these folders as their root, each with its root.
fn servers_in(roots: &[PathBuf]) -> Vec<(PathBuf, PathBuf)> {
    let programs = |root: &PathBuf| {
        let root = root.clone();
        programs_of(&root)
            .into_iter()
            .map(move |program| (root.clone(), program))
    };
    roots.iter().flat_map(programs).collect()
}

/// Joins the names of files for a sentence.
fn listed(paths: &[PathBuf]) -> String {
    const MAX_NAMES: usize = 8;
    let names = paths
        .iter()
        .take(MAX_NAMES)
        .filter_map(|path| path.file_name());
    let names: Vec<_> = names.map(|name| name.to_string_lossy()).collect();
    match paths.len() {
        0 => "nothing".to_owned(),
        all if all <= MAX_NAMES => names.join(", "),
        all => format!("{} and {} more", names.join(", "), all - MAX_NAMES),
    }
}

#[cfg(test)]
mod tests;
