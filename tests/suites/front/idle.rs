//! Visitors that send nothing.

use std::{
    io::{ErrorKind, Read, Write},
    net::TcpStream,
};

use replimeter_suites::{TestEnvironment, http::connect, memory_kib, shared};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::{SERVE, serve, serve_by};

pub(super) fn idle_and_slow_clients_delay_no_other() {
    // A thousand connections, and those of tests that run at the same time.
    let files = getrlimit(Resource::Nofile);
    let enough = files.maximum.map_or(8192, |most| most.min(8192));
    if files.current.is_some_and(|now| now < enough) {
        let current = Some(enough);
        setrlimit(Resource::Nofile, Rlimit { current, ..files }).unwrap();
    }
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let front = serve(&tool, Some(sandbox.nodes()), &[]);
    let mut idle: Vec<_> = (0..1000).map(|_| connect(front.address)).collect();
    for slow in &mut idle[..100] {
        slow.write_all(b"GET / HT").unwrap();
    }
    for _ in 0..20 {
        assert_eq!(front.visitor().page().status, 200);
    }
    let memory = memory_kib(front.child.id(), "VmRSS").unwrap();
    assert!(memory < 50 << 10, "{memory} KiB at 1,000 connections");
    // What is left of a client that sends no request is closed.
    let closed = match idle[500].read(&mut [0]) {
        Ok(length) => length == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    };
    assert!(closed, "an idle connection is still open");
    drop(idle);
    front.end();
}

pub(super) fn idle_visitors_take_no_file_of_the_servers() {
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let command = tool.command_with_files(200, SERVE);
    let front = serve_by(command, Some(sandbox.nodes()), &[]);
    // More than it has room for: the others wait in the system's queue, and visitors behind them.
    let idle: Vec<TcpStream> = (0..160).map(|_| connect(front.address)).collect();
    for _ in 0..3 {
        let mut visitor = front.visitor();
        assert_eq!(visitor.form("/insert", "title=a").status, 200);
        assert_eq!(visitor.page().status, 200);
    }
    drop(idle);
    let (document, notes) = front.end();
    assert!(!notes.contains("out of use"), "{notes}");
    let errors = document["results"]["errors"].as_object().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
}
