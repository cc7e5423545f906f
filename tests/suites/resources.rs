//! Measured resources of servers; servers with a fixed share of the machine, and a
//! server without a binary log.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::AtomicBool,
    thread,
    time::{Duration, Instant},
};

use replimeter_engine::source::Member;
use replimeter_instruments::{
    clock::Clock,
    resources::{Meter, ResourceWatch},
};
use replimeter_model::{
    resources::{ServerUse, UseSource},
    sandbox::SandboxSpec,
    target::Role,
};
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT, TestEnvironment,
    harness::{Test, skip},
    run_unprivileged, servers_of, session, sql, start, start_spec, test, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(every_server_role_is_metered_by_its_socket),
    test!(resource_series_adds_up_and_killed_server_is_blank),
    test!(server_without_visible_process_uses_own_counters),
    test!(only_standalone_server_may_lack_a_binary_log),
    test!(server_is_limited_to_its_cpu_share).alone(),
    test!(control_groups_end_with_their_servers_and_tools).alone(),
    test!(hosts_share_the_machine_with_the_client),
    test!(unprivileged_hosts_share_the_machine),
];

fn metered(sandbox: &Sandbox, by_pid: bool) -> Vec<Member> {
    let members = sandbox.members().iter();
    members
        .map(|member| Member {
            pid: by_pid.then_some(member.pid),
            ..Member::from(member)
        })
        .collect()
}

/// Inserts rows one by one, each committed.
fn insert(sandbox: &Sandbox, rows: usize) {
    let mut session = session(&sandbox.nodes()[0]);
    for row in 0..rows {
        session
            .run(
                "test",
                &format!("INSERT INTO replimeter.used VALUES ({row}, REPEAT('x', 1000))"),
            )
            .unwrap();
    }
}

fn prepare(sandbox: &Sandbox) {
    sql(&sandbox.nodes()[0], "CREATE DATABASE replimeter");
    sql(
        &sandbox.nodes()[0],
        "CREATE TABLE replimeter.used (id INT PRIMARY KEY, data VARCHAR(2000)) ENGINE=InnoDB",
    );
}

fn assert_plausible(used: &ServerUse, rows: usize) {
    let per = used.per_operation(rows as u64);
    let (cpu, user, system) = (
        used.cpu_us.unwrap(),
        used.cpu_user_us.unwrap(),
        used.cpu_system_us.unwrap(),
    );
    assert!(cpu > 0.0 && (user + system - cpu).abs() < 1.0, "{used:#?}");
    assert!(cpu < used.length_us * 64.0, "{used:#?}");
    assert!(per.context_switches_per_op.unwrap() >= 1.0, "{per:#?}");
    assert!(
        per.write_bytes_per_op.unwrap() > 1000.0,
        "a row is in the log, the binary log and a page: {per:#?}"
    );
    let rows_written = used.rows_written.unwrap();
    // A MariaDB replica writes its position with every transaction, and removes older ones.
    let most = if used.role == "replica" { 5.0 } else { 1.5 };
    assert!(
        rows_written >= rows as f64 && rows_written < rows as f64 * most + 20.0,
        "{used:#?}"
    );
}

