//! Servers that give no answer after Ctrl-C: frozen ones, and ones to which all packets are lost without a trace.

use std::{
    fs, io,
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use replimeter_engine::{Node, namespace::Namespace};
use replimeter_suites::{
    LIMIT, TestEnvironment, harness::skip, of_run, session, sql, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};

use super::{ADMIN, Cluster, under_way};

/// Interrupts a run whose primary gives no answer, and checks that it names that server and what is left there.
fn interrupt(child: Child, left: &str) {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = wait(child, LIMIT).with_code(130);
    let document = ended.json();
    assert_eq!(document["status"], "interrupted", "{document:#}");
    let warnings = document["warnings"].to_string();
    assert!(
        warnings.contains("no answer within 5 s") && warnings.contains(left),
        "{warnings}"
    );
}

pub(super) fn interrupt_ends_a_run_with_a_frozen_primary(cluster: &Cluster) {
    let tool = TestEnvironment::new();
    let child = under_way(cluster, &tool, &["--json"]);
    let primary = Pid::from_raw(i32::try_from(cluster.sandbox.pids()[0]).unwrap()).unwrap();
    kill_process(primary, Signal::STOP).unwrap();
    interrupt(child, LEFT);
    kill_process(primary, Signal::CONT).unwrap();
    sql(cluster.primary(), "DROP DATABASE replimeter");
}

/// Begins the name of the table that stays.
const LEFT: &str = "its table `replimeter`.`probe_";

/// Addresses in the two namespaces, and a link-layer address that neither has.
const SERVER: &str = "10.99.0.1";
const CLIENT: &str = "10.99.0.2";
const ABSENT_HOST: &str = "02:00:00:00:00:01";

/// A path to servers through two network namespaces, which can lose every packet.
struct LossyPath {
    /// The processes that keep the namespaces; killed when dropped.
    holders: [Child; 2],
    /// Of the servers' addresses and of the client.
    namespaces: [Namespace; 2],
    forwarded: Arc<Mutex<Vec<TcpStream>>>,
}

impl Drop for LossyPath {
    fn drop(&mut self) {
        for holder in &mut self.holders {
            let _ = holder.kill();
            let _ = holder.wait();
        }
    }
}

fn ip(namespace: &Namespace, line: &str) {
    let run = || Command::new("ip").args(line.split(' ')).status();
    assert!(namespace.run(run).unwrap().unwrap().success(), "ip {line}");
}

impl LossyPath {
    fn new() -> Self {
        let holders = [(); 2].map(|()| {
            let mut holder = Command::new("unshare");
            holder.args(["--net", "sleep", "1000"]).stdin(Stdio::null());
            holder.spawn().unwrap()
        });
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let namespaces = [&holders[0], &holders[1]].map(|holder| {
            let path = PathBuf::from(format!("/proc/{}/ns/net", holder.id()));
            wait_until("the namespace is there", LIMIT, || {
                fs::read_link(&path).is_ok_and(|found| found != own)
            });
            Namespace::open(&path).unwrap()
        });
        let peer = holders[1].id();
        ip(
            &namespaces[0],
            &format!("link add path0 type veth peer name path1 netns {peer}"),
        );
        for (index, address) in [SERVER, CLIENT].into_iter().enumerate() {
            let namespace = &namespaces[index];
            ip(
                namespace,
                &format!("address add {address}/24 dev path{index}"),
            );
            ip(namespace, &format!("link set path{index} up"));
        }
        Self {
            holders,
            namespaces,
            forwarded: Arc::default(),
        }
    }

    /// Forwards connections to a server, and returns its URL in the client's namespace.
    fn forward(&self, node: &Node) -> String {
        let port = node.endpoint.port;
        let listen = || TcpListener::bind((SERVER, port));
        let listener = self.namespaces[0].run(listen).unwrap().unwrap();
        let forwarded = Arc::clone(&self.forwarded);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
                let again = |stream: &TcpStream| stream.try_clone().unwrap();
                forwarded.lock().unwrap().push(again(&server));
                for (mut from, mut to) in [(again(&client), again(&server)), (server, client)] {
                    thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
            }
        });
        format!("mysql://{ADMIN}@{SERVER}:{port}/")
    }

    /// Loses every packet in both directions from now on.
    fn lose(&self) {
        for (index, other) in [CLIENT, SERVER].into_iter().enumerate() {
            let line =
                format!("neigh replace {other} lladdr {ABSENT_HOST} nud permanent dev path{index}");
            ip(&self.namespaces[index], &line);
        }
    }

    /// Delivers packets again, and ends the earlier connections to the servers.
    fn deliver(&self) {
        for (index, other) in [CLIENT, SERVER].into_iter().enumerate() {
            ip(
                &self.namespaces[index],
                &format!("neigh del {other} dev path{index}"),
            );
        }
        for stream in self.forwarded.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

pub(super) fn interrupt_ends_runs_whose_packets_are_lost(cluster: &Cluster) {
    if !rustix::process::geteuid().is_root() {
        return skip("network namespaces need root");
    }
    let path = LossyPath::new();
    let [primary, replica] = [cluster.primary(), cluster.replica()].map(|node| path.forward(node));
    let lines: [(&[&str], &str, &str); 3] = [
        (
            &["lag", "--floor-rounds", "20", "--timeout", "600s"],
            "SELECT COUNT(*) > 100 FROM replimeter.probe",
            LEFT,
        ),
        (
            &["load", "--workload", "insert", "--threads", "2"],
            "SELECT COUNT(*) > 100 FROM replimeter.load_insert",
            "DROP TABLE IF EXISTS `replimeter`.`load_insert`",
        ),
        (
            &["stale", "--read-delays", "none", "--timeout", "600s"],
            "SELECT MAX(k) > 100 FROM replimeter.probe",
            LEFT,
        ),
    ];
    for (line, begun, left) in lines {
        let tool = TestEnvironment::new();
        let more = [
            "--json",
            "--duration",
            "1000s",
            "--primary",
            &primary,
            "--replica",
            &replica,
        ];
        let mut command = tool.command(&[line, &more].concat());
        command.env("REPLIMETER_PASSWORD", cluster.password());
        let child = path.namespaces[1].run(|| command.spawn()).unwrap().unwrap();
        wait_until("the run is under way", LIMIT, || {
            let begun = of_run(cluster.primary(), begun);
            let found = session(cluster.primary()).value("test", &begun);
            found.is_ok_and(|found| found.as_deref() == Some("1"))
        });
        path.lose();
        // Statements are under way that get no answer.
        thread::sleep(Duration::from_millis(500));
        interrupt(child, left);
        path.deliver();
        sql(cluster.primary(), "DROP DATABASE replimeter");
        cluster.assert_clean();
    }
}
