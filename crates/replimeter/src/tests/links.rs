//! Links that another user puts where a run writes its files.

use std::{
    io::ErrorKind,
    os::unix::fs::symlink,
    path::PathBuf,
    process,
    sync::{Arc, atomic::Ordering},
    thread,
};

use replimeter_run::run_dir::FILES;

use super::*;

/// Names of files until they are complete, besides those in hidden ones of this process.
const PARTIAL: [&str; 3] = [".replimeter", ".pending", "samples.partial"];

/// Runs a measurement in a directory of which `files` have links before they are written, as soon as they can. Returns
/// the directory, and whether the run ended well. Checks that nothing outside was created.
fn run_with_links(folder: &Path, files: &[String], on_connection: bool) -> (PathBuf, bool) {
    let (dir, outside) = (folder.join("run"), folder.join("outside"));
    fs::create_dir(&outside).unwrap();
    let plant = {
        let (dir, outside, files) = (dir.clone(), outside.clone(), files.to_vec());
        move || {
            let planted = |name: &String| symlink(outside.join(name), dir.join(name));
            let mut kinds = files
                .iter()
                .map(|name| planted(name).map_err(|error| error.kind()));
            kinds.all(|planted| planted.err() != Some(ErrorKind::NotFound))
        }
    };
    let over = Arc::new(AtomicBool::new(false));
    let planter = (!on_connection).then(|| {
        let (plant, over) = (plant.clone(), Arc::clone(&over));
        thread::spawn(move || {
            // Until there is a directory.
            while !over.load(Ordering::Relaxed) && !plant() {}
        })
    });
    let port = match on_connection {
        true => server::start_with(move || assert!(plant(), "there is a directory")),
        false => server::start(),
    };
    let text = plan_text(port, port).replace("= 400", "= 10");
    let ended = carry_out(&text, &dir, &RecordingScreen::default());
    over.store(true, Ordering::Relaxed);
    if let Some(planter) = planter {
        planter.join().unwrap();
    }
    let created: Vec<_> = fs::read_dir(outside).unwrap().collect();
    assert!(created.is_empty(), "{files:?}: {created:?}");
    (dir, ended.is_ok())
}

#[test]
fn links_planted_during_a_run_are_replaced() {
    let folder = TempDir::new().unwrap();
    let later = FILES.map(str::to_owned);
    let (dir, well) = run_with_links(folder.path(), &later, true);
    assert!(well);
    for name in [PLAN, MANIFEST, SAMPLES, SUMMARY, PAGE, MARKDOWN] {
        assert!(
            fs::symlink_metadata(dir.join(name)).unwrap().is_file(),
            "{name}"
        );
    }
}

#[test]
fn link_in_place_of_any_file_of_a_run_reaches_nothing() {
    let hidden = FILES.map(|name| format!(".{name}.{}", process::id()));
    for name in FILES
        .iter()
        .chain(&PARTIAL)
        .map(|name| (*name).to_owned())
        .chain(hidden)
    {
        let folder = TempDir::new().unwrap();
        run_with_links(folder.path(), &[name], false);
    }
}

#[test]
fn files_of_a_run_are_documented() {
    let page = include_str!("../../../../docs/reference/run-directory.md");
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let cells = rows.take_while(|row| !row.starts_with("| `headline`"));
    let names = cells.flat_map(|row| {
        let names = row.split('|').nth(1).unwrap_or_default();
        names
            .split('`')
            .skip(1)
            .step_by(2)
            .map(|name| name.trim_end_matches('/'))
    });
    let documented: std::collections::BTreeSet<&str> = names.chain(["run.journal"]).collect();
    assert_eq!(documented, FILES.into_iter().collect());
}
