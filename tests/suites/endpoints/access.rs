//! Passwords and privileges.

use std::{
    ffi::OsStr,
    fs,
    io::Write,
    path::Path,
    process::{Command, Stdio},
};

use replimeter_engine::Node;
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, clean, sql, url, value, wait, wait_until,
};

use super::{ADMIN, Cluster, tables};

pub(super) fn passwords_are_read_from_every_source(cluster: &Cluster) {
    let secret = cluster.password();
    let short = ["--rounds", "5"];
    let file = |tool: &TestEnvironment, name: &str| {
        let path = tool.folder().join(name);
        fs::write(
            &path,
            format!("[client]\nuser={ADMIN}\npassword=\"{secret}\"\n"),
        )
        .unwrap();
        path
    };
    let tool = TestEnvironment::new();
    let named = file(&tool, "option.cnf");
    let mut args = cluster.args(ADMIN, &short);
    args.extend(["--defaults-file".to_owned(), named.display().to_string()]);
    let _ = tool.run(&args).with_code(0);

    let tool = TestEnvironment::new();
    file(&tool, ".my.cnf");
    let _ = tool.run(&cluster.args(ADMIN, &short)).with_code(0);

    let tool = TestEnvironment::new();
    let each = [
        ("REPLIMETER_PRIMARY_PASSWORD", secret),
        ("REPLIMETER_REPLICA1_PASSWORD", secret),
    ];
    let _ = CommandOutput::of(
        tool.command(&cluster.args(ADMIN, &short))
            .envs(each)
            .output()
            .unwrap(),
    )
    .with_code(0);

    let tool = TestEnvironment::new();
    let with_password = |node: &Node| url(node, &format!("{ADMIN}:{secret}"));
    let args = [
        "lag",
        "--primary",
        &with_password(cluster.primary()),
        "--replica",
        &with_password(cluster.replica()),
        "--timeout",
        "60s",
    ];
    let ended = tool.run(&[&args[..], &short[..]].concat()).with_code(0);
    assert!(ended.stdout.contains("carries a password"), "{ended:#?}");
    let run = tool.only_run();
    // At a terminal the tool asks once for each server.
    let asking = TestEnvironment::new();
    let words = asking.command(&cluster.args(ADMIN, &short));
    let line: Vec<String> = std::iter::once(words.get_program())
        .chain(words.get_args())
        .map(quoted)
        .collect();
    let device = asking.folder().join("device.txt");
    let line = format!("tty >'{}'; exec {}", device.display(), line.join(" "));
    let mut terminal = Command::new("script");
    terminal
        .args(["--quiet", "--return", "--command", &line, "/dev/null"])
        .current_dir(asking.folder());
    terminal
        .envs(
            words
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env_remove("MYSQL_PWD");
    let screen = asking.folder().join("screen.txt");
    terminal
        .stdin(Stdio::piped())
        .stdout(fs::File::create(&screen).unwrap())
        .stderr(Stdio::piped());
    let mut child = terminal.spawn().unwrap();
    let mut keys = child.stdin.take().unwrap();
    let shown = || String::from_utf8_lossy(&fs::read(&screen).unwrap()).into_owned();
    for asked in 1..=2 {
        // The terminal hides typed text soon after the question.
        wait_until("it asks for a password", LIMIT, || {
            let questions = shown();
            let questions = questions.matches("Password for replimeter@127.0.0.1:");
            questions.count() >= asked && hides_input(&device)
        });
        writeln!(keys, "{secret}").unwrap();
    }
    let _ = wait(child, LIMIT).with_code(0);
    drop(keys);
    assert!(
        !shown().contains(secret),
        "it is not shown while it is typed"
    );
    // The password is in no file of the run, regardless of how it was given.
    for entry in fs::read_dir(run).unwrap() {
        let bytes = fs::read(entry.unwrap().path()).unwrap();
        assert!(
            !bytes
                .windows(secret.len())
                .any(|window| window == secret.as_bytes())
        );
    }
}

/// Returns whether the terminal whose device this file names does not show what is typed.
fn hides_input(device: &Path) -> bool {
    let device = fs::read_to_string(device).unwrap();
    let settings = Command::new("stty")
        .args(["--all", "--file", device.trim()])
        .output()
        .unwrap();
    assert!(settings.status.success(), "{settings:?}");
    let settings = String::from_utf8_lossy(&settings.stdout).into_owned();
    settings.split_whitespace().any(|word| word == "-echo")
}

/// Quotes a word for a shell.
fn quoted(word: &OsStr) -> String {
    format!("'{}'", word.to_str().unwrap())
}

pub(super) fn refused_login_names_where_it_came_from(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let file = tool.folder().join("option.cnf");
    fs::write(&file, "[client]\npassword=Xk9QvT2z\n").unwrap();
    let file = ["--defaults-file", file.to_str().unwrap()];
    let from_file = format!("the password is from the option file {}", file[1]);
    let anonymous: String = format!("mysql://{}/", cluster.primary().endpoint.address());
    let named = url(cluster.primary(), ADMIN);
    let in_url = url(cluster.primary(), &format!("{ADMIN}:Xk9QvT2z"));
    for (primary, variable, more, origin, hint) in [
        (
            &named,
            "REPLIMETER_PASSWORD",
            &[][..],
            "the user is from the URL; the password is from REPLIMETER_PASSWORD",
            "check the password there",
        ),
        (
            &named,
            "REPLIMETER_PRIMARY_PASSWORD",
            &file,
            "the password is from REPLIMETER_PRIMARY_PASSWORD",
            "--ask-password",
        ),
        (
            &named,
            "UNRELATED",
            &file,
            &from_file,
            "check the password there",
        ),
        (
            &named,
            "UNRELATED",
            &[],
            "no password is given",
            "--defaults-file",
        ),
        (
            &in_url,
            "MYSQL_PWD",
            &[],
            "the password is from the URL",
            "check the password there",
        ),
        (
            &anonymous,
            "MYSQL_PWD",
            &[],
            "no user is given, so `ann` was tried; the password is from MYSQL_PWD",
            "mysql://user@host:3306/",
        ),
    ] {
        let args = ["lag", "--primary", primary, "--replica", primary];
        let mut command = tool.command(&[&args[..], more].concat());
        command.env_remove("MYSQL_PWD").env("USER", "ann");
        let ended = CommandOutput::of(command.env(variable, "Xk9QvT2z").output().unwrap());
        let ended = ended
            .with_code(3)
            .stderr_contains("primary (127.0.0.1:")
            .stderr_contains("Access denied")
            .stderr_contains(origin)
            .stderr_contains(hint);
        assert!(!ended.stderr.contains("Xk9QvT2z"), "{ended:#?}");
    }
    assert!(tool.runs().is_empty());
}

pub(super) fn missing_privileges_are_named(cluster: &Cluster) {
    let run = |user: &str| {
        let tool = TestEnvironment::new();
        let mut command = tool.command(&cluster.args(user, &["--rounds", "5"]));
        wait(
            command.env("REPLIMETER_PASSWORD", "pw").spawn().unwrap(),
            LIMIT,
        )
    };
    sql(
        cluster.primary(),
        "CREATE USER probe@'127.0.0.1' IDENTIFIED BY 'pw'",
    );
    cluster.settle();
    let ended = run("probe")
        .with_code(3)
        .stderr_contains("primary (127.0.0.1:")
        .stderr_contains("CREATE, DROP, INSERT, DELETE, SELECT");
    let _ = ended.stderr_contains(
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT ON `replimeter`.* TO 'probe'@'127.0.0.1'",
    );
    sql(
        cluster.primary(),
        "GRANT CREATE, DROP, INSERT, DELETE, SELECT, EXECUTE, EVENT ON replimeter.* TO probe@'127.0.0.1'",
    );
    cluster.settle();
    let _ = run("probe")
        .with_code(3)
        .stderr_contains("replica1 (127.0.0.1:")
        .stderr_contains("REPLICA MONITOR");
    cluster.assert_clean();
    // The privileges that the documentation lists are sufficient.
    sql(
        cluster.primary(),
        "GRANT REPLICA MONITOR, BINLOG MONITOR ON *.* TO probe@'127.0.0.1'",
    );
    cluster.settle();
    // In such a session the server puts double quotes around names in its list of privileges.
    let mode = value(cluster.primary(), "SELECT @@GLOBAL.sql_mode").unwrap();
    for mode in [format!("{mode},ANSI_QUOTES"), mode] {
        sql(cluster.primary(), &format!("SET GLOBAL sql_mode='{mode}'"));
        let _ = run("probe").with_code(0);
    }
    // This user does not see whether other replicas have anything in the schema.
    assert!(!clean(cluster.primary()));
    assert_eq!(tables(cluster.primary()), None);
    sql(cluster.primary(), "DROP DATABASE replimeter");
    sql(cluster.primary(), "DROP USER probe@'127.0.0.1'");
}
