//! Reserves free TCP ports.

use std::{
    io,
    net::{Ipv4Addr, TcpListener, TcpStream},
};

/// Returns a loopback port that the system gives to no other process for a minute.
///
/// Binding port 0 and closing again would leave the port to the next process. A connection that was
/// accepted and closed by its listening side leaves the port in TIME_WAIT instead: the system no
/// longer assigns it, while a server that sets `SO_REUSEADDR`, as both engines do, can still bind
/// it. Two sandboxes starting at once therefore never get the same port; if another process binds
/// this very port on purpose, the server fails and is started again with another.
pub(crate) fn reserve() -> io::Result<u16> {
    // std sets SO_REUSEADDR on listeners.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let client = TcpStream::connect(address)?;
    let (accepted, _) = listener.accept()?;
    // The side that closes first keeps the TIME_WAIT: it must be the server's.
    drop(accepted);
    drop(client);
    Ok(address.port())
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeSet,
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn reserved_ports_differ_and_can_be_bound() {
        let ports: Vec<u16> = (0..50).map(|_| reserve().unwrap()).collect();
        assert_eq!(ports.iter().collect::<BTreeSet<_>>().len(), ports.len());
        for port in ports {
            // A process that another test is just starting holds copies of this process's sockets
            // until it executes its program.
            let deadline = Instant::now() + Duration::from_secs(5);
            while let Err(error) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                assert!(Instant::now() < deadline, "port {port}: {error}");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
