//! TLS against servers that require it, with a private authority.

use std::{
    cell::RefCell,
    fs,
    io::{self, Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::Path,
    sync::LazyLock,
    thread,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use replimeter_engine::{Node, ServerError, Session};
use replimeter_model::target::{Endpoint, Secret};
use replimeter_suites::{
    CommandOutput, LIMIT, Shared, TestEnvironment, folder, harness::Test, password, shared, sql,
    start, test, value, wait,
};
use tempfile::TempDir;

pub(crate) const TESTS: &[Test] = &[
    test!(every_ssl_mode_works_where_tls_is_required),
    test!(server_without_tls_is_handled).starts(1),
    test!(only_the_named_authority_and_host_are_accepted),
    test!(peer_that_strips_tls_gets_no_password),
    test!(answers_sent_before_tls_are_refused),
    test!(tls_options_of_option_files_are_honored),
    test!(public_key_of_a_remote_server_is_refused),
];

/// An authority, and a server's certificate for `name`, as PEM files.
fn authority(folder: &Path, name: &str) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "test authority");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, name);
    let certificate = params.signed_by(&key, &issuer).unwrap();
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("ca.pem"), issuer.pem()).unwrap();
    fs::write(folder.join("cert.pem"), certificate.pem()).unwrap();
    fs::write(folder.join("key.pem"), key.serialize_pem()).unwrap();
}

/// Returns the folder of the certificates that all tests use, for the name `localhost`: `ours` is that of the servers,
/// `other` is from another authority.
fn certificates() -> &'static str {
    static FILES: LazyLock<(TempDir, String)> = LazyLock::new(|| {
        let files = folder();
        for name in ["ours", "other"] {
            authority(&files.path().join(name), "localhost");
        }
        let path = files.path().display().to_string();
        (files, path)
    });
    &FILES.1
}

/// Returns shared servers with the certificate `ours`.
fn servers_with_a_certificate() -> Shared {
    let ours = format!("{}/ours", certificates());
    let options = [
        format!("ssl_ca={ours}/ca.pem"),
        format!("ssl_cert={ours}/cert.pem"),
        format!("ssl_key={ours}/key.pem"),
    ];
    shared("mariadb/async:1", &options.each_ref().map(String::as_str))
}

/// An address of this machine that does not look like one.
const REMOTE: &str = "127.1";