fn every_server_role_is_metered_by_its_socket() {
    // They take more processor time than a tick of the kernel's coarser clock, 10 ms.
    const ROWS: usize = 1_000;
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = start(
            shape,
            &["sync_binlog=1", "innodb_flush_log_at_trx_commit=1"],
        );
        prepare(&sandbox);
        let clock = Clock::start();
        for by_pid in [true, false] {
            sql(&sandbox.nodes()[0], "DELETE FROM replimeter.used");
            let mut meter = Meter::open(&metered(&sandbox, by_pid), &clock).unwrap();
            assert_eq!(meter.warnings(), [], "we may see our own servers");
            let before = meter.read();
            insert(&sandbox, ROWS);
            let mut missing = replimeter_suites::session(&sandbox.nodes()[1]);
            replimeter_suites::wait_until(
                "the replica has the rows",
                Duration::from_secs(20),
                || {
                    missing
                        .value("test", "SELECT COUNT(*) FROM replimeter.used")
                        .unwrap()
                        .as_deref()
                        == Some(&ROWS.to_string())
                },
            );
            let after = meter.read();
            let uses = meter.between(&before, &after);
            assert_eq!(
                uses.iter()
                    .map(|used| used.role.as_str())
                    .collect::<Vec<_>>(),
                ["primary", "replica"]
            );
            for used in &uses {
                assert_eq!(used.source, UseSource::Process);
                assert_plausible(used, ROWS);
            }
            let primary = uses[0].per_operation(ROWS as u64);
            assert!(
                primary.fsyncs_per_op.unwrap() >= 0.9,
                "a flush for each commit: {primary:#?}"
            );
            assert!(
                primary.received_bytes_per_op.unwrap() > 50.0
                    && primary.sent_bytes_per_op.unwrap() > 1000.0,
                "{primary:#?}"
            );
        }
    }
}

fn resource_series_adds_up_and_killed_server_is_blank() {
    let sandbox = start("mariadb/async:1", &[]);
    prepare(&sandbox);
    let clock = Clock::start();
    let watch = ResourceWatch::start(
        Meter::open(&metered(&sandbox, true), &clock).unwrap(),
        Duration::from_millis(50),
    );
    let first = watch.read();
    let began = Instant::now();
    let mut row = 0;
    let mut writer = session(&sandbox.nodes()[0]);
    while began.elapsed() < Duration::from_secs(3) {
        writer
            .run(
                "test",
                &format!("INSERT INTO replimeter.used VALUES ({row}, 'x')"),
            )
            .unwrap();
        row += 1;
    }
    let last = watch.read();
    let whole = &watch.between(&first, &last)[0];
    let parts = watch.series(first.at, last.at, 6);
    let sum: f64 = parts.iter().map(|part| part[0].cpu_us.unwrap()).sum();
    assert!(
        (sum / whole.cpu_us.unwrap() - 1.0).abs() < 0.01,
        "{sum} and {whole:#?}"
    );
    let rows: f64 = watch.over(first.at, last.at)[0].rows_written.unwrap();
    assert!(rows >= f64::from(row), "{rows} of {row}");

    let victim = i32::try_from(sandbox.pids()[1]).unwrap();
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(victim).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    replimeter_suites::wait_until("it has ended", Duration::from_secs(10), || {
        sandbox.ended(1).is_some()
    });
    let after = watch.read();
    let uses = watch.between(&last, &after);
    assert!(
        uses[0].cpu_us.is_some(),
        "the other one is metered as before: {uses:#?}"
    );
    assert_eq!(
        (uses[1].cpu_us, uses[1].rows_written, uses[1].write_bytes),
        (None, None, None),
        "{uses:#?}"
    );
    watch.finish();
}

fn server_without_visible_process_uses_own_counters() {
    let sandbox = start("mariadb/none", &[]);
    prepare(&sandbox);
    let clock = Clock::start();
    // With a link in between, the listening process is not a server.
    let mut node = sandbox.nodes()[0].clone();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let target = std::net::SocketAddr::from(([127, 0, 0, 1], node.endpoint.port));
    let settings = replimeter_sandbox::link::LinkSettings {
        delay: Duration::ZERO,
        jitter: Duration::ZERO,
        bandwidth: None,
    };
    let _link = replimeter_sandbox::link::Link::to("test", listener, target, settings).unwrap();
    node.endpoint.port = port;
    let mut meter = Meter::open(
        &[Member {
            role: Some(Role::Primary),
            ..Member::from(&node)
        }],
        &clock,
    )
    .unwrap();
    let warnings = meter.warnings();
    assert!(
        warnings.len() == 1 && warnings[0].message.contains("left blank"),
        "{warnings:?}"
    );
    let before = meter.read_basic();
    insert(&sandbox, 50);
    let after = meter.read();
    let used = meter.between(&before, &after).remove(0);
    assert_eq!(
        (used.source, used.cpu_us, used.context_switches),
        (UseSource::Status, None, None)
    );
    assert!(
        used.rows_written.unwrap() >= 50.0
            && used.write_bytes.unwrap() > 0.0
            && used.fsyncs.is_some(),
        "{used:#?}"
    );
}

