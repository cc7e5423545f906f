//! Kills Replimeter's own connections that block a run.

use std::time::Duration;

use replimeter_engine::{Node, Session};

/// Makes a server end these connections, by their ids. Waits up to `patience` for each answer; errors are
/// ignored.
pub(crate) fn kill(node: &Node, numbers: impl IntoIterator<Item = u64>, patience: Duration) {
    let Ok(mut session) = Session::open(&Node {
        answer: patience,
        ..node.clone()
    }) else {
        return;
    };
    for number in numbers {
        // It may have ended in the meantime.
        let _ = session.run("cannot end a connection", &format!("KILL {number}"));
    }
}
