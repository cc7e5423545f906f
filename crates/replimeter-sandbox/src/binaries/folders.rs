//! Folders of servers and of their files.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{Origin, Search, UnusableServer};

/// Folders in which distributions and vendors put servers that are not on PATH.
pub(crate) const USUAL: [&str; 8] = [
    "/usr/sbin",
    "/usr/local/sbin",
    "/usr/libexec",
    "/usr/local/libexec",
    "/usr/local/mysql/bin",
    "/usr/local/mariadb/bin",
    "/opt/mysql/bin",
    "/opt/mariadb/bin",
];

/// Folders of a server's root that may contain its binary.
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

/// Where a server's scripts find the system's tools, regardless of PATH.
const STANDARD: [&str; 4] = ["/usr/bin", "/bin", "/usr/sbin", "/sbin"];

/// Returns the server programs in a folder, links resolved, each once.
pub(super) fn programs(folder: &Path) -> Vec<PathBuf> {
    let mut programs: Vec<PathBuf> = NAMES
        .iter()
        .filter_map(|name| folder.join(name).canonicalize().ok())
        .filter(|program| program.is_file())
        .collect();
    programs.dedup();
    programs
}

/// Returns the programs of the server whose root this folder is.
pub(crate) fn programs_of(root: &Path) -> Vec<PathBuf> {
    let mut seen = BTreeSet::new();
    let all = INSIDE
        .iter()
        .flat_map(|folder| programs(&root.join(folder)));
    all.filter(|program| seen.insert(program.clone())).collect()
}

/// Returns every folder that may contain a binary, in order of preference.
pub(super) fn folders(
    search: &Search,
    unusable: &mut Vec<UnusableServer>,
) -> Vec<(PathBuf, Origin)> {
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

/// Returns the folders in a folder of servers. Names with a leading dot are still being unpacked.
fn roots_in(folder: &Path, unusable: &mut Vec<UnusableServer>) -> Vec<PathBuf> {
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
                unusable.push(UnusableServer {
                    cause: format!(
                        "it links to {}, which cannot be used: {error}",
                        target.display()
                    ),
                    hint: format!(
                        "put the folder back, or remove the link with `rm {}`",
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

/// Returns the folder of its plugins.
pub(super) fn plugins(base: &Path) -> Option<PathBuf> {
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

/// Returns the folders in which a server's scripts search for programs.
pub(super) fn tools(root: &Path, base: &Path, foreign: bool, path: &[PathBuf]) -> Vec<PathBuf> {
    let own = [
        base.join("bin"),
        base.join("sbin"),
        root.join("usr/bin"),
        root.join("usr/sbin"),
        root.join("bin"),
    ];
    // Programs built for a C library that the system lacks need their own loader, and would hide
    // the system's programs.
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

/// Returns the loader and library folder of an unpacked server's own root.
pub(crate) fn own_libraries(root: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
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
