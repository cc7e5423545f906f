//! Runs of one plan, one after another, of which the newest are kept.

use std::{
    fs,
    path::{Path, PathBuf},
};

use replimeter_render::files;

use crate::{
    journal::{self, Found},
    run_dir::{JOURNAL, MAX_DOCUMENT, PLAN, RunDir},
};

/// Removes the oldest runs of this command and plan next to the run in `current`, until this many are left besides it. A directory
/// with another name, plan or file stays, and so does a run that is under way.
pub(crate) fn remove_oldest(current: &Path, command: &str, plan: &str, keep: usize) {
    let Some(folder) = current.parent() else {
        return;
    };
    let mut own: Vec<PathBuf> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|dir| dir != current && is_run_of(dir, command, plan))
        .collect();
    own.sort_by_key(|dir| started(dir));
    let excess = own.len().saturating_sub(keep);
    own.into_iter().take(excess).for_each(RunDir::remove);
}

/// Returns when the run of a directory began, and which one of that second it is.
fn started(dir: &Path) -> Option<(String, u32)> {
    let name = dir.file_name()?.to_str()?;
    let mut parts = name.split('-');
    let stamp = parts.next()?.to_owned();
    let number = parts.nth(1).map_or(Some(1), |number| number.parse().ok())?;
    Some((stamp, number))
}

fn is_run_of(dir: &Path, command: &str, plan: &str) -> bool {
    let name = dir.file_name().and_then(|name| name.to_str());
    let is_named = name.is_some_and(|name| name.split('-').nth(1) == Some(command));
    // The plan has the time and the number of these runs.
    let is_of_plan =
        || files::read_text(&dir.join(PLAN), MAX_DOCUMENT).is_ok_and(|text| text == plan);
    let is_over = || !matches!(journal::open(&dir.join(JOURNAL)), Ok(Found::Active));
    is_named && started(dir).is_some() && RunDir::has_only_a_run(dir) && is_of_plan() && is_over()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, os::unix::fs::symlink};

    use replimeter_render::rows::partial_of;

    use super::*;
    use crate::{
        journal::Journal,
        run_dir::{SAMPLES, SUMMARY},
    };

    #[test]
    fn only_the_oldest_own_runs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let run = |name: &str, plan: &str| {
            let dir = folder.path().join(name);
            fs::create_dir(&dir).unwrap();
            fs::write(dir.join(PLAN), plan).unwrap();
            fs::write(dir.join(SUMMARY), "{}").unwrap();
            dir
        };
        let own = "rotate = \"24h\"\n";
        let names = |number: u32| format!("20261121T12000{number}Z-watch");
        for number in 0..6 {
            run(&names(number), own);
        }
        // Older ones that are not its own.
        run("20251121T120000Z-watch", "rotate = \"1h\"\n");
        run("20251121T120000Z-tap", own);
        run("kept-watch-of-2025", own);
        let foreign = run("20251121T120000Z-watch-2", own);
        fs::write(foreign.join("notes.txt"), "").unwrap();
        let active = run("20251121T120000Z-watch-3", own);
        let journal = Journal::create(&active.join(JOURNAL)).unwrap();
        symlink(
            folder.path().join(names(4)),
            folder.path().join("20251121T120000Z-watch-4"),
        )
        .unwrap();
        // One that was killed.
        let killed = run("20251121T120000Z-watch-10", own);
        fs::write(killed.join(JOURNAL), "").unwrap();
        fs::write(partial_of(&killed.join(SAMPLES)), "").unwrap();
        let current = folder.path().join(names(5));
        let left = || -> BTreeSet<String> {
            let entries = fs::read_dir(folder.path()).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name());
            names.map(|name| name.into_string().unwrap()).collect()
        };
        let before = left();
        remove_oldest(&current, "watch", own, 4);
        let removed: Vec<String> = before.difference(&left()).cloned().collect();
        assert_eq!(removed, ["20251121T120000Z-watch-10", &names(0)]);
        drop(journal);
    }
}
