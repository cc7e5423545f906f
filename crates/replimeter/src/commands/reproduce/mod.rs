//! `replimeter reproduce`: the five published experiments, and one page for them.

mod published;

use std::{path::Path, sync::atomic::AtomicBool, time::Instant};

use replimeter_measurements::across::reproduce;
use replimeter_model::{
    manifest::{MANIFEST_SCHEMA, Manifest, SandboxRecord, ServerRecord},
    record::RunStatus,
    reproduce::{Experiment, REPRODUCE_SCHEMA, ReproduceDocument},
};
use replimeter_render::html;
use replimeter_run::{
    Recorded, Registry,
    cli_error::{CliError, FailureKind},
    machine,
    options::{CommandLineSettings, OutputForm},
    publish_report, read_json, read_manifest, read_value,
    run_dir::{MANIFEST, RunDir, SUMMARY, write_json},
};
use sha2::{Digest, Sha256};

use self::published::{NamedRun, PUBLISHED, Published};
use crate::{
    active::Active,
    cli::{ReportArgs, ReproduceArgs},
    environment,
    print::say,
    servers::host,
    terminal::Terminal,
};

/// The experiment whose rows are stamped by the servers.
const STAMPS: u32 = 3;

pub(crate) fn run(
    registry: &Registry,
    args: &ReproduceArgs,
    active: &Active,
) -> Result<(), CliError> {
    let wanted =
        |one: &&Published| args.experiments.is_empty() || args.experiments.contains(&one.number);
    let plans: Vec<(&Published, Vec<_>)> = PUBLISHED
        .iter()
        .filter(wanted)
        .map(|one| Ok((one, one.plans(registry, args.size)?)))
        .collect::<Result<_, CliError>>()?;
    if plans.iter().any(|(one, _)| one.number == STAMPS) && !environment::has_udf() {
        say(&format!(
            "experiment {STAMPS}: stamps are by SYSDATE(6) alone: the library of server functions, libreplimeter_udf.so, is not next to the program (REPLIMETER_UDF may name it)\n"
        ));
    }
    let mut dir = RunDir::create(args.run_dir.as_deref(), "reproduce")?;
    dir.keep();
    let started_at = jiff::Timestamp::now()
        .strftime("%Y-%m-%dT%H:%M:%SZ")
        .to_string();
    let mut manifest = Manifest {
        schema: MANIFEST_SCHEMA.to_owned(),
        replimeter: env!("CARGO_PKG_VERSION").to_owned(),
        started_at: started_at.clone(),
        machine: machine::describe(),
        ..Manifest::default()
    };
    let mut document = ReproduceDocument {
        schema: REPRODUCE_SCHEMA.to_owned(),
        run_dir: dir.path().display().to_string(),
        size: args.size.name().to_owned(),
        started_at,
        commit: std::env::var("REPLIMETER_COMMIT").ok(),
        plans_sha256: hash(plans.iter().flat_map(|(_, runs)| runs)),
        ..ReproduceDocument::default()
    };
    let mut texts = String::new();
    let mut ended: Option<CliError> = None;
    for (index, (one, runs)) in plans.iter().enumerate() {
        say(&format!(
            "experiment {} ({} of {}): {}\n",
            one.number,
            index + 1,
            plans.len(),
            one.title
        ));
        let (experiment, failure) =
            carry_out(registry, one, runs, &dir, &mut manifest, &mut texts, active);
        document.experiments.push(experiment);
        if let Some(failure) = failure {
            let interrupted = failure.kind == FailureKind::Interrupted;
            // The first failure counts; the other experiments are still worth running.
            ended.get_or_insert(failure);
            if interrupted {
                break;
            }
        }
    }
    document.status = match &ended {
        None => RunStatus::Complete,
        Some(failure) if failure.kind == FailureKind::Interrupted => RunStatus::Interrupted,
        Some(_) => RunStatus::Failed,
    };
    document.headline = reproduce::answer(&document);
    let written = write_json(&dir.file(SUMMARY), &document)
        .and_then(|()| write_json(&dir.file(MANIFEST), &manifest));
    let shown = show(&document, &manifest, &texts, dir.path(), args.form.chosen);
    // A failure of an experiment takes precedence over a failed write.
    ended.map_or(written.and(shown), Err)
}