fn only_standalone_server_may_lack_a_binary_log() {
    for shape in ["mariadb/none", "mysql/none"] {
        let spec = SandboxSpec {
            binary_log: false,
            ..SandboxSpec::of(shape.parse().unwrap())
        };
        let sandbox = start_spec(spec).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(
            value(&sandbox.nodes()[0], "SELECT @@GLOBAL.log_bin").as_deref(),
            Some("0"),
            "{shape}"
        );
        assert!(sandbox.record().without_binary_log);
        prepare(&sandbox);
        insert(&sandbox, 3);
    }
    let spec = SandboxSpec {
        binary_log: false,
        ..SandboxSpec::of("async:1".parse().unwrap())
    };
    let error = SandboxSpec::resolve(&[spec.shape], &spec).unwrap_err();
    assert!(error.contains("require a binary log"), "{error}");
}

/// Returns the processor time of a server that two clients keep busy, in percent of one core.
fn busy_percent(sandbox: &Sandbox) -> f64 {
    let clock = Clock::start();
    let mut meter = Meter::open(&metered(sandbox, true), &clock).unwrap();
    let node = &sandbox.nodes()[0];
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| session(node).value("test", "SELECT BENCHMARK(300000000, 1 + 1)"));
        }
        thread::sleep(Duration::from_millis(300));
        let before = meter.read();
        thread::sleep(Duration::from_secs(2));
        let after = meter.read();
        let busy = meter.between(&before, &after)[0].cpu_percent().unwrap();
        let mut killer = session(node);
        let ids = killer
            .rows(
                "test",
                "SELECT id FROM information_schema.processlist WHERE info LIKE '%BENCHMARK%'",
            )
            .unwrap();
        for id in ids.iter().flat_map(|row| row.values()) {
            let _ = killer.run("test", &format!("KILL {id}"));
        }
        busy
    })
}

fn server_is_limited_to_its_cpu_share() {
    let with = |shape: &str, cpus: &str| {
        start_spec(SandboxSpec {
            cpus: Some(cpus.parse().unwrap()),
            ..SandboxSpec::of(shape.parse().unwrap())
        })
    };
    // Whole cores need no privilege.
    let sandbox = with("mariadb/none", "1").unwrap();
    let busy = busy_percent(&sandbox);
    assert!(busy < 112.0, "one core of its own: {busy}");
    assert!(
        sandbox
            .record()
            .cpus_per_server
            .as_deref()
            .unwrap()
            .contains("dedicated cores")
    );
    // The same after the server was killed and restarted.
    let mut sandbox = sandbox;
    let cores = |sandbox: &Sandbox| {
        let status = fs::read_to_string(format!("/proc/{}/status", sandbox.pids()[0])).unwrap();
        status
            .lines()
            .find(|line| line.starts_with("Cpus_allowed_list"))
            .unwrap()
            .to_owned()
    };
    let (before, pid) = (cores(&sandbox), sandbox.pids()[0]);
    sandbox.restart("primary", &AtomicBool::new(false)).unwrap();
    assert_ne!(sandbox.pids()[0], pid);
    assert_eq!(cores(&sandbox), before);
    drop(sandbox);
    match with("mariadb/none", "0.3") {
        Ok(sandbox) => {
            let busy = busy_percent(&sandbox);
            assert!((10.0..36.0).contains(&busy), "a third of a core: {busy}");
        }
        // If no control group can be created, the run is rejected with the reason.
        Err(error) => {
            assert!(error.to_string().contains("control group"), "{error}");
            assert!(error.hint().contains("whole cores"), "{}", error.hint());
        }
    }
    let cores = thread::available_parallelism().unwrap().get();
    let error = with("mariadb/async:1", &cores.to_string()).unwrap_err();
    assert!(
        error.to_string().contains("exceed the cores")
            && error.hint().contains("--cpus-per-server"),
        "{error}"
    );
}

