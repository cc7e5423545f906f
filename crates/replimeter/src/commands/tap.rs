//! `replimeter tap`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::{PlanFile, Work};

use crate::{
    cli::TapArgs,
    failure::{Failure, unexpected},
    frame::Request,
    tap,
};

pub(crate) fn run(args: &TapArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let (target, passwords, warnings) = args.target.spec()?;
    let plan = PlanFile::tap(target, args.measure.spec()).resolve()?;
    let Work::Tap(work) = &plan.work else {
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
    tap::carry_out(request, args.stream, args.measure.every.is_some(), stop)
}
