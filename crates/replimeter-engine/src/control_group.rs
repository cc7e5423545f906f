//! Control groups of processes, as Linux describes them in `/proc` (cgroups(7)).

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the version and the mount point of a hierarchy that can limit processor time, from a
/// line of `mountinfo` (proc(5)).
#[must_use]
pub fn hierarchy(mount: &str) -> Option<(u8, PathBuf)> {
    let (left, right) = mount.split_once(" - ")?;
    let root = PathBuf::from(left.split(' ').nth(4)?);
    let mut right = right.split(' ');
    match right.next()? {
        "cgroup2" => Some((2, root)),
        "cgroup" => right
            .nth(1)?
            .split(',')
            .any(|option| option == "cpu")
            .then_some((1, root)),
        _ => None,
    }
}

/// Returns the path of a process's control group, from its `cgroup` (cgroups(7)).
#[must_use]
pub fn group(text: &str, version: u8) -> Option<String> {
    let fits = |controllers: &str| match version {
        2 => controllers.is_empty(),
        _ => controllers.split(',').any(|controller| controller == "cpu"),
    };
    text.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':');
        let controllers = parts.nth(1)?;
        fits(controllers)
            .then(|| parts.next().map(str::to_owned))
            .flatten()
    })
}

/// Returns the files with the throttling of a process, such as `/proc/1`: one in each hierarchy that can limit it.
#[must_use]
pub fn cpu_stats(process: &Path) -> Vec<PathBuf> {
    let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
    let (mounts, groups) = (read("mountinfo"), read("cgroup"));
    let places = mounts.lines().filter_map(hierarchy);
    let files = places.filter_map(|(version, root)| {
        let inside = group(&groups, version)?;
        let file = root.join(inside.trim_start_matches('/')).join("cpu.stat");
        file.exists().then_some(file)
    });
    files.collect()
}