fn every_ssl_mode_works_where_tls_is_required() {
    let ours = format!("{}/ours", certificates());
    let sandbox = servers_with_a_certificate();
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    assert_eq!(value(primary, "SELECT @@have_ssl").as_deref(), Some("YES"));
    sql(
        primary,
        "CREATE USER secure@'127.0.0.1' IDENTIFIED BY 'pw' REQUIRE SSL",
    );
    sql(primary, "GRANT ALL ON *.* TO secure@'127.0.0.1'");
    let position = value(primary, "SELECT @@gtid_binlog_pos").unwrap();
    let arrived = format!("SELECT MASTER_GTID_WAIT('{position}', 240)");
    assert_eq!(value(replica, &arrived).as_deref(), Some("0"));

    let run_at = |host: &str, parameters: &str| {
        let url =
            |node: &Node| format!("mysql://secure@{host}:{}/{parameters}", node.endpoint.port);
        let (primary, replica) = (url(primary), url(replica));
        let tool = TestEnvironment::new();
        let args = [
            "lag",
            "--primary",
            &primary,
            "--replica",
            &replica,
            "--rounds",
            "20",
            "--interval",
            "1ms",
            "--floor-rounds",
            "0",
            "--timeout",
            "60s",
        ];
        let ended: CommandOutput = wait(
            tool.command(&args)
                .env("REPLIMETER_PASSWORD", "pw")
                .spawn()
                .unwrap(),
            LIMIT,
        );
        let manifest = tool
            .runs()
            .first()
            .map(|run| fs::read_to_string(run.join("manifest.json")).unwrap());
        (ended, manifest.unwrap_or_default())
    };
    let run = |parameters: &str| run_at("127.0.0.1", parameters);
    let encrypted = |parameters: &str| {
        let (ended, manifest) = run(parameters);
        let _ = ended.with_code(0);
        assert_eq!(
            manifest.matches("\"tls\": \"encrypted\"").count(),
            2,
            "{manifest}"
        );
    };
    encrypted("");
    encrypted("?ssl-mode=preferred");
    encrypted("?ssl-mode=required");
    encrypted(&format!("?ssl-mode=verify-ca&ssl-ca={ours}/ca.pem"));
    // A certificate may be asked for, and presenting one does no harm.
    encrypted(&format!(
        "?ssl-mode=verify-ca&ssl-ca={ours}/ca.pem&ssl-cert={ours}/cert.pem&ssl-key={ours}/key.pem"
    ));

    // The connections of a load have a login and a TLS of their own.
    for parameters in [
        "?ssl-mode=required".to_owned(),
        format!(
            "?ssl-mode=verify-ca&ssl-ca={ours}/ca.pem&ssl-cert={ours}/cert.pem&ssl-key={ours}/key.pem"
        ),
    ] {
        let tool = TestEnvironment::new();
        let url = format!(
            "mysql://secure@127.0.0.1:{}/{parameters}",
            primary.endpoint.port
        );
        let mut args = vec!["load", "--primary", &url, "--workload", "point-select"];
        args.extend(["--threads", "2", "--duration", "500ms", "--warm-up", "0s"]);
        args.extend(["--data-size", "1000", "--unasked-replicas", "--json"]);
        let mut command = tool.command(&args);
        let child = command.env("REPLIMETER_PASSWORD", "pw").spawn().unwrap();
        let document = wait(child, LIMIT).with_code(0).json();
        let row = &document["results"]["rows"][0];
        assert!(row["passes"].as_u64() > Some(0), "{row:#}");
        assert_eq!(row["failed"].as_u64(), Some(0), "{row:#}");
    }

    let refused = |parameters: &str, wanted: &str| {
        let (ended, manifest) = run(parameters);
        let _ = ended
            .with_code(3)
            .stderr_contains("primary (127.0.0.1:")
            .stderr_contains(wanted);
        assert_eq!(manifest, "", "nothing was begun");
    };
    refused("?ssl-mode=disabled", "Access denied");
    let other = format!("{}/other/ca.pem", certificates());
    refused(
        &format!("?ssl-mode=verify-ca&ssl-ca={other}"),
        "certificate",
    );
    for mode in ["", "ssl-mode=verify-identity&"] {
        refused(
            &format!("?{mode}ssl-ca={ours}/ca.pem"),
            "not valid for name",
        );
    }
    // Each server is named once if it could be another one.
    for (parameters, warnings) in [
        ("?ssl-mode=required".to_owned(), 2),
        (format!("?ssl-mode=verify-ca&ssl-ca={ours}/ca.pem"), 0),
    ] {
        let ended = run_at(REMOTE, &parameters).0.with_code(0);
        let warned = ended.stdout.matches("the password was used over").count();
        assert_eq!(warned, warnings, "{ended:#?}");
    }
    // Without an authority of one's own only those of the system are trusted.
    refused("?ssl-mode=verify-ca", "certificate");
    // The sandbox's own account needs no TLS, so that a server without it can be told apart.
    assert!(!password(primary).is_empty());
    sql(primary, "DROP USER secure@'127.0.0.1'");
}

fn server_without_tls_is_handled() {
    let sandbox = start("mariadb/none", &["skip_ssl"]);
    let node = &sandbox.nodes()[0];
    let run = |mode: &str| {
        let tool = TestEnvironment::new();
        let url = format!(
            "mysql://replimeter@{}/?ssl-mode={mode}",
            node.endpoint.address()
        );
        let args = ["lag", "--primary", &url, "--replica", &url];
        let mut command = tool.command(&args);
        let child = command.env("REPLIMETER_PASSWORD", password(node)).spawn();
        wait(child.unwrap(), LIMIT).with_code(3)
    };
    let _ = run("required")
        .stderr_contains("does not offer TLS")
        .stderr_contains("ssl-mode=preferred");
    // Preferred falls back to plain text, and gets as far as the next check.
    let _ = run("preferred").stderr_contains("is the same server as primary");
}

/// Opens a session as the sandbox's own user at an address with parameters.
fn open(node: &Node, address: &str, parameters: &str) -> Result<Session, ServerError> {
    let (endpoint, _) = Endpoint::parse(&format!("mysql://{address}/?{parameters}")).unwrap();
    Session::open(&Node {
        endpoint,
        answer: LIMIT,
        ..node.clone()
    })
}

/// The cause of a refused session.
fn refusal(opened: Result<Session, ServerError>) -> String {
    match opened {
        Ok(session) => panic!("{session} was accepted"),
        Err(error) => format!("{}; {}", error.cause, error.hint),
    }
}

