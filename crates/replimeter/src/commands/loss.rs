//! `replimeter loss`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::{PlanError, PlanFile, Work};

use crate::{
    cli::LossArgs,
    failure::{Failure, unexpected},
    loss,
};

pub(crate) fn run(args: &LossArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let (target, _, warnings) = args.target.spec()?;
    let plan = PlanFile::loss(target, args.measure.spec())
        .resolve()
        .map_err(refuse)?;
    let Work::Loss(work) = &plan.work else {
        return Err(unexpected());
    };
    loss::carry_out(&plan, work, &args.output, warnings, stop)
}

fn refuse(error: PlanError) -> Failure {
    Failure::usage(
        error.to_string(),
        "`replimeter loss --help` explains every setting",
    )
}
