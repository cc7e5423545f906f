//! `replimeter exposure`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::{PlanError, PlanFile, Work};

use crate::{
    cli::ExposureArgs,
    exposure,
    failure::{Failure, unexpected},
    frame::Request,
};

pub(crate) fn run(args: &ExposureArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let (target, passwords, warnings) = args.target.spec()?;
    let plan = PlanFile::exposure(target, args.measure.spec())
        .resolve()
        .map_err(refuse)?;
    let Work::Exposure(work) = &plan.work else {
        return Err(unexpected());
    };
    let request = Request {
        plan: &plan,
        work,
        passwords: &passwords,
        ask_password: args.target.ask_password,
        output: &args.output,
        warnings,
    };
    exposure::carry_out(request, stop)
}

fn refuse(error: PlanError) -> Failure {
    Failure::usage(
        error.to_string(),
        "`replimeter exposure --help` explains every setting",
    )
}
