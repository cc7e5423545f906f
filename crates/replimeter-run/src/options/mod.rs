//! Options of every measurement besides its settings: its servers, and the destination of its results.

mod command_line;
mod form;
mod output;
mod target;
pub mod topology_file;

pub use self::{
    command_line::CommandLineSettings,
    form::{FormArgs, OutputForm, raw_option},
    output::{OutputArgs, StreamForm},
    target::{
        SandboxArgs, TargetArgs, UrlText, is_sandbox_option, one_target, sandbox_options,
        target_of, with_both_wait_points, with_help,
    },
};
