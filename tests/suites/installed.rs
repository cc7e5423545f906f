//! Servers that the system has installed, whole or in part. Each test lays the files of an unpacked server over `/usr`, in a
//! namespace of mounts of its own; the other tests never see such servers.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment,
    harness::{Test, skip},
    server_folder, test, wait,
};

pub(crate) const TESTS: &[Test] = &[
    test!(installed_server_is_measured).starts(2),
    test!(installed_server_without_its_files_is_not_used).starts(1),
    test!(installed_server_without_plugins_is_measured).starts(1),
];

/// Reason why these tests cannot run without a namespace of mounts.
const NO_MOUNTS: &str = "only root can lay files over /usr, in a namespace of mounts";

/// A system with other files laid over `/usr`.
struct System {
    tool: TestEnvironment,
    over: PathBuf,
    /// The private folder; without servers at first.
    home: PathBuf,
}

impl System {
    /// Lays a folder with these entries of an unpacked MariaDB over `/usr`; `None` where that is not possible.
    fn with(entries: &[&str]) -> Option<Self> {
        let tool = TestEnvironment::new();
        let (over, home) = (tool.folder().join("over"), tool.folder().join("home"));
        fs::create_dir(&home).unwrap();
        let unpacked = server_folder("mariadb").join("usr");
        let all = entries.iter().chain(&LIBRARIES);
        for entry in all.filter(|entry| unpacked.join(entry).exists()) {
            let to = over.join(entry);
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let copied = Command::new("cp")
                .arg("-a")
                .args([&unpacked.join(entry), &to])
                .status();
            assert!(copied.unwrap().success(), "{entry}");
        }
        let system = Self { tool, over, home };
        system.inside(Path::new("true"), &[]).map(|_| system)
    }

    /// Runs a program; `None` where mounting is not possible.
    fn inside(&self, program: &Path, args: &[&str]) -> Option<CommandOutput> {
        let script =
            "mount -t overlay -o lowerdir=\"$1\":/usr overlay /usr || exit 77\nshift\nexec \"$@\"";
        let tool = self.tool.command::<&str>(&[]);
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(&self.over)
            .arg(program)
            .args(args)
            .current_dir(self.tool.folder())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        for (name, value) in tool.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.env("REPLIMETER_HOME", &self.home);
        let ended = wait(command.spawn().unwrap(), LIMIT);
        // Mounting is refused, or a namespace is.
        let possible = ended.code != Some(77) && !ended.stderr.contains("unshare failed");
        possible.then_some(ended)
    }

    fn run(&self, args: &str) -> CommandOutput {
        let words: Vec<&str> = args.split(' ').collect();
        self.inside(&replimeter_suites::binary(), &words).unwrap()
    }
}

/// Libraries of the server that a system may lack, by architecture.
const LIBRARIES: [&str; 2] = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"];
const PROGRAM: &str = "sbin/mariadbd";
/// Folders of messages and character sets: MariaDB 11.8 has them in the second one.
const FILES: [&str; 2] = ["share/mysql", "share/mariadb"];
const PLUGINS: &str = "lib/mysql/plugin";

fn installed_server_is_measured() {
    let Some(system) = System::with(&[PROGRAM, FILES[0], FILES[1], PLUGINS]) else {
        return skip(NO_MOUNTS);
    };
    let listed = system.run("servers --json").with_code(0).json();
    let found = listed["results"].as_array().unwrap();
    assert_eq!(found.len(), 1, "{listed}");
    assert_eq!(found[0]["origin"], "system");
    assert_eq!(found[0]["program"], "/usr/sbin/mariadbd");
    let _ = system
        .run("lag --sandbox async:1 --rounds 20 --floor-rounds 0")
        .with_code(0);
}

fn installed_server_without_its_files_is_not_used() {
    let Some(system) = System::with(&[PROGRAM]) else {
        return skip(NO_MOUNTS);
    };
    for command in ["servers", "lag --sandbox none --rounds 20"] {
        let refused = system.run(command).with_code(3);
        let _ = refused
            .stderr_contains("/usr/sbin/mariadbd")
            .stderr_contains("its messages and character sets are not in");
    }
    // One that `make servers` unpacked is used instead.
    std::os::unix::fs::symlink(
        server_folder("mariadb").parent().unwrap(),
        system.home.join("servers"),
    )
    .unwrap();
    let _ = system
        .run("lag --sandbox none --rounds 20 --floor-rounds 0")
        .with_code(0);
}

fn installed_server_without_plugins_is_measured() {
    let Some(system) = System::with(&[PROGRAM, FILES[0], FILES[1]]) else {
        return skip(NO_MOUNTS);
    };
    let _ = system
        .run("lag --sandbox none --rounds 20 --floor-rounds 0")
        .with_code(0);
    let refused = system
        .run("lag --sandbox galera:3 --rounds 20")
        .with_code(3);
    let _ = refused.stderr_contains("galera");
}
