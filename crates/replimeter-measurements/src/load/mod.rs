//! `load`: creates the data, runs the workloads, and reports throughput and latency.

mod accumulator;
mod blocks;
pub(crate) mod charts;
mod data;
pub(super) mod figures;
pub(crate) mod report;
mod saturation;
mod seconds;

use std::path::Path;

use crate::{
    data::Data,
    load::{
        report::{answer, description, in_headline, report},
        seconds::{Seconds, add_all},
    },
};
use clap::Command;
use replimeter_engine::{
    Node,
    source::{Allowed, Member, Servers},
};
use replimeter_instruments::{
    load::{
        self, Workload,
        results::{LoadDocument, LoadResults},
        settings::{LoadRunPlan, LoadSettings},
    },
    preflight::Cluster,
    resources::{METER_INTERVAL, Meter, ResourceWatch},
};
use replimeter_model::{
    compare::Quantity,
    plan::{CoreUse, Request},
    target::Role,
    time::Nanos,
    warning::Warning,
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Finished, Histograms, Leading, Measurement, RunContext, Stage,
    cli_error::{CliError, unexpected},
    dry_run::{PlanEffects, pace},
    figures::{FigureSpec, StatedFigures},
    options::one_target,
    with_causes,
    workloads::{refuse_size, workload},
};

use self::{
    accumulator::{Accumulator, Call},
    blocks::measure,
    saturation::saturation,
};

fn workloads(plan: &LoadRunPlan) -> Result<Vec<Workload>, CliError> {
    let workloads: Vec<Workload> = plan
        .workload
        .iter()
        .map(|name| workload(name))
        .collect::<Result<_, _>>()?;
    for (index, one) in workloads.iter().enumerate() {
        for other in &workloads[..index] {
            if let Some(table) = one.collides(other) {
                return Err(CliError::usage(
                    format!(
                        "{} and {} each define a table `{table}`",
                        other.name, one.name
                    ),
                    "rename one of the tables",
                ));
            }
        }
    }
    refuse_size(plan.data_size, &workloads)?;
    Ok(workloads)
}

/// The measurement `load`.
pub(crate) struct Load;

