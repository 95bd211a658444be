//! A bound on the time that a client can hold an answer.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// A connection that fails if the peer reads nothing for too long.
pub(crate) struct Patient<S> {
    stream: S,
    patience: Duration,
    /// Deadline of a pending write.
    write: Deadline,
    /// Deadline of a pending flush. It is another one: TCP has nothing to flush, so that its flushes succeed at once while a
    /// write is pending.
    flush: Deadline,
}

/// Deadline of an operation, while it is pending.
type Deadline = Option<Pin<Box<Sleep>>>;

impl<S> Patient<S> {
    pub(crate) fn new(stream: S, patience: Duration) -> Self {
        Self { stream, patience, write: None, flush: None }
    }
}

/// Returns the result of an operation, or a timeout error once it has been pending for too long.
fn check_deadline<T>(
    deadline: &mut Deadline,
    patience: Duration,
    context: &mut Context<'_>,
    done: Poll<io::Result<T>>,
) -> Poll<io::Result<T>> {
    if done.is_ready() {
        *deadline = None;
        return done;
    }
    let waits = deadline.get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + patience)));
    ready!(waits.as_mut().poll(context));
    Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
}

impl<S: AsyncRead + Unpin> AsyncRead for Patient<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Patient<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        check_deadline(&mut this.write, this.patience, context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let flushed = Pin::new(&mut this.stream).poll_flush(context);
        check_deadline(&mut this.flush, this.patience, context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, bytes);
        check_deadline(&mut this.write, this.patience, context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn a_flush_that_has_nothing_to_do_prolongs_no_write() {
        let (near, _far) = tokio::io::duplex(8);
        let patience = Duration::from_millis(50);
        let mut stream = Patient::new(near, patience);
        stream.write_all(&[0; 8]).await.unwrap();
        let begin = Instant::now();
        let failed = std::future::poll_fn(|context| {
            let mut stream = Pin::new(&mut stream);
            let written = stream.as_mut().poll_write(context, &[0]);
            assert!(stream.poll_flush(context).is_ready());
            written
        });
        assert_eq!(failed.await.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(begin.elapsed() >= patience);
    }
}
