//! `replimeter front`: the site in front of real servers, as browsers and `ab` use it.

mod balancer;
mod hangs;
mod idle;

use std::{
    io::{BufReader, Write},
    net::{SocketAddr, TcpListener},
    process::{Child, Command},
    thread,
};

use replimeter_engine::{Node, Session};
use replimeter_suites::{
    CommandOutput, LIMIT, OpenPage, TestEnvironment, browser, clean,
    harness::{Test, skip},
    has_ended, headless,
    http::{Visitor, connect, raw, read_answer, served_address},
    password, session, shared, sql, start, test, url, value, wait, wait_until,
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub(crate) const TESTS: &[Test] = &[
    test!(posts_are_served_counted_and_removed),
    test!(remedies_show_the_visitors_own_post),
    test!(remedies_of_mysql_show_the_visitors_own_post).long(),
    test!(remedies_of_galera_show_the_visitors_own_post)
        .starts(4)
        .long(),
    test!(invalid_requests_are_refused),
    test!(idle::idle_and_slow_clients_delay_no_other),
    test!(idle::idle_visitors_take_no_file_of_the_servers),
    test!(stopped_replica_is_out_of_use_until_it_replicates),
    test!(hangs::hanging_posts_are_ended_before_more_connect),
    test!(hangs::hanging_posts_on_mysql_are_ended_before_more_connect).long(),
    test!(killed_servers_cause_errors_and_no_hang).starts(3),
    test!(port_in_use_is_refused_before_a_server_starts),
    test!(posts_added_to_kept_data_are_removed),
    test!(page_works_in_a_browser),
    test!(page_is_used_by_keyboard),
    test!(balancer::several_fronts_share_the_work_behind_a_balancer),
    test!(balancer::killed_balancer_ends_the_run_and_leaves_nothing),
];

/// A running front.
struct Front {
    child: Child,
    address: SocketAddr,
    /// Reads the rest of standard error.
    rest: thread::JoinHandle<String>,
}

/// The command of a front at a free port.
const SERVE: &[&str] = &["front", "--listen", "127.0.0.1:0", "--json"];

/// Starts a front at a free port, and waits until it serves.
fn serve(tool: &TestEnvironment, nodes: Option<&[Node]>, args: &[&str]) -> Front {
    serve_by(tool.command(SERVE), nodes, args)
}

/// Does so by this command.
fn serve_by(mut command: Command, nodes: Option<&[Node]>, args: &[&str]) -> Front {
    if let Some((primary, replicas)) = nodes.and_then(<[Node]>::split_first) {
        command.args(["--primary", &url(primary, "replimeter")]);
        for replica in replicas {
            command.args(["--replica", &url(replica, "replimeter")]);
        }
        command.env("REPLIMETER_PASSWORD", password(primary));
    }
    let mut child = command.args(args).spawn().unwrap();
    let (address, rest) = served_address(&mut child);
    Front {
        child,
        address,
        rest,
    }
}

impl Front {
    fn visitor(&self) -> Visitor {
        Visitor::new(self.address)
    }

    /// Ends it as Ctrl-C does; returns its document and what it wrote to standard error.
    fn end(self) -> (Value, String) {
        let process = Pid::from_raw(self.child.id().cast_signed()).unwrap();
        kill_process(process, Signal::INT).unwrap();
        let output: CommandOutput = wait(self.child, LIMIT);
        let rest = self.rest.join().unwrap();
        let document = output.with_code(0).json();
        assert_eq!(document["schema"], "replimeter.front/1", "{rest}");
        (document, rest)
    }
}

fn row<'a>(document: &'a Value, request: &str, server: &str) -> &'a Value {
    let rows = document["results"]["rows"].as_array().unwrap();
    let mut rows = rows.iter();
    rows.find(|row| row["request"] == request && row["server"] == server)
        .unwrap_or_else(|| panic!("{document:#}"))
}

