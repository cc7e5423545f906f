//! Bad input that needs no server: a clear error, the right code, nothing touched.

use std::{fs, io::Write, net::TcpListener, os::unix::fs::PermissionsExt};

use replimeter_suites::{Ended, Tool};

/// Output with what changes from run to run replaced.
fn shown(ended: &Ended, tool: &Tool) -> String {
    let text = format!(
        "exit code: {:?}\n--- stdout\n{}--- stderr\n{}",
        ended.code.unwrap(),
        ended.stdout,
        ended.stderr
    );
    text.replace(tool.folder().to_str().unwrap(), "FOLDER")
}

#[test]
fn help_of_every_command() {
    let tool = Tool::new();
    for (name, args) in [
        ("main", vec!["--help"]),
        ("lag", vec!["lag", "--help"]),
        ("tap", vec!["tap", "--help"]),
        ("cost", vec!["cost", "--help"]),
        ("loss", vec!["loss", "--help"]),
        ("exposure", vec!["exposure", "--help"]),
        ("load", vec!["load", "--help"]),
        ("scale", vec!["scale", "--help"]),
        ("stale", vec!["stale", "--help"]),
        ("calibrate", vec!["calibrate", "--help"]),
        ("run", vec!["run", "--help"]),
        ("report", vec!["report", "--help"]),
        ("compare", vec!["compare", "--help"]),
        ("servers", vec!["servers", "--help"]),
        ("servers_add", vec!["servers", "add", "--help"]),
        ("schema", vec!["schema", "--help"]),
        ("completions", vec!["completions", "--help"]),
        ("man", vec!["man", "--help"]),
    ] {
        insta::assert_snapshot!(
            format!("help_{name}"),
            shown(&tool.run(&args).with_code(0), &tool)
        );
    }
}

#[test]
fn usage_errors_are_explained_and_touch_nothing() {
    let tool = Tool::new();
    for (name, args) in [
        ("unknown_shape", vec!["lag", "--sandbox", "ring:3"]),
        ("negative_count", vec!["lag", "--sandbox", "async:-1"]),
        ("sizes_downwards", vec!["lag", "--sizes", "10..1:5"]),
        ("no_unit", vec!["lag", "--every", "10"]),
        ("size_no_server_takes", vec!["lag", "--size", "1073741825"]),
        ("zero_rounds", vec!["lag", "--rounds", "0"]),
        (
            "replica_without_primary",
            vec!["lag", "--replica", "mysql://db2/"],
        ),
        (
            "two_targets",
            vec![
                "lag",
                "--sandbox",
                "async:1",
                "--primary",
                "mysql://a/",
                "--replica",
                "mysql://b/",
            ],
        ),
        (
            "reserved_option",
            vec!["lag", "--server-option", "datadir=/"],
        ),
        (
            "url_with_schema",
            vec![
                "lag",
                "--primary",
                "mysql://a/shop",
                "--replica",
                "mysql://b/",
            ],
        ),
        ("raw_without_sweep", vec!["lag", "--raw"]),
        ("missing_plan", vec!["run", "no-such.toml"]),
        ("no_run_dir", vec!["report", "no-such-run"]),
    ] {
        let ended = tool.run(&args);
        assert!(matches!(ended.code, Some(2 | 3)), "{ended:#?}");
        assert_eq!(ended.stdout, "", "{name}: errors go to standard error");
        insta::assert_snapshot!(name, shown(&ended, &tool));
    }
    assert_eq!(
        fs::read_dir(tool.folder()).unwrap().count(),
        0,
        "something was left behind"
    );
}

#[test]
fn an_unknown_key_in_a_plan_is_shown_with_its_line() {
    let tool = Tool::new();
    fs::write(
        tool.folder().join("plan.toml"),
        "command = \"lag\"\n\n[lag]\nrouns = 5\n",
    )
    .unwrap();
    let ended = tool
        .run(&["run", "plan.toml"])
        .with_code(2)
        .saying("line 4")
        .saying("rouns");
    insta::assert_snapshot!("plan_unknown_key", shown(&ended, &tool));
    assert!(tool.runs().is_empty());
}

#[test]
fn a_dry_run_spells_out_every_default() {
    let tool = Tool::new();
    fs::write(tool.folder().join("plan.toml"), "command = \"lag\"\n").unwrap();
    let ended = tool.run(&["run", "--dry-run", "plan.toml"]).with_code(0);
    insta::assert_snapshot!("plan_defaults", ended.stdout);
}

#[test]
fn a_port_where_nobody_listens() {
    let tool = Tool::new();
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let primary = format!("mysql://u@127.0.0.1:{port}/");
    let ended = tool
        .run(&[
            "lag",
            "--primary",
            &primary,
            "--replica",
            "mysql://u@127.0.0.1:1/",
        ])
        .with_code(3);
    let ended = ended
        .saying("primary (127.0.0.1:")
        .saying("cannot connect")
        .saying("is the server running");
    assert_eq!(ended.stdout, "");
    assert!(
        tool.runs().is_empty(),
        "a run that never began leaves no directory"
    );
}

#[test]
fn a_port_where_something_else_listens() {
    let tool = Tool::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream
                .unwrap()
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let primary = format!("mysql://u@127.0.0.1:{port}/");
    let ended = tool
        .run(&[
            "lag",
            "--primary",
            &primary,
            "--replica",
            "mysql://u@127.0.0.1:1/",
        ])
        .with_code(3);
    let _ = ended.saying("cannot connect").saying("MariaDB or MySQL");
}

