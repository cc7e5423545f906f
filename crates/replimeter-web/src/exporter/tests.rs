//! Requests over real connections.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    thread,
};

use proptest::prelude::*;
use replimeter_render::live::{LiveChange, LiveColumn, LiveRow};
use rustix::net::sockopt::set_socket_recv_buffer_size;

use super::*;

/// Longer than any answer takes.
const LIMIT: Duration = Duration::from_secs(60);
/// More than a test takes.
const VALID: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);
/// Connections on which nothing is sent.
const IDLE: usize = 1000;

fn replica(name: &str, state: &'static str, lag: Option<(u32, Option<u32>)>) -> PublishedReplica {
    PublishedReplica {
        name: name.to_owned(),
        state,
        reason: String::new(),
        lag: lag.map(|(low, high)| PublishedLag {
            low: low * MS,
            high: high.map(|high| high * MS),
        }),
        is_fresh: true,
    }
}

fn published() -> Published {
    let replicas = vec![
        replica("replica1", "in step", Some((0, Some(20)))),
        replica("replica2", "lagging", Some((150, Some(900)))),
        PublishedReplica {
            reason: "the primary advances,\nit does not".to_owned(),
            ..replica("replica3", "blocked", Some((4000, None)))
        },
        replica("replica4", "lagging", Some((10, None))),
        replica("replica5", "unreachable", None),
        PublishedReplica {
            is_fresh: false,
            ..replica("replica6", "in step", Some((0, Some(0))))
        },
        replica("replica9", "idle", Some((0, Some(0)))),
    ];
    Published {
        metrics: "# TYPE polls counter\npolls_total 1\n# EOF\n".to_owned(),
        view: LiveView {
            title: "watch <shop>".to_owned(),
            summary: "6 of 7 replicas are read".to_owned(),
            columns: vec![
                LiveColumn {
                    title: "state",
                    is_number: false,
                },
                LiveColumn {
                    title: "lag",
                    is_number: true,
                },
            ],
            rows: vec![LiveRow {
                name: "replica3".to_owned(),
                attention: Attention::Bad,
                cells: vec!["blocked".to_owned(), "<4 s>".to_owned()],
                ..LiveRow::default()
            }],
            changes: vec![LiveChange {
                at: "12:00:00".to_owned(),
                attention: Attention::Notice,
                text: "replica3: \"blocked\"".to_owned(),
            }],
            line: String::new(),
        },
        replicas,
        at: Instant::now(),
        valid_for: VALID,
    }
}

fn start_with(token: Option<&str>, first: Published) -> Exporter {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let spec = ExporterSpec {
        names: vec!["watch.example".to_owned()],
        target: "async:7".to_owned(),
        token: token.map(Secret::new),
        max_lag: TimeSpan::from_secs(1),
        reserved_files: 2 * IDLE as u32,
    };
    Exporter::start(listener, &spec, first).unwrap()
}

fn start() -> Exporter {
    start_with(None, published())
}

struct Got {
    status: u16,
    head: String,
    body: String,
}

impl Got {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        let found = lines.find(|(own, _)| own.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }
}

fn connect(exporter: &Exporter) -> TcpStream {
    let stream = TcpStream::connect(exporter.address()).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream
}

/// Sends a request, and reads until the connection ends.
fn send(exporter: &Exporter, method: &str, path: &str, headers: &str) -> Got {
    let host = if headers.contains("Host:") {
        ""
    } else {
        "Host: localhost\r\n"
    };
    let mut stream = connect(exporter);
    let request = format!("{method} {path} HTTP/1.1\r\n{host}Connection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    Got {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
    }
}

fn get(exporter: &Exporter, path: &str) -> Got {
    send(exporter, "GET", path, "")
}