fn posts_are_served_counted_and_removed() {
    for shape in ["mariadb/async:1", "mysql/async:1"] {
        let sandbox = shared(shape, &[]);
        let tool = TestEnvironment::new();
        let front = serve(&tool, Some(sandbox.nodes()), &["--data-size", "100"]);
        let mut visitor = front.visitor();
        let title = "%3Cb%3E%27%3B+DROP+TABLE+post%3B+--+%22";
        let posted = visitor.form(
            "/insert",
            &format!("title={title}&date=2001-02-03+04:05:06"),
        );
        assert_eq!(posted.status, 200, "{posted:?}");
        let post = posted.json()["post"].as_u64().unwrap();
        assert!(
            post > 100 && posted.json()["server"] == "primary",
            "{posted:?}"
        );
        wait_until("the post is on the replica", LIMIT, || {
            let page = visitor.page();
            page.status == 200 && page.json()["own"]["shown"] == true
        });
        let page = visitor.page();
        let first = &page.json()["posts"][0];
        assert_eq!(first["title"], "<b>'; DROP TABLE post; -- \"", "{page:?}");
        assert_eq!(first["created"], "2001-02-03 04:05:06");
        assert_eq!(page.json()["server"], "replica1");
        let html = visitor.ask("GET", "/", "Accept: text/html\r\n", "");
        assert!(
            html.body.contains("&lt;b&gt;") && !html.body.contains("<b>"),
            "{html:?}"
        );
        assert!(html.header("content-security-policy")[0].starts_with("default-src 'none'"));
        let selected = visitor.form("/select", "title=%25A+post%25&date=1964-12-31+16:00:00");
        let posts = selected.json()["posts"].as_array().unwrap().len();
        assert!(
            selected.status == 200 && (1..=100).contains(&posts),
            "{selected:?}"
        );
        assert_eq!(visitor.ask("GET", "/healthz", "", "").body, "ok\n");
        // A reload of what a browser sees after a post does not post again.
        let seen = visitor.form("/post", "title=from+the+page");
        assert_eq!((seen.status, seen.header("location")), (303, vec!["/"]));
        let (document, _) = front.end();
        assert_eq!(row(&document, "insert", "primary")["requests"], 2);
        assert_eq!(row(&document, "select", "replica1")["requests"], 1);
        let pages = row(&document, "page", "replica1")["requests"]
            .as_u64()
            .unwrap();
        let freshness = &document["results"]["freshness"];
        assert_eq!(freshness["age"]["count"], pages);
        let own = freshness["own_missing"].as_array().unwrap();
        let of_author: u64 = own
            .iter()
            .map(|of| of["missing"]["pages"].as_u64().unwrap())
            .sum();
        assert_eq!(of_author, pages);
        assert!(document["results"]["cpu_per_request_us"].as_f64().unwrap() > 0.0);
        assert_eq!(document["status"], "complete");
        assert!(clean(&sandbox.nodes()[0]), "{shape}");
    }
}

fn remedies_show_the_visitors_own_post() {
    show_own_posts("mariadb/async:1");
}

fn remedies_of_mysql_show_the_visitors_own_post() {
    show_own_posts("mysql/async:1");
}

/// Keeps posts from a replica, which still answers reads; until `UNLOCK TABLES`.
fn hold_posts(replica: &Node) -> Session {
    let mut held = session(replica);
    wait_until("the posts are on the replica", LIMIT, || {
        let lock = "FLUSH TABLES replimeter.post WITH READ LOCK";
        held.run("lock", lock).is_ok()
    });
    held
}

/// Posts, reloads at once, and checks that the page is of this post.
fn post_and_reload(visitor: &mut Visitor, shows: bool, case: &str) -> Value {
    let posted = visitor.form("/insert", "title=mine");
    assert_eq!(posted.status, 200, "{case} {posted:?}");
    let page = visitor.page();
    assert_eq!(page.status, 200, "{case} {page:?}");
    let page = page.json();
    assert_eq!(page["own"]["shown"], shows, "{case} {page:#}");
    assert_eq!(page["own"]["post"], posted.json()["post"], "{case}");
    page
}

