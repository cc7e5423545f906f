//! `replimeter compare`: do two runs differ?

use crate::{cli::CompareArgs, failure::Failure, run::Registry};

pub(crate) fn run(registry: &'static Registry, args: &CompareArgs) -> Result<(), Failure> {
    let (a, b) = match &args.sides[..] {
        [a, b] => (vec![a.clone()], vec![b.clone()]),
        [] if !args.a.is_empty() => (args.a.clone(), args.b.clone()),
        _ => {
            return Err(Failure::usage(
                "a comparison needs two sides",
                "name two run directories, such as `replimeter compare before after`, or sets of them with commas",
            ));
        }
    };
    crate::compare::run(registry, args, &a, &b)
}
