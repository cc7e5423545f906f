//! What every measurement is given on the command line besides its settings: servers, and where results go.

mod command_line;
mod output;
mod target;
pub mod topology_file;

pub use self::{
    command_line::CommandLineSettings,
    output::{OutputArgs, OutputFormat, StreamFormat, StreamOutputArgs, SweepOutputArgs},
    target::{SandboxArgs, TargetArgs, UrlText, is_sandbox_option, sandbox_options, target_of},
};
