//! `replimeter reproduce`: the five published experiments, and one page of them.

use std::{
    path::Path,
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use replimeter_model::{
    manifest::{MANIFEST_SCHEMA, Manifest, SandboxRecord, ServerRecord},
    plan::{Plan, PlanFile, Work},
    record::RunStatus,
    reproduce::{Claim, Experiment, REPRODUCE_SCHEMA, ReproduceDocument, Table},
    target::Passwords,
};
use replimeter_report::{html, reproduce};

use crate::{
    cli::{Extent, OutputArgs, ReportArgs, ReproduceArgs},
    cost,
    document::{Document, read_json, read_value},
    environment,
    failure::{Failure, Kind, unexpected},
    frame::Request,
    machine, measure,
    print::{plain, print, print_json},
    run_dir::{MANIFEST, PAGE, RunDir, SUMMARY, TICKET, write_json, write_text},
    scale, stale,
};

/// One of the five.
struct Published {
    number: u32,
    /// The folder of its run.
    name: &'static str,
    command: &'static str,
    title: &'static str,
    question: &'static str,
    plan: &'static str,
    /// What is changed for a small run, as a plan of its own keys.
    small: fn(&mut PlanFile),
    table: fn() -> Table,
}

const PUBLISHED: [Published; 5] = [
    Published {
        number: 1,
        name: "1-size-sweep",
        command: "lag",
        title: "Size sweep by polling (Giuseppe Maxia, 2006)",
        question: "How long after an insert on the primary can the row be read on the replica?",
        plan: include_str!("../../../../plans/size-sweep.toml"),
        small: |file| {
            if let Some(lag) = &mut file.lag {
                lag.sweeps = Some(6);
            }
        },
        table: reproduce::sweep_published,
    },
    Published {
        number: 2,
        name: "2-read-replicas",
        command: "scale",
        title: "Read replicas 0, 1, 2 under mixed load (web scaling test)",
        question: "What does each added read replica cost inserts and give selects?",
        plan: include_str!("../../../../plans/read-replica-scaling.toml"),
        small: |file| {
            if let Some(scale) = &mut file.scale {
                scale.replicas = "0..2".parse().ok();
                scale.duration = "2s".parse().ok();
                scale.warm_up = "500ms".parse().ok();
                scale.starts = Some(3);
                scale.size = "30MB".parse().ok();
                scale.updates = Some(false);
                scale.check_prediction = Some(false);
            }
            // A fifth of the data, as published; MariaDB takes no less than 6 MB.
            file.target
                .server_options
                .retain(|option| !option.to_string().starts_with("innodb_buffer_pool_size"));
            file.target
                .server_options
                .extend("innodb_buffer_pool_size=6M".parse());
        },
        table: reproduce::replicas_published,
    },
    Published {
        number: 3,
        name: "3-lag-histogram",
        command: "lag",
        title: "Replication lag without polling (Baron Schwartz, 2007)",
        question: "How late does a statement run on the replica, without the disturbance of polling?",
        plan: include_str!("../../../../plans/lag-histogram.toml"),
        small: |_| {},
        table: reproduce::histogram_published,
    },
    Published {
        number: 4,
        name: "4-stale-reads",
        command: "stale",
        title: "Stale reads on a multi-primary cluster (Peter Zaitsev, 2013)",
        question: "Write on node 1, read at once on node 2: how often is the read stale, and for how long?",
        plan: include_str!("../../../../plans/galera-stale-reads.toml"),
        small: |file| {
            if let Some(stale) = &mut file.stale {
                // Behind a huge update a round takes seconds: a time, not a number of rounds. The table has no curve.
                stale.rounds = None;
                stale.duration = "8s".parse().ok();
                stale.offsets = "none".parse().ok();
                stale.curve_rounds = None;
                stale.load_size = "50000".parse().ok();
            }
        },
        table: reproduce::stale_published,
    },
    Published {
        number: 5,
        name: "5-semi-sync-price",
        command: "cost",
        title: "The price of semi-sync (a MySQL Cluster engineer, 2010)",
        question: "What latency does waiting for a replica's acknowledgement add?",
        plan: include_str!("../../../../plans/semi-sync-cost.toml"),
        small: |file| {
            if let Some(cost) = &mut file.cost {
                cost.duration = "4s".parse().ok();
                cost.starts = Some(4);
                cost.ramp = "500ms".parse().ok();
            }
        },
        table: reproduce::price_published,
    },
];

impl Published {
    fn plan(&self, extent: Extent) -> Result<Plan, Failure> {
        let mut file = PlanFile::from_toml(self.plan)?;
        if extent == Extent::Small {
            (self.small)(&mut file);
        }
        if file.target.udf && !environment::has_udf() {
            // `all` methods are those that the servers permit: stamps go by SYSDATE() then.
            file.target.udf = false;
        }
        if let Some(cost) = &mut file.cost {
            // Whatever can be had here: modes that were named would have to be there.
            cost.modes = None;
        }
        Ok(file.resolve()?)
    }
}

pub(crate) fn run(args: &ReproduceArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let wanted = |one: &&Published| args.only.is_empty() || args.only.contains(&one.number);
    let plans: Vec<(&Published, Plan)> = PUBLISHED
        .iter()
        .filter(wanted)
        .map(|one| Ok((one, one.plan(args.size)?)))
        .collect::<Result<_, Failure>>()?;
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
        ..ReproduceDocument::default()
    };
    let mut texts = String::new();
    let mut ended: Option<Failure> = None;
    for (index, (one, plan)) in plans.iter().enumerate() {
        tell(&format!(
            "experiment {} ({} of {}): {}",
            one.number,
            index + 1,
            plans.len(),
            one.title
        ));
        let (experiment, failure) = carry_out(one, plan, &dir, &mut manifest, &mut texts, stop);
        document.experiments.push(experiment);
        if let Some(failure) = failure {
            let interrupted = failure.kind == Kind::Interrupted;
            // The first cause counts; what the others find stays worth having.
            ended.get_or_insert(failure);
            if interrupted {
                break;
            }
        }
    }
    document.status = match &ended {
        None => RunStatus::Complete,
        Some(failure) if failure.kind == Kind::Interrupted => RunStatus::Interrupted,
        Some(_) => RunStatus::Failed,
    };
    document.answer = reproduce::answer(&document);
    write_json(&dir.file(SUMMARY), &document)?;
    write_json(&dir.file(MANIFEST), &manifest)?;
    show(
        &document,
        &manifest,
        &texts,
        dir.path(),
        (args.json, args.markdown),
    )?;
    ended.map_or(Ok(()), Err)
}

