//! Run directories that another user made: links, pipes and impossible values.

use std::os::unix::fs::symlink;

use replimeter_run::of_files;

use super::*;

/// Returns the message of the failure to use a run.
fn refused(dir: &Path) -> String {
    let used = of_files(|| Recorded::open(registry(), dir, &GOES_ON)?.render(dir));
    let failure = used
        .err()
        .unwrap_or_else(|| panic!("{} is used", dir.display()));
    assert_eq!(failure.kind, FailureKind::Failed, "{}", failure.message);
    failure.message
}

#[test]
fn links_and_pipes_in_a_run_directory_are_not_opened() {
    let outside = TempDir::new().unwrap();
    for name in [PLAN, MANIFEST, SUMMARY, SAMPLES] {
        for link in [true, false] {
            let dir = TempDir::new().unwrap();
            recorded(dir.path(), 100);
            let (path, copy) = (dir.path().join(name), outside.path().join(name));
            fs::rename(&path, &copy).unwrap();
            let reason = if link {
                symlink(copy, &path).unwrap();
                "it is a link"
            } else {
                rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
                "it is not a regular file"
            };
            // The charts of `ping` need no samples.
            let samples = || reading::read(&path, &["server"], |_, _| ()).unwrap_err();
            let message = match name {
                SAMPLES => samples().to_string(),
                _ => refused(dir.path()),
            };
            assert!(
                message.contains(name) && message.ends_with(reason),
                "{message}"
            );
        }
    }
}

#[test]
fn impossible_values_of_a_run_are_an_error() {
    let dir = TempDir::new().unwrap();
    recorded(dir.path(), 100);
    let path = dir.path().join(SUMMARY);
    let document: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let mut wrong = document.clone();
    wrong["results"]["rows"] = json!(1e300);
    write_json(&path, &wrong).unwrap();
    assert!(refused(dir.path()).contains(SUMMARY));
    // A reader that panics on them.
    let failure = of_files(|| -> Result<(), CliError> { panic!("{}", json!([])[0]) }).unwrap_err();
    assert!(
        failure.message.contains("contradict each other"),
        "{}",
        failure.message
    );
    // A record of any size is not read.
    let text = format!("{}{document}", " ".repeat(8 << 20));
    fs::write(&path, text).unwrap();
    assert!(refused(dir.path()).contains("more than 8388608"));
}
