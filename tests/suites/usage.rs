//! Bad input that needs no server: a clear error, the right exit code, no effects.

use std::{fs, io::Write, net::TcpListener, os::unix::fs::PermissionsExt};

use replimeter_suites::{CommandOutput, TestEnvironment, harness::Test, test};

pub(crate) const TESTS: &[Test] = &[
    test!(closed_port_is_explained),
    test!(port_of_another_service_is_explained),
    test!(missing_or_invalid_ca_file_is_explained),
    test!(missing_or_broken_option_file_is_explained),
    test!(unusable_run_directory_is_explained),
    test!(missing_server_hint_names_ways_to_get_one),
    test!(password_is_never_repeated_in_errors),
    test!(missing_home_uses_no_shared_folder),
    test!(plan_that_is_not_a_file_or_endless_is_refused),
    test!(names_are_escaped_on_the_terminal),
    test!(no_url_error_shows_a_password),
];

fn closed_port_is_explained() {
    let tool = TestEnvironment::new();
    // A port that was free a moment ago may be bound again; these are not.
    let ended = tool
        .run(&[
            "lag",
            "--primary",
            "mysql://u@127.0.0.1:1/",
            "--replica",
            "mysql://u@127.0.0.1:2/",
        ])
        .with_code(3);
    let ended = ended
        .stderr_contains("primary (127.0.0.1:")
        .stderr_contains("cannot connect")
        .stderr_contains("check that the server runs");
    assert_eq!(ended.stdout, "");
    assert!(
        tool.runs().is_empty(),
        "a run that never began leaves no directory"
    );
}

fn port_of_another_service_is_explained() {
    let tool = TestEnvironment::new();
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
    let _ = ended
        .stderr_contains("cannot connect")
        .stderr_contains("MariaDB or MySQL");
}

fn missing_or_invalid_ca_file_is_explained() {
    let tool = TestEnvironment::new();
    let replica = "mysql://u@127.0.0.1:1/";
    let ended = tool
        .run(&[
            "lag",
            "--primary",
            "mysql://u@127.0.0.1:1/?ssl-ca=/no/such.pem",
            "--replica",
            replica,
        ])
        .with_code(2);
    let _ = ended
        .stderr_contains("ssl-ca")
        .stderr_contains("/no/such.pem");
    fs::write(tool.folder().join("ca.pem"), "hello").unwrap();
    let primary = format!(
        "mysql://u@127.0.0.1:1/?ssl-ca={}/ca.pem",
        tool.folder().display()
    );
    let _ = tool
        .run(&["lag", "--primary", &primary, "--replica", replica])
        .with_code(2)
        .stderr_contains("contains no PEM block");
}

fn missing_or_broken_option_file_is_explained() {
    let tool = TestEnvironment::new();
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
        .with_code(2)
        .stderr_contains("/no/such.cnf");
    fs::write(
        tool.folder().join("broken.cnf"),
        "[client\npassword=hunter2\n",
    )
    .unwrap();
    let ended = tool
        .run(&args("broken.cnf"))
        .with_code(2)
        .stderr_contains("line 1");
    assert!(!ended.stderr.contains("hunter2"), "{ended:#?}");
}

fn unusable_run_directory_is_explained() {
    let tool = TestEnvironment::new();
    let _ = tool
        .run(&["lag", "--run-dir", "/proc/replimeter"])
        .with_code(2)
        .stderr_contains("/proc/replimeter")
        .stderr_contains("--run-dir");
    let full = tool.folder().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("mine"), "x").unwrap();
    let _ = tool
        .run(&["lag", "--run-dir", "full"])
        .with_code(2)
        .stderr_contains("is not empty");
    assert_eq!(fs::read_to_string(full.join("mine")).unwrap(), "x");
    let file = tool.folder().join("file");
    fs::write(&file, "x").unwrap();
    let _ = tool
        .run(&["lag", "--run-dir", "file"])
        .with_code(2)
        .stderr_contains("cannot use the run directory");
    if !rustix::process::geteuid().is_root() {
        let closed = tool.folder().join("closed");
        fs::create_dir(&closed).unwrap();
        fs::set_permissions(&closed, fs::Permissions::from_mode(0o500)).unwrap();
        let _ = tool
            .run(&["lag", "--run-dir", "closed/run"])
            .with_code(2)
            .stderr_contains("ermission denied");
    }
}

