//! `load`: creates the data, runs the workloads, and reports throughput and latency.

pub(crate) mod charts;
mod data;
pub(super) mod figures;
mod gathered;
pub(crate) mod report;
mod seconds;
mod stretches;

use std::{path::Path, time::Duration};

use crate::load::{
    report::{answer, report},
    seconds::{Seconds, add_all},
};
use replimeter_engine::{
    Node,
    source::{Member, Servers},
};
use replimeter_instruments::{
    load::{self, Workload},
    preflight::Cluster,
    resources::{Meter, Watch},
};
use replimeter_model::{
    loading::{LoadDocument, LoadResults},
    plan::{LoadingPlan, LoadingSettings, Planned},
    target::Role,
    time::Nanos,
    warning::Warning,
};
use replimeter_render::{
    chart::Chart, html::HtmlError, report::Report, rows::Rows, together::Findings,
};
use replimeter_run::{
    Client, Concluded, Finished, Histograms, Measurement, RunContext, Stage,
    compare::figures::{Figures, SampleFile},
    failure::{Failure, unexpected},
    to_measure,
    touches::{LOAD, TIME, Touches},
    with_causes,
    workloads::{refuse_size, workload},
};

use self::{
    data::Data,
    gathered::{Call, Gathered},
    stretches::measure,
};

/// How often the servers' resources are read.
const GLANCE: Duration = Duration::from_millis(250);

fn workloads(work: &LoadingPlan) -> Result<Vec<Workload>, Failure> {
    let workloads: Vec<Workload> = work
        .workloads
        .iter()
        .map(|name| workload(name))
        .collect::<Result<_, _>>()?;
    for (index, one) in workloads.iter().enumerate() {
        for other in &workloads[..index] {
            if let Some(table) = one.collides(other) {
                return Err(Failure::usage(
                    format!(
                        "{} and {} each define a table `{table}`",
                        other.name, one.name
                    ),
                    "rename one of the tables",
                ));
            }
        }
    }
    refuse_size(work.data_size, &workloads)?;
    Ok(workloads)
}

/// The measurement `load`.
pub(crate) struct Load;

impl Measurement for Load {
    const ABOUT: &'static str = "Measure the throughput and latency of a workload";
    const EXAMPLES: &'static str = "\
Examples:
  replimeter load --workload point-select --threads 1,8,64
  replimeter load --sandbox async:2 --workload post-insert --workload select
  replimeter load --workload insert --threads 16 --rate 2000 --arrivals poisson
  replimeter load --workload orders.toml --data-size 1GB --keep-data

Workloads: insert, select, post-insert, point-select, oltp-mix, update-key,
big-update, mix, or the path of a file: statements with typed parameters (.toml)
or a script (anything else); docs/reference/workloads.md explains both. The data is created in
the schema `replimeter` and removed at the end. A workload that only reads runs
on the replicas.";

    type Settings = LoadingSettings;
    type Options = ();
    type Call = Call;
    type Gathered = Gathered;
    type Columns = Seconds;
    type Results = LoadResults;

    fn client(plan: &LoadingPlan) -> Client {
        Client {
            keep_awake: plan.keep_awake,
            real_time: false,
        }
    }

    fn check(plan: &Planned<LoadingSettings>) -> Result<(), Failure> {
        workloads(&plan.plan).map(drop)
    }

