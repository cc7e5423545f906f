//! Where servers lie, and what belongs to them there.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use super::{Origin, Search, Unusable};

/// Folders in which distributions and vendors put servers that are not on PATH.
pub(super) const USUAL: [&str; 8] = [
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

/// The servers' programs in a folder, links resolved, each once.
pub(super) fn programs(folder: &Path) -> Vec<PathBuf> {
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
pub(super) fn folders(search: &Search, unusable: &mut Vec<Unusable>) -> Vec<(PathBuf, Origin)> {
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

/// The folder of its plugins.
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

/// Where a server's scripts look for programs.
pub(super) fn tools(root: &Path, base: &Path, foreign: bool, path: &[PathBuf]) -> Vec<PathBuf> {
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

/// The loader and library folder of an unpacked server's own root.
pub(super) fn own_libraries(root: &Path) -> (Option<PathBuf>, Option<PathBuf>) {
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