#[test]
fn checks_answer_by_what_the_bound_proves() {
    let exporter = start();
    for (query, status, parts) in [
        (
            "replica=replica1",
            200,
            vec!["in step", "lag from 0 to 20.00 ms", "within 1s"],
        ),
        ("replica=replica1&max-lag=20ms", 200, vec!["within 20ms"]),
        (
            "replica=replica1&max-lag=19ms",
            503,
            vec!["may be", "; --poll-interval 9500us bounds it to about 19ms"],
        ),
        ("replica=replica1&max-lag=0", 503, vec!["may be within 0s"]),
        ("replica=replica2", 200, vec!["to 900.0 ms"]),
        (
            "replica=replica2&max-lag=200ms",
            503,
            vec!["--poll-interval 100ms"],
        ),
        (
            "replica=replica2&max-lag=149ms",
            429,
            vec!["lagging", "is above 149ms"],
        ),
        (
            "replica=replica3",
            429,
            vec!["blocked (the primary advances, it does not)", "at least"],
        ),
        (
            "replica=replica3&max-lag=1h",
            503,
            vec!["without an upper bound"],
        ),
        ("replica=replica4", 503, vec!["without an upper bound"]),
        (
            "replica=replica5",
            503,
            vec!["unreachable, its lag is not known"],
        ),
        ("replica=replica6", 503, vec!["in step", "not read in time"]),
        (
            "replica=replica9&max-lag=0",
            200,
            vec!["idle, lag 0, is within 0s"],
        ),
        ("replica=%72eplica1&max-lag=1%73", 200, vec!["replica1"]),
        // All: one that is too late decides.
        (
            "",
            429,
            vec!["replica3: blocked", "3 of 7 replicas are within it"],
        ),
        ("max-lag=1h", 503, vec!["3 of 7"]),
        (
            "replica=replica7",
            404,
            vec!["no replica `replica7`", "replica1, replica2"],
        ),
        ("replica=", 404, vec!["no replica ``"]),
        (
            "replica=replica1&replica=replica2",
            400,
            vec!["`replica` is given twice"],
        ),
        ("replica=replica1&max-lag=1s&max-lag=2s", 400, vec!["twice"]),
        (
            "replica=replica1&lag=1s",
            400,
            vec!["unknown parameter `lag`", "max-lag=TIME"],
        ),
        (
            "replica=replica1&max-lag=5",
            400,
            vec!["max-lag: `5` is not a duration"],
        ),
        (
            "replica=replica1&max-lag=-5s",
            400,
            vec!["is not a duration"],
        ),
    ] {
        let got = get(&exporter, &format!("/check?{query}"));
        assert_eq!(got.status, status, "{query}: {}", got.body);
        for part in parts {
            assert!(got.body.contains(part), "{query}: {}", got.body);
        }
        assert!(got.body.ends_with('\n'), "{query}");
        assert_eq!(got.body.lines().count(), 1, "{query}: {}", got.body);
        // `HEAD` differs in the body only.
        let head = send(&exporter, "HEAD", &format!("/check?{query}"), "");
        assert_eq!((head.status, head.body.as_str()), (status, ""), "{query}");
        let length = got.body.len().to_string();
        assert_eq!(head.header("content-length"), Some(&*length), "{query}");
    }
}

#[test]
fn all_replicas_pass_if_each_does() {
    let mut all = published();
    all.replicas.truncate(2);
    let exporter = start_with(None, all.clone());
    let got = get(&exporter, "/check");
    assert_eq!(got.status, 200);
    let worst = "replica2: lagging, lag from 150.0 ms to 900.0 ms, is within 1s; 2 of 2";
    assert!(got.body.starts_with(worst), "{}", got.body);
    all.replicas.clear();
    exporter.publish(all);
    assert_eq!(get(&exporter, "/check").status, 503);
    let got = get(&exporter, "/check?replica=replica1");
    assert!(got.status == 404 && got.body.contains("there are none"));
}

#[test]
fn old_data_is_refused_until_newer_is_published() {
    let old = Published {
        valid_for: Duration::ZERO,
        ..published()
    };
    let exporter = start_with(None, old);
    for path in [
        "/check?replica=replica1",
        "/check?replica=replica3",
        "/check",
    ] {
        let got = get(&exporter, path);
        assert!(
            got.status == 503 && got.body.contains(" old, "),
            "{}",
            got.body
        );
    }
    assert_eq!(get(&exporter, "/check/app/mysql/replica1").status, 500);
    assert!(get(&exporter, "/").body.contains("<strong>Old:</strong>"));
    // Its series say so.
    assert_eq!(get(&exporter, "/metrics").status, 200);
    exporter.publish(published());
    assert_eq!(get(&exporter, "/check?replica=replica1").status, 200);
    assert!(!get(&exporter, "/").body.contains("<strong>Old:</strong>"));
}