/// Writes the page and the ticket into the directory, and prints the findings, as JSON or Markdown where that is asked for.
fn show(
    document: &ReproduceDocument,
    manifest: &Manifest,
    texts: &str,
    dir: &Path,
    (json, markdown): (bool, bool),
) -> Result<(), Failure> {
    let page = html::reproduce(document, manifest, texts).map_err(|error| {
        Failure::failed(
            format!("cannot render the page: {error}"),
            "please report this as a defect",
        )
    })?;
    write_text(&dir.join(PAGE), &page)?;
    let ticket = reproduce::ticket(document);
    write_text(&dir.join(TICKET), &ticket)?;
    match (json, markdown) {
        (true, _) => print_json(document),
        (_, true) => print(&ticket),
        _ => print(&plain(&format!(
            "{}\nAs a page:  file://{}\n",
            reproduce::text(document),
            dir.join(PAGE).display()
        ))),
    }
}

/// Whether a directory is of a reproduction.
pub(crate) fn is_one(dir: &Path) -> bool {
    read_value(dir, SUMMARY).is_ok_and(|(schema, _)| schema == REPRODUCE_SCHEMA)
}

/// Judges and renders a reproduction again, from the runs in it.
pub(crate) fn again(args: &ReportArgs, dir: &Path) -> Result<(), Failure> {
    if args.csv || args.raw {
        return Err(Failure::usage(
            "a reproduction has no rows",
            "each folder in it is a run of its own",
        ));
    }
    let dir = std::path::absolute(dir).unwrap_or_else(|_| dir.to_owned());
    let mut document: ReproduceDocument = read_json(&dir, SUMMARY, REPRODUCE_SCHEMA)?;
    document.run_dir = dir.display().to_string();
    let manifest: Manifest = read_json(&dir, MANIFEST, MANIFEST_SCHEMA)?;
    let mut texts = String::new();
    for experiment in &mut document.experiments {
        // What was found stays where its run was left behind.
        let Some(run) = &experiment.run_dir else {
            continue;
        };
        let Ok((run, _, plan)) = Document::open(&dir.join(run)) else {
            continue;
        };
        if let Some(found) = judge(&run) {
            (experiment.ours, experiment.claims) = found;
        }
        texts.push_str(&headed(&experiment.title, &plan));
    }
    document.answer = reproduce::answer(&document);
    write_json(&dir.join(SUMMARY), &document)?;
    show(
        &document,
        &manifest,
        &texts,
        &dir,
        (args.json, args.markdown),
    )
}