    fn touches(touches: &mut Touches, plan: &Planned<LoadingSettings>) -> Result<(), Failure> {
        let work = &plan.plan;
        touches.targets(&plan.targets);
        for name in &work.workloads {
            touches.tables(name, work.keep_data)?;
        }
        let threads: Vec<String> = work.threads.iter().map(ToString::to_string).collect();
        let how = work.rate.map_or_else(
            || "back to back".to_owned(),
            |open| format!("{} per second", open.rate),
        );
        let size = work.data_size.map_or_else(
            || "the data size that each workload defines".to_owned(),
            |size| format!("{size} of data"),
        );
        touches.say(
            LOAD,
            format!(
                "{} with {} connections each, {how}; {size}",
                work.workloads.join(", "),
                threads.join(", then ")
            ),
        );
        touches.say(
            TIME,
            format!(
                "{} each time, after a warm-up of {}",
                work.duration, work.warm_up
            ),
        );
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), Failure> {
        let work = cx.work;
        let [target] = cx.plan.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        let workloads = workloads(work)?;
        let servers = cx.open(target)?;
        cx.stage(Stage::Servers, "checking the servers");
        let mut cluster = load::check(&to_measure(servers.as_ref()))?;
        load::hold(&mut cluster.primary.session)?;
        cx.met(servers.label(), servers.as_ref(), &mut cluster)?;
        let mut data = Data {
            primary: cluster.primary.node.clone(),
            sets: Vec::new(),
            stays: work.keep_data || servers.is_temporary(),
        };
        cx.take(Call::Shape {
            label: servers.label().to_owned(),
            mode: cluster.mode.to_owned(),
        })?;
        let meter = Meter::open(&metered(servers.as_ref(), &cluster), &cx.clock)?;
        cx.take(Call::Warnings(meter.warnings()))?;
        let watch = Watch::start(meter, GLANCE);
        let result = measure(cx, &workloads, &cluster, &watch, &mut data);
        watch.finish();
        // A load that no replica followed, or that did not wait as configured, does not describe this mode.
        let fallen_back = cluster.fallen_back();
        let members = result.as_ref().err().and_then(|_| cluster.members_now());
        let failure = cx.gathered.failure.take();
        let failure = failure.or_else(|| cluster.verify().err().map(Failure::from));
        let ended = with_causes(failure, fallen_back, members, servers.as_ref());
        cx.stage(Stage::CleanUp, "removing the data");
        cx.take(Call::Warnings(data.remove()))?;
        drop(cluster);
        cx.close(servers);
        match result {
            Err(error) if cx.gathered.results.is_empty() => Err(error),
            result => ended.and(result),
        }
    }

    fn gathered(_: &Planned<LoadingSettings>) -> Gathered {
        Gathered::default()
    }

    fn take(gathered: &mut Gathered, _: &LoadingPlan, call: Call, _: &mut Rows<Seconds>) {
        gathered.take(call);
    }

    fn last_rows(gathered: &Gathered, rows: &mut Rows<Seconds>) {
        add_all(rows, &gathered.results, &gathered.uses);
    }

    fn warnings(gathered: &Gathered) -> &[Warning] {
        &gathered.warnings
    }

    fn is_empty(gathered: &Gathered) -> bool {
        gathered.results.is_empty()
    }

    fn conclude(run: &mut Finished<'_, Self>, gathered: Gathered) -> Concluded<LoadResults> {
        let Gathered {
            label,
            mode,
            data,
            mut results,
            measured_us,
            ..
        } = gathered;
        run.warn(gathered.warnings);
        for row in &mut results {
            row.load.shape.clone_from(&label);
        }
        Concluded {
            target: run.target(label, vec![mode]),
            measured_us: Some(measured_us),
            histograms: Some(Histograms {
                took: Nanos((measured_us * 1e3) as i64),
                series: gathered.histograms,
            }),
            results: LoadResults {
                rows: results,
                data,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &LoadDocument) -> String {
        answer(document)
    }

    fn figures(document: &LoadDocument, _: &SampleFile) -> Result<Figures, Failure> {
        figures::figures(document)
    }

    fn report(document: &LoadDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &LoadDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::load::charts::charts(document))
    }

    fn findings(document: &LoadDocument) -> Findings<'_> {
        Findings::Load(document)
    }
}

/// Returns every server, with its process if it is known.
fn metered(servers: &dyn Servers, cluster: &Cluster) -> Vec<Member> {
    let nodes = std::iter::once((&cluster.primary.node, Role::Primary)).chain(
        cluster
            .replicas
            .iter()
            .map(|replica| (&replica.server.node, Role::Replica)),
    );
    let known = |node: &Node| {
        let mut members = servers.members().iter();
        members.find(|member| member.node.name == node.name)
    };
    nodes
        .map(|(node, role)| {
            let known = known(node);
            Member {
                node: node.clone(),
                role: known.and_then(|member| member.role).or(Some(role)),
                source: None,
                pid: known.and_then(|member| member.pid),
            }
        })
        .collect()
}
