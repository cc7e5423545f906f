//! What every measurement is given on the command line besides its settings: servers, and where results go.

mod given;
mod output;
mod target;
pub mod topology_file;

pub use self::{
    given::Given,
    output::{Form, OutputArgs, Stream, StreamOutputArgs, SweepOutputArgs},
    target::{SandboxArgs, TargetArgs, UrlText, is_of_sandboxes, sandbox_options, target_of},
};
