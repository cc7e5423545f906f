//! `replimeter run`: plans from files.

use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use replimeter_model::{
    plan::{Plan, PlanFile, Work},
    target::Passwords,
    warning::Warning,
};

use crate::{
    calibrate,
    cli::RunArgs,
    cost, exposure,
    failure::Failure,
    frame::{Request, plan_text},
    loading, loss, measure,
    print::{plain, print},
    scale, stale, tap, touches,
};

/// No plan comes near this, in bytes.
const LARGEST_PLAN: u64 = 1 << 20;

pub(crate) fn run(args: &RunArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let paths = files(&args.plans)?;
    let output = &args.output.output();
    if paths.len() > 1 && (output.json || output.csv || output.run_dir.is_some()) {
        return Err(Failure::usage(
            "--json, --csv and --run-dir are for a single plan",
            "carry out the plans one by one",
        ));
    }
    // Every plan is read and checked before the first is begun.
    let plans = paths
        .iter()
        .map(|path| read(path, args))
        .collect::<Result<Vec<_>, _>>()?;
    plans.iter().try_for_each(|(plan, ..)| {
        if !matches!(plan.work, Work::Lag(_)) {
            output.refuse_raw()?;
        }
        match &plan.work {
            Work::Lag(lag) => measure::check(&plan.targets, lag, output),
            Work::Load(work) => loading::check(work),
            Work::Cost(work) => cost::check(work),
            Work::Stale(work) => stale::check(plan, work),
            Work::Calibrate(_)
            | Work::Tap(_)
            | Work::Scale(_)
            | Work::Loss(_)
            | Work::Exposure(_) => Ok(()),
        }
    })?;
    let several = paths.len() > 1;
    for (number, (path, (plan, passwords, warnings))) in paths.iter().zip(plans).enumerate() {
        if args.dry_run {
            if several {
                let gap = if number == 0 { "" } else { "\n" };
                print(&plain(&format!("{gap}# {}\n", path.display())))?;
            }
            print(&plain(&format!(
                "{}\n{}",
                plan_text(&plan)?,
                touches::comments(&plan, output)?
            )))?;
            continue;
        }
        if several {
            // Nothing can be done about a closed standard error.
            let _ = writeln!(
                std::io::stderr(),
                "plan {} of {}: {}",
                number + 1,
                paths.len(),
                plain(&path.display().to_string())
            );
        }
        let (passwords, ask_password) = (&passwords, args.target.ask_password);
        let request = Request {
            plan: &plan,
            work: &plan.work,
            passwords,
            ask_password,
            output,
            warnings,
        };
        match &plan.work {
            Work::Lag(work) => measure::carry_out(request.to(work), stop)?,
            Work::Calibrate(work) => {
                calibrate::carry_out(&plan, work, output, request.warnings, stop)?
            }
            Work::Scale(work) => scale::carry_out(&plan, work, output, request.warnings, stop)?,
            Work::Tap(work) => tap::carry_out(request.to(work), None, false, stop)?,
            Work::Load(work) => loading::carry_out(request.to(work), stop)?,
            Work::Cost(work) => cost::carry_out(&plan, work, output, request.warnings, stop)?,
            Work::Stale(work) => stale::carry_out(request.to(work), stop)?,
            Work::Loss(work) => loss::carry_out(&plan, work, output, request.warnings, stop)?,
            Work::Exposure(work) => exposure::carry_out(request.to(work), stop)?,
        }
    }
    Ok(())
}

/// The plan files, those of folders in the order of their names.
fn files(named: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        let refuse = |reason: String| {
            Failure::usage(
                format!("cannot use the folder {}: {reason}", path.display()),
                "name a folder with plans (*.toml), such as plans/, or a plan file",
            )
        };
        let mut found = Vec::new();
        for entry in fs::read_dir(path).map_err(|error| refuse(error.to_string()))? {
            let inside = entry.map_err(|error| refuse(error.to_string()))?.path();
            if inside.extension().is_some_and(|ending| ending == "toml") && inside.is_file() {
                found.push(inside);
            }
        }
        if found.is_empty() {
            return Err(refuse("there is no plan (*.toml) in it".to_owned()));
        }
        found.sort();
        files.append(&mut found);
    }
    Ok(files)
}

fn read(path: &Path, args: &RunArgs) -> Result<(Plan, Passwords, Vec<Warning>), Failure> {
    let shown = path.display();
    let unreadable = |reason: String| {
        Failure::usage(
            format!("cannot read the plan {shown}: {reason}"),
            "plans of the published experiments are in plans/",
        )
    };
    let meta = fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
    if !meta.is_file() || meta.len() > LARGEST_PLAN {
        return Err(unreadable(
            "it is no ordinary file, or larger than a plan can be".to_owned(),
        ));
    }
    let text = fs::read_to_string(path).map_err(|error| unreadable(error.to_string()))?;
    let refuse = |error: replimeter_model::plan::PlanError| {
        Failure::usage(
            format!("{shown}: {error}"),
            "docs/plans.md lists every key; `replimeter run --dry-run` checks a plan",
        )
    };
    let mut file = PlanFile::from_toml(&text).map_err(refuse)?;
    let (target, passwords, warnings) = args.target.spec()?;
    if args.target.is_given() {
        file.target = target;
    } else {
        // What only refines a target refines the plan's own.
        file.target.server_options.extend(target.server_options);
        file.target.servers = target.servers.or(file.target.servers);
        file.target.replica_server = target.replica_server.or(file.target.replica_server);
        file.target.wait_point = target.wait_point.or(file.target.wait_point);
        file.target.wait_for_replicas = target.wait_for_replicas.or(file.target.wait_for_replicas);
        file.target.multi_primary |= target.multi_primary;
        file.target.link_delay = target.link_delay.or(file.target.link_delay);
        file.target.link_jitter = target.link_jitter.or(file.target.link_jitter);
        file.target.link_bandwidth = target.link_bandwidth.or(file.target.link_bandwidth);
        file.target.udf |= target.udf;
        file.target.federated |= target.federated;
        file.target.cpus_per_server = target.cpus_per_server.or(file.target.cpus_per_server);
        file.target.defaults_file = target.defaults_file.or(file.target.defaults_file);
    }
    Ok((
        file.resolve_from(&text).map_err(refuse)?,
        passwords,
        warnings,
    ))
}
