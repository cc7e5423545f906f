//! `replimeter servers`: servers found on this machine, and servers from other sources.

use std::{
    fs,
    io::Read,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, folder,
    harness::{Test, skip},
    home, server_folder, servers, test, wait,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(both_engines_are_found_with_capabilities),
    test!(missing_server_hint_names_how_to_get_one),
    test!(unusable_server_is_a_warning_with_its_reason),
    test!(unpacked_server_is_linked_and_measured).starts(2),
    test!(file_or_folder_without_server_is_refused),
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

    fn run(&self, args: &[&str]) -> CommandOutput {
        let mut command = self.tool.command(args);
        command.env("REPLIMETER_HOME", self.home());
        wait(command.spawn().unwrap(), LIMIT)
    }

    fn add(&self, source: &Path) -> CommandOutput {
        self.run(&["servers", "add", source.to_str().unwrap()])
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

fn unpacked_server_is_linked_and_measured() {
    let user = TestUser::new();
    let source = server_folder("mysql");
    let ended = user.add(&source).with_code(0);
    assert!(ended.stdout.contains("linked to"), "{ended:#?}");
    let servers = user.home().join("servers");
    let entry = fs::read_dir(&servers)
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
    let again = user
        .add(&source)
        .with_code(2)
        .stderr_contains("already exists")
        .stderr_contains("`rm /");
    assert_eq!(again.stdout, "");

    let source = server_folder("mariadb");
    let document = user
        .run(&["servers", "add", "--json", source.to_str().unwrap()])
        .with_code(0)
        .json();
    assert_eq!(document["schema"], "replimeter.servers/1");
    assert!(
        names(&document["results"][0]).contains(&"galera"),
        "{document}"
    );
    let args = [
        "lag",
        "--json",
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
    let lag = user.run(&args).with_code(0).json();
    assert_eq!(lag["results"]["rows"][0]["rounds"], 20, "{lag}");
}

fn file_or_folder_without_server_is_refused() {
    let user = TestUser::new();
    let archive = user.path("server.tar.gz");
    fs::write(&archive, "packed").unwrap();
    let _ = user
        .add(&archive)
        .with_code(2)
        .stderr_contains("it is a file, not a folder")
        .stderr_contains("hint: unpack an archive with `tar -xf ");
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
        .stderr_contains("<DIR>");
    user.assert_untouched();
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