#[test]
fn freno_clients_get_the_codes_of_freno() {
    let exporter = start();
    for (path, status, value, message) in [
        ("/check/app/mysql/replica1", 200, 0.02, ""),
        ("/check/app/mysql/replica1?p=low", 200, 0.02, ""),
        ("/check/app/mysql/replica3", 429, 4.0, "Threshold exceeded"),
        (
            "/check/app/mysql/replica4",
            500,
            0.01,
            "without an upper bound",
        ),
        ("/check/app/mysql/replica5", 500, 0.0, "not known"),
        ("/check/app/mysql/all", 429, 4.0, "replica3"),
        ("/check/app/mysql/async:7", 429, 4.0, "replica3"),
        ("/check/app/mysql/replica9", 200, 0.0, ""),
        ("/check/app/mysql/main1", 404, 0.0, "No such metric"),
        ("/check//mysql/replica1", 417, 0.0, "no app indicated"),
    ] {
        let got = get(&exporter, path);
        let json: serde_json::Value = serde_json::from_str(&got.body).unwrap();
        assert_eq!(got.status, status, "{path}: {json}");
        assert_eq!(json["StatusCode"], status, "{path}");
        assert_eq!(json["Value"], value, "{path}");
        assert_eq!(json["Threshold"], 1.0, "{path}");
        let given = json["Message"].as_str().unwrap();
        assert!(given.contains(message), "{path}: {given}");
        assert_eq!(given.is_empty(), message.is_empty(), "{path}: {given}");
        assert_eq!(got.header("content-type"), Some("application/json"));
        let head = send(&exporter, "HEAD", path, "");
        assert_eq!((head.status, head.body.as_str()), (status, ""), "{path}");
    }
    assert_eq!(get(&exporter, "/check/app/mysql").status, 404);
    assert_eq!(get(&exporter, "/check/app/mysql/replica1/").status, 404);
}

