//! Permits of episodes of several batches that are played at once.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// A number of permits of concurrent episodes. Waiting episodes of the lowest rank get a free permit first, and among these the
/// one that has waited longest.
#[derive(Debug)]
pub(super) struct Admission(Mutex<Permits>);

#[derive(Debug)]
struct Permits {
    /// Number of free permits; 0 while episodes wait.
    free: usize,
    /// Waiting episodes by rank and number.
    waiting: BTreeMap<(u64, u64), oneshot::Sender<EpisodePermit>>,
    /// Number of episodes that have waited.
    waited: u64,
}

/// Permit to play an episode, until it is dropped; empty after it was passed on.
#[derive(Debug)]
pub(super) struct EpisodePermit(Option<Arc<Admission>>);

impl Admission {
    pub(super) fn new(permits: NonZeroUsize) -> Self {
        let (waiting, waited) = (BTreeMap::new(), 0);
        Self(Mutex::new(Permits { free: permits.get(), waiting, waited }))
    }

    fn permits(&self) -> MutexGuard<'_, Permits> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a permit. Dropping the future gives up the place in the queue.
    pub(super) async fn acquire(self: Arc<Self>, rank: u64) -> EpisodePermit {
        let granted = {
            let mut permits = self.permits();
            if permits.free > 0 {
                permits.free -= 1;
                drop(permits);
                return EpisodePermit(Some(self));
            }
            let (sender, granted) = oneshot::channel();
            permits.waited += 1;
            let number = permits.waited;
            permits.waiting.insert((rank, number), sender);
            granted
        };
        granted.await.expect("`self` keeps the sender until a permit is sent")
    }

    /// Passes a permit on to the first waiting episode that still exists, or frees it.
    fn release(self: Arc<Self>) {
        loop {
            let next = {
                let mut permits = self.permits();
                let next = permits.waiting.pop_first();
                permits.free += usize::from(next.is_none());
                next
            };
            let Some((_, waiting)) = next else { return };
            match waiting.send(EpisodePermit(Some(Arc::clone(&self)))) {
                Ok(()) => return,
                Err(mut permit) => permit.0 = None,
            }
        }
    }
}

impl Drop for EpisodePermit {
    fn drop(&mut self) {
        if let Some(admission) = self.0.take() {
            admission.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn episodes_of_lower_rank_get_permits_first_and_who_gives_up_takes_none() {
        let admission = Arc::new(Admission::new(NonZeroUsize::MIN));
        let acquire = |rank| Box::pin(Arc::clone(&admission).acquire(rank));
        let first = acquire(9).await;
        let (mut late, mut gone, mut early, mut next) =
            (acquire(3), acquire(1), acquire(2), acquire(2));
        for waiting in [&mut late, &mut gone, &mut early, &mut next] {
            assert!(waiting.now_or_never().is_none());
        }
        drop(gone);
        drop(first);
        assert!((&mut late).now_or_never().is_none() && (&mut next).now_or_never().is_none());
        drop(early.await);
        assert!((&mut late).now_or_never().is_none());
        drop(next.await);
        drop(late.await);
        assert_eq!(admission.permits().free, 1);
    }
}
