//! Rules for the sources of all crates: no module imports itself through others, and only a measurement's
//! own files name it. The submodules have the rules for words, names and lengths.

mod crates;
mod dialects;
mod lengths;
mod names;
mod promises;
mod sources;
mod words;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use replimeter_measurements::registry;
use replimeter_model::doctor::FindingCode;

use self::sources::{program_files, without_tests};
use crate::net::repository;

/// Files that name a measurement's settings or results, although their own name does not include
/// it.
const NAMES: [&str; 5] = [
    // Made of those of `lag`.
    "replimeter-instruments/src/calibrate/settings.rs",
    // Published experiments.
    "replimeter-measurements/src/across/reproduce/histogram.rs",
    "replimeter-measurements/src/across/reproduce/overhead.rs",
    "replimeter-measurements/src/across/reproduce/replicas.rs",
    "replimeter-measurements/src/across/reproduce/sweep.rs",
];

/// The path of a module, or of an item in it.
type ModulePath = Vec<String>;

fn crates() -> PathBuf {
    repository().join("crates")
}

/// Returns a file's code without comments and tests.
fn code(path: &Path) -> String {
    let text = without_tests(path);
    let lines = text.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the modules of a crate, each with its code.
fn modules(source: &Path) -> BTreeMap<ModulePath, String> {
    let module = |path: PathBuf| {
        let code = code(&path);
        let path = path.strip_prefix(source).unwrap().with_extension("");
        let names = path.iter().map(|name| name.to_str().unwrap().to_owned());
        let way = names.filter(|name| !["mod", "lib", "main"].contains(&name.as_str()));
        (way.collect(), code)
    };
    program_files(source).into_iter().map(module).collect()
}

/// Adds the paths in a tree of imports, such as `a::{b, c::d}`.
fn expand(before: &str, tree: &str, found: &mut Vec<String>) {
    let (mut depth, mut start) = (0, 0);
    let ends = tree.char_indices().chain([(tree.len(), ',')]);
    for (at, letter) in ends {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let part = tree[start..at].trim();
                start = at + 1;
                match part.split_once('{') {
                    Some((head, rest)) => {
                        let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
                        expand(&format!("{before}{head}"), inner, found);
                    }
                    None if part.is_empty() => {}
                    None => found.push(format!("{before}{}", part.split(' ').next().unwrap())),
                }
            }
            _ => {}
        }
    }
}

/// Returns the paths that a module imports or names, and whether it re-exports each.
fn imports(code: &str) -> Vec<(bool, String)> {
    let mut all = Vec::new();
    for statement in code.split(';') {
        let Some((before, tree)) = statement.rsplit_once("use ") else {
            continue;
        };
        let before = before.rsplit('\n').next().unwrap().trim();
        if !before.is_empty() && !before.starts_with("pub") {
            continue;
        }
        let mut found = Vec::new();
        expand("", tree, &mut found);
        all.extend(found.into_iter().map(|way| (!before.is_empty(), way)));
    }
    for start in ["crate::", "super::"] {
        for (at, _) in code.match_indices(start) {
            let end = |letter: char| !letter.is_alphanumeric() && letter != '_' && letter != ':';
            let way = code[at..].split(end).next().unwrap();
            all.push((false, way.trim_end_matches(':').to_owned()));
        }
    }
    all
}

/// Returns the path from the root of the crate; `None` for a path of another crate.
fn from_root(
    modules: &BTreeMap<ModulePath, String>,
    module: &ModulePath,
    way: &str,
) -> Option<ModulePath> {
    let mut steps = way.split("::").peekable();
    let mut root = module.clone();
    match *steps.peek()? {
        "crate" => {
            root.clear();
            steps.next();
        }
        "self" => _ = steps.next(),
        "super" => {
            while steps.next_if_eq(&"super").is_some() {
                root.pop();
            }
        }
        first => {
            root.push(first.to_owned());
            let child = modules.contains_key(&root);
            root.pop();
            child.then_some(())?;
        }
    }
    root.extend(steps.map(str::to_owned));
    Some(root)
}

/// Returns the module that a path leads to, through any number of re-exports.
fn target(
    modules: &BTreeMap<ModulePath, String>,
    handed_on: &BTreeMap<ModulePath, ModulePath>,
    mut way: ModulePath,
) -> Option<ModulePath> {
    // Deeper than any chain of re-exports.
    for _ in 0..8 {
        let start = |length: &usize| {
            let start = &way[..*length];
            modules.contains_key(start) || handed_on.contains_key(start)
        };
        let length = (0..=way.len()).rev().find(start)?;
        let rest = way.split_off(length);
        match handed_on.get(&way) {
            Some(other) => way = [other.as_slice(), &rest].concat(),
            None => return Some(way),
        }
    }
    None
}

