//! Counts the connections of a running command.

use std::{collections::VecDeque, process::Child, thread, time::Duration};

use replimeter_engine::Node;

use crate::{LIMIT, session, value, wait_until};

/// Interval between two counts.
const INTERVAL: Duration = Duration::from_millis(20);
/// Counts in a row that a number must last: a connection that was closed counts until its server has noticed.
const LASTS: usize = 5;

fn count(user: &str) -> String {
    format!("SELECT COUNT(*) FROM information_schema.processlist WHERE user = '{user}'")
}

/// Waits until no server has a connection of an account: one that sends its binary log notices late that its client has gone.
///
/// # Panics
/// When that does not happen.
pub fn await_no_connections(nodes: &[&Node], user: &str) {
    wait_until("earlier connections have ended", LIMIT, || {
        let mut nodes = nodes.iter();
        nodes.all(|node| value(node, &count(user)).as_deref() == Some("0"))
    });
}

/// Waits for a command; returns the largest number of connections that an account had for some time, for each server.
///
/// # Panics
/// When a server gives no answer.
pub fn most_connections(nodes: &[&Node], user: &str, child: &mut Child) -> Vec<u64> {
    let count = count(user);
    let mut servers: Vec<_> = nodes
        .iter()
        .map(|node| (session(node), VecDeque::new(), 0))
        .collect();
    while child.try_wait().unwrap().is_none() {
        for (session, last, most) in &mut servers {
            let now: u64 = session
                .value("test", &count)
                .unwrap()
                .unwrap()
                .parse()
                .unwrap();
            last.push_back(now);
            if last.len() == LASTS {
                *most = last.iter().copied().min().unwrap_or(0).max(*most);
                last.pop_front();
            }
        }
        thread::sleep(INTERVAL);
    }
    servers.into_iter().map(|(_, _, most)| most).collect()
}
