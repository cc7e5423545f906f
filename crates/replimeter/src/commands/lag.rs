//! `replimeter lag`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::{PlanFile, Work};

use crate::{
    cli::LagArgs,
    failure::{Failure, unexpected},
    frame::Request,
    measure,
};

pub(crate) fn run(args: &LagArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let (target, passwords, warnings) = args.target.spec()?;
    let plan = PlanFile::lag(target, args.load.fill(args.measure.spec())).resolve()?;
    let Work::Lag(work) = &plan.work else {
        return Err(unexpected());
    };
    let (ask_password, output) = (args.target.ask_password, &args.output.output());
    measure::carry_out(
        Request {
            plan: &plan,
            work,
            passwords: &passwords,
            ask_password,
            output,
            warnings,
        },
        stop,
    )
}
