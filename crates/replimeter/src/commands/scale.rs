//! `replimeter scale`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::Work;

use crate::{
    cli::ScaleArgs,
    failure::{Failure, unexpected},
    scale,
};

pub(crate) fn run(args: &ScaleArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let plan = args.plan().resolve()?;
    let Work::Scale(work) = &plan.work else {
        return Err(unexpected());
    };
    scale::carry_out(&plan, work, &args.output, Vec::new(), stop)
}
