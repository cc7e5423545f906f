//! Kills connections of Replimeter that block.

use std::time::Duration;

use replimeter_engine::{Node, Session};

/// Kills these connections, by their numbers on the server. Waits up to `patience` for each answer; a
/// refusal is ignored.
pub fn kill(node: &Node, numbers: impl IntoIterator<Item = u64>, patience: Duration) {
    let Ok(mut session) = Session::open(&Node {
        answer: patience,
        ..node.clone()
    }) else {
        return;
    };
    for number in numbers {
        // It may have ended by now.
        let _ = session.run("cannot end a connection", &format!("KILL {number}"));
    }
}