/// Returns the number of pages after a visitor's post, and of those that missed it.
fn own_missing(document: &Value) -> [u64; 2] {
    let classes = &document["results"]["freshness"]["own_missing"];
    ["pages", "count"].map(|key| {
        let classes = classes.as_array().unwrap().iter();
        classes
            .map(|class| class["missing"][key].as_u64().unwrap())
            .sum()
    })
}

/// Posts while the replica gets no posts, with each remedy.
fn show_own_posts(shape: &str) {
    let sandbox = shared(shape, &[]);
    let replica = &sandbox.nodes()[1];
    for (args, shows) in [
        (&["--remedy", "none"][..], false),
        (&["--remedy", "sticky"], false),
        (&["--remedy", "primary-for", "--primary-for", "600s"], true),
        (&["--remedy", "primary-always"], true),
    ] {
        let tool = TestEnvironment::new();
        let front = serve(&tool, Some(sandbox.nodes()), args);
        let mut visitor = front.visitor();
        let mut held = hold_posts(replica);
        for round in 0..2 {
            let case = format!("{shape} {args:?}, round {round}:");
            let page = post_and_reload(&mut visitor, shows, &case);
            let server = if shows { "primary" } else { "replica1" };
            assert_eq!(page["server"], server, "{case}");
            assert!(shows || page["age_us"].as_f64().unwrap() > 0.0, "{case}");
        }
        held.run("unlock", "UNLOCK TABLES").unwrap();
        let (document, _) = front.end();
        assert_eq!(document["results"]["freshness"]["fell_back"], 0, "{args:?}");
        let missing = if shows { 0 } else { 2 };
        assert_eq!(own_missing(&document), [2, missing], "{args:?}");
    }
    waits_show_own_posts(shape, sandbox.nodes());
}

/// Waits for the post on the replica: too long, so that the primary is read instead, and until the post is there.
fn waits_show_own_posts(shape: &str, nodes: &[Node]) {
    let replica = &nodes[1];
    let tool = TestEnvironment::new();
    let front = serve(&tool, Some(nodes), &["--remedy", "wait-for-gtid"]);
    let mut visitor = front.visitor();
    let mut held = hold_posts(replica);
    let page = post_and_reload(&mut visitor, true, shape);
    assert_eq!(page["server"], "primary");
    held.run("unlock", "UNLOCK TABLES").unwrap();
    let waiting = "SELECT COUNT(*) FROM information_schema.processlist
        WHERE info LIKE 'SELECT %GTID%(%' AND id <> CONNECTION_ID()";
    // On a machine that stalls for the second that a page may wait, the primary answers; then it is tried again.
    wait_until("the replica answers after a wait", LIMIT, || {
        let mut held = hold_posts(replica);
        thread::scope(|scope| {
            let reload = scope.spawn(|| post_and_reload(&mut visitor, true, shape));
            wait_until("the page waits", LIMIT, || {
                reload.is_finished() || value(replica, waiting).as_deref() != Some("0")
            });
            held.run("unlock", "UNLOCK TABLES").unwrap();
            reload.join().unwrap()["server"] == "replica1"
        })
    });
    let (document, _) = front.end();
    let freshness = &document["results"]["freshness"];
    assert!(freshness["fell_back"].as_u64().unwrap() >= 1, "{shape}");
    let [pages, missing] = own_missing(&document);
    assert!(pages >= 2 && missing == 0, "{freshness:#}");
    let waits = &row(&document, "page", "replica1")["wait"];
    assert!(waits["max_us"].as_f64().unwrap() > 0.0, "{waits}");
}

