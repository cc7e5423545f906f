//! A socket that does not block, with or without TLS.

use std::{
    io::{self, ErrorKind, IoSlice, Read, Write},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use rustix::{
    io::{Errno, writev},
    net::{RecvFlags, SendFlags, getpeername, recv, send, sockopt},
};
use rustls::ClientConnection;

use crate::{
    node::Node,
    socket::{self, Address},
};

/// A connection to a server. Operations that would block return [`ErrorKind::WouldBlock`].
pub(super) struct Stream {
    socket: Socket,
    tls: Option<Box<ClientConnection>>,
}

struct Socket(OwnedFd);

impl Read for Socket {
    #[inline]
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&self.0, buffer, RecvFlags::empty())?.0)
    }
}

impl Write for Socket {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    // TLS sends several records at once.
    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Ok(writev(&self.0, parts)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Stream {
    /// Begins to connect: the socket becomes writable when this is done.
    pub(super) fn start(node: &Node, address: &Address) -> io::Result<Self> {
        Ok(Self {
            socket: Socket(socket::start(node, address)?),
            tls: None,
        })
    }

    /// Returns whether the socket is connected; fails when it cannot be.
    pub(super) fn connected(&self) -> io::Result<()> {
        sockopt::socket_error(&self.socket.0)??;
        match getpeername(&self.socket.0) {
            Ok(_) => Ok(()),
            Err(Errno::NOTCONN) => Err(ErrorKind::WouldBlock.into()),
            Err(error) => Err(error.into()),
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
        self.socket.0.as_fd()
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
fn flush(tls: &mut ClientConnection, socket: &mut Socket) -> io::Result<()> {
    while tls.wants_write() {
        retried(|| tls.write_tls(socket))?;
    }
    Ok(())
}

/// Receives a part of what the peer has sent.
fn receive(tls: &mut ClientConnection, socket: &mut Socket) -> io::Result<()> {
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
