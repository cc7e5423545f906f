//! `cost`: rounds of fresh starts of every mode in randomized order, with a load on each, and the cost of
//! each mode.

mod accumulator;
mod blocks;
pub(crate) mod charts;
mod condition;
mod entries;
mod figures;
mod judge;
pub(crate) mod report;
mod results;
mod starts;

use std::path::Path;

use crate::cost::{
    blocks::CostBlocks,
    report::{answer, report},
};
use clap::{Arg, Command};
use replimeter_instruments::{
    cost::{
        results::{CostDocument, CostResults},
        settings::{CostPlan, CostSettings, LoggedMode},
    },
    load::Workload,
};
use replimeter_model::{
    load::DataSize,
    plan::{CoreUse, Request},
    time::Nanos,
    warning::{Warning, WarningCode},
};
use replimeter_render::{chart::Chart, html::HtmlError, report::Report, rows::Rows};
use replimeter_run::{
    Concluded, Finished, Histograms, Measurement, RunContext,
    cli_error::{CliError, FailureKind},
    dry_run::{PlanEffects, started},
    figures::{FigureSpec, Figures, SampleFile, StatedFigures},
    machine,
    options::with_both_wait_points,
    workloads::{refuse_size, workload},
};

use self::{
    accumulator::{Accumulator, Call, MeasuredMode},
    condition::Condition,
    entries::{CostEntry, entries},
    judge::{invalid, judge, verdict},
    results::{rows, steps},
    starts::Starts,
};

/// The measurement `cost`: the cost of each replication mode.
pub(crate) struct Cost;

impl Measurement for Cost {
    const ABOUT: &'static str = "Compare each replication mode with a standalone server";
    const FIGURES: fn() -> Vec<&'static FigureSpec> = figures::specs;
    const EXAMPLES: &'static str = "\
Examples:
  # every mode that the servers here support; takes several minutes
  replimeter cost
  replimeter cost --modes none,async,semi-sync --threads 1 --duration 30s
  replimeter cost --modes async,group:3 --durability strict
  replimeter cost --modes semi-sync,galera --link-delay 0,1ms,10ms --threads 1
  replimeter cost --workload oltp-mix --data-size 100MB --threads 8 --json
  replimeter cost --modes async --self-test

Terms of the report:
  none     a standalone server without {log}, to which modes are compared
  added    latency of an operation, or CPU time, above that of the baseline
  × none   throughput relative to `none` of the same server
  block    a counted part of the load on one start (--block-duration)
  [3, 83]  the 95 % interval over starts and blocks; unknown: too few of them

Starts its own servers for each mode, and removes them; it never touches yours.";
    const OWN_SERVERS: Option<fn(&Arg) -> bool> = Some(|option| {
        [
            "server_options",
            "servers",
            "wait_point",
            "link_bandwidth",
            "client_link_delay",
            "flush_delay",
            "cpus_per_server",
            "hosts",
        ]
        .contains(&option.get_id().as_str())
    });

    type Settings = CostSettings;
    type Options = ();
    type Call = Call;
    type Accumulator = Accumulator;
    type Columns = CostBlocks;
    type Results = CostResults;

    fn target(command: Command) -> Command {
        with_both_wait_points(command)
    }

    fn starts(plan: &CostPlan) -> u32 {
        plan.starts
    }

    fn client(plan: &CostPlan) -> CoreUse {
        plan.cores
    }

    fn check(request: &Request<CostSettings>) -> Result<(), CliError> {
        load_of(&request.plan).map(drop)
    }

    fn effects(
        effects: &mut PlanEffects<'_>,
        request: &Request<CostSettings>,
    ) -> Result<(), CliError> {
        let plan = &request.plan;
        let mut known: Vec<String> = Vec::new();
        // A self-test uses the first mode only, with one number of threads and one link delay.
        let (tested, times) = match plan.self_test {
            Some(comparisons) => (1, 2 * comparisons * plan.starts),
            None => (plan.shapes.len(), plan.starts),
        };
        for shape in &plan.shapes[..tested] {
            let point = shape
                .wait_point
                .map_or_else(String::new, |point| format!(", {}", point.name()));
            let line = format!(
                "{}: {}{point}, {} times, and removes them",
                shape.mode,
                started(&shape.spec),
                times
            );
            if !known.contains(&line) {
                effects.servers(line.clone());
                known.push(line);
            }
        }
        if plan.self_test.is_none()
            && !plan
                .shapes
                .iter()
                .any(|shape| shape.mode.kind == LoggedMode::NONE)
        {
            effects.servers(format!("the baseline `none` of each binary, {times} times"));
        }
        if plan.skip_unavailable {
            effects.servers("modes that the installed servers do not support are left out");
        }
        effects.own_schema();
        let workload = workload(&plan.workload)?;
        let of = if plan.self_test.is_some() {
            1
        } else {
            plan.threads.len()
        };
        let threads: Vec<String> = plan.threads[..of].iter().map(ToString::to_string).collect();
        effects.load(format!(
            "{} with {} connections, back to back",
            workload.name,
            threads.join(", then ")
        ));
        let distances = if plan.self_test.is_some() {
            1
        } else {
            plan.link_delays.len().max(1)
        };
        let conditions = (of * distances) as u32;
        let times = plan
            .self_test
            .map_or(plan.shapes.len() as u32, |comparisons| 2 * comparisons);
        let once = plan.duration.0 + plan.warm_up.0 * plan.starts;
        effects.time_without_starts(once * conditions * times);
        Ok(())
    }