/// Writes the page and the Markdown report into the directory, and prints the findings.
fn show(
    document: &ReproduceDocument,
    manifest: &Manifest,
    texts: &str,
    dir: &Path,
    form: OutputForm,
) -> Result<(), CliError> {
    let report = reproduce::report(document);
    let charts = reproduce::charts::charts(document);
    let page = html::page(&report, charts, manifest, texts);
    publish_report(document, &report, page, dir, None, form, &Terminal)
}

/// Returns whether a directory is a reproduction.
pub(crate) fn is_one(dir: &Path) -> bool {
    read_value(dir, SUMMARY).is_ok_and(|(schema, _)| schema == REPRODUCE_SCHEMA)
}

/// Evaluates and renders a reproduction again, from the runs in it.
pub(crate) fn again(
    registry: &Registry,
    args: &ReportArgs,
    dir: &Path,
    stop: &AtomicBool,
) -> Result<(), CliError> {
    if matches!(args.form.chosen, OutputForm::Csv | OutputForm::Raw) {
        return Err(CliError::usage(
            "a reproduction has no rows",
            "name a folder in it; each is a run",
        ));
    }
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let mut document: ReproduceDocument = read_json(&dir, SUMMARY, REPRODUCE_SCHEMA)?;
    document.run_dir = dir.display().to_string();
    let manifest = read_manifest(&dir)?;
    let mut texts = String::new();
    for experiment in &mut document.experiments {
        let mut runs = Vec::new();
        for run in &experiment.run_dirs {
            // A link may lead to any other run.
            if dir.join(run).is_symlink() {
                continue;
            }
            match Recorded::open(registry, &dir.join(run), stop) {
                Ok(run) => runs.push(run),
                Err(failure) if failure.kind == FailureKind::Interrupted => return Err(failure),
                Err(_) => {}
            }
        }
        let one = PUBLISHED.iter().find(|one| one.number == experiment.number);
        // The findings of a run are kept even if its folder is missing.
        if runs.len() == experiment.run_dirs.len()
            && let Some(found) = one.and_then(|one| one.of_runs(&runs))
        {
            (experiment.ours, experiment.claims) = found;
        }
        for run in &runs {
            texts.push_str(&headed(&experiment.title, &run.plan));
        }
    }
    document.headline = reproduce::answer(&document);
    write_json(&dir.join(SUMMARY), &document)?;
    show(&document, &manifest, &texts, &dir, args.form.chosen)
}

