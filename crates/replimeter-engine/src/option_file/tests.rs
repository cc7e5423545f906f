use proptest::prelude::*;

use super::*;

fn parsed(text: &str) -> Credentials {
    let mut credentials = Credentials::default();
    parse(text.as_bytes(), Path::new("/my.cnf"), &mut credentials).unwrap();
    credentials
}

#[test]
fn option_file_syntax_is_read() {
    let credentials = parsed(
        "password=outside\n[mysqld]\nuser=mysql\n[client]\nuser = dba # who\npassword = \"a#b\\\"c\\s\" # secret\n",
    );
    let (user, password) = (credentials.user.unwrap(), credentials.password.unwrap());
    assert_eq!(
        (user.value.as_str(), user.file.as_path()),
        ("dba", Path::new("/my.cnf"))
    );
    assert_eq!(password.value.reveal(), "a#b\"c ");
}

#[test]
fn values_are_those_of_the_stock_client() {
    for (value, want) in [
        ("a b ", "a b"),
        ("a;b", "a;b"),
        ("a # comment", "a"),
        ("it's#one # word", "it's#one # word"),
        ("\"a\"b\"", "a\"b"),
        ("\"it's\"", "it's"),
        ("'a' # comment", "a"),
        ("\"open", "\"open"),
        ("'", "'"),
        ("'\\'#'", "'#"),
        ("\\sa\\tb\\\\c\\q\\", " a\tb\\c\\q\\"),
        ("\u{a0}a\u{3000}", "\u{a0}a\u{3000}"),
        ("a=b", "a=b"),
    ] {
        let read = parsed(&format!("[client]\npassword = {value}\n"));
        let read = read.password.unwrap();
        assert_eq!(read.value.reveal(), want, "{value}");
    }
}

#[test]
fn ambiguous_passwords_are_refused() {
    for (line, want) in [
        (b"password=hunter2#3".as_slice(), "begins a comment"),
        (b"user='hunter2'#3", "begins a comment"),
        (b"password=hunter2\xff", "not UTF-8"),
    ] {
        let text = [b"[client]\n# \xe4\n", line].concat();
        let error = parse(&text, Path::new("/my.cnf"), &mut Credentials::default());
        let (at, reason) = error.unwrap_err();
        assert_eq!(at, 3);
        assert!(reason.contains(want), "{reason}");
    }
}

#[test]
fn included_file_that_is_missing_is_skipped() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let text = "[client]\nuser=a\n!include DIR/missing.cnf\n!include DIR/other.cnf\n";
    fs::write(
        at("my.cnf"),
        text.replace("DIR", folder.path().to_str().unwrap()),
    )
    .unwrap();
    fs::write(at("other.cnf"), "[client]\npassword=b\n").unwrap();
    let read = read(&at("my.cnf")).unwrap();
    assert_eq!(read.password.unwrap().value.reveal(), "b");
    let [skipped] = read.skipped.try_into().unwrap();
    assert!(skipped.contains("missing.cnf: No such file"), "{skipped}");
}

#[test]
fn replimeter_group_overrides_client_group() {
    assert_eq!(
        parsed("[client]\nuser=a\n[replimeter]\nuser=b")
            .user
            .unwrap()
            .value,
        "b"
    );
}

#[test]
fn tls_options_mean_what_they_mean_to_the_client_tools() {
    use SslMode::{Disabled, Preferred, Required, VerifyCa, VerifyIdentity};
    for (lines, mode) in [
        ("", Preferred),
        ("ssl-mode=VERIFY_IDENTITY", VerifyIdentity),
        ("loose_ssl_mode=verify_ca", VerifyCa),
        ("ssl_mode=PREFERRED\nssl", Required),
        ("ssl-mode=DISABLED", Disabled),
        ("ssl-ca=/ca", VerifyIdentity),
        ("ssl\nssl-ca=/ca # ours", VerifyIdentity),
        ("ssl=1", Required),
        ("ssl # encrypt", Required),
        ("skip-ssl", Disabled),
        ("ssl=OFF", Disabled),
        ("ssl=0\nssl-mode=VERIFY_IDENTITY", VerifyIdentity),
        ("ssl-verify-server-cert", VerifyIdentity),
        ("ssl-verify-server-cert=TRUE\nssl", VerifyIdentity),
        ("disable-ssl-verify-server-cert", Preferred),
        ("skip_ssl_verify_server_cert\nssl", Required),
        ("skip-ssl\nskip-ssl-verify-server-cert", Disabled),
        ("ssl-mode=VERIFY_IDENTITY\nssl-ca=", VerifyIdentity),
        ("tls-version=TLSv1.2,TLSv1.3", Preferred),
    ] {
        let options = parsed(&format!("[client]\n{lines}")).tls.options();
        assert_eq!(options.map(|options| options.mode()), Ok(mode), "{lines}");
    }
    let options = parsed(
        "[client]\nssl-cert=/c\nssl-key='/k #1'\nssl-ca=/a\n[mysqld]\nssl-ca=/server\n[replimeter]\nssl-ca=/b\nget-server-public-key",
    );
    assert_eq!(
        options.tls.options().unwrap(),
        TlsOptions {
            mode: None,
            ca: Some("/b".into()),
            cert: Some("/c".into()),
            key: Some("/k #1".into()),
            get_server_public_key: Some(true),
        }
    );
}

