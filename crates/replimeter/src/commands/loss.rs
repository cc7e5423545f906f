//! `replimeter loss`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::{PlanFile, Work};

use crate::{
    cli::LossArgs,
    failure::{Failure, unexpected},
    loss,
};

pub(crate) fn run(args: &LossArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    loss::check(&args.output)?;
    let (target, _, warnings) = args.target.spec()?;
    let plan = PlanFile::loss(target, args.measure.spec()).resolve()?;
    let Work::Loss(work) = &plan.work else { return Err(unexpected()) };
    loss::carry_out(&plan, work, &args.output, warnings, stop)
}