/// Returns the SHA-256 of the plans, as they are before a run chooses settings of another.
fn hash<'a>(runs: impl Iterator<Item = &'a NamedRun>) -> String {
    let mut hash = Sha256::new();
    runs.for_each(|run| hash.update(&run.text));
    let bytes = hash.finalize();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a plan below its experiment's name.
fn headed(title: &str, plan: &str) -> String {
    format!("# {title}\n{plan}\n")
}

fn carry_out(
    registry: &Registry,
    one: &Published,
    runs: &[NamedRun],
    dir: &RunDir,
    manifest: &mut Manifest,
    texts: &mut String,
    active: &Active,
) -> (Experiment, Option<CliError>) {
    let began = Instant::now();
    let mut experiment = Experiment {
        number: one.number,
        title: one.title.to_owned(),
        question: one.question.to_owned(),
        published: (one.table)(),
        ..Experiment::default()
    };
    let mut read = Vec::new();
    let mut ended = None;
    for run in runs {
        let path = dir.file(run.name);
        let given = CommandLineSettings::silent_into(path.clone());
        run.plan.name().clone_into(&mut experiment.command);
        ended = run
            .after(&read, registry)
            .and_then(|chosen| {
                let plan = chosen.as_ref().unwrap_or(&run.plan);
                plan.carry_out(&given, &host(active), &active.stop)
            })
            .err();
        // A run that ended early is read too: its results are kept. Without one of them nothing is told from the others, whose
        // meaning is their order.
        let recorded = match Recorded::open(registry, &path, &active.stop) {
            Ok(recorded) => recorded,
            Err(failure) => {
                ended.get_or_insert(failure);
                break;
            }
        };
        experiment.run_dirs.push(run.name.to_owned());
        let named = |shape: &str| format!("{} {shape}", one.number);
        let servers = recorded.manifest.servers.iter().cloned();
        manifest.servers.extend(servers.map(|server| ServerRecord {
            shape: named(&server.shape),
            ..server
        }));
        let sandboxes = recorded.manifest.sandboxes.iter().cloned();
        manifest
            .sandboxes
            .extend(sandboxes.map(|sandbox| SandboxRecord {
                shape: named(&sandbox.shape),
                ..sandbox
            }));
        texts.push_str(&headed(one.title, &recorded.plan));
        read.push(recorded);
        if ended.is_some() {
            break;
        }
    }
    if let Some(first) = read.first() {
        first
            .run
            .head()
            .headline
            .clone_into(&mut experiment.headline);
    }
    if let Some(found) = one.of_runs(&read) {
        (experiment.ours, experiment.claims) = found;
    }
    experiment.error = ended.as_ref().map(|failure| failure.message.clone());
    experiment.duration_us = began.elapsed().as_secs_f64() * 1e6;
    (experiment, ended)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::atomic::Ordering,
    };

    use replimeter_measurements::registry;
    use replimeter_model::plan::PlanError;
    use replimeter_run::{Host, PlannedRun, TrialUnit};

    use super::*;
    use replimeter_run::options::OutputArgs;

    use crate::cli::ReproduceExtent;

    /// Returns the keys of a resolved plan with their values.
    fn keys(plan: &dyn PlannedRun) -> BTreeMap<String, String> {
        let table: toml::Table = plan.text().unwrap().parse().unwrap();
        let mut keys = BTreeMap::new();
        for (section, value) in table {
            let Some(inner) = value.as_table() else {
                keys.insert(section, value.to_string());
                continue;
            };
            for (key, value) in inner {
                keys.insert(format!("{section}.{key}"), value.to_string());
            }
        }
        keys
    }

    /// Returns the keys that a small run changes.
    fn changes(one: &Published) -> Vec<String> {
        let [full, small] = [ReproduceExtent::Full, ReproduceExtent::Small]
            .map(|extent| keys(one.plans(registry(), extent).unwrap()[0].plan.as_ref()));
        let missing = "none".to_owned();
        let all: BTreeSet<&String> = full.keys().chain(small.keys()).collect();
        let of = |keys: &BTreeMap<String, String>, key| keys.get(key).unwrap_or(&missing).clone();
        all.into_iter()
            .filter(|key| full.get(*key) != small.get(*key))
            .map(|key| format!("{key}: {} → {}", of(&full, key), of(&small, key)))
            .collect()
    }

    /// A run that leaves no directory.
    struct Unreadable(&'static AtomicBool);

    impl PlannedRun for Unreadable {
        fn name(&self) -> &'static str {
            "lag"
        }

        fn unit(&self) -> Result<TrialUnit, PlanError> {
            Err(PlanError::Contradiction("none".to_owned()))
        }

        fn check(&self, _: &OutputArgs) -> Result<(), CliError> {
            Ok(())
        }

        fn text(&self) -> Result<String, CliError> {
            Ok(String::new())
        }

        fn effects(&self, _: &OutputArgs) -> Result<String, CliError> {
            Ok(String::new())
        }

        fn carry_out(
            &self,
            _: &CommandLineSettings,
            _: &Host<'_>,
            _: &AtomicBool,
        ) -> Result<(), CliError> {
            self.0.store(true, Ordering::Relaxed);
            Ok(())
        }
    }

    #[test]
    fn unreadable_first_run_ends_its_experiment() {
        static BEGUN: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
        let folder = tempfile::tempdir().unwrap();
        let dir = RunDir::create(Some(&folder.path().join("all")), "reproduce").unwrap();
        let runs = ["first", "second"].into_iter().zip(&BEGUN);
        let runs = runs.map(|(name, begun)| NamedRun {
            name,
            text: String::new(),
            plan: Box::new(Unreadable(begun)),
            chosen: None,
        });
        let (experiment, failure) = carry_out(
            registry(),
            &PUBLISHED[2],
            &runs.collect::<Vec<_>>(),
            &dir,
            &mut Manifest::default(),
            &mut String::new(),
            &Active::default(),
        );
        let failure = failure.unwrap();
        assert!(failure.message.contains("first"), "{}", failure.message);
        assert_eq!(experiment.error, Some(failure.message));
        let begun = BEGUN.each_ref().map(|one| one.load(Ordering::Relaxed));
        assert_eq!(begun, [true, false]);
    }

    #[test]
    fn small_runs_differ_from_full_ones_in_listed_keys() {
        let numbers = PUBLISHED.each_ref().map(|one| one.number);
        assert_eq!(numbers, [1, 2, 3, 4, 5]);
        let found = PUBLISHED.each_ref().map(changes);
        let expected: [&[&str]; 5] = [
            &[
                r#"lag.step-pause: "200ms" → "50ms""#,
                "lag.sweeps: 250 → 80",
            ],
            &[
                r#"scale.data-size: "300MB" → "30MB""#,
                r#"scale.duration: "10s" → "3s""#,
                "scale.starts: 6 → 5",
                r#"scale.warm-up: "3s" → "1s""#,
                r#"target.server-options: ["innodb_buffer_pool_size=64M", "innodb_flush_log_at_trx_commit=1", "sync_binlog=1"] → ["innodb_flush_log_at_trx_commit=1", "sync_binlog=1", "innodb_buffer_pool_size=6M"]"#,
            ],
            &[],
            &[
                r#"stale.duration: none → "6s""#,
                "stale.load-data-size: 1000000 → 50000",
                r#"stale.read-delays: "auto" → "none""#,
                "stale.rounds: 10000 → none",
                "stale.starts: 5 → 4",
            ],
            &[
                r#"cost.duration: "30s" → "6s""#,
                r#"cost.modes: "mariadb/none,mariadb/binlog,mariadb/async,mariadb/semi-sync,galera,mysql/none,mysql/binlog,mysql/async,mysql/semi-sync,group" → "mariadb/none,mariadb/binlog,mariadb/async,mariadb/semi-sync,mysql/none,mysql/binlog,mysql/async,mysql/semi-sync""#,
                "cost.starts: 10 → 5",
                r#"cost.warm-up: "1s" → "500ms""#,
            ],
        ];
        assert_eq!(found, expected);
        let plans = PUBLISHED[0]
            .plans(registry(), ReproduceExtent::Full)
            .unwrap();
        let linked = plans
            .iter()
            .map(|run| keys(run.plan.as_ref()).get("target.link-delay").cloned());
        let delay = Some("\"500us\"".to_owned());
        assert_eq!(linked.collect::<Vec<_>>(), [None, delay]);
        let plans = PUBLISHED[4]
            .plans(registry(), ReproduceExtent::Full)
            .unwrap();
        let cost = keys(plans[0].plan.as_ref());
        assert!(
            cost["cost.modes"].contains("mysql/semi-sync") && cost["cost.modes"].contains("galera")
        );
        assert_eq!(
            cost["cost.skip-unavailable"], "true",
            "uses what is available here"
        );
        let plans = PUBLISHED[2]
            .plans(registry(), ReproduceExtent::Small)
            .unwrap();
        let methods: Vec<_> = plans
            .iter()
            .map(|run| keys(run.plan.as_ref())["lag.method"].clone())
            .collect();
        assert!(
            methods[0].starts_with("\"stamp") && methods[1] == "\"all\"",
            "{methods:?}"
        );
    }
}
