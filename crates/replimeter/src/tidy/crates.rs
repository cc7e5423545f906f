//! The number of crates in the release build, which a newcomer waits for.

use std::{collections::BTreeSet, env, process::Command};

use super::sources::repository;

/// A commit that raises it says why.
const CRATES_IN_RELEASE: usize = 212;

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
