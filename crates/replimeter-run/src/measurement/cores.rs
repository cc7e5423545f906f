//! How the client uses the cores, as far as the system permits.

use replimeter_instruments::{keep_awake::KeepAwake, priority::real_time_permitted};
use replimeter_model::warning::{Warning, WarningCode};

/// The reason for what the system does not permit.
pub(super) const REFUSED: &str = "the system refused it";

/// Returns whether measuring threads may have real-time priority; otherwise adds a warning.
pub(super) fn real_time(warnings: &mut Vec<Warning>) -> bool {
    let Err(reason) = real_time_permitted() else {
        return true;
    };
    warnings.push(Warning::new(
        WarningCode::ClientLimited,
        format!("the measuring threads have no real-time priority ({reason}): on busy cores they wait for the servers, which widens brackets"),
        "run as root or with CAP_SYS_NICE, raise the limit (ulimit -r 1), or accept it with --real-time off",
    ));
    false
}

/// Keeps idle cores awake, or adds a warning.
pub(super) fn keep_awake(warnings: &mut Vec<Warning>) -> Option<KeepAwake> {
    KeepAwake::start()
        .map_err(|reason| {
            warnings.push(Warning::new(
                WarningCode::ClientLimited,
                format!("idle cores could not be kept awake: {reason}; every latency includes waking a core"),
                "compare only with runs that also have this warning",
            ));
        })
        .ok()
}