#[test]
fn a_certificate_authority_that_is_not_there_or_none() {
    let tool = Tool::new();
    let replica = "mysql://u@127.0.0.1:1/";
    let ended = tool
        .run(&[
            "lag",
            "--primary",
            "mysql://u@127.0.0.1:1/?ssl-ca=/no/such.pem",
            "--replica",
            replica,
        ])
        .with_code(3);
    let _ = ended.saying("ssl-ca").saying("/no/such.pem");
    fs::write(tool.folder().join("ca.pem"), "hello").unwrap();
    let primary = format!(
        "mysql://u@127.0.0.1:1/?ssl-ca={}/ca.pem",
        tool.folder().display()
    );
    let _ = tool
        .run(&["lag", "--primary", &primary, "--replica", replica])
        .with_code(3)
        .saying("holds no PEM block");
}

#[test]
fn an_option_file_that_is_not_there_or_broken() {
    let tool = Tool::new();
    let args = |file| {
        [
            "lag",
            "--primary",
            "mysql://127.0.0.1:1/",
            "--replica",
            "mysql://127.0.0.1:1/",
            "--defaults-file",
            file,
        ]
    };
    let _ = tool
        .run(&args("/no/such.cnf"))
        .with_code(3)
        .saying("/no/such.cnf");
    fs::write(
        tool.folder().join("broken.cnf"),
        "[client\npassword=hunter2\n",
    )
    .unwrap();
    let ended = tool.run(&args("broken.cnf")).with_code(3).saying("line 1");
    assert!(!ended.stderr.contains("hunter2"), "{ended:#?}");
}

#[test]
fn a_run_directory_that_cannot_be_used() {
    let tool = Tool::new();
    let _ = tool
        .run(&["lag", "--run-dir", "/proc/replimeter"])
        .with_code(3)
        .saying("/proc/replimeter")
        .saying("--run-dir");
    let full = tool.folder().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "x").unwrap();
    let _ = tool
        .run(&["lag", "--run-dir", "full"])
        .with_code(3)
        .saying("is not empty");
    assert_eq!(fs::read_to_string(full.join("mine")).unwrap(), "x");
    let file = tool.folder().join("file");
    fs::write(&file, "x").unwrap();
    let _ = tool
        .run(&["lag", "--run-dir", "file"])
        .with_code(3)
        .saying("cannot use the run directory");
    if !rustix::process::geteuid().is_root() {
        let closed = tool.folder().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        let _ = tool
            .run(&["lag", "--run-dir", "closed/run"])
            .with_code(3)
            .saying("ermission denied");
    }
}

#[test]
fn no_server_to_be_found_says_how_to_get_one() {
    let tool = Tool::new();
    let ended = tool
        .run(&["lag", "--servers", tool.folder().to_str().unwrap()])
        .with_code(3);
    let _ = ended
        .saying("no MariaDB or MySQL server found")
        .saying("make servers")
        .saying("--servers DIR");
    assert!(tool.runs().is_empty());
}

#[test]
fn a_password_in_a_plan_or_an_error_is_never_repeated() {
    let tool = Tool::new();
    fs::write(
        tool.folder().join("plan.toml"),
        "command = \"lag\"\n[target]\nprimary = \"mysql://u:hunter2@a/\"\nreplicas = [\"mysql://b/\"]\n",
    )
    .unwrap();
    let _ = tool
        .run(&["run", "plan.toml"])
        .with_code(2)
        .saying("must not hold a URL with a password");
    let ended = tool
        .run(&[
            "lag",
            "--primary",
            "mysql://u:hunter2@127.0.0.1:1/",
            "--replica",
            "mysql://127.0.0.1:2/",
        ])
        .with_code(3);
    assert!(!ended.stderr.contains("hunter2"), "{ended:#?}");
}

#[test]
fn without_a_home_nothing_shared_is_trusted() {
    let tool = Tool::new();
    let mut command = tool.command(&["lag"]);
    command
        .env_remove("HOME")
        .env_remove("REPLIMETER_HOME")
        .env_remove("XDG_CACHE_HOME");
    if !rustix::process::geteuid().is_root() {
        let _ = Ended::of(command.output().unwrap())
            .with_code(2)
            .saying("HOME is not set");
    }
    let shared = tool.folder().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = tool.command(&["lag"]);
    let _ = Ended::of(command.env("REPLIMETER_HOME", shared).output().unwrap())
        .with_code(3)
        .saying("others may write to it");
}

#[test]
fn a_plan_that_is_no_file_or_endless() {
    let tool = Tool::new();
    let _ = tool
        .run(&["run", "--dry-run", "/dev/zero"])
        .with_code(2)
        .saying("no ordinary file");
    let _ = tool
        .run(&["run", "--dry-run", "."])
        .with_code(2)
        .saying("there is no plan (*.toml) in it");
}

#[test]
fn names_cannot_command_the_terminal() {
    let tool = Tool::new();
    let ended = tool
        .run(&["lag", "--run-dir", "/proc/\u{1b}[31mred"])
        .with_code(3);
    assert!(!ended.stderr.contains('\u{1b}'), "{ended:#?}");
}
