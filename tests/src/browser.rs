//! Chromium, for the pages.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

/// Returns Chromium, under any of its names on PATH.
#[must_use]
pub fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.exists())
}

/// Returns Chromium without a window, which prints the final document of a page and its messages; its profile is in this folder.
///
/// # Panics
/// If there is no Chromium.
#[must_use]
pub fn headless(profile: &Path) -> Command {
    let mut command = Command::new(browser().expect("Chromium is on PATH"));
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .args([
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            "--enable-logging=stderr",
            "--v=0",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.display()));
    command
}
