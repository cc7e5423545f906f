//! The number of crates in the release build, which a newcomer waits for.

use std::{collections::BTreeSet, env, fs, process::Command};

use toml::{Table, Value};

use crate::net::repository;

/// A commit that raises it says why.
const CRATES_IN_RELEASE: usize = 222;

#[test]
fn release_build_has_no_more_crates() {
    let tree = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(
            "tree --offline --locked --edges normal,build --prefix none --no-dedupe --format {p}"
                .split(' '),
        )
        .args("--package replimeter --package replimeter-udf".split(' '))
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(tree.status.success(), "{tree:?}");
    let text = String::from_utf8(tree.stdout).unwrap();
    // A path, or `(proc-macro)`, may follow the version.
    let crates: BTreeSet<String> = text
        .lines()
        .map(|line| line.split(' ').take(2).collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        crates.len(),
        CRATES_IN_RELEASE,
        "the release build has another number of crates: if it rose, say why in the commit; then change CRATES_IN_RELEASE"
    );
}

/// `make check` refuses other dependents with `cargo deny`; this holds without it.
#[test]
fn unmaintained_crates_come_with_the_driver_only() {
    let table = |name: &str| -> Table {
        let text = fs::read_to_string(repository().join(name)).unwrap();
        text.parse().unwrap()
    };
    let (rules, lock) = (table("deny.toml"), table("Cargo.lock"));
    let packages = lock["package"].as_array().unwrap();
    let mut of_driver = Vec::new();
    for rule in rules["bans"]["deny"].as_array().unwrap() {
        let name = rule["crate"].as_str().unwrap();
        let Some(wrappers) = rule.get("wrappers").and_then(Value::as_array) else {
            continue;
        };
        let depends = |package: &&Value| {
            let all = package.get("dependencies").and_then(Value::as_array);
            let mut all = all.into_iter().flatten().filter_map(Value::as_str);
            // A version may follow.
            all.any(|one| one.split(' ').next() == Some(name))
        };
        let dependents: Vec<&Value> = packages
            .iter()
            .filter(depends)
            .map(|package| &package["name"])
            .collect();
        assert_eq!(dependents, wrappers.iter().collect::<Vec<_>>(), "{name}");
        of_driver.push(name);
    }
    assert_eq!(
        of_driver,
        ["webpki", "rustls-pemfile", "bufstream", "named_pipe"]
    );
}
