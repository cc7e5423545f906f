//! Packets of a login, which are read whole.

use std::{
    future::poll_fn,
    io::{self, ErrorKind as Io},
    task::Poll,
};

use super::{login::LoginError, stream::Stream};

/// Maximum length of a packet of the login.
const MAX_LOGIN_PACKET: usize = 64 << 10;

/// Repeats an operation that would block, each time the future is polled.
pub(super) async fn unblocked<T>(mut operation: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    poll_fn(|_| match operation() {
        Err(error) if error.kind() == Io::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    })
    .await
}

/// Why a connection is not logged in.
pub(super) enum LoginFailure {
    Io(io::Error),
    Login(LoginError),
}

impl From<io::Error> for LoginFailure {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<LoginError> for LoginFailure {
    fn from(error: LoginError) -> Self {
        Self::Login(error)
    }
}

/// Packets of the login, which are kept whole.
#[derive(Default)]
pub(super) struct Packets {
    pub(super) received: Vec<u8>,
    /// The number of the next packet.
    sequence: u8,
}

impl Packets {
    /// Returns the next packet's payload, without its header.
    pub(super) async fn receive(&mut self, stream: &mut Stream) -> Result<Vec<u8>, LoginFailure> {
        loop {
            if let [a, b, c, sequence, payload @ ..] = self.received.as_slice() {
                let length = u32::from_le_bytes([*a, *b, *c, 0]) as usize;
                if *sequence != self.sequence {
                    return Err(
                        LoginError::Malformed("a packet of the login is out of order").into(),
                    );
                }
                if length > MAX_LOGIN_PACKET {
                    return Err(LoginError::Malformed("a packet of the login is too long").into());
                }
                if let Some(payload) = payload.get(..length) {
                    let payload = payload.to_vec();
                    self.received.drain(..4 + length);
                    self.sequence = self.sequence.wrapping_add(1);
                    return Ok(payload);
                }
            }
            let received = &mut self.received;
            let count = unblocked(|| {
                let mut buffer = [0; 4096];
                let count = stream.read(&mut buffer)?;
                received.extend_from_slice(&buffer[..count]);
                Ok(count)
            })
            .await?;
            if count == 0 {
                return Err(io::Error::from(Io::UnexpectedEof).into());
            }
        }
    }

    pub(super) async fn send(
        &mut self,
        stream: &mut Stream,
        payload: &[u8],
    ) -> Result<(), LoginFailure> {
        let length = u32::try_from(payload.len())
            .unwrap_or(u32::MAX)
            .to_le_bytes();
        let header = [length[0], length[1], length[2], self.sequence];
        let bytes = [&header, payload].concat();
        self.sequence = self.sequence.wrapping_add(1);
        let mut sent = 0;
        Ok(unblocked(|| stream.write(&bytes, &mut sent)).await?)
    }
}
