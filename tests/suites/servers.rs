//! `replimeter servers`: servers found on this machine, and servers from other sources.

use std::{
    env, fs,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command},
};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, folder,
    harness::{Test, skip},
    home, server_folder, servers, test, wait, wait_until,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(both_engines_are_found_with_capabilities),
    test!(missing_server_hint_names_how_to_get_one),
    test!(unusable_server_is_a_warning_with_its_reason),
    test!(packed_server_is_added_and_measured).starts(2),
    test!(unpacked_server_is_linked),
    test!(hostile_archive_is_refused_without_leftovers),
    test!(interrupted_or_killed_add_is_cleaned_up),
    test!(folder_closed_to_the_server_user_is_named),
];

/// Creates a separate home on a disk, which every user may enter.
struct TestUser {
    tool: TestEnvironment,
    folder: tempfile::TempDir,
}

impl TestUser {
    fn new() -> Self {
        let folder = folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let user = Self {
            tool: TestEnvironment::new(),
            folder,
        };
        fs::create_dir(user.home()).unwrap();
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn home(&self) -> PathBuf {
        self.path("home")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.tool.command(args);
        command.env("REPLIMETER_HOME", self.home());
        command
    }

    fn run(&self, args: &[&str]) -> CommandOutput {
        wait(self.command(args).spawn().unwrap(), LIMIT)
    }

    fn add(&self, source: &Path) -> CommandOutput {
        self.run(&["servers", "add", source.to_str().unwrap()])
    }

    /// Packs files with the system's tar, quickly.
    fn pack(&self, name: &str, args: &[&str]) -> PathBuf {
        let path = self.path(name);
        let status = Command::new("tar")
            .args(["--use-compress-program=gzip -1", "-cf"])
            .arg(&path)
            .args(args)
            .status()
            .unwrap();
        assert!(status.success());
        path
    }

    fn assert_untouched(&self) {
        let entries: Vec<_> = fs::read_dir(self.home())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert!(
            entries.is_empty(),
            "left in the private folder: {entries:?}"
        );
    }
}

fn names(row: &Value) -> Vec<&str> {
    row["abilities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect()
}

fn both_engines_are_found_with_capabilities() {
    if std::env::var_os("REPLIMETER_TEST_SERVERS").is_some() {
        return skip(
            "other series than the system's own, with their own loader, lack a state transfer",
        );
    }
    let tool = TestEnvironment::new();
    let servers = servers().to_str().unwrap();
    let document = tool
        .run(&["servers", "--json", "--servers", servers])
        .with_code(0)
        .json();
    assert_eq!(document["schema"], "replimeter.servers/1");
    assert_eq!(document["warnings"], serde_json::json!([]));
    let rows = document["results"].as_array().unwrap();
    let row = |engine: &str| rows.iter().find(|row| row["engine"] == engine).unwrap();
    assert_eq!(
        names(row("mariadb")),
        [
            "async",
            "chain",
            "semi-sync",
            "galera",
            "state-transfer",
            "federated"
        ]
    );
    assert_eq!(
        names(row("mysql")),
        ["async", "chain", "semi-sync", "group"]
    );
    for row in rows {
        assert_eq!(row["missing"], serde_json::json!([]));
        assert_eq!(row["origin"], "named");
        assert!(Path::new(row["program"].as_str().unwrap()).is_file());
        assert!(
            row["version"]
                .as_str()
                .unwrap()
                .starts_with(|first: char| first.is_ascii_digit())
        );
    }
    assert_eq!(rows[0]["engine"], "mariadb", "the best first");

    let text = tool
        .run(&["servers", "--servers", servers])
        .with_code(0)
        .stdout;
    let mut settings = insta::Settings::clone_current();
    settings.add_filter(servers, "SERVERS");
    // They are links there.
    settings.add_filter(home().join("servers").to_str().unwrap(), "SERVERS");
    settings.add_filter(r"\d+\.\d+\.\d+", "VERSION");
    settings.add_filter(" +\n", "\n");
    // Column widths follow the versions.
    settings.add_filter("  +", "  ");
    settings.bind(|| insta::assert_snapshot!("list", text));

    let found = tool.run(&["servers", "--json"]).with_code(0).json();
    assert!(
        found["results"].as_array().unwrap().len() >= 2,
        "the private folder is looked at too: {found}"
    );
}

fn missing_server_hint_names_how_to_get_one() {
    let user = TestUser::new();
    let servers = user.home();
    let args = ["servers", "--servers", servers.to_str().unwrap()];
    let ended = user
        .run(&args)
        .with_code(3)
        .stderr_contains("no MariaDB or MySQL server found")
        .stderr_contains("make servers");
    assert_eq!(ended.stdout, "");
    let ended = user.run(&[&args[..], &["--json"]].concat()).with_code(3);
    assert_eq!(ended.json()["results"], serde_json::json!([]));
    user.assert_untouched();
}

fn unusable_server_is_a_warning_with_its_reason() {
    let user = TestUser::new();
    let broken = user.path("servers/broken/bin");
    fs::create_dir_all(&broken).unwrap();
    fs::create_dir_all(user.path("servers/broken/share/english")).unwrap();
    let mut program = Vec::new();
    fs::File::open(server_folder("mariadb").join("usr/sbin/mariadbd"))
        .unwrap()
        .take(4096)
        .read_to_end(&mut program)
        .unwrap();
    // As if built for another kind of machine.
    program[18] = 21;
    fs::write(broken.join("mariadbd"), program).unwrap();
    fs::set_permissions(broken.join("mariadbd"), fs::Permissions::from_mode(0o755)).unwrap();
    let servers = user.path("servers");
    let args = ["servers", "--json", "--servers", servers.to_str().unwrap()];
    let document = user
        .run(&args)
        .with_code(3)
        .stderr_contains("built for powerpc64")
        .json();
    assert_eq!(document["warnings"][0]["code"], "server-unusable");
    assert!(
        document["warnings"][0]["message"]
            .as_str()
            .unwrap()
            .contains("built for powerpc64"),
        "{document}"
    );
    let lag = user
        .run(&["lag", "--servers", servers.to_str().unwrap()])
        .with_code(3);
    let _ = lag
        .stderr_contains("no MariaDB or MySQL server found")
        .stderr_contains("built for powerpc64");
}

fn packed_server_is_added_and_measured() {
    let user = TestUser::new();
    let source = server_folder("mariadb");
    // With an enclosing folder, as vendors pack archives; under a name without a version.
    let name = source.file_name().unwrap().to_str().unwrap();
    let packed = user.pack(
        "download",
        &["-C", source.parent().unwrap().to_str().unwrap(), name],
    );
    let document = user
        .run(&["servers", "add", "--json", packed.to_str().unwrap()])
        .with_code(0)
        .json();
    assert_eq!(document["schema"], "replimeter.servers/1");
    let row = &document["results"][0];
    assert!(names(row).contains(&"galera"), "{document}");
    let place = user
        .home()
        .join("servers")
        .join(format!("mariadb-{}", row["version"].as_str().unwrap()));
    assert!(
        Path::new(row["program"].as_str().unwrap()).starts_with(&place),
        "{document}"
    );
    let meta = fs::metadata(place.join("usr/sbin/mariadbd")).unwrap();
    assert_eq!(
        (meta.mode() & 0o7777, meta.uid()),
        (0o755, rustix::process::geteuid().as_raw())
    );
    assert_eq!(
        fs::read_dir(user.home().join("servers")).unwrap().count(),
        1,
        "only the server"
    );

    let servers = user.home().join("servers");
    let args = [
        "--sandbox",
        "mariadb/async:1",
        "--servers",
        servers.to_str().unwrap(),
        "--rounds",
        "20",
        "--floor-rounds",
        "0",
        "--timeout",
        "60s",
    ];
    let lag = user
        .run(&[&["lag", "--json"][..], &args].concat())
        .with_code(0)
        .json();
    assert_eq!(lag["results"]["rows"][0]["rounds"], 20, "{lag}");

    let again = user
        .add(&packed)
        .with_code(2)
        .stderr_contains("already exists")
        .stderr_contains("rm -r");
    assert_eq!(again.stdout, "");
    assert!(place.join("usr/sbin/mariadbd").exists());
}

fn unpacked_server_is_linked() {
    let user = TestUser::new();
    let source = server_folder("mysql");
    let ended = user.add(&source).with_code(0);
    assert!(ended.stdout.contains("linked to"), "{ended:#?}");
    let entry = fs::read_dir(user.home().join("servers"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(
        fs::read_link(&entry).unwrap(),
        source.canonicalize().unwrap()
    );
    let found = user.run(&["servers", "--json"]).with_code(0).json();
    let rows = found["results"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["engine"] == "mysql" && row["origin"] == "private"),
        "{found}"
    );
    let _ = user
        .add(&source)
        .with_code(2)
        .stderr_contains("already exists")
        .stderr_contains("`rm /");
}

fn hostile_archive_is_refused_without_leftovers() {
    let user = TestUser::new();
    let letter = user.path("letter.tar.gz");
    fs::write(&letter, "Dear reader,\n").unwrap();
    let _ = user
        .add(&letter)
        .with_code(2)
        .stderr_contains("it is not an archive")
        .stderr_contains("hint: ");
    let empty = user.path("empty");
    fs::create_dir(&empty).unwrap();
    let _ = user
        .add(&empty)
        .with_code(2)
        .stderr_contains("no mariadbd or mysqld in it; it contains nothing");
    let _ = user
        .add(&user.path("nothing"))
        .with_code(2)
        .stderr_contains("No such file");
    let _ = user
        .run(&["servers", "add"])
        .with_code(2)
        .stderr_contains("DIR|TARBALL");

    let outside = user.path("outside");
    fs::write(&outside, "mine").unwrap();
    fs::create_dir_all(user.path("evil/bin")).unwrap();
    let evil = user.path("evil");
    let evil = evil.to_str().unwrap();
    let climbing = user.pack("climbing.tar.gz", &["-P", "-C", evil, "bin", "../outside"]);
    let _ = user
        .add(&climbing)
        .with_code(2)
        .stderr_contains("../outside")
        .stderr_contains("damaged");
    let absolute = user.pack("absolute.tar.gz", &["-P", outside.to_str().unwrap()]);
    let _ = user
        .add(&absolute)
        .with_code(2)
        .stderr_contains("no mariadbd or mysqld in it");
    std::os::unix::fs::symlink("../../../etc", user.path("evil/bin/way")).unwrap();
    let link = user.pack("link.tar.gz", &["-C", evil, "bin"]);
    let _ = user
        .add(&link)
        .with_code(2)
        .stderr_contains("points outside")
        .stderr_contains("do not trust");

    let whole = fs::read(user.pack(
        "whole.tar.gz",
        &["-C", server_folder("mariadb").to_str().unwrap(), "usr/sbin"],
    ))
    .unwrap();
    let half = user.path("half.tar.gz");
    fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    let _ = user
        .add(&half)
        .with_code(2)
        .stderr_contains("damaged, incomplete")
        .stderr_contains("checksum");
    let _ = user
        .add(&user.path("whole.tar.gz"))
        .with_code(2)
        .stderr_contains("its messages and character sets are not in");

    user.assert_untouched();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
}

/// A program in place of the system's tar: it unpacks one file, and ends only with `replimeter`.
const ENDLESS_TAR: &str = "#!/bin/sh
for tree; do :; done
echo content >\"$tree/file\"
while [ -d /proc/$PPID ]; do sleep 0.05; done
";

/// Starts an `add` that does not end, and waits until it has unpacked something.
fn endless(user: &TestUser, packed: &Path) -> Child {
    let programs = user.path("programs");
    fs::create_dir_all(&programs).unwrap();
    let tar = programs.join("tar");
    if !tar.exists() {
        fs::write(&tar, ENDLESS_TAR).unwrap();
        fs::set_permissions(&tar, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let path = env::var_os("PATH").unwrap();
    let path = env::join_paths([programs].into_iter().chain(env::split_paths(&path)));
    let child = user
        .command(&["servers", "add", packed.to_str().unwrap()])
        .env("PATH", path.unwrap())
        .spawn()
        .unwrap();
    wait_until("a file is unpacked", LIMIT, || {
        hidden(user).iter().any(|name| {
            let folder = user.home().join("servers").join(name);
            name.ends_with(".tmp") && has_file(&folder, "file")
        })
    });
    child
}

/// Returns whether a file of this name is in a folder, or in one that is in it.
fn has_file(folder: &Path, name: &str) -> bool {
    let inside = fs::read_dir(folder).into_iter().flatten().flatten();
    folder.join(name).exists()
        || inside
            .filter(|entry| entry.path().is_dir())
            .any(|entry| has_file(&entry.path(), name))
}

fn hidden(user: &TestUser) -> Vec<String> {
    let entries = fs::read_dir(user.home().join("servers"))
        .into_iter()
        .flatten()
        .flatten();
    entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect()
}

fn signal(child: &Child, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

fn interrupted_or_killed_add_is_cleaned_up() {
    let user = TestUser::new();
    fs::write(user.path("content"), "packed").unwrap();
    let packed = user.pack(
        "packed.tar.gz",
        &["-C", user.folder.path().to_str().unwrap(), "content"],
    );
    let child = endless(&user, &packed);
    signal(&child, rustix::process::Signal::INT);
    let _ = wait(child, LIMIT)
        .with_code(130)
        .stderr_contains("no server was added");
    user.assert_untouched();

    let mut child = endless(&user, &packed);
    signal(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    assert!(!hidden(&user).is_empty());
    let servers = user.home().join("servers");
    let _ = user
        .run(&["servers", "--servers", servers.to_str().unwrap()])
        .with_code(3)
        .stderr_contains("no MariaDB or MySQL");
    let packed = user.path("small.tar.gz");
    fs::write(&packed, [0x1f, 0x8b]).unwrap();
    let _ = user.add(&packed).with_code(2);
    assert_eq!(hidden(&user), Vec::<String>::new());
}

fn folder_closed_to_the_server_user_is_named() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root changes to another user");
    }
    let user = TestUser::new();
    let closed = user.path("closed");
    fs::create_dir_all(closed.join("bin")).unwrap();
    fs::write(closed.join("bin/mysqld"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let _ = user
        .add(&closed)
        .with_code(2)
        .stderr_contains("is not accessible to the system user")
        .stderr_contains("every user may enter");
    user.assert_untouched();
}
