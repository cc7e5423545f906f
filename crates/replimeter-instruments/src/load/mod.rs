//! Load: connections that repeat a workload, which share a few threads with an event loop each; during another
//! measurement ([`BackgroundLoad`]) or alone ([`WorkerPool`]).
//!
//! A *closed loop* starts a connection's next operation when its last one is done, and so slows down with
//! the server. An *open loop* starts operations by a schedule; delays count from the intended start
//! (coordinated omission).

mod background;
mod batch;
mod channel;
mod check;
mod created_objects;
mod disk;
mod distribution;
mod event_loop;
mod file;
mod fill;
mod insert;
mod latency_recorder;
mod parse;
mod prepare;
mod program;
mod result;
pub mod results;
mod script;
pub mod settings;
mod settling;
mod split;
mod statistics;
mod trial;
mod value;
mod versions;
mod worker;
mod worker_pool;
mod workload;

use replimeter_engine::{ErrorClass, ServerError};

pub use self::{
    background::{BackgroundLoad, RunningLoad},
    check::{check, claim},
    event_loop::{LoopAccuracy, loop_accuracy},
    fill::{DataSet, fill, fill_sandbox},
    insert::FillProgress,
    latency_recorder::{IntervalLatencies, LatencyRecorders},
    result::GroupResult,
    settling::{Settled, Settling},
    split::ScriptError,
    statistics::recording_cost,
    versions::{VersionEvent, VersionRead, VersionWrite, Versions},
    worker_pool::{GroupProgress, LoadGroup, LoadProgress, WorkerPool, connection_limit},
    workload::{MAX_FILE_SIZE, Workload},
};

/// The table that lists complete data sets.
/// Operation named in a load's errors.
const OPERATION: &str = "cannot run the load";
const SETS: &str = "load_data";
const FILLING: &str = "cannot create the data of the load";

/// Adds the statement and, of a file, its line to an error.
fn about(mut error: ServerError, workload: &Workload, line: usize, excerpt: &str) -> ServerError {
    error.operation = format!("{OPERATION} {}", workload.name);
    let own = workload.is_built_in();
    let line = if own {
        String::new()
    } else {
        format!("line {line}, ")
    };
    error.cause = format!("{line}`{excerpt}`: {}", error.cause);
    let hint = match error.class() {
        Some(ErrorClass::ReadOnly) => {
            "run only a load that reads on a replica, or name the primary after the @"
        }
        // The hint of the error fits already.
        None | Some(ErrorClass::DiskFull | ErrorClass::CommitFailed) => return error,
        Some(_) if own => {
            "the workload is part of Replimeter: change the setting of the server that refuses the statement, or choose another workload"
        }
        Some(_) => "correct the script: every statement must succeed once before the measurement",
    };
    error.hint = hint.to_owned();
    error
}

#[cfg(test)]
mod tests {
    use replimeter_engine::ErrorKind;

    use super::*;

    #[test]
    fn refused_built_in_workload_does_not_blame_a_script() {
        let refused = |name: &str, of: Option<Workload>| {
            let mut error = ServerError::precondition("primary", "a:1", "", "refused", "");
            error.kind = ErrorKind::Statement(ErrorClass::Other);
            let workload = of.unwrap_or_else(|| Workload::named(name).unwrap());
            about(error, &workload, 3, "INSERT")
        };
        for name in ["insert", "mix"] {
            let error = refused(name, None);
            assert!(error.hint.contains("part of Replimeter"), "{error:?}");
            assert_eq!(error.cause, "`INSERT`: refused");
        }
        let script = Workload::parse("x.sql", "SELECT 1").unwrap();
        let error = refused("", Some(script));
        assert!(error.hint.contains("correct the script"), "{error:?}");
        assert_eq!(error.cause, "line 3, `INSERT`: refused");
    }
}
