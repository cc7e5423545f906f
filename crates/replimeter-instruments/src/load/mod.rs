//! Load: connections that run a workload over and over, each on an ordinary thread of its
//! own; while something else is measured ([`BackgroundLoad`]) or by itself ([`Crew`]).
//!
//! A *closed loop* begins a thread's next operation when its last one is done, and so
//! slows down with the server. An *open loop* begins operations by a schedule; what
//! comes late is charged to it from its intended start (coordinated omission).

mod background;
mod check;
mod crew;
mod disk;
mod distribution;
mod file;
mod fill;
mod gauge;
mod insert;
mod made;
mod parse;
mod prepare;
mod program;
mod result;
mod script;
mod split;
mod tally;
mod trial;
mod value;
mod versions;
mod worker;
mod workload;

use replimeter_engine::{ErrorKind, ServerError, error::code};

use self::worker::DOING;
pub use self::{
    background::{BackgroundLoad, Running},
    check::{check, hold},
    crew::{Crew, Second, Squad, SquadSecond},
    fill::{DataSet, fill},
    gauge::{Gauged, Gauges},
    insert::Filled,
    result::SquadResult,
    split::ScriptError,
    tally::recording_cost,
    versions::{Told, VersionRead, VersionWrite, Versions},
    workload::{LARGEST_FILE, Workload},
};

/// The table that says which data sets are whole.
const SETS: &str = "load_data";
const FILLING: &str = "cannot create the data of the load";
/// Statements that a server in read-only mode, or a session of ours that only reads, refuses.
const READ_ONLY: [u16; 3] = [code::READ_ONLY, 1792, 1836];
/// A disk or a table is full: the error's own hint says what to do.
const DISK_FULL: [u16; 6] = [1021, 1026, 1030, 1114, 1180, 28];

/// Says which statement of which script an error is about.
fn about(mut error: ServerError, workload: &Workload, line: usize, excerpt: &str) -> ServerError {
    let read_only = matches!(error.kind, ErrorKind::Statement(code) if READ_ONLY.contains(&code));
    error.doing = format!("{DOING} {}", workload.name);
    error.cause = format!("line {line}, `{excerpt}`: {}", error.cause);
    if read_only {
        error.hint =
            "run only a load that reads on a replica, or name the primary after the @".to_owned();
    } else if matches!(error.kind, ErrorKind::Statement(code) if !DISK_FULL.contains(&code)) {
        error.hint =
            "correct the script: every statement must succeed once before the measurement (docs/load.md)".to_owned();
    }
    error
}