fn only_the_named_authority_and_host_are_accepted() {
    let ours = format!("{}/ours", certificates());
    let sandbox = servers_with_a_certificate();
    let node = &sandbox.nodes()[0];
    let port = node.endpoint.port;
    let (by_name, by_number) = (format!("localhost:{port}"), format!("127.0.0.1:{port}"));
    let authority = format!("ssl-ca={ours}/ca.pem");
    assert!(open(node, &by_name, &authority).unwrap().tls());
    let any_name = format!("ssl-mode=verify-ca&{authority}");
    assert!(open(node, &by_number, &any_name).unwrap().tls());
    let refused = refusal(open(node, &by_number, &authority));
    assert!(refused.contains("not valid for name"), "{refused}");
    let other = format!("ssl-ca={}/other/ca.pem", certificates());
    for parameters in [
        other.clone(),
        format!("ssl-mode=verify-ca&{other}"),
        "ssl-mode=verify-ca".to_owned(),
        "ssl-mode=verify-identity".to_owned(),
    ] {
        let refused = refusal(open(node, &by_name, &parameters));
        assert!(
            refused.contains("invalid peer certificate"),
            "{parameters}: {refused}"
        );
    }
}

/// A peer between client and server that changes the server's greeting, with its header. Returns its port.
fn peer(server: u16, change: impl Fn(&mut Vec<u8>) + Send + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut server = TcpStream::connect(("127.0.0.1", server)).unwrap();
            let mut header = [0; 4];
            server.read_exact(&mut header).unwrap();
            let mut greeting = vec![0; usize::from(header[0]) | usize::from(header[1]) << 8];
            server.read_exact(&mut greeting).unwrap();
            greeting.splice(..0, header);
            change(&mut greeting);
            // The client may have gone.
            let _ = client.write_all(&greeting);
            let pump = |mut from: TcpStream, mut to: TcpStream| {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            };
            pump(client.try_clone().unwrap(), server.try_clone().unwrap());
            pump(server, client);
        }
    });
    port
}

fn peer_that_strips_tls_gets_no_password() {
    let ours = format!("{}/ours", certificates());
    let sandbox = servers_with_a_certificate();
    let node = &sandbox.nodes()[0];
    let stripping = peer(node.endpoint.port, |greeting| {
        // Behind the header, the version, the connection's id, eight bytes and a zero: the capabilities.
        let version = 4 + greeting[4..].iter().position(|byte| *byte == 0).unwrap();
        greeting[version + 1 + 4 + 8 + 1 + 1] &= !0x08;
    });
    let address = format!("localhost:{stripping}");
    for parameters in [
        "ssl-mode=required".to_owned(),
        "ssl-mode=verify-identity".to_owned(),
        format!("ssl-ca={ours}/ca.pem"),
        format!("ssl-mode=verify-ca&ssl-ca={ours}/ca.pem"),
    ] {
        let refused = refusal(open(node, &address, &parameters));
        assert!(
            refused.contains("does not offer TLS"),
            "{parameters}: {refused}"
        );
    }
    assert!(!open(node, &address, "").unwrap().tls(), "it is a peer");
}

fn answers_sent_before_tls_are_refused() {
    let ours = format!("{}/ours", certificates());
    let sandbox = servers_with_a_certificate();
    let node = &sandbox.nodes()[0];
    let port = peer(node.endpoint.port, |greeting| {
        let mut add = |sequence: u8, payload: &[u8]| {
            greeting.extend_from_slice(&[payload.len() as u8, 0, 0, sequence]);
            greeting.extend_from_slice(payload);
        };
        // Acknowledgements of the login and of the first statement, and one row for the second.
        add(3, &[0, 0, 0, 2, 0, 0, 0]);
        add(1, &[0, 0, 0, 2, 0, 0, 0]);
        add(1, &[1]);
        add(
            2,
            b"\x03def\0\0\0\x011\0\x0c\x3f\0\x01\0\0\0\x08\x81\0\0\0\0",
        );
        add(3, b"\x011");
        add(4, &[0xfe, 0, 0, 2, 0, 0, 0]);
    });
    for parameters in [
        "ssl-mode=required".to_owned(),
        format!("ssl-ca={ours}/ca.pem"),
    ] {
        let refused = refusal(open(node, &format!("localhost:{port}"), &parameters));
        assert!(refused.contains("before TLS began"), "{refused}");
    }
}