/// A commit of a cluster waits for its messages, so that its lag is what the other node still has to apply.
fn remedies_of_galera_show_the_visitors_own_post() {
    for (args, of_writer) in [
        (&["--remedy", "wait-for-gtid"][..], false),
        (&["--remedy", "primary-for", "--primary-for", "600s"], true),
        (&["--remedy", "primary-always"], true),
    ] {
        let tool = TestEnvironment::new();
        let servers = ["--sandbox", "galera:2", "--link-delay", "20ms"];
        let front = serve(&tool, None, &[&servers[..], args].concat());
        let mut visitor = front.visitor();
        for round in 0..2 {
            let case = format!("{args:?}, round {round}:");
            let page = post_and_reload(&mut visitor, true, &case);
            // The other node may also be too late, and the writer is read instead.
            assert!(!of_writer || page["server"] == "node1", "{case}");
        }
        let (document, _) = front.end();
        assert_eq!(own_missing(&document), [2, 0], "{args:?}");
    }
}

fn invalid_requests_are_refused() {
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let front = serve(
        &tool,
        Some(sandbox.nodes()),
        &["--data-size", "10", "--max-rows", "2"],
    );
    let mut visitor = front.visitor();
    let address = front.address;
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    for (method, path, headers, body, status) in [
        ("GET", "/nothing", "", "", 404),
        ("GET", "/insert", "", "", 405),
        ("DELETE", "/", "", "", 405),
        (
            "POST",
            "/insert",
            "Content-Type: application/json\r\n",
            "{}",
            415,
        ),
        ("POST", "/insert", form, "", 400),
        ("POST", "/insert", form, "title=a&date=yesterday", 400),
        ("POST", "/insert", form, "title=a&admin=1", 400),
        ("GET", "/", "Host: evil.example\r\n", "", 421),
    ] {
        let answer = visitor.ask(method, path, headers, body);
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
    }
    let elsewhere = format!("{form}Origin: http://evil.example\r\n");
    assert_eq!(
        visitor.ask("POST", "/insert", &elsewhere, "title=a").status,
        403
    );
    let own = format!("{form}Origin: http://{address}\r\n");
    assert_eq!(visitor.ask("POST", "/insert", &own, "title=a").status, 200);
    let long = format!("title={}", "a".repeat(20_000));
    assert_eq!(visitor.form("/insert", &long).status, 413);
    // A body whose end never comes, by its length.
    let huge = raw(
        address,
        &format!(
            "POST /insert HTTP/1.1\r\nHost: {address}\r\n{form}Content-Length: 9999999999\r\n\r\n{}",
            "a".repeat(20_000)
        ),
    );
    assert_eq!(huge.status, 413);
    assert_eq!(raw(address, "nonsense\r\n\r\n").status, 400);
    let head = format!(
        "GET / HTTP/1.1\r\nHost: {address}\r\nX: {}\r\n\r\n",
        "a".repeat(40_000)
    );
    assert_eq!(raw(address, &head).status, 431);
    assert_eq!(visitor.form("/insert", "title=b").status, 200);
    let full = visitor.form("/insert", "title=c");
    assert!(
        full.status == 503 && full.body.contains("--max-rows"),
        "{full:?}"
    );
    // ab speaks HTTP/1.0 and keeps the connection only if the answer says so.
    let mut stream = BufReader::new(connect(address));
    for _ in 0..2 {
        let request = format!(
            "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nHost: {address}\r\nAccept: */*\r\n\r\n"
        );
        stream.get_mut().write_all(request.as_bytes()).unwrap();
        let answer = read_answer(&mut stream);
        assert_eq!(
            (answer.status, answer.header("connection")),
            (200, vec!["keep-alive"])
        );
    }
    let rows = value(&sandbox.nodes()[0], "SELECT COUNT(*) FROM replimeter.post");
    assert_eq!(rows.as_deref(), Some("12"));
    drop(stream);
    let (document, _) = front.end();
    let results = &document["results"];
    assert!(results["invalid"].as_u64().unwrap() >= 10, "{results:#}");
    assert_eq!(row(&document, "insert", "primary")["requests"], 2);
    assert_eq!(
        results["errors"].as_object().unwrap().len(),
        1,
        "{results:#}"
    );
}