#[test]
fn metrics_have_the_format_that_is_accepted() {
    let exporter = start();
    let got = send(
        &exporter,
        "GET",
        "/metrics",
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5\r\n",
    );
    assert_eq!(got.header("content-type"), Some(OPEN_METRICS));
    assert!(got.body.ends_with("polls_total 1\n# EOF\n"), "{}", got.body);
    for accept in ["", "Accept: */*\r\n", "Accept: text/plain\r\n"] {
        let got = send(&exporter, "GET", "/metrics", accept);
        assert_eq!(got.header("content-type"), Some(PROMETHEUS));
        assert_eq!(got.body, "# TYPE polls_total counter\npolls_total 1\n");
    }
    let head = send(&exporter, "HEAD", "/metrics", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn page_is_escaped_and_reloads() {
    let exporter = start();
    let got = get(&exporter, "/");
    assert_eq!(got.header("content-type"), Some(HTML));
    let policy = got.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'"), "{policy}");
    for part in [
        "<meta http-equiv=\"refresh\" content=\"5\">",
        "<h1>watch &lt;shop&gt;</h1>",
        "6 of 7 replicas",
        "<tr class=\"bad\"><th scope=\"row\">replica3</th><td>blocked</td><td class=\"number\">&lt;4 s&gt;</td>",
        "<tr class=\"notice\"><td>12:00:00</td><td>replica3: &quot;blocked&quot;</td>",
    ] {
        assert!(got.body.contains(part), "{part}: {}", got.body);
    }
    assert_eq!(
        get(&exporter, "/style.css").header("content-type"),
        Some("text/css")
    );
    // A view without servers and changes.
    exporter.publish(Published {
        view: LiveView::default(),
        ..published()
    });
    let got = get(&exporter, "/");
    assert!(got.status == 200 && got.body.contains("There are none."));
}

#[test]
fn other_paths_and_methods_are_refused() {
    let exporter = start();
    for path in ["/nothing", "/check/", "/metrics/", "/healthz"] {
        let got = get(&exporter, path);
        assert!(got.status == 404 && got.body.contains("/metrics"), "{path}");
        assert_eq!(got.body.lines().count(), 1, "{path}");
    }
    for (method, path) in [("POST", "/metrics"), ("PUT", "/check"), ("DELETE", "/")] {
        let got = send(&exporter, method, path, "");
        assert_eq!(got.status, 405, "{path}");
        assert_eq!(got.header("allow"), Some("GET, HEAD"));
    }
}

#[test]
fn only_given_host_names_are_answered() {
    let exporter = start();
    for (host, status) in [
        ("watch.example:9104", 200),
        ("127.0.0.1", 200),
        ("[::1]:9104", 200),
        ("evil.example", 421),
        ("watch.example.evil", 421),
    ] {
        let got = send(&exporter, "GET", "/metrics", &format!("Host: {host}\r\n"));
        assert_eq!(got.status, status, "{host}");
        let names_option = got.body.contains("--allow-host");
        assert_eq!(names_option, status == 421, "{host}: {}", got.body);
    }
}

#[test]
fn token_is_asked_for_on_every_path() {
    let exporter = start_with(Some("secret"), published());
    let with = |authorization: &str, path: &str| {
        send(
            &exporter,
            "GET",
            path,
            &format!("Authorization: {authorization}\r\n"),
        )
    };
    for path in [
        "/",
        "/metrics",
        "/check?replica=replica1",
        "/check/app/mysql/replica1",
        "/style.css",
    ] {
        assert_eq!(with("Bearer secret", path).status, 200, "{path}");
        // prometheus:secret
        assert_eq!(with("Basic cHJvbWV0aGV1czpzZWNyZXQ=", path).status, 200);
        for wrong in [
            "Bearer secre",
            "Bearer secret2",
            "Basic c2VjcmV0",
            "Basic !",
            "secret",
            "\u{fc}",
        ] {
            assert_eq!(with(wrong, path).status, 401, "{wrong}");
        }
        let missing = get(&exporter, path);
        assert_eq!(missing.status, 401, "{path}");
        let asks = missing.header("www-authenticate");
        assert_eq!(asks, Some("Basic realm=\"replimeter\""));
        let shown = missing.body + &missing.head;
        assert!(!shown.contains("replica1") && !shown.contains("secret"));
    }
    // Paths that do not exist are not shown either.
    assert_eq!(get(&exporter, "/nothing").status, 401);
}

#[test]
fn idle_connections_leave_room_for_a_check() {
    let exporter = start();
    let idle: Vec<TcpStream> = (0..IDLE).map(|_| connect(&exporter)).collect();
    assert_eq!(get(&exporter, "/check?replica=replica1").status, 200);
    assert_eq!(idle.len(), IDLE);
}

#[test]
fn scrapers_that_do_not_read_delay_no_other() {
    // More than the system keeps for a peer.
    let metrics = format!("# {}\n# EOF\n", "a".repeat(32 << 20));
    let exporter = start_with(
        None,
        Published {
            metrics: metrics.clone(),
            ..published()
        },
    );
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n";
    let scrape = || {
        let mut stream = connect(&exporter);
        stream.write_all(request.as_bytes()).unwrap();
        stream
    };
    let silent: Vec<TcpStream> = (0..20).map(|_| scrape()).collect();
    for stream in &silent {
        set_socket_recv_buffer_size(stream, 4096).unwrap();
    }
    assert_eq!(get(&exporter, "/check?replica=replica1").status, 200);
    // Two at once, while others are published.
    thread::scope(|scope| {
        let scrapes = [(); 2].map(|()| {
            scope.spawn(|| {
                let mut text = String::new();
                scrape().read_to_string(&mut text).unwrap();
                text.split_once("\r\n\r\n").unwrap().1 == metrics
            })
        });
        let all = scrapes.map(|scrape| scrape.join().unwrap());
        assert_eq!(all, [true, true]);
    });
    exporter.publish(published());
    assert_eq!(get(&exporter, "/metrics").status, 200);
    drop(silent);
}

/// As `gh-ost` asks: many times over one connection.
#[test]
fn connection_is_kept_for_the_next_check() {
    let exporter = start();
    let mut stream = BufReader::new(connect(&exporter));
    let head = "HEAD /check?replica=replica1&max-lag=200ms HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for _ in 0..3 {
        stream.get_mut().write_all(head.as_bytes()).unwrap();
        let mut lines = Vec::new();
        while lines.last().is_none_or(|line| line != "\r\n") {
            let mut line = String::new();
            stream.read_line(&mut line).unwrap();
            lines.push(line);
        }
        assert_eq!(lines[0], "HTTP/1.1 200 OK\r\n");
    }
}

#[test]
fn dropping_it_ends_it() {
    let exporter = start();
    let address = exporter.address();
    assert!(!exporter.is_finished());
    drop(exporter);
    assert!(TcpStream::connect(address).is_err());
}

proptest! {
    #[test]
    fn no_query_panics(query in "(replica|max-lag|[=&%+;]|%[0-9a-f]{2}|\\PC){0,30}") {
        let _ = Question::parse(&query);
    }

    #[test]
    fn hostile_names_stay_in_one_line(name in prop::collection::vec(any::<u8>(), 0..40)) {
        let encoded: String = url::form_urlencoded::byte_serialize(&name).collect();
        let question = Question::parse(&format!("replica={encoded}")).unwrap();
        let published = published();
        if let Err(error) = named(&published, &question.replica.unwrap()) {
            let text = one_line(&error);
            prop_assert_eq!(text.lines().count(), 1);
            prop_assert!(!text.trim_end_matches('\n').contains(char::is_control));
        }
    }
}