/// Returns the control groups of sandboxes on this machine.
fn control_groups() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            if entry
                .file_name()
                .to_string_lossy()
                .starts_with("replimeter-")
            {
                found.push(entry.path());
            }
            folders.push(entry.path());
        }
    }
    found
}

fn control_groups_end_with_their_servers_and_tools() {
    let tool = TestEnvironment::new();
    let words = "load --sandbox mariadb/none --cpus-per-server 0.2 --flush-delay 1ms --client-link-delay 100us --workload point-select \
                 --threads 8 --duration 60s";
    let words: Vec<&str> = words.split_whitespace().collect();
    let before = control_groups();
    let new = || -> Vec<PathBuf> {
        let all = control_groups().into_iter();
        all.filter(|group| !before.contains(group)).collect()
    };
    // Kills the server that is paused by its quota, or the tool.
    for server in [true, false] {
        let mut child = tool.command(&words).spawn().unwrap();
        let throttled = |group: &PathBuf| {
            let stat = fs::read_to_string(group.join("cpu.stat")).unwrap_or_default();
            let mut lines = stat.lines();
            lines.any(|line| line.strip_prefix("nr_throttled ").is_some_and(|n| n != "0"))
        };
        let began = Instant::now();
        while !new().iter().any(throttled) {
            if let Some(status) = child.try_wait().unwrap() {
                assert_eq!(status.code(), Some(3));
                let error = wait(child, LIMIT).stderr;
                assert!(error.contains("control group"), "{error}");
                return skip("no control group can be created here");
            }
            assert!(began.elapsed() < LIMIT, "no server was paused");
            thread::sleep(Duration::from_millis(20));
        }
        if server {
            for pid in servers_of(&child) {
                let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
            }
            let _ = wait(child, LIMIT).with_code(3).stderr_contains("primary");
        } else {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        wait_until("no control group is left", LIMIT, || new().is_empty());
    }
}

const ON_HOSTS: [&str; 9] = [
    "lag",
    "--sandbox",
    "mariadb/async:1",
    "--hosts",
    "--rounds",
    "20",
    "--starts",
    "1",
    "--json",
];

fn hosts_share_the_machine_with_the_client() {
    let tool = TestEnvironment::new();
    let ended = wait(tool.command(&ON_HOSTS).spawn().unwrap(), LIMIT).with_code(0);
    let manifest = fs::read_to_string(tool.runs()[0].join("manifest.json")).unwrap();
    let manifest: serde_json::Value = serde_json::from_str(&manifest).unwrap();
    let sandbox = &manifest["sandboxes"][0];
    match sandbox["cpus_per_server"].as_str() {
        Some(share) => assert!(share.contains("; the client on core "), "{share}"),
        // Where no control group can be created.
        None => {
            let reason = sandbox["hosts_refused"].as_str().unwrap();
            assert!(reason.contains("control group"), "{reason}");
            assert!(ended.json().to_string().contains("hosts-shared"));
        }
    }
}

fn unprivileged_hosts_share_the_machine() {
    let cores = thread::available_parallelism().unwrap().get();
    if !rustix::process::geteuid().is_root() || cores > 2 {
        return skip("needs root, to become another user, and fewer cores than hosts");
    }
    let document = run_unprivileged(&ON_HOSTS).with_code(0).json();
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("hosts-shared") && warnings.contains("control group"),
        "{warnings}"
    );
}
