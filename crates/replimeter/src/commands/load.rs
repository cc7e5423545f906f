//! `replimeter load`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::{PlanFile, Work};

use crate::{
    cli::LoadingArgs,
    failure::{Failure, unexpected},
    frame::Request,
    loading,
};

pub(crate) fn run(args: &LoadingArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let (target, passwords, warnings) = args.target.spec()?;
    let plan = PlanFile::load(target, args.measure.spec()).resolve()?;
    let Work::Load(work) = &plan.work else {
        return Err(unexpected());
    };
    loading::check(work)?;
    let (passwords, ask_password, output) = (&passwords, args.target.ask_password, &args.output);
    loading::carry_out(
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
