//! Ports for new connections of this machine.

use std::fs;

use replimeter_engine::source::{SourceError, SourceErrorKind};

/// Ports that must be free before a run with a connection for each request.
const MIN_PORTS: u64 = 1000;

/// Checks that enough local ports are free for a connection for each request. Ended connections do not count: the site closes them, so
/// that its own port waits for the end of their time, and a visitor can use its port again.
///
/// # Errors
/// When there are too few.
pub fn check_ports() -> Result<(), SourceError> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let free = free_ports(
        &read("/proc/sys/net/ipv4/ip_local_port_range"),
        &read("/proc/net/sockstat"),
    );
    match free {
        Some(free) if free < MIN_PORTS => Err(SourceError::new(
            SourceErrorKind::Usage,
            format!(
                "{free} local ports are free, and a connection for each request needs {MIN_PORTS}"
            ),
            "keep connections (--keep-alive on), end programs that have many connections, or widen net.ipv4.ip_local_port_range",
        )),
        _ => Ok(()),
    }
}

/// Returns the size of the range without the sockets that are open; `None` if unknown.
fn free_ports(range: &str, sockets: &str) -> Option<u64> {
    let mut ends = range.split_whitespace().map(str::parse::<u64>);
    let (first, last) = (ends.next()?.ok()?, ends.next()?.ok()?);
    let tcp = sockets
        .lines()
        .find_map(|line| line.strip_prefix("TCP: "))?;
    let words: Vec<&str> = tcp.split_whitespace().collect();
    let mut pairs = words.chunks_exact(2);
    let open = pairs.find(|pair| pair[0] == "inuse")?[1].parse().ok()?;
    Some((last + 1).checked_sub(first)?.saturating_sub(open))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOCKETS: &str =
        "sockets: used 200\nTCP: inuse 20 orphan 0 tw 980 alloc 30 mem 3\nUDP: inuse 1 mem 0\n";

    #[test]
    fn ports_of_open_connections_are_not_free() {
        assert_eq!(free_ports("32768\t60999\n", SOCKETS), Some(28232 - 20));
        assert_eq!(free_ports("32768 32777", SOCKETS), Some(0));
        assert_eq!(free_ports("", SOCKETS), None);
        assert_eq!(free_ports("32768 60999", "TCP: inuse x"), None);
    }
}
