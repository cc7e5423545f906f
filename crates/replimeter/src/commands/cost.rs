//! `replimeter cost`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::Work;

use crate::{
    cli::CostArgs,
    cost,
    failure::{Failure, unexpected},
};

pub(crate) fn run(args: &CostArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let plan = args.plan().resolve()?;
    let Work::Cost(work) = &plan.work else {
        return Err(unexpected());
    };
    cost::carry_out(&plan, work, &args.output, Vec::new(), stop)
}
