//! Differences between runs besides their figures: plan, versions, modes, machine, variables in effect.

use std::collections::{BTreeMap, BTreeSet};

use replimeter_engine::{dialect::variables, follow::LOG};
use replimeter_model::{
    compare::SettingDifference,
    manifest::Manifest,
    warning::{Warning, WarningCode},
};
use serde_json::Value;

/// The documents of a run.
pub struct Documents {
    /// The record.
    pub summary: Value,
    /// The manifest.
    pub manifest: Manifest,
    /// The text of `plan.toml`.
    pub plan: String,
}

/// Differences between the sides, and between the runs of one side.
#[derive(Default)]
pub struct SettingDifferences {
    /// Between the sides.
    pub between: Vec<SettingDifference>,
    /// Between the runs of one side.
    pub within: Vec<SettingDifference>,
}

impl SettingDifferences {
    /// Returns a warning for each side's own use of this machine's cores, which changes most figures.
    pub fn about_cores(&self) -> Vec<Warning> {
        let differs = self.between.iter().filter(|found| {
            found.kind == "machine" && CORE_USE.iter().any(|(name, _)| *name == found.name)
        });
        differs
            .map(|found| {
                Warning::new(
                    WarningCode::NotChecked,
                    format!(
                        "{}: {} on A, {} on B: this alone changes latencies and throughput",
                        found.name, found.a, found.b
                    ),
                    "give both runs the same --keep-awake and --real-time, and measure again",
                )
            })
            .collect()
    }
}

/// The settings of the use of this machine's cores, and their keys.
const CORE_USE: [(&str, &str); 2] = [
    ("cores kept awake", "keep_awake"),
    ("real-time priority", "real_time"),
];

/// Settings by kind, which determines the order, and name.
type Settings = BTreeMap<(usize, String), String>;

const KINDS: [&str; 7] = [
    "target",
    "plan",
    "version",
    "variable",
    "sandbox",
    "machine",
    "other variable",
];

fn flatten(prefix: &str, value: &toml::Value, into: &mut BTreeMap<String, String>) {
    match value {
        toml::Value::Table(table) => {
            for (name, value) in table {
                let name = if prefix.is_empty() {
                    name.clone()
                } else {
                    format!("{prefix}.{name}")
                };
                flatten(&name, value, into);
            }
        }
        toml::Value::String(text) => _ = into.insert(prefix.to_owned(), text.clone()),
        other => _ = into.insert(prefix.to_owned(), other.to_string()),
    }
}

/// Returns a server's role by its name: `replica2` is a replica.
fn role(name: &str) -> &str {
    name.trim_end_matches(|last: char| last.is_ascii_digit())
}

/// Returns one value for all servers, or a value per role.
fn by_role(pairs: &BTreeSet<(&str, &str)>) -> String {
    let values: BTreeSet<&str> = pairs.iter().map(|(_, value)| *value).collect();
    match values.first() {
        Some(only) if values.len() == 1 => (*only).to_owned(),
        _ => pairs
            .iter()
            .map(|(role, value)| format!("{role}: {value}"))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

fn variables_of(manifest: &Manifest) -> BTreeMap<&str, String> {
    let mut pairs: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    for server in &manifest.servers {
        for (name, value) in &server.variables {
            // Paths do not affect what the server does.
            if variables::is_of_one_start(name) || value.starts_with('/') {
                continue;
            }
            pairs
                .entry(name)
                .or_default()
                .insert((role(&server.name), value));
        }
    }
    pairs
        .iter()
        .map(|(name, pairs)| (*name, by_role(pairs)))
        .collect()
}

fn of(run: &Documents) -> Settings {
    let mut settings = Settings::new();
    let mut set = |kind: &str, name: &str, value: String| {
        let kind = KINDS.iter().position(|known| *known == kind);
        settings.insert((kind.unwrap_or(KINDS.len()), name.to_owned()), value);
    };
    target(run, &mut set);
    let mut plan = BTreeMap::new();
    if let Ok(table) = toml::from_str::<toml::Table>(&run.plan) {
        flatten("", &toml::Value::Table(table), &mut plan);
    }
    for (name, value) in plan {
        if !matches!(name.as_str(), "title" | "command" | "target.sandbox") {
            set("plan", &name, value);
        }
    }
    servers(&run.manifest, &mut set);
    machine(run, &mut set);
    settings
}

fn target(run: &Documents, set: &mut impl FnMut(&str, &str, String)) {
    let shape = run.summary.pointer("/target/shape").and_then(Value::as_str);
    set("target", "shape", shape.unwrap_or_default().to_owned());
    let modes = run.summary.pointer("/target/modes");
    if let Some(modes) = modes.and_then(Value::as_array) {
        let modes: Vec<&str> = modes.iter().filter_map(Value::as_str).collect();
        set("target", "modes in effect", modes.join(", "));
    }
}

fn servers(manifest: &Manifest, set: &mut impl FnMut(&str, &str, String)) {
    set("version", "replimeter", manifest.replimeter.clone());
    let titles: Vec<(&str, String)> = manifest
        .servers
        .iter()
        .map(|server| (role(&server.name), server.title()))
        .collect();
    let titles = titles.iter().map(|(role, title)| (*role, title.as_str()));
    set("version", "servers", by_role(&titles.collect()));
    for (name, value) in variables_of(manifest) {
        let kind = if variables::is_deciding(name) {
            "variable"
        } else {
            "other variable"
        };
        set(kind, name, value);
    }
    let without_log = format!("without {LOG}");
    for sandbox in &manifest.sandboxes {
        let maybe = |value: &Option<String>| value.clone().unwrap_or_default();
        for (name, value) in [
            ("binaries", sandbox.binaries.clone()),
            ("replica binaries", maybe(&sandbox.replica_binaries)),
            ("links", maybe(&sandbox.link)),
            ("client links", maybe(&sandbox.client_link)),
            ("flush delay", maybe(&sandbox.flush_delay)),
            ("functions", maybe(&sandbox.udf)),
            (&*without_log, sandbox.without_binary_log.to_string()),
            ("processors per server", maybe(&sandbox.cpus_per_server)),
            ("file system", sandbox.file_system.clone()),
        ] {
            set("sandbox", name, value);
        }
    }
}

fn machine(run: &Documents, set: &mut impl FnMut(&str, &str, String)) {
    let machine = &run.manifest.machine;
    let memory = machine.memory_bytes as f64 / f64::from(1 << 30);
    for (name, value) in [
        ("kernel", machine.kernel.clone()),
        ("distribution", machine.distribution.clone()),
        ("processor", machine.cpu.clone()),
        ("cores", machine.cores.to_string()),
        ("memory", format!("{memory:.1} GiB")),
        ("clock source", machine.clock_source.clone()),
    ] {
        set("machine", name, value);
    }
    for (name, key) in CORE_USE {
        if let Some(value) = run.summary["client"][key].as_bool() {
            set("machine", name, value.to_string());
        }
    }
}

/// Returns all values of a setting on one side; a dash for a run without it.
fn values<'a>(side: &'a [Settings], key: &(usize, String)) -> BTreeSet<&'a str> {
    let value = |settings: &'a Settings| settings.get(key).filter(|value| !value.is_empty());
    side.iter()
        .map(|settings| value(settings).map_or("–", String::as_str))
        .collect()
}