fn missing_server_hint_names_ways_to_get_one() {
    let tool = TestEnvironment::new();
    let ended = tool
        .run(&["lag", "--servers", tool.folder().to_str().unwrap()])
        .with_code(3);
    let _ = ended
        .stderr_contains("no MariaDB or MySQL server found")
        .stderr_contains("make servers")
        .stderr_contains("--servers DIR");
    assert!(tool.runs().is_empty());
}

fn password_is_never_repeated_in_errors() {
    let tool = TestEnvironment::new();
    fs::write(
        tool.folder().join("plan.toml"),
        "command = \"lag\"\n[target]\nprimary = \"mysql://u:hunter2@a/\"\nreplicas = [\"mysql://b/\"]\n",
    )
    .unwrap();
    let _ = tool
        .run(&["run", "plan.toml"])
        .with_code(2)
        .stderr_contains("must not hold a URL with a password");
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

fn missing_home_uses_no_shared_folder() {
    let tool = TestEnvironment::new();
    let mut command = tool.command(&["lag"]);
    command
        .env_remove("HOME")
        .env_remove("REPLIMETER_HOME")
        .env_remove("XDG_CACHE_HOME");
    if !rustix::process::geteuid().is_root() {
        let _ = CommandOutput::of(command.output().unwrap())
            .with_code(2)
            .stderr_contains("HOME is not set");
    }
    let shared = tool.folder().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = tool.command(&["lag"]);
    let _ = CommandOutput::of(command.env("REPLIMETER_HOME", shared).output().unwrap())
        .with_code(3)
        .stderr_contains("others can write to it");
}

fn plan_that_is_not_a_file_or_endless_is_refused() {
    let tool = TestEnvironment::new();
    let _ = tool
        .run(&["run", "--dry-run", "/dev/zero"])
        .with_code(2)
        .stderr_contains("not a regular file");
    let _ = tool
        .run(&["run", "--dry-run", "."])
        .with_code(2)
        .stderr_contains("there is no plan (*.toml) in it");
}

fn names_are_escaped_on_the_terminal() {
    let tool = TestEnvironment::new();
    let ended = tool
        .run(&["lag", "--run-dir", "/proc/\u{1b}[31mred"])
        .with_code(2);
    assert!(!ended.stderr.contains('\u{1b}'), "{ended:#?}");
    // The parser repeats arguments, too.
    let ended = tool
        .run(&["lag", "--sandbox", "a\u{9b}2J\u{202e}"])
        .with_code(2);
    assert!(!ended.stderr.contains(['\u{9b}', '\u{202e}']), "{ended:#?}");
}

fn no_url_error_shows_a_password() {
    const SECRET: &str = "Xk9QvT2z";
    const GOOD: &str = "mysql://u@127.0.0.1:2/";
    let tool = TestEnvironment::new();
    let hidden = |ended: &CommandOutput| {
        let shown = format!("{}{}", ended.stdout, ended.stderr).to_lowercase();
        let secret = SECRET.to_lowercase();
        assert!(
            (0..=secret.len() - 4).all(|start| !shown.contains(&secret[start..start + 4])),
            "{ended:#?}"
        );
        assert!(matches!(ended.code, Some(2 | 3)), "{ended:#?}");
        assert!(tool.runs().is_empty());
    };
    let advises = |ended: &CommandOutput| {
        let said = |words: &str| ended.stderr.contains(words);
        said("percent-encode") && said("option file")
            || said("use an option file, REPLIMETER_PASSWORD")
    };
    // Some are well written all the same, and no server answers.
    let connects = |ended: &CommandOutput| {
        ended.code == Some(3)
            && ended.stderr.contains("127.0.0.1:")
            && ended.stderr.contains("hint:")
    };
    let in_file = |name: &str, text: &str| {
        fs::write(tool.folder().join(name), text).unwrap();
        if name == "plan.toml" {
            tool.run(&["run", name])
        } else {
            tool.run(&["doctor", "--topology", name])
        }
    };
    let quoted = |url: &str| toml::Value::from(url).to_string();

    // A property test of the parser has all characters.
    let mut urls = Vec::new();
    for special in "/?#@:% \n".chars() {
        urls.push(format!("mysql://dba:12{special}{SECRET}@127.0.0.1:1/"));
        urls.push(format!(
            "mysql://d{special}ba:{SECRET}{special}12@127.0.0.1:1/"
        ));
    }
    for odd in [
        "mysql://dba:12/SECRET@/",
        "mysql://dba:SECRET@",
        "mysql://dba:SECRET@:1/",
        "mysql://dba:1@2@/SECRET@127.0.0.1:1/",
        "mysql://@dba:@@SECRET@@127.0.0.1:1/",
        "mysql://dba:12/SECRET@[::1]:1/",
        "mysql://dba:SECRET@[::1/",
        "mysql://dba:12%2fSECRET%@127.0.0.1:1/",
        "mysql://dba:%ffSECRET@127.0.0.1:1/",
        "mysql://dba:%zz/SECRET@127.0.0.1:1/",
        "mysql://dba:12?ssl-mode=SECRET@127.0.0.1:1/",
        "mysql://dba:SECRET@127.0.0.1:99999/",
        "mysql://dba:12/SECRET@127.0.0.1:1/?ssl-mode=required",
        "MYSQL://dba:12/SECRET@127.0.0.1:1/",
        "postgres://dba:12/SECRET@127.0.0.1:1/",
        "postgres://dba:SECRET@127.0.0.1:1/",
        "mysql:dba:SECRET@127.0.0.1:1",
        "dba:12/SECRET@127.0.0.1:1",
        "dba/SECRET@127.0.0.1:1",
        "dba:SECRET@127.0.0.1",
    ] {
        urls.push(odd.replace("SECRET", SECRET));
    }
    for url in urls.iter().map(String::as_str) {
        for args in [
            ["lag", "--primary", url, "--replica", GOOD].as_slice(),
            &["lag", "--primary", GOOD, "--replica", url],
            &["lag", "--node", GOOD, "--node", url],
            &["load", "--primary", url],
        ] {
            let ended = tool.run(args);
            hidden(&ended);
            assert!(advises(&ended) || connects(&ended), "{url}: {ended:#?}");
        }
        // In a file every one is refused, for its form or for its password.
        for (name, text) in [
            (
                "plan.toml",
                format!(
                    "command = 'lag'\n[target]\nprimary = {}\nreplicas = ['mysql://h/']\n",
                    quoted(url)
                ),
            ),
            (
                "topology.toml",
                format!("[[node]]\nname = 'a'\nurl = {}\n", quoted(url)),
            ),
        ] {
            let ended = in_file(name, &text);
            hidden(&ended);
            assert!(advises(&ended), "{text}: {ended:#?}");
            // Where the file itself is malformed the excerpt must not show it.
            for wrong in [
                text.replace(&quoted(url), &format!("\"{url}\"")),
                text.replace(&quoted(url), url),
            ] {
                hidden(&in_file(name, &wrong));
            }
            hidden(&in_file(
                name,
                &text.replace("primary", "primry").replace("url", "ulr"),
            ));
            hidden(&in_file(
                name,
                &text
                    .replace("'lag'", &quoted(url))
                    .replace("'a'", &quoted(url)),
            ));
            hidden(&in_file(
                name,
                &text
                    .replace("['mysql://h/']", &quoted(url))
                    .replace("'mysql://h/'", &quoted(url)),
            ));
        }
    }
    // One reading of URLs serves all commands; a few of each kind show that it does.
    for url in [
        urls[0].as_str(),
        &urls[2],
        &urls[4],
        &urls[6],
        "mysql://dba:12/Xk9QvT2z",
        "mysql://dba:Xk9QvT2z",
        "mysql://dba:1?Xk9QvT2z",
    ] {
        for command in ["doctor", "tap", "exposure", "stale", "lag"] {
            let ended = tool.run(&[command, "--primary", GOOD, "--replica", url]);
            hidden(&ended);
            assert!(ended.stderr.contains("error:"), "{ended:#?}");
        }
    }
    // Given where something else belongs.
    for url in [
        urls[0].as_str(),
        &urls[1],
        &urls[2],
        &urls[6],
        "mysql://dba:1@2@/Xk9QvT2z@127.0.0.1:1/",
    ] {
        hidden(&in_file(
            "topology.toml",
            &format!("[[node]]\nname = {}\nurl = 'mysql://h/'\n", quoted(url)),
        ));
        for args in [
            ["doctor", url].as_slice(),
            &["lag", "--sandbox", url],
            &["lag", "--topology", url],
            &[
                "lag",
                "--primary",
                GOOD,
                "--replica",
                GOOD,
                "--defaults-file",
                url,
            ],
            &["run", url],
            &["report", url],
            &["compare", url, url],
        ] {
            hidden(&tool.run(args));
        }
    }
}
