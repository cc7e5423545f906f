//! A statement that stops the applier and waits for a blocked worker.

use std::{thread, time::Duration};

use replimeter_engine::Session;
use replimeter_suites::{LIMIT, TestEnvironment, password, session, sql, value, wait_until};
use rustix::process::{Signal, kill_process};

use super::{ADMIN, RunningCommand, Servers, pid};

/// A replica's worker waits for a row that the test has locked, and `STOP` waits for the worker.
struct BlockedApplier {
    lock: Session,
}

impl BlockedApplier {
    /// Creates a table of two rows on both servers.
    fn prepare(servers: &Servers) {
        for statement in [
            "CREATE DATABASE app",
            "CREATE TABLE app.t (id INT PRIMARY KEY, n INT NOT NULL) ENGINE=InnoDB",
            "INSERT INTO app.t VALUES (1, 0), (2, 0)",
        ] {
            sql(servers.primary(), statement);
        }
        wait_until("the rows have arrived", LIMIT, || {
            let rows = session(servers.replica()).value("test", "SELECT COUNT(*) FROM app.t");
            rows.ok().flatten().as_deref() == Some("2")
        });
    }

    fn new(servers: &Servers, update: &[&str]) -> Self {
        let mut lock = session(servers.replica());
        for statement in ["BEGIN", "SELECT n FROM app.t WHERE id = 1 FOR UPDATE"] {
            lock.run("test", statement).unwrap();
        }
        let mut primary = session(servers.primary());
        update
            .iter()
            .for_each(|statement| primary.run("test", statement).unwrap());
        Self { lock }
    }

    fn until_it_waits(&self, servers: &Servers) {
        let waiting =
            "SELECT COUNT(*) FROM information_schema.innodb_trx WHERE trx_state = 'LOCK WAIT'";
        wait_until("the replica's worker waits", LIMIT, || {
            // The server fills this table again if it was not read for 100 ms.
            thread::sleep(Duration::from_millis(150));
            value(servers.replica(), waiting).as_deref() == Some("1")
        });
    }

    fn end(mut self) {
        self.lock.run("test", "ROLLBACK").unwrap();
    }
}

pub(super) fn unanswered_stop_prints_restore_statements() {
    let servers = Servers::of_three_workers("mariadb/async:1");
    BlockedApplier::prepare(&servers);
    // By its positions the replica has everything while it applies the last transaction.
    let stuck = BlockedApplier::new(
        &servers,
        &[
            "SET gtid_domain_id = 7, gtid_seq_no = 1000",
            "UPDATE app.t SET n = 1 WHERE id = 2",
            "SET gtid_seq_no = 10",
            "UPDATE app.t SET n = 1 WHERE id = 1",
        ],
    );
    stuck.until_it_waits(&servers);
    let tool = TestEnvironment::new();
    let args = [
        "backlog",
        "--build-up",
        "600s",
        "--timeout",
        "60s",
        "--workers",
        "5",
        "--load",
        "insert:2@primary",
        "--rate",
        "50",
    ];
    let run = RunningCommand::new(servers.spawn_as(
        &tool,
        ADMIN,
        password(servers.primary()),
        Some("impatient-backlog"),
        &args,
    ));
    run.until_it_says("retrying to start the applier of replica1, ");
    kill_process(pid(&run.child), Signal::INT).unwrap();
    let ended = run
        .wait()
        .with_code(3)
        .stderr_contains("cannot execute `STOP SLAVE SQL_THREAD`: no answer in time; replica1 (");
    let ended = ended
        .stderr_contains("is still running")
        .stderr_contains(&servers.statements());
    assert!(
        servers.applying(),
        "it applies until the statement takes effect"
    );
    stuck.end();
    wait_until("the late statement stops it", LIMIT, || !servers.applying());
    let statements = ended
        .stderr
        .rsplit_once("run on replica1: ")
        .unwrap()
        .1
        .trim();
    statements
        .split_terminator(';')
        .for_each(|statement| sql(servers.replica(), statement));
    servers.assert_as_it_was("3");
    servers.assert_clean();
}

/// The statement that stops the applier in order to restore its workers.
pub(super) fn slow_stop_is_awaited(servers: &Servers) {
    BlockedApplier::prepare(servers);
    let tool = TestEnvironment::new();
    let run = servers.holding(&tool, "4s");
    let stuck = BlockedApplier::new(servers, &["UPDATE app.t SET n = 1 WHERE id = 1"]);
    wait_until("the applier runs", LIMIT, || servers.applying());
    stuck.until_it_waits(servers);
    kill_process(pid(&run.child), Signal::INT).unwrap();
    run.until_it_says("retrying to start the applier of replica1, ");
    assert_eq!(servers.workers(), "5");
    stuck.end();
    let ended = run
        .wait()
        .with_code(130)
        .stderr_contains(&servers.statements());
    let _ = ended.stderr_contains("the applier of replica1 was restored");
}