/// Compares the settings of both sides.
pub fn differences(a: &[&Documents], b: &[&Documents]) -> SettingDifferences {
    let engines = |runs: &[&Documents]| -> BTreeSet<String> {
        let servers = runs.iter().flat_map(|run| &run.manifest.servers);
        servers.map(|server| server.dialect.clone()).collect()
    };
    // On another engine, nearly every variable differs.
    let same_engine = engines(a) == engines(b);
    let [a, b] = [a, b].map(|runs| runs.iter().map(|run| of(run)).collect::<Vec<Settings>>());
    let keys: BTreeSet<&(usize, String)> = a.iter().chain(&b).flat_map(Settings::keys).collect();
    let mut found = SettingDifferences::default();
    for key in keys {
        let kind = KINDS.get(key.0).copied().unwrap_or_default();
        if kind == "other variable" && !same_engine {
            continue;
        }
        let (of_a, of_b) = (values(&a, key), values(&b, key));
        let joined = |values: &BTreeSet<&str>| Vec::from_iter(values.iter().copied()).join(" | ");
        let difference = SettingDifference {
            kind: kind.to_owned(),
            name: key.1.clone(),
            a: joined(&of_a),
            b: joined(&of_b),
        };
        if of_a.len() > 1 || of_b.len() > 1 {
            found.within.push(difference.clone());
        }
        if of_a != of_b {
            found.between.push(difference);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use replimeter_model::manifest::ServerRecord;

    use super::*;

    fn run(plan: &str, variables: &[(&str, &str, &str)]) -> Documents {
        let mut manifest = Manifest::default();
        for (server, name, value) in variables {
            let mut record = ServerRecord {
                name: (*server).to_owned(),
                ..ServerRecord::default()
            };
            record
                .variables
                .insert((*name).to_owned(), (*value).to_owned());
            manifest.servers.push(record);
        }
        Documents {
            summary: Value::Null,
            manifest,
            plan: plan.to_owned(),
        }
    }

    #[test]
    fn plans_and_variables_differ_but_paths_do_not() {
        let a = run(
            "command = \"lag\"\n[lag]\nrounds = 5\n",
            &[("primary", "sync_binlog", "0"), ("replica1", "port", "1")],
        );
        let b = run(
            "command = \"lag\"\n[lag]\nrounds = 6\nwriters = 2\n",
            &[
                ("primary", "sync_binlog", "1"),
                ("replica1", "sync_binlog", "0"),
                ("replica1", "port", "2"),
            ],
        );
        let found = differences(&[&a], &[&b]);
        let shown: Vec<String> = found
            .between
            .iter()
            .map(|one| format!("{} {}: {} → {}", one.kind, one.name, one.a, one.b))
            .collect();
        assert_eq!(
            shown,
            [
                "plan lag.rounds: 5 → 6",
                "plan lag.writers: – → 2",
                "variable sync_binlog: 0 → primary: 1, replica: 0"
            ]
        );
        assert!(found.within.is_empty());
    }

    #[test]
    fn unlike_runs_of_one_side_are_named() {
        let set = |rounds: u32| run(&format!("[lag]\nrounds = {rounds}\n"), &[]);
        let (five, six) = (set(5), set(6));
        let found = differences(&[&five, &six], &[&five, &six]);
        assert!(found.between.is_empty());
        assert_eq!(
            (found.within.len(), found.within[0].a.as_str()),
            (1, "5 | 6")
        );
    }

    #[test]
    fn another_use_of_the_cores_is_a_warning() {
        let with = |awake: bool| Documents {
            summary: serde_json::json!({"client": {"keep_awake": awake, "real_time": true}}),
            ..run("", &[])
        };
        let (on, off) = (with(true), with(false));
        assert!(differences(&[&on], &[&on]).about_cores().is_empty());
        let warnings = differences(&[&on], &[&off]).about_cores();
        assert_eq!(warnings.len(), 1);
        let text = &warnings[0].message;
        assert!(
            text.starts_with("cores kept awake: true on A, false on B"),
            "{text}"
        );
    }
}