    fn run(cx: &mut RunContext<'_, Self>) -> Result<(), CliError> {
        let plan = cx.plan;
        let (workload, size) = load_of(plan)?;
        let (entries, left_out) = entries(cx.request, plan, &*cx.source())?;
        let before = machine::CoreTime::read();
        cx.warn(left_out.iter().map(|words| {
            Warning::new(
                WarningCode::ModeLeftOut,
                format!("a mode was left out: {words}"),
                "install what it needs, or name the modes (--modes)",
            )
        }));
        let mode = |entry: &CostEntry| MeasuredMode {
            engine: entry.engine(),
            mode: entry.mode(),
            label: entry.label(),
        };
        cx.take(Call::Modes {
            modes: entries.iter().map(mode).collect(),
            left_out,
        })?;
        let mut starts = Starts::new(plan, &workload, size);
        let result = match plan.self_test {
            None => starts.rounds(cx, &entries),
            Some(comparisons) => starts.self_test(cx, &entries[0], comparisons),
        };
        if Self::is_empty(&cx.accumulator) {
            let invalid = cx
                .accumulator
                .all
                .iter()
                .any(|condition| condition.totals.invalid > 0);
            return result.and(match invalid {
                true => Err(CliError::invalid(
                    "no valid blocks: semi-synchronous replication fell back in every block",
                    "use fewer threads, or find out why the replica does not acknowledge before the timeout",
                )),
                false => Ok(()),
            });
        }
        let idle = before
            .zip(machine::CoreTime::read())
            .and_then(|(before, after)| after.idle_share(before));
        if let Some(share) = idle {
            cx.take(Call::Idle(share))?;
        }
        result
    }

    fn accumulator(_: &Request<CostSettings>) -> Accumulator {
        Accumulator::default()
    }

    fn take(accumulator: &mut Accumulator, _: &CostPlan, call: Call, rows: &mut Rows<CostBlocks>) {
        accumulator.take(call, rows);
    }

    fn is_empty(accumulator: &Accumulator) -> bool {
        accumulator.all.iter().all(Condition::is_empty)
    }

    fn conclude(run: &mut Finished<'_, Self>, accumulator: Accumulator) -> Concluded<CostResults> {
        let plan = run.plan;
        let Accumulator {
            modes,
            left_out,
            all,
            limits,
            order,
            durability,
            compared,
            idle,
            ..
        } = accumulator;
        let self_test = plan
            .self_test
            .and(modes.first())
            .map(|mode| verdict(mode, plan, compared));
        let failure = &mut run.ended.failure;
        *failure = failure.take().or_else(|| invalid(&all, self_test.as_ref()));
        let rows = rows(&all, &limits, plan.durability.name());
        let warnings = &mut run.ended.warnings;
        warnings.extend(judge(plan, &all, &rows));
        if let (false, Some(share)) = (run.ended.keep_awake, idle.filter(|share| *share > 0.2)) {
            warnings.push(Warning::new(
                WarningCode::KeepAwakeOff,
                format!("this machine's cores were idle for {:.0} % of the run and were not kept awake: with few threads, every latency includes waking a core, and more servers can appear faster than one", share * 100.0),
                "use --keep-awake on",
            ));
        }
        let cut = failure.as_ref().filter(|failure| {
            matches!(failure.kind, FailureKind::Interrupted | FailureKind::Failed)
        });
        warnings.extend(cut.map(CliError::warning));
        let labels: Vec<&str> = modes.iter().map(|mode| mode.label.as_str()).collect();
        let took = Nanos(all.iter().map(|condition| condition.totals.counted.0).sum());
        Concluded {
            nothing: rows.iter().all(|row| row.throughput.mean.is_none()),
            target: run.target(
                labels.join(", "),
                modes.iter().map(|mode| mode.mode.clone()).collect(),
            ),
            measured_us: Some(run.ended.at.as_micros()),
            histograms: Some(Histograms {
                took,
                series: all.iter().map(Condition::latencies).collect(),
            }),
            results: CostResults {
                rows,
                durability,
                steps: steps(&all),
                order,
                self_test,
                left_out,
            },
            ..Concluded::default()
        }
    }

    fn headline(document: &CostDocument) -> String {
        answer(document)
    }

    fn stated(_: &CostSettings, results: &CostResults) -> StatedFigures {
        figures::stated(results)
    }

    fn figures(_: &CostDocument, samples: &SampleFile) -> Result<Figures, CliError> {
        figures::figures(samples)
    }

    fn report(document: &CostDocument, _: bool) -> Report {
        report(document)
    }

    fn charts(document: &CostDocument, _: &Path) -> Result<Vec<Chart>, HtmlError> {
        Ok(crate::cost::charts::charts(document))
    }
}

/// Returns the workload and its data size.
fn load_of(plan: &CostPlan) -> Result<(Workload, DataSize), CliError> {
    let workload = workload(&plan.workload)?;
    refuse_size(plan.data_size, std::slice::from_ref(&workload))?;
    let size = plan.data_size.unwrap_or_else(|| workload.default_size());
    Ok((workload, size))
}
