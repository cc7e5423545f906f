//! Several starts of the servers: their number in recorded calls, where it is left out if it is the first one, and what a
//! report states about them.

/// Returns the number of the first start.
pub(crate) fn first() -> u32 {
    1
}

/// Returns whether it is the first start.
pub(crate) fn is_first(start: &u32) -> bool {
    *start == first()
}

/// Returns what the intervals of a run with this number of fresh starts cover, 0 for servers that ran already; `several` is
/// what they are with several starts.
pub(crate) fn covered(starts: u32, several: &str) -> String {
    match starts {
        0 => "The servers ran already: the intervals cover the time of this run, not restarts of the servers or other hours.".to_owned(),
        1 => "The servers were started once: the intervals do not cover the variation between starts.".to_owned(),
        starts => format!(
            "The servers of each shape were started {starts} times, and the starts share the rounds. Starts differ more than the rounds of one, so \
             {several}."
        ),
    }
}
