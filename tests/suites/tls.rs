//! TLS against servers that require it, with a private authority.

use std::{fs, path::Path};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use replimeter_suites::{
    CommandOutput, LIMIT, TestEnvironment, folder, harness::Test, password, sql, start, test,
    value, wait,
};

pub(crate) const TESTS: &[Test] = &[
    test!(every_ssl_mode_works_where_tls_is_required),
    test!(server_without_tls_is_handled),
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

fn every_ssl_mode_works_where_tls_is_required() {
    let files = folder();
    authority(&files.path().join("ours"), "db.example");
    authority(&files.path().join("other"), "db.example");
    let ours = files.path().join("ours").display().to_string();
    let options = [
        "ssl_ca=DIR/ca.pem",
        "ssl_cert=DIR/cert.pem",
        "ssl_key=DIR/key.pem",
    ]
    .map(|option| option.replace("DIR", &ours));
    let sandbox = start("mariadb/async:1", &options.each_ref().map(String::as_str));
    let (primary, replica) = (&sandbox.nodes()[0], &sandbox.nodes()[1]);
    assert_eq!(value(primary, "SELECT @@have_ssl").as_deref(), Some("YES"));
    sql(
        primary,
        "CREATE USER secure@'127.0.0.1' IDENTIFIED BY 'pw' REQUIRE SSL",
    );
    sql(primary, "GRANT ALL ON *.* TO secure@'127.0.0.1'");
    let position = value(primary, "SELECT @@gtid_binlog_pos").unwrap();
    let _ = value(
        replica,
        &format!("SELECT MASTER_GTID_WAIT('{position}', 30)"),
    );

    let run = |parameters: &str| {
        let url = |address: String| format!("mysql://secure@{address}/{parameters}");
        let (primary, replica) = (
            url(primary.endpoint.address()),
            url(replica.endpoint.address()),
        );
        let tool = TestEnvironment::new();
        let args = [
            "lag",
            "--primary",
            &primary,
            "--replica",
            &replica,
            "--rounds",
            "20",
            "--floor-rounds",
            "0",
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

    let refused = |parameters: &str, wanted: &str| {
        let (ended, manifest) = run(parameters);
        let _ = ended
            .with_code(3)
            .stderr_contains("primary (127.0.0.1:")
            .stderr_contains(wanted);
        assert_eq!(manifest, "", "nothing was begun");
    };
    refused("?ssl-mode=disabled", "Access denied");
    let other = files.path().join("other/ca.pem").display().to_string();
    refused(
        &format!("?ssl-mode=verify-ca&ssl-ca={other}"),
        "certificate",
    );
    refused(
        &format!("?ssl-mode=verify-identity&ssl-ca={ours}/ca.pem"),
        "not valid for name",
    );
    // Without an authority of one's own only the public ones are trusted.
    refused("?ssl-mode=verify-ca", "certificate");
    // The sandbox's own account needs no TLS, so that a server without it can be told apart.
    assert!(!password(primary).is_empty());
}

fn server_without_tls_is_handled() {
    let sandbox = start("mariadb/async:0", &["skip_ssl"]);
    let node = &sandbox.nodes()[0];
    let run = |mode: &str| {
        let tool = TestEnvironment::new();
        let url = format!(
            "mysql://replimeter@{}/?ssl-mode={mode}",
            node.endpoint.address()
        );
        let args = ["lag", "--primary", &url, "--replica", &url];
        CommandOutput::of(
            tool.command(&args)
                .env("REPLIMETER_PASSWORD", password(node))
                .output()
                .unwrap(),
        )
        .with_code(3)
    };
    let _ = run("required")
        .stderr_contains("does not offer TLS")
        .stderr_contains("ssl-mode=preferred");
    // Preferred falls back to plain text, and gets as far as the next check.
    let _ = run("preferred").stderr_contains("is the same server as primary");
}
