//! `replimeter calibrate`: a plan from the command line, carried out.

use std::sync::{Arc, atomic::AtomicBool};

use replimeter_model::plan::Work;

use crate::{
    calibrate,
    cli::CalibrateArgs,
    failure::{Failure, unexpected},
};

pub(crate) fn run(args: &CalibrateArgs, stop: &Arc<AtomicBool>) -> Result<(), Failure> {
    let plan = args.plan().resolve()?;
    let Work::Calibrate(work) = &plan.work else {
        return Err(unexpected());
    };
    calibrate::carry_out(&plan, work, &args.output, Vec::new(), stop)
}
