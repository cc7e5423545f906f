//! A visitor's connection, which ends if the visitor does not take an answer.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until},
};

/// How long a visitor may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeLimits {
    /// Time without a byte that is taken.
    pub(crate) byte: Duration,
    /// Time for a whole answer, from the first byte for which there is no room.
    pub(crate) answer: Duration,
}

/// A connection whose writes fail after these limits.
pub(crate) struct VisitorStream {
    stream: TcpStream,
    limits: TakeLimits,
    waiting: Option<WaitingAnswer>,
}

/// An answer for whose bytes there is no room.
struct WaitingAnswer {
    end: Instant,
    /// At the next limit.
    alarm: Pin<Box<Sleep>>,
}

impl VisitorStream {
    pub(crate) fn new(stream: TcpStream, limits: TakeLimits) -> Self {
        Self {
            stream,
            limits,
            waiting: None,
        }
    }

    /// Begins to wait if nothing was taken, and fails at a limit.
    fn limited(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let next = || Instant::now() + self.limits.byte;
        if written.is_ready() {
            if let Some(WaitingAnswer { end, alarm }) = &mut self.waiting {
                alarm.as_mut().reset(next().min(*end));
            }
            return written;
        }
        let waiting = self.waiting.get_or_insert_with(|| {
            let end = Instant::now() + self.limits.answer;
            let alarm = Box::pin(sleep_until(next().min(end)));
            WaitingAnswer { end, alarm }
        });
        match waiting.alarm.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for VisitorStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for VisitorStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.limited(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// Called when all bytes of the answers so far were taken.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.waiting = None;
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