fn tls_options_of_option_files_are_honored() {
    let sandbox = servers_with_a_certificate();
    let node = &sandbox.nodes()[0];
    let run = |host: &str, lines: &str, parameters: &str| {
        let tool = TestEnvironment::new();
        let lines = lines.replace("DIR", certificates());
        let text = format!(
            "[client]\nuser=replimeter\npassword={}\n{lines}\n",
            password(node)
        );
        fs::write(tool.folder().join(".my.cnf"), text).unwrap();
        let url = format!("mysql://{host}:{}/{parameters}", node.endpoint.port);
        tool.run(&["lag", "--primary", &url, "--replica", &url])
    };
    // The login succeeds, and the next check fails.
    let accepted = "is the same server as primary";
    for (host, lines, parameters, code, want) in [
        (
            "localhost",
            "ssl-mode=VERIFY_IDENTITY",
            "",
            3,
            "invalid peer certificate",
        ),
        (
            "localhost",
            "ssl-verify-server-cert",
            "",
            3,
            "invalid peer certificate",
        ),
        (
            "localhost",
            "ssl-ca=DIR/other/ca.pem",
            "",
            3,
            "invalid peer certificate",
        ),
        ("localhost", "ssl-ca=DIR/none.pem", "", 2, "none.pem"),
        (
            "127.0.0.1",
            "ssl-ca=DIR/ours/ca.pem",
            "",
            3,
            "not valid for name",
        ),
        ("localhost", "ssl-ca=DIR/ours/ca.pem", "", 3, accepted),
        (
            "127.0.0.1",
            "ssl-ca=DIR/ours/ca.pem\nssl-mode=VERIFY_CA\nssl-cert=DIR/ours/cert.pem\nssl-key=DIR/ours/key.pem",
            "",
            3,
            accepted,
        ),
        (
            "localhost",
            "ssl-capath=/etc/ssl/certs",
            "",
            2,
            ".my.cnf, line 4: Replimeter does not support",
        ),
        (
            "localhost",
            "ssl-capath=/etc/ssl/certs",
            "?ssl-mode=required",
            3,
            accepted,
        ),
        (
            "localhost",
            "ssl-mode=VERIFY_IDENTITY",
            "?ssl-mode=required",
            3,
            accepted,
        ),
    ] {
        let ended = run(host, lines, parameters);
        assert_eq!(ended.code, Some(code), "{lines} {parameters}: {ended:#?}");
        let _ = ended.stderr_contains(want);
    }
}

fn public_key_of_a_remote_server_is_refused() {
    let sandbox = shared("mysql/none", &[]);
    let admin = &sandbox.nodes()[0];
    let port = admin.endpoint.port;
    let created = RefCell::new(Vec::new());
    let user = |name: &str| {
        created.borrow_mut().push(format!("{name}@'127.0.0.1'"));
        sql(
            admin,
            &format!(
                "CREATE USER {name}@'127.0.0.1' IDENTIFIED WITH caching_sha2_password BY 'pw'"
            ),
        );
        Node {
            user: name.to_owned(),
            password: Some(Secret::new("pw")),
            ..admin.clone()
        }
    };
    // The server remembers who has logged in, so every case has its own user.
    let remote = format!("{REMOTE}:{port}");
    for parameters in [
        "ssl-mode=disabled",
        "ssl-mode=disabled&get-server-public-key=0",
    ] {
        let node = user(&format!("refused{}", parameters.len()));
        let refused = refusal(open(&node, &remote, parameters));
        assert!(
            refused.contains("without TLS") && refused.contains("get-server-public-key"),
            "{parameters}: {refused}"
        );
    }
    let asked = "ssl-mode=disabled&get-server-public-key=true";
    for (name, address, parameters) in [
        ("asked", remote.as_str(), asked),
        ("local", &format!("127.0.0.1:{port}"), "ssl-mode=disabled"),
        ("encrypted", &remote, "ssl-mode=required"),
    ] {
        let session = open(&user(name), address, parameters);
        assert!(session.is_ok(), "{name}: {:?}", session.err());
    }
    let local_off = "ssl-mode=disabled&get-server-public-key=off";
    let refused = refusal(open(&user("off"), &format!("127.0.0.1:{port}"), local_off));
    assert!(refused.contains("get-server-public-key"), "{refused}");
    sql(
        admin,
        &format!("DROP USER {}", created.into_inner().join(", ")),
    );
}