#[test]
fn tls_options_that_cannot_be_honored_are_refused() {
    for (lines, want) in [
        (
            "ssl-capath=/etc/ssl",
            "/my.cnf, line 2: Replimeter does not",
        ),
        ("ssl-crl=/crl", "does not support"),
        ("ssl-cipher=secret", "does not support"),
        ("tls-version=TLSv1.3", "does not support"),
        ("tls_fp=secret", "does not support"),
        ("ssl-verify=1", "does not support"),
        ("ssl-mode=secret", "unknown ssl-mode"),
        ("ssl=secret", "neither on nor off"),
        ("ssl-key=/secret", "belong together"),
        ("ssl-ca=/secret\nssl-mode=REQUIRED", "does not verify"),
        ("ssl-ca=/secret\nskip-ssl", "does not verify"),
        (
            "ssl-ca=/secret\nssl-verify-server-cert=0",
            "does not verify",
        ),
    ] {
        let refused = parsed(&format!("[client]\n{lines}")).tls.options();
        let refused = refused.unwrap_err();
        assert!(
            refused.contains(want) && !refused.contains("secret"),
            "{lines}: {refused}"
        );
    }
}

#[test]
fn parse_error_names_line_without_its_text() {
    let file = Path::new("/my.cnf");
    let text = "[client\npassword=hunter2";
    let error = parse(text.as_bytes(), file, &mut Credentials::default()).unwrap_err();
    assert_eq!(error.0, 1);
}

#[test]
fn permissions_of_option_files_are_checked() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.cnf");
    let read_as = |text: &str, mode: u32| {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        read(&path).map(|found| found.exposed.len())
    };
    let secret = "[client]\npassword=secret\n";
    assert_eq!(read_as(secret, 0o600).unwrap(), 0);
    assert_eq!(read_as(secret, 0o644).unwrap(), 1);
    assert_eq!(read_as("[client]\nuser=me\n", 0o644).unwrap(), 0);
    let refused = read_as(secret, 0o602).unwrap_err();
    assert!(matches!(refused, OptionFileError::Writable { .. }));
}

#[test]
fn include_directives_are_followed() {
    let includes = parse(
        b"!includedir /etc/x.d\n!include /etc/y.cnf",
        Path::new("/my.cnf"),
        &mut Credentials::default(),
    )
    .unwrap();
    assert_eq!(
        includes,
        [
            Include::Folder("/etc/x.d".into()),
            Include::File("/etc/y.cnf".into())
        ]
    );
}

#[test]
fn includes_are_read_a_limited_number_of_times() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.cnf");
    let include = format!("!include {}\n", path.display());
    fs::write(&path, format!("{include}[client]\nuser=dba\n")).unwrap();
    assert_eq!(read(&path).unwrap().user.unwrap().value, "dba");
    for times in [2, 5000] {
        fs::write(&path, include.repeat(times)).unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(
            error.contains("my.cnf") && error.contains("100 files"),
            "{error}"
        );
    }
    let many = folder.path().join("many.d");
    fs::create_dir(&many).unwrap();
    fs::write(&path, format!("!includedir {}\n", many.display())).unwrap();
    for number in 1..=MAX_FILES {
        fs::write(many.join(format!("{number}.cnf")), "[client]\n").unwrap();
        assert_eq!(read(&path).is_ok(), number < MAX_FILES, "{number}");
    }
}

#[test]
fn large_files_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("my.cnf");
    let text = "[client]\nuser=dba\n";
    let mebibyte = format!("{text}{}", "#".repeat(MAX_BYTES as usize - text.len()));
    fs::write(&path, &mebibyte).unwrap();
    assert_eq!(read(&path).unwrap().user.unwrap().value, "dba");
    fs::write(&path, mebibyte + "#").unwrap();
    let refused = |path: &Path| match read(path) {
        Err(OptionFileError::TooLarge { path }) => path,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&path), path);
    // It has no end; every user can write to /dev/zero itself, but that counts for files only.
    assert_eq!(refused(Path::new("/dev/zero")), Path::new("/dev/zero"));
}

proptest! {
    #[test]
    fn every_quoted_password_is_read(password in "\\PC{0,20}|[ '\"\\\\#;=a]{0,12}") {
        let quoted: String = password
            .chars()
            .flat_map(|letter| matches!(letter, '"' | '\'' | '\\').then_some('\\').into_iter().chain([letter]))
            .collect();
        let read = parsed(&format!("[client]\npassword=\"{quoted}\"\n"));
        assert_eq!(read.password.unwrap().value.reveal(), password);
    }

    #[test]
    fn no_file_panics(text in "(\\[client\\]\n)?[a-z='\"\\\\# \n\\[\\]é]{0,80}") {
        let _ = parse(text.as_bytes(), Path::new("/my.cnf"), &mut Credentials::default());
    }
}