fn stopped_replica_is_out_of_use_until_it_replicates() {
    let sandbox = shared("mariadb/async:2", &[]);
    let tool = TestEnvironment::new();
    let front = serve(&tool, Some(sandbox.nodes()), &[]);
    let mut visitor = front.visitor();
    let mut servers = || {
        let answers = (0..4).map(|_| visitor.page().json()["server"].as_str().unwrap().to_owned());
        let mut servers: Vec<String> = answers.collect();
        servers.sort();
        servers.dedup();
        servers
    };
    wait_until("both replicas are in use", LIMIT, || {
        servers() == ["replica1", "replica2"]
    });
    sql(&sandbox.nodes()[1], "STOP SLAVE");
    wait_until("the replica is out of use", LIMIT, || {
        servers() == ["replica2"]
    });
    sql(&sandbox.nodes()[1], "START SLAVE");
    wait_until("the replica is in use", LIMIT, || {
        servers() == ["replica1", "replica2"]
    });
    let (document, notes) = front.end();
    assert!(
        notes.contains("replica1 is out of use: it does not replicate"),
        "{notes}"
    );
    assert!(notes.contains("replica1 is in use again"), "{notes}");
    let warnings = document["warnings"].as_array().unwrap();
    let outage = warnings.iter().find(|one| one["code"] == "reconnected");
    let outage = outage.unwrap_or_else(|| panic!("{warnings:#?}"))["message"].to_string();
    assert!(
        outage.contains("replica1 was out of use for ") && outage.contains("it does not replicate"),
        "{outage}"
    );
    let errors = document["results"]["errors"].as_object().unwrap();
    assert!(errors.is_empty(), "{errors:?}");
}

fn killed_servers_cause_errors_and_no_hang() {
    let sandbox = start("mariadb/async:2", &[]);
    let tool = TestEnvironment::new();
    let front = serve(&tool, Some(sandbox.nodes()), &[]);
    let kill = |member: usize| {
        let process = Pid::from_raw(sandbox.members()[member].pid.cast_signed()).unwrap();
        kill_process(process, Signal::KILL).unwrap();
        wait_until("the server has ended", LIMIT, || has_ended(process));
    };
    let mut visitor = front.visitor();
    assert_eq!(visitor.form("/insert", "title=a").status, 200);
    kill(1);
    // Another replica answers, at once.
    for _ in 0..10 {
        assert_eq!(visitor.page().status, 200);
    }
    kill(0);
    let refused = visitor.form("/insert", "title=b");
    assert!(
        refused.status == 503 && refused.body.contains("primary"),
        "{refused:?}"
    );
    wait_until("the primary is out of use", LIMIT, || {
        visitor.ask("GET", "/healthz", "", "").status == 503
    });
    assert_eq!(visitor.page().status, 200, "the last replica still has all");
    kill(2);
    let none = visitor.page();
    assert_eq!(none.status, 503, "{none:?}");
    let (document, _) = front.end();
    let errors = document["results"]["errors"].as_object().unwrap();
    assert!(
        errors
            .values()
            .map(|count| count.as_u64().unwrap())
            .sum::<u64>()
            >= 2,
        "{errors:?}"
    );
}

fn port_in_use_is_refused_before_a_server_starts() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let tool = TestEnvironment::new();
    let output = tool.run(&["front", "--sandbox", "async:1", "--listen", &address]);
    let _ = output
        .with_code(2)
        .stderr_contains("cannot listen at 127.0.0.1:");
    assert!(!tool.home().join("sandboxes").join("async-1").exists() && tool.servers().is_empty());
    let remote = tool.run(&["front", "--sandbox", "async:1", "--listen", "0.0.0.0:0"]);
    let _ = remote.with_code(2).stderr_contains("allow-remote");
}

