//! A socket that does not block, with or without TLS.

use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, connect, ipproto::TCP, socket_with, sockopt,
};
use rustls::ClientConnection;

use crate::node::{KEEPALIVE_AFTER, KEEPALIVE_INTERVAL, KEEPALIVE_PROBES, Node, UNACKNOWLEDGED};

/// A connection to a server. Operations that would block return [`ErrorKind::WouldBlock`].
pub(super) struct Stream {
    socket: TcpStream,
    tls: Option<Box<ClientConnection>>,
}

impl Stream {
    /// Begins to connect: the socket becomes writable when this is done.
    pub(super) fn start(node: &Node, address: &SocketAddr) -> io::Result<Self> {
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
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        Ok(Self {
            socket: socket.into(),
            tls: None,
        })
    }

    /// Returns whether the socket is connected; fails when it cannot be.
    pub(super) fn connected(&self) -> io::Result<()> {
        if let Some(error) = self.socket.take_error()? {
            return Err(error);
        }
        match self.socket.peer_addr() {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotConnected => {
                Err(ErrorKind::WouldBlock.into())
            }
            Err(error) => Err(error),
        }
    }

    /// Begins TLS; [`handshake`](Self::handshake) completes it.
    pub(super) fn encrypt(&mut self, connection: ClientConnection) {
        self.tls = Some(Box::new(connection));
    }

    /// Returns whether the connection is encrypted.
    pub(super) fn encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Continues the handshake of TLS.
    pub(super) fn handshake(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return Ok(());
        };
        loop {
            let wrote = flush(tls, &mut self.socket);
            if !tls.is_handshaking() {
                return wrote;
            }
            // What cannot be sent yet does not keep from reading.
            if let Err(error) = wrote
                && error.kind() != ErrorKind::WouldBlock
            {
                return Err(error);
            }
            receive(tls, &mut self.socket)?;
        }
    }

    /// Reads bytes; 0 at the end of the connection.
    #[inline]
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else {
            return retried(|| self.socket.read(buffer));
        };
        loop {
            match tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // Some servers close without saying so in TLS.
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(0),
                done => return done,
            }
            receive(tls, &mut self.socket)?;
        }
    }

    /// Sends bytes from `sent` on, which it advances.
    #[inline]
    pub(super) fn write(&mut self, bytes: &[u8], sent: &mut usize) -> io::Result<()> {
        if let Some(tls) = &mut self.tls {
            if *sent < bytes.len() {
                tls.writer().write_all(&bytes[*sent..])?;
                *sent = bytes.len();
            }
            return flush(tls, &mut self.socket);
        }
        while *sent < bytes.len() {
            match retried(|| self.socket.write(&bytes[*sent..]))? {
                0 => return Err(ErrorKind::WriteZero.into()),
                count => *sent += count,
            }
        }
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// Sends what TLS has to send.
fn flush(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    while tls.wants_write() {
        retried(|| tls.write_tls(socket))?;
    }
    Ok(())
}

/// Receives a part of what the peer has sent.
fn receive(tls: &mut ClientConnection, socket: &mut TcpStream) -> io::Result<()> {
    if retried(|| tls.read_tls(socket))? == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    if let Err(error) = tls.process_new_packets() {
        // The peer is told why, if it listens.
        let _ = flush(tls, socket);
        return Err(io::Error::new(ErrorKind::InvalidData, error));
    }
    Ok(())
}
