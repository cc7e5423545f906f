//! `replimeter lag`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::PlanFile;

use crate::{
    cli::LagArgs,
    failure::Failure,
    measure::{self, Request},
};

pub(crate) fn run(args: &LagArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let (target, passwords, warnings) = args.target.spec()?;
    let plan = PlanFile::lag(target, args.measure.spec()).resolve()?;
    let request =
        Request { plan: &plan, passwords: &passwords, ask_password: args.target.ask_password, output: &args.output, warnings };
    measure::carry_out(request, stop)
}