fn posts_added_to_kept_data_are_removed() {
    let sandbox = shared("mariadb/async:1", &[]);
    let primary = &sandbox.nodes()[0];
    let tool = TestEnvironment::new();
    let mut load = tool.command(&[
        "load",
        "--workload",
        "post-insert",
        "--data-size",
        "50",
        "--keep-data",
    ]);
    load.args([
        "--primary",
        &url(primary, "replimeter"),
        "--duration",
        "200ms",
        "--warm-up",
        "0s",
    ])
    .args(["--replica", &url(&sandbox.nodes()[1], "replimeter")])
    .env("REPLIMETER_PASSWORD", password(primary));
    let _ = wait(load.spawn().unwrap(), LIMIT).with_code(0);
    let front = serve(&tool, Some(sandbox.nodes()), &["--data-size", "50"]);
    assert_eq!(front.visitor().form("/insert", "title=a").status, 200);
    front.end();
    let rows = value(primary, "SELECT COUNT(*) FROM replimeter.post");
    assert_eq!(rows.as_deref(), Some("50"));
    sql(primary, "DROP DATABASE replimeter");
}

/// Returns the final document of a page, and the browser's messages.
fn visit(address: &str, tool: &TestEnvironment) -> (String, String) {
    let profile = tempfile::tempdir_in(tool.folder()).unwrap();
    let output = headless(profile.path()).arg(address).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

fn page_works_in_a_browser() {
    if browser().is_none() {
        return skip("no Chromium on PATH; on Debian: apt-get install chromium");
    }
    let sandbox = shared("mariadb/async:1", &[]);
    let tool = TestEnvironment::new();
    let front = serve(&tool, Some(sandbox.nodes()), &["--data-size", "30"]);
    front
        .visitor()
        .form("/insert", "title=%3Cscript%3Ealert(1)%3C/script%3E");
    let (page, messages) = visit(&format!("http://{}/", front.address), &tool);
    assert!(
        page.contains("<caption>The newest posts</caption>"),
        "{page}"
    );
    assert!(
        page.contains("answered by") && page.contains("autofocus"),
        "{page}"
    );
    assert_eq!(page.matches("<script").count(), 0, "{page}");
    let complaints = messages.lines().filter(|line| line.contains("CONSOLE"));
    assert_eq!(complaints.collect::<Vec<_>>(), Vec::<&str>::new());
    front.end();
}

fn page_is_used_by_keyboard() {
    if browser().is_none() {
        return skip("no Chromium on PATH; on Debian: apt-get install chromium");
    }
    let sandbox = shared("mariadb/async:1", &[]);
    let replica = &sandbox.nodes()[1];
    let tool = TestEnvironment::new();
    let front = serve(&tool, Some(sandbox.nodes()), &["--data-size", "30"]);
    let mut page = OpenPage::open(&format!("http://{}/", front.address), tool.folder());
    // The replica keeps replicating, but cannot apply.
    let mut held = session(replica);
    held.run("lock", "FLUSH TABLES replimeter.post WITH READ LOCK")
        .unwrap();

    let focused = "document.activeElement.tagName + document.activeElement.textContent";
    page.await_text(focused, "INPUT");
    page.type_text("by keyboard");
    page.press("Tab");
    page.await_text(focused, "BUTTONPost");
    let outline = page.text("getComputedStyle(document.activeElement).outlineStyle");
    assert_eq!(outline, "solid");
    page.press("Enter");
    let shown = "document.body.innerText";
    page.await_text(shown, "is missing");

    // The next page gives the focus to its own field shortly after its text is there.
    page.await_text(focused, "INPUT");
    page.press("Tab");
    page.await_text(focused, "BUTTONPost");
    page.press("Tab");
    page.await_text(focused, "Areload");
    held.run("unlock", "UNLOCK TABLES").unwrap();
    wait_until("the post is on the replica", LIMIT, || {
        let sql = "SELECT COUNT(*) FROM replimeter.post WHERE title = 'by keyboard'";
        value(replica, sql).as_deref() == Some("1")
    });
    page.press("Enter");
    page.await_text(shown, "is on this page");
    page.await_text(shown, "by keyboard");
    drop(page);
    front.end();
}
