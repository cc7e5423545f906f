//! What a server, a visitor and the user send.

use std::time::Duration;

use replimeter_engine::{Connections, Node, identity::RecordedIdentity, wire::login_packets};
use replimeter_instruments::lag::settings::LagSettings;
use replimeter_model::{
    plan::{PlanFile, Section, check_nodes},
    redact,
    target::{Endpoint, Secret},
};
use replimeter_run::options::topology_file::TopologyFile;
use replimeter_web::front::read_input;

const PASSWORD: &str = "a password of the user";

/// Packets of a server during the login; each begins with its length. The password is never sent in clear.
pub fn login(input: &[u8]) {
    let [mode, rest @ ..] = input else { return };
    let mut rest = rest;
    let mut packets = Vec::new();
    while let [length, after @ ..] = rest {
        let (packet, after) = after.split_at(after.len().min(usize::from(*length)));
        packets.push(packet);
        rest = after;
    }
    let encrypted = mode % 2 == 1;
    let node = Node {
        name: "primary".to_owned(),
        endpoint: Endpoint::parse("mysql://db.example:3306").expect("a URL").0,
        user: "u".to_owned(),
        password: Some(Secret::new(PASSWORD)),
        login: None,
        show_errors: false,
        answer: Duration::from_secs(1),
        namespace: None,
        identity: RecordedIdentity::default(),
        connections: Connections::default(),
        log: None,
    };
    let (sent, ended) = login_packets(&node, encrypted, packets);
    let clear = |packet: &Vec<u8>| {
        packet
            .windows(PASSWORD.len())
            .any(|part| part == PASSWORD.as_bytes())
    };
    assert!(encrypted || !sent.iter().any(clear), "{ended}");
}

/// A form, and after a NUL cookies: what the site sets of them means the same.
pub fn http(input: &[u8]) {
    let mut parts = input.splitn(2, |byte| *byte == 0);
    let form = parts.next().unwrap_or_default();
    let cookies = String::from_utf8_lossy(parts.next().unwrap_or_default());
    let (read, cookie) = read_input(form, &cookies);
    if let Err(reason) = read {
        assert!(!reason.is_empty());
    }
    if let Some(cookie) = cookie {
        assert_eq!(read_input(b"", &cookie).1, Some(cookie));
    }
}

/// Lines: a primary and its replicas; or a topology file. What is accepted is the same after writing and reading again.
pub fn url_list(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    drop(redact::message(&text));
    let mut lines = text.lines();
    let mut target = toml::Table::new();
    target.insert(
        "primary".to_owned(),
        lines.next().unwrap_or_default().into(),
    );
    target.insert(
        "replicas".to_owned(),
        lines.map(str::to_owned).collect::<Vec<_>>().into(),
    );
    let plan = format!("command = 'lag'\n[target]\n{target}");
    let sections = [Section::of::<LagSettings>()];
    let read = |text: &str| PlanFile::<LagSettings>::from_toml(text, &sections)?.plan_of(text);
    match read(&plan) {
        Ok(planned) => {
            let written = planned.to_toml().expect("texts of TOML are UTF-8");
            let again = read(&written).expect("a written plan is valid");
            assert_eq!(again.to_toml().expect("the same texts"), written);
        }
        Err(error) => drop(error.to_string()),
    }
    if let Ok(file) = toml::from_str::<TopologyFile>(&text) {
        drop(check_nodes(&file.nodes));
        let written = toml::to_string(&file).expect("texts of TOML are UTF-8");
        let again: TopologyFile = toml::from_str(&written).expect("a written topology is valid");
        assert_eq!(toml::to_string(&again).expect("the same texts"), written);
    }
}
