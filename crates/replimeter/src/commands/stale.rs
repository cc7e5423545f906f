//! `replimeter stale`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::{PlanFile, Work};

use crate::{
    cli::StaleArgs,
    failure::{Failure, unexpected},
    frame::Request,
    stale,
};

pub(crate) fn run(args: &StaleArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let (target, passwords, warnings) = args.target.spec()?;
    let plan = PlanFile::stale(target, args.spec()).resolve()?;
    let Work::Stale(work) = &plan.work else {
        return Err(unexpected());
    };
    stale::check(&plan, work)?;
    let (passwords, ask_password, output) = (&passwords, args.target.ask_password, &args.output);
    stale::carry_out(
        Request {
            plan: &plan,
            work,
            passwords,
            ask_password,
            output,
            warnings,
        },
        stop,
    )
}
