//! Sockets that do not block, to servers.

use std::{
    io,
    net::SocketAddr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
};

use rustix::{
    io::{Errno, ioctl_fionbio},
    net::{
        AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect,
        ipproto::TCP,
        socket_with,
        sockopt::{self, Timeout},
    },
};

use crate::node::{
    CONNECT, KEEPALIVE_AFTER, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, Node, UNACKNOWLEDGED,
};

/// Where a server listens.
#[derive(Clone, Debug)]
pub(crate) enum Address {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// Begins to connect: the socket becomes writable when this is done.
pub(crate) fn start(node: &Node, address: &Address) -> io::Result<OwnedFd> {
    match address {
        Address::Tcp(address) => start_tcp(node, address),
        Address::Unix(path) => connect_unix(path),
    }
}

/// Begins to connect over TCP.
fn start_tcp(node: &Node, address: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let open = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        socket_with(family, SocketType::STREAM, flags, Some(TCP))
    };
    let socket: OwnedFd = match &node.namespace {
        Some(namespace) => namespace.run(open)??,
        None => open()?,
    };
    sockopt::set_tcp_nodelay(&socket, true)?;
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, KEEPALIVE_AFTER)?;
    sockopt::set_tcp_keepintvl(&socket, KEEPALIVE_INTERVAL)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVE_PROBES)?;
    let unacknowledged = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(&socket, unacknowledged)?;
    match connect(&socket, address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(error) => Err(error.into()),
    }
}

/// Connects to a Unix socket. A full queue of the server is waited for here: the system reports no event when it has room.
fn connect_unix(path: &Path) -> io::Result<OwnedFd> {
    let socket = socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    sockopt::set_socket_timeout(&socket, Timeout::Send, Some(CONNECT))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    ioctl_fionbio(&socket, true)?;
    Ok(socket)
}
