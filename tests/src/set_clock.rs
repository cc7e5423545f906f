//! Servers whose calendar clock a test sets.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use replimeter_model::engine::Engine;
use replimeter_sandbox::{Home, Install, Member};

use crate::{home, search};

/// Reason why a test that needs [`servers_with_a_clock_to_set`] cannot run without them.
pub const NO_FAKETIME: &str = "libfaketime is missing; on Debian: apt-get install libfaketime";

/// Returns the library that sets the clock of a process, which `make test` installs.
#[must_use]
pub fn libfaketime() -> Option<String> {
    let library = ["x86_64-linux-gnu", "aarch64-linux-gnu"]
        .map(|triplet| format!("/usr/lib/{triplet}/faketime/libfaketimeMT.so.1"));
    library.into_iter().find(|path| Path::new(path).exists())
}

/// Returns a folder for `--servers` or `--replica-server` with a server whose calendar
/// clock [`set_clock`] sets; its other clocks stay correct. `None` without libfaketime.
#[must_use]
pub fn servers_with_a_clock_to_set(engine: Engine) -> Option<PathBuf> {
    let library = libfaketime()?;
    let private = Home::at(home()).unwrap();
    let install = Install::find(&search(&private, None), Some(engine))
        .unwrap_or_else(|error| panic!("{error}"));
    let command = install.command();
    let real: Vec<String> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| format!("'{}'", word.to_str().unwrap()))
        .collect();
    let variables: String = install
        .environment()
        .into_iter()
        .map(|(name, value)| format!("export {name}='{}'\n", value.to_str().unwrap()))
        .collect();
    // At a fixed path: templates are stored by the path of the binary.
    let folder = home()
        .join("clocks")
        .join(format!("{}-{}", engine.name(), install.version));
    let program = folder
        .join("bin")
        .join(install.program.file_name().unwrap());
    // The clock's file is next to the data directory; a server without one has the correct time.
    let script = format!(
        "#!/bin/sh\nfor word in \"$@\"; do case $word in --datadir=*) FAKETIME_TIMESTAMP_FILE=${{word#--datadir=}}/../clock;; esac; done\n\
         export FAKETIME_TIMESTAMP_FILE FAKETIME_CACHE_DURATION=1 FAKETIME_DONT_FAKE_MONOTONIC=1 DONT_FAKE_MONOTONIC=1\n\
         {variables}export LD_PRELOAD={library}\nexec {} \"$@\"\n",
        real.join(" ")
    );
    if fs::read_to_string(&program).is_ok_and(|found| found == script) {
        return Some(folder);
    }
    let _ = fs::remove_dir_all(&folder);
    for inside in ["bin", "share", "lib/mysql"] {
        fs::create_dir_all(folder.join(inside)).unwrap();
    }
    for entered in [&home().join("clocks"), &folder] {
        fs::set_permissions(entered, fs::Permissions::from_mode(0o755)).unwrap();
    }
    symlink(&install.share, folder.join("share/mysql")).unwrap();
    if let Some(plugins) = &install.plugins {
        symlink(plugins, folder.join("lib/mysql/plugin")).unwrap();
    }
    // Atomically, for suites that run at the same time.
    let made = folder.join("server.new");
    fs::write(&made, script).unwrap();
    fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(&made, program).unwrap();
    Some(folder)
}

/// Sets the clock of a server from [`servers_with_a_clock_to_set`] ahead of the
/// correct time by this number of seconds (behind if negative), within about a second.
pub fn set_clock(member: &Member, seconds: f64) {
    let made = member.folder.join("clock.new");
    fs::write(&made, format!("{seconds:+}\n")).unwrap();
    fs::set_permissions(&made, fs::Permissions::from_mode(0o644)).unwrap();
    fs::rename(&made, member.folder.join("clock")).unwrap();
}
