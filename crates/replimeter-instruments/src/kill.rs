//! Ends connections of ours that hold something up.

use std::time::Duration;

use replimeter_engine::{Node, Session};

/// Has a server end these connections of ours, by their numbers there. Waits `patience` for each
/// answer; a server that does not let us cannot be helped.
pub(crate) fn kill(node: &Node, numbers: impl IntoIterator<Item = u64>, patience: Duration) {
    let Ok(mut session) = Session::open(&Node {
        answer: patience,
        ..node.clone()
    }) else {
        return;
    };
    for number in numbers {
        // It may have ended meanwhile.
        let _ = session.run("cannot end a connection", &format!("KILL {number}"));
    }
}