/// A plan below its experiment's name.
fn headed(title: &str, plan: &str) -> String {
    format!("# {title}\n{plan}\n")
}

/// What is under way, for who waits.
fn tell(words: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{words}");
}

fn carry_out(
    one: &Published,
    plan: &Plan,
    dir: &RunDir,
    manifest: &mut Manifest,
    texts: &mut String,
    stop: &Arc<AtomicBool>,
) -> (Experiment, Option<Failure>) {
    let path = dir.file(one.name);
    let output = OutputArgs {
        run_dir: Some(path.clone()),
        json: false,
        markdown: false,
        csv: false,
        raw: false,
        silent: true,
    };
    let began = Instant::now();
    let passwords = Passwords::new();
    let result = match &plan.work {
        Work::Lag(work) => measure::carry_out(request(plan, work, &passwords, &output), stop),
        Work::Scale(work) => scale::carry_out(plan, work, &output, Vec::new(), stop),
        Work::Stale(work) => stale::carry_out(request(plan, work, &passwords, &output), stop),
        Work::Cost(work) => cost::carry_out(plan, work, &output, Vec::new(), stop),
        _ => Err(unexpected()),
    };
    let mut experiment = Experiment {
        number: one.number,
        title: one.title.to_owned(),
        question: one.question.to_owned(),
        command: one.command.to_owned(),
        took_us: began.elapsed().as_secs_f64() * 1e6,
        published: (one.table)(),
        error: result.as_ref().err().map(|failure| failure.message.clone()),
        ..Experiment::default()
    };
    // A run that ended early is read too: what it has is kept.
    if let Ok((document, kept, text)) = Document::open(&path) {
        experiment.run_dir = Some(one.name.to_owned());
        experiment.answer = document.answer().to_owned();
        if let Some((ours, claims)) = judge(&document) {
            (experiment.ours, experiment.claims) = (ours, claims);
        }
        let named = |shape: &str| format!("{} {shape}", one.number);
        manifest
            .servers
            .extend(kept.servers.into_iter().map(|server| ServerRecord {
                shape: named(&server.shape),
                ..server
            }));
        manifest
            .sandboxes
            .extend(kept.sandboxes.into_iter().map(|sandbox| SandboxRecord {
                shape: named(&sandbox.shape),
                ..sandbox
            }));
        texts.push_str(&headed(one.title, &text));
    }
    (experiment, result.err())
}

fn request<'a, W>(
    plan: &'a Plan,
    work: &'a W,
    passwords: &'a Passwords,
    output: &'a OutputArgs,
) -> Request<'a, W> {
    Request {
        plan,
        work,
        passwords,
        ask_password: false,
        output,
        warnings: Vec::new(),
    }
}

fn judge(document: &Document) -> Option<(Table, Vec<Claim>)> {
    Some(match document {
        Document::Lag(document) if !document.size_sweep.is_empty() => reproduce::sweep(document),
        Document::Lag(document) => reproduce::histogram(document),
        Document::Scale(document) => reproduce::replicas(document),
        Document::Stale(document) => reproduce::stale(document),
        Document::Cost(document) => reproduce::price(document),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_resolves_in_both_sizes() {
        for (index, one) in (1..).zip(&PUBLISHED) {
            assert_eq!(one.number, index);
            let (small, full) = (
                one.plan(Extent::Small).unwrap(),
                one.plan(Extent::Full).unwrap(),
            );
            assert!(
                one.plan.contains(&format!("command = \"{}\"", one.command)),
                "{}",
                one.title
            );
            assert_eq!(small != full, one.number != 3, "{}", one.title);
            let options = small
                .target
                .server_options
                .iter()
                .filter(|option| option.to_string().contains("buffer_pool_size"));
            assert_eq!(
                options.count(),
                usize::from(one.number == 2),
                "{}",
                one.title
            );
        }
    }
}