impl Measurement for Load {
    const ABOUT: &'static str = "Measure the throughput and latency of a workload";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const TRIAL_FIGURE: Option<&'static str> = Some("load.throughput");
    const EXAMPLES: &'static str = "\
Examples:
  replimeter load --workload point-select --threads 1,8,64
  replimeter load --sandbox none --workload update-key --threads auto
  replimeter load --sandbox async:2 --workload post-insert --workload select
  replimeter load --workload insert --threads 16 --rate 2000 --arrivals poisson
  replimeter load --workload orders.toml --data-size 1GB --keep-data

Workloads: insert, select, post-insert, point-select, oltp-mix, update-key,
big-update, mix, or the path of a file: statements with typed parameters (.toml)
or a script of statements that end with `;` (anything else). A file:
  size = 100000
  [[table]]
  name = \"orders\"
  create = \"CREATE TABLE orders (id INT PRIMARY KEY, note VARCHAR(99))\"
  columns = {id = {row = true}, note = {text = [20, 99]}}
  [[statement]]
  sql = \"SELECT note FROM orders WHERE id = :id\"
  id = {uniform = [1, \"rows\"]}
The data is created in the schema `replimeter` and removed at the end. A
workload that only reads runs on the replicas.

Terms of the report:
  operation  one execution of the workload
  response   time of an operation from its intended start (open loop)
  service    time of an operation from its actual start
  retried    operations repeated after a deadlock or a failed certification";

    type Settings = LoadSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = Seconds;
    type Results = LoadResults;

    fn target(command: Command) -> Command {
        one_target(command)
    }

    fn client(plan: &LoadRunPlan) -> CoreUse {
        plan.cores
    }

    fn check(request: &Request<LoadSettings>) -> Result<(), CliError> {
        workloads(&request.plan).map(drop)
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<LoadSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        effects.written_targets();
        for name in &plan.workload {
            effects.tables(name, plan.keep_data)?;
        }
        // The threads write on the primary, and as many read on replicas. The others hold the lock, keep the data,
        // read the use of resources, and end what was given up.
        let most = plan.threads.iter().copied().max().map_or(0, u64::from);
        for (role, connections) in [("primary", 4 + most), ("each replica", 2 + most)] {
            let done = "the workload's statements; the data in transactions of at most 1 MiB";
            effects.cost(role, connections, done);
        }
        let threads: Vec<String> = plan.threads.iter().map(ToString::to_string).collect();
        let connections = if plan.until_saturated {
            "1, 2, 4 and so on".to_owned()
        } else {
            threads.join(", then ")
        };
        let size = plan.data_size.map_or_else(
            || "the data size that each workload defines".to_owned(),
            |size| format!("{size} of data"),
        );
        effects.load(format!(
            "{} with {connections} connections each, {}; {size}",
            plan.workload.join(", "),
            pace(plan.rate.map(|open| open.rate)),
        ));
        effects.time(format!(
            "{} each time, after a warm-up of {}",
            plan.duration, plan.warm_up
        ));
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let plan = cx.plan;
        let [target] = cx.request.targets.as_slice() else {
            return Err(unexpected("expected exactly one target"));
        };
        let workloads = workloads(plan)?;
        cx.on_checked(target, load::check, |cx, servers, mut cluster| {
            let found = load::claim(&mut cluster)?;
            cx.take(Call::Warnings(found))?;
            let mut data = Data {
                primary: cluster.primary.node.clone(),
                sets: Vec::new(),
                stays: plan.keep_data || servers.is_temporary(),
            };
            cx.take(Call::Shape {
                label: servers.label().to_owned(),
                mode: cluster.mode,
            })?;
            let meter = Meter::open(&metered(servers, &cluster), &cx.clock)?;
            cx.take(Call::Warnings(meter.warnings()))?;
            let watch = ResourceWatch::start(meter, METER_INTERVAL);
            let result = measure(cx, &workloads, &mut cluster, &watch, &mut data);
            watch.finish();
            // A load that no replica followed, or that did not wait as configured, does not describe this mode.
            let fallen_back = cluster.fall_back_reason();
            let members = result.as_ref().err().and_then(|_| cluster.members_now());
            let failure = cx.accumulator.failure.take();
            let failure = failure.or_else(|| cluster.verify().err().map(CliError::from));
            let ended = with_causes(failure, fallen_back, members, servers);
            cx.stage(Stage::CleanUp, "removing the data");
            cx.take(Call::Warnings(data.remove()))?;
            match result {
                Err(error) if cx.accumulator.results.is_empty() => Err(error),
                result => ended.and(result),
            }
        })
    }

    fn accumulator(_: &Request<LoadSettings>) -> Accumulator {
        Accumulator::default()
    }

    fn take(accumulator: &mut Accumulator, _: &LoadRunPlan, call: Call, _: &mut Rows<Seconds>) {
        accumulator.take(call);
    }

    fn last_rows(accumulator: &Accumulator, rows: &mut Rows<Seconds>) {
        add_all(rows, &accumulator.results, &accumulator.uses);
    }

    fn warnings(accumulator: &Accumulator) -> &[Warning] {
        &accumulator.warnings
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.results.is_empty()
    }

    fn conclude(run: &mut Finished<'_, Self>, accumulator: Accumulator) -> Concluded<LoadResults> {
        let Accumulator {
            label,
            mode,
            data,
            settling,
            mut results,
            measured_us,
            ..
        } = accumulator;
        run.warn(accumulator.warnings);
        for row in &mut results {
            row.load.shape.clone_from(&label);
        }
        Concluded {
            target: run.target(label, vec![mode.to_string()]),
            measured_us: Some(measured_us),
            histograms: Some(Histograms {
                took: Nanos((measured_us * 1e3) as i64),
                series: accumulator.histograms,
            }),
            results: LoadResults {
                saturation: run
                    .plan
                    .until_saturated
                    .then(|| saturation(&results))
                    .flatten(),
                rows: results,
                data,
                settling,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &LoadDocument) -> String {
        answer(document)
    }

    fn leading(document: &LoadDocument) -> Option<Leading> {
        let load = &in_headline(document).next()?.load;
        Leading::of(description(load), load.throughput.mean, Quantity::PerS)
    }

    fn stated(_: &LoadSettings, results: &LoadResults) -> StatedFigures {
        figures::stated(results)
    }

    fn report(document: &LoadDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &LoadDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::load::charts::charts(document))
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
                allowed: Allowed::default(),
                pid: known.and_then(|member| member.pid),
            }
        })
        .collect()
}
