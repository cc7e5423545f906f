//! `replimeter servers`: what is found on this machine, and servers of other origins.

use std::{
    fs,
    io::Read,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, Command},
    time::Duration,
};

use replimeter_suites::{
    Ended, Tool, folder,
    harness::{Test, skip},
    home, test, until, wait,
};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(both_engines_are_found_with_what_they_can_do),
    test!(where_there_is_none_the_hint_says_how_to_get_one),
    test!(what_cannot_run_here_is_a_warning_with_its_cause),
    test!(a_packed_server_is_added_and_measures),
    test!(an_unpacked_server_is_linked),
    test!(what_is_no_server_or_hostile_is_refused_and_leaves_nothing),
    test!(interrupted_it_leaves_nothing_and_killed_only_what_the_next_removes),
    test!(a_folder_that_the_servers_user_cannot_enter_is_named),
];

/// A home of its own on a disk, which every user may enter.
struct Person {
    tool: Tool,
    folder: tempfile::TempDir,
}

impl Person {
    fn new() -> Self {
        let folder = folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let person = Self {
            tool: Tool::new(),
            folder,
        };
        fs::create_dir(person.home()).unwrap();
        person
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

    fn run(&self, args: &[&str]) -> Ended {
        wait(
            self.command(args).spawn().unwrap(),
            Duration::from_secs(120),
        )
    }

    fn add(&self, source: &Path) -> Ended {
        self.run(&["servers", "add", source.to_str().unwrap()])
    }

    /// Packs files with the system's tar.
    fn pack(&self, name: &str, args: &[&str]) -> PathBuf {
        let path = self.path(name);
        let status = Command::new("tar")
            .arg("-czf")
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

/// The unpacked server of an engine that `make servers` fetched.
fn fetched(engine: &str) -> PathBuf {
    let found = fs::read_dir(home().join("servers"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_str()
                .unwrap()
                .starts_with(&format!("{engine}-"))
        });
    found.unwrap_or_else(|| {
        panic!(
            "no {engine} in {}: `make servers` gets it",
            home().display()
        )
    })
}

fn names(row: &Value) -> Vec<&str> {
    row["abilities"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name.as_str().unwrap())
        .collect()
}

fn both_engines_are_found_with_what_they_can_do() {
    let tool = Tool::new();
    let servers = home().join("servers");
    let servers = servers.to_str().unwrap();
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

fn where_there_is_none_the_hint_says_how_to_get_one() {
    let person = Person::new();
    let servers = person.home();
    let args = ["servers", "--servers", servers.to_str().unwrap()];
    let ended = person
        .run(&args)
        .with_code(3)
        .saying("no MariaDB or MySQL server found")
        .saying("make servers");
    assert_eq!(ended.stdout, "");
    let ended = person.run(&[&args[..], &["--json"]].concat()).with_code(3);
    assert_eq!(ended.json()["results"], serde_json::json!([]));
    person.assert_untouched();
}

fn what_cannot_run_here_is_a_warning_with_its_cause() {
    let person = Person::new();
    let broken = person.path("servers/broken/bin");
    fs::create_dir_all(&broken).unwrap();
    fs::create_dir_all(person.path("servers/broken/share/english")).unwrap();
    let mut program = Vec::new();
    fs::File::open(fetched("mariadb").join("usr/sbin/mariadbd"))
        .unwrap()
        .take(4096)
        .read_to_end(&mut program)
        .unwrap();
    // As if built for another kind of machine.
    program[18] = 21;
    fs::write(broken.join("mariadbd"), program).unwrap();
    fs::set_permissions(broken.join("mariadbd"), fs::Permissions::from_mode(0o755)).unwrap();
    let servers = person.path("servers");
    let args = ["servers", "--json", "--servers", servers.to_str().unwrap()];
    let document = person
        .run(&args)
        .with_code(3)
        .saying("built for powerpc64")
        .json();
    assert_eq!(document["warnings"][0]["code"], "server-unusable");
    assert!(
        document["warnings"][0]["message"]
            .as_str()
            .unwrap()
            .contains("built for powerpc64"),
        "{document}"
    );
    let lag = person
        .run(&["lag", "--servers", servers.to_str().unwrap()])
        .with_code(3);
    let _ = lag
        .saying("no MariaDB or MySQL server found")
        .saying("built for powerpc64");
}

fn a_packed_server_is_added_and_measures() {
    let person = Person::new();
    let source = fetched("mariadb");
    // With a folder around it, as vendors pack; under a name that says nothing.
    let name = source.file_name().unwrap().to_str().unwrap();
    let packed = person.pack(
        "download",
        &["-C", source.parent().unwrap().to_str().unwrap(), name],
    );
    let document = person
        .run(&["servers", "add", "--json", packed.to_str().unwrap()])
        .with_code(0)
        .json();
    assert_eq!(document["schema"], "replimeter.servers/1");
    let row = &document["results"][0];
    assert!(names(row).contains(&"galera"), "{document}");
    let place = person
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
        fs::read_dir(person.home().join("servers")).unwrap().count(),
        1,
        "only the server"
    );

    let servers = person.home().join("servers");
    let args = [
        "--sandbox",
        "mariadb/async:1",
        "--servers",
        servers.to_str().unwrap(),
        "--rounds",
        "20",
        "--floor-rounds",
        "0",
    ];
    let lag = person
        .run(&[&["lag", "--json"][..], &args].concat())
        .with_code(0)
        .json();
    assert_eq!(lag["results"]["rows"][0]["rounds"], 20, "{lag}");

    let again = person
        .add(&packed)
        .with_code(3)
        .saying("already exists")
        .saying("rm -r");
    assert_eq!(again.stdout, "");
    assert!(place.join("usr/sbin/mariadbd").exists());
}

fn an_unpacked_server_is_linked() {
    let person = Person::new();
    let source = fetched("mysql");
    let ended = person.add(&source).with_code(0);
    assert!(ended.stdout.contains("linked to"), "{ended:#?}");
    let entry = fs::read_dir(person.home().join("servers"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    assert_eq!(
        fs::read_link(&entry).unwrap(),
        source.canonicalize().unwrap()
    );
    let found = person.run(&["servers", "--json"]).with_code(0).json();
    let rows = found["results"].as_array().unwrap();
    assert!(
        rows.iter()
            .any(|row| row["engine"] == "mysql" && row["origin"] == "private"),
        "{found}"
    );
    let _ = person
        .add(&source)
        .with_code(3)
        .saying("already exists")
        .saying("`rm /");
}

fn what_is_no_server_or_hostile_is_refused_and_leaves_nothing() {
    let person = Person::new();
    let letter = person.path("letter.tar.gz");
    fs::write(&letter, "Dear reader,\n").unwrap();
    let _ = person
        .add(&letter)
        .with_code(3)
        .saying("it is not an archive")
        .saying("hint: ");
    let empty = person.path("empty");
    fs::create_dir(&empty).unwrap();
    let _ = person
        .add(&empty)
        .with_code(3)
        .saying("no mariadbd or mysqld in it; it contains nothing");
    let _ = person
        .add(&person.path("nothing"))
        .with_code(3)
        .saying("No such file");
    let _ = person
        .run(&["servers", "add"])
        .with_code(2)
        .saying("DIR|TARBALL");

    let outside = person.path("outside");
    fs::write(&outside, "mine").unwrap();
    fs::create_dir_all(person.path("evil/bin")).unwrap();
    let evil = person.path("evil");
    let evil = evil.to_str().unwrap();
    let climbing = person.pack("climbing.tar.gz", &["-P", "-C", evil, "bin", "../outside"]);
    let _ = person
        .add(&climbing)
        .with_code(3)
        .saying("../outside")
        .saying("damaged");
    let absolute = person.pack("absolute.tar.gz", &["-P", outside.to_str().unwrap()]);
    let _ = person
        .add(&absolute)
        .with_code(3)
        .saying("no mariadbd or mysqld in it");
    std::os::unix::fs::symlink("../../../etc", person.path("evil/bin/way")).unwrap();
    let link = person.pack("link.tar.gz", &["-C", evil, "bin"]);
    let _ = person
        .add(&link)
        .with_code(3)
        .saying("points outside")
        .saying("do not trust");

    let whole = fs::read(person.pack(
        "whole.tar.gz",
        &["-C", fetched("mariadb").to_str().unwrap(), "usr/sbin"],
    ))
    .unwrap();
    let half = person.path("half.tar.gz");
    fs::write(&half, &whole[..whole.len() / 2]).unwrap();
    let _ = person
        .add(&half)
        .with_code(3)
        .saying("damaged, incomplete")
        .saying("checksum");
    let _ = person
        .add(&person.path("whole.tar.gz"))
        .with_code(3)
        .saying("its messages and character sets are not in");

    person.assert_untouched();
    assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
}

/// An `add` that takes long, and the moment when it is under way.
fn slow(person: &Person, packed: &Path) -> Child {
    let child = person
        .command(&["servers", "add", packed.to_str().unwrap()])
        .spawn()
        .unwrap();
    until("unpacking has begun", Duration::from_secs(20), || {
        hidden(person).iter().any(|name| name.ends_with(".tmp"))
    });
    child
}

fn hidden(person: &Person) -> Vec<String> {
    let entries = fs::read_dir(person.home().join("servers"))
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

fn interrupted_it_leaves_nothing_and_killed_only_what_the_next_removes() {
    let person = Person::new();
    let sparse = person.path("sparse");
    fs::File::create(&sparse).unwrap().set_len(1 << 30).unwrap();
    let slow_to_unpack = person.pack(
        "slow.tar.gz",
        &["-C", person.folder.path().to_str().unwrap(), "sparse"],
    );
    let child = slow(&person, &slow_to_unpack);
    signal(&child, rustix::process::Signal::INT);
    let _ = wait(child, Duration::from_secs(20))
        .with_code(130)
        .saying("no server was added");
    person.assert_untouched();

    let mut child = slow(&person, &slow_to_unpack);
    signal(&child, rustix::process::Signal::KILL);
    child.wait().unwrap();
    assert!(!hidden(&person).is_empty());
    let servers = person.home().join("servers");
    let _ = person
        .run(&["servers", "--servers", servers.to_str().unwrap()])
        .with_code(3)
        .saying("no MariaDB or MySQL");
    let packed = person.path("small.tar.gz");
    fs::write(&packed, [0x1f, 0x8b]).unwrap();
    let _ = person.add(&packed).with_code(3);
    assert_eq!(hidden(&person), Vec::<String>::new());
}

fn a_folder_that_the_servers_user_cannot_enter_is_named() {
    if !rustix::process::geteuid().is_root() {
        return skip("only root changes to another user");
    }
    let person = Person::new();
    let closed = person.path("closed");
    fs::create_dir_all(closed.join("bin")).unwrap();
    fs::write(closed.join("bin/mysqld"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let _ = person
        .add(&closed)
        .with_code(3)
        .saying("is not accessible to the system user")
        .saying("every user may enter");
    person.assert_untouched();
}
