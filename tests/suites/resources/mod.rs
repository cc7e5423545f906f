//! Measured resources of servers; servers with a fixed share of the machine, and a
//! server without a binary log.

mod shares;

use std::{
    io::Write,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use replimeter_engine::source::Member;
use replimeter_instruments::{
    clock::Clock,
    resources::{CountedProcess, Meter, NamedProcess, Reading, ResourceWatch},
};
use replimeter_model::{
    resources::{ServerUse, UseSource},
    sandbox::SandboxSpec,
    target::Role,
};
use replimeter_sandbox::Sandbox;
use replimeter_suites::{
    LIMIT,
    harness::{Test, skip},
    home, scratch, session, shared, sql, start, start_spec, test, value, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

pub(crate) const TESTS: &[Test] = &[
    test!(every_server_role_is_metered_by_its_socket).starts(4),
    test!(bytes_written_to_the_disk_are_metered),
    test!(resource_series_adds_up_and_killed_server_is_blank).starts(2),
    test!(server_without_visible_process_uses_own_counters),
    test!(only_standalone_server_may_lack_a_binary_log).starts(2),
    test!(shares::server_is_limited_to_its_cpu_share).starts(1),
    test!(shares::server_has_cores_of_its_own_after_a_restart).starts(2),
    test!(shares::control_groups_end_with_their_servers_and_tools).starts(2),
    test!(shares::hosts_share_the_machine_with_the_client).starts(2),
    test!(shares::unprivileged_hosts_share_the_machine).starts(2),
    test!(shares::missing_control_groups_are_reported).starts(2),
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

/// Reads until every server has returned its own counters: one that is slow to answer leaves them blank.
fn whole(read: impl Fn() -> (Reading, Vec<ServerUse>)) -> Reading {
    let mut reading = None;
    wait_until("every server returns its counters", LIMIT, || {
        let (found, used) = read();
        reading = Some(found);
        used.iter().all(|used| used.rows_written.is_some())
    });
    reading.unwrap()
}

fn whole_of(meter: &mut Meter) -> Reading {
    let meter = std::cell::RefCell::new(meter);
    whole(|| {
        let mut meter = meter.borrow_mut();
        let reading = meter.read();
        let used = meter.between(&reading, &reading);
        (reading, used)
    })
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
    // A thread that is given its next row before it sleeps has none.
    assert!(per.context_switches_per_op.unwrap() > 0.0, "{per:#?}");
    // What a server writes to memory is not written to a disk.
    let written = per.write_bytes_per_op.unwrap();
    assert!(
        written > 1000.0 || is_in_memory(scratch()),
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
    const ROWS: usize = 400;
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = start(
            shape,
            &["sync_binlog=1", "innodb_flush_log_at_trx_commit=1"],
        );
        prepare(&sandbox);
        let clock = Clock::start();
        for by_pid in [true, false] {
            sql(&sandbox.nodes()[0], "DELETE FROM replimeter.used");
            let emptied = "SELECT COUNT(*) FROM replimeter.used";
            wait_until("the replica has an empty table", LIMIT, || {
                let rows = session(&sandbox.nodes()[1]).value("test", emptied);
                rows.is_ok_and(|rows| rows.as_deref() == Some("0"))
            });
            let mut meter = Meter::open(&metered(&sandbox, by_pid), &clock).unwrap();
            assert_eq!(meter.warnings(), [], "we may see our own servers");
            let before = whole_of(&mut meter);
            insert(&sandbox, ROWS);
            let mut missing = session(&sandbox.nodes()[1]);
            wait_until("the replica has the rows", LIMIT, || {
                let rows = missing.value("test", "SELECT COUNT(*) FROM replimeter.used");
                rows.unwrap().as_deref() == Some(&ROWS.to_string())
            });
            let after = whole_of(&mut meter);
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

/// Whether the files of a folder are in memory (statfs(2)).
fn is_in_memory(folder: &Path) -> bool {
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::statfs(folder).unwrap().f_type as u64 == TMPFS
}

fn bytes_written_to_the_disk_are_metered() {
    const BYTES: usize = 8 << 20;
    if is_in_memory(&home()) {
        return skip("the private folder is in memory");
    }
    // It has no name, so that nothing is left of it.
    let file = tempfile::tempfile_in(home()).unwrap();
    let mut command = Command::new("cat");
    let mut copying = command.stdin(Stdio::piped()).stdout(file).spawn().unwrap();
    let clock = Clock::start();
    let watch = ResourceWatch::start(Meter::open(&[], &clock).unwrap(), Duration::from_millis(50));
    watch.add(vec![NamedProcess {
        name: "cat".to_owned(),
        role: "copy",
        counted: CountedProcess::Pid(copying.id()),
    }]);
    let before = watch.read();
    let written = || watch.between(&before, &watch.read())[0].write_bytes;
    assert_eq!(written(), Some(0.0));
    let mut input = copying.stdin.take().unwrap();
    input.write_all(&vec![b'x'; BYTES]).unwrap();
    wait_until("all bytes are counted", LIMIT, || {
        written().is_some_and(|bytes| bytes >= BYTES as f64)
    });
    drop(input);
    let _ = copying.wait().unwrap();
    watch.finish();
}

fn resource_series_adds_up_and_killed_server_is_blank() {
    let sandbox = start("mariadb/async:1", &[]);
    prepare(&sandbox);
    let clock = Clock::start();
    let watch = ResourceWatch::start(
        Meter::open(&metered(&sandbox, true), &clock).unwrap(),
        Duration::from_millis(50),
    );
    let read = || {
        whole(|| {
            let reading = watch.read();
            let used = watch.between(&reading, &reading);
            (reading, used)
        })
    };
    let first = read();
    let began = Instant::now();
    let mut row = 0;
    let mut writer = session(&sandbox.nodes()[0]);
    while began.elapsed() < Duration::from_secs(1) {
        writer
            .run(
                "test",
                &format!("INSERT INTO replimeter.used VALUES ({row}, 'x')"),
            )
            .unwrap();
        row += 1;
    }
    let last = read();
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
    kill_process(Pid::from_raw(victim).unwrap(), Signal::KILL).unwrap();
    wait_until("it has ended", LIMIT, || sandbox.ended(1).is_some());
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
    let sandbox = shared("mariadb/async:1", &[]);
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
    // Without a process every reading asks the server.
    let before = whole_of(&mut meter);
    let basic = meter.read_basic();
    assert_eq!(meter.between(&before, &basic)[0].source, UseSource::Status);
    insert(&sandbox, 50);
    let after = whole_of(&mut meter);
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