/// Returns the modules of a crate that import themselves through others, without their parent modules.
fn circles(source: &Path) -> Vec<String> {
    let modules = modules(source);
    let mut handed_on = BTreeMap::new();
    let mut named: BTreeMap<&ModulePath, Vec<ModulePath>> = BTreeMap::new();
    for (module, code) in &modules {
        for (public, way) in imports(code) {
            let Some(way) = from_root(&modules, module, &way) else {
                continue;
            };
            if public && let Some(name) = way.last() {
                let own = [module.as_slice(), std::slice::from_ref(name)].concat();
                if own != way {
                    handed_on.insert(own, way.clone());
                }
            }
            named.entry(module).or_default().push(way);
        }
    }
    let edges = |module: &ModulePath| -> BTreeSet<ModulePath> {
        let ways = named.get(module).into_iter().flatten().cloned();
        ways.filter_map(|way| target(&modules, &handed_on, way))
            .filter(|other| !module.starts_with(other))
            .collect()
    };
    let edges: BTreeMap<&ModulePath, BTreeSet<ModulePath>> = modules
        .keys()
        .map(|module| (module, edges(module)))
        .collect();
    let returns = |module: &&ModulePath| {
        let (mut seen, mut left) = (BTreeSet::new(), vec![*module]);
        while let Some(next) = left.pop() {
            left.extend(edges[next].iter().filter(|other| seen.insert(*other)));
        }
        seen.contains(*module)
    };
    let around = modules.keys().filter(returns);
    around.map(|module| module.join("::")).collect()
}

#[test]
fn no_module_imports_itself_indirectly() {
    let mut found = Vec::new();
    for entry in fs::read_dir(crates()).unwrap() {
        let folder = entry.unwrap().path();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let around = circles(&folder.join("src"));
        found.extend(around.into_iter().map(|module| format!("{name} {module}")));
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn only_own_files_name_a_measurement() {
    let files = program_files("crates").into_iter();
    let all: Vec<(PathBuf, String)> = files.map(|path| (path.clone(), code(&path))).collect();
    let mut found = BTreeSet::new();
    for entry in registry().entries() {
        let name = entry.name();
        let capital = name[..1].to_uppercase() + &name[1..];
        let types = ["Settings", "Document", "Results"].map(|kind| format!("{capital}{kind}"));
        for (path, code) in &all {
            let path = path.strip_prefix(crates()).unwrap();
            let own = path
                .iter()
                .any(|part| part.to_str().unwrap().starts_with(name));
            let mut words = code.split(|letter: char| !letter.is_alphanumeric());
            if !own && words.any(|word| types.iter().any(|one| one == word)) {
                found.insert(path.display().to_string());
            }
        }
    }
    let expected: BTreeSet<String> = NAMES.map(str::to_owned).into();
    assert_eq!(found, expected);
}

/// Who has the program only has no such file.
#[test]
fn no_text_names_a_file_of_the_repository() {
    let mut found = Vec::new();
    for path in program_files("crates") {
        for line in code(&path).lines() {
            let named = ["docs/", "loads/", "plans/", "scripts/"]
                .iter()
                .any(|folder| {
                    let mut after = line.split(folder).skip(1);
                    after.any(|rest| rest.starts_with(char::is_alphanumeric))
                });
            // Files that are compiled into the program.
            if named && !line.contains("../") {
                found.push(format!("{}: {}", path.display(), line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "name the command that helps: {found:#?}");
}

#[test]
fn every_finding_is_made() {
    let files = program_files("crates").into_iter();
    let code: Vec<String> = files
        .filter(|path| !path.ends_with("replimeter-model/src/doctor.rs"))
        .map(|path| code(&path))
        .collect();
    let missing: Vec<String> = FindingCode::ALL
        .iter()
        // `FindingCode`, which most files import as `Code`.
        .map(|code| format!("Code::{code:?}"))
        .filter(|name| {
            let ends = |rest: &str| !rest.starts_with(char::is_alphanumeric);
            let made = |code: &String| code.split(name.as_str()).skip(1).any(ends);
            !code.iter().any(made)
        })
        .collect();
    assert!(missing.is_empty(), "nothing makes {missing:?}");
}

#[test]
fn driver_trusts_no_public_authority() {
    let lock = fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let packages = lock.split("[[package]]");
    let of_authorities: Vec<&str> = packages
        .filter(|package| {
            let name = package.lines().find(|line| line.starts_with("name"));
            name.is_some_and(|name| name.contains("webpki-root") || name.contains("native-certs"))
        })
        .collect();
    // The one in `vendor`, which has no source, instead of the registry's.
    assert_eq!(of_authorities.len(), 1, "{of_authorities:?}");
    assert!(!of_authorities[0].contains("source"), "{of_authorities:?}");
}
