//! Buffers of activations that worker groups share.
//!
//! An update needs many times the memory of a small model's weights. Worker groups on the CPU therefore borrow buffers for as
//! long as they compute, and at most as many compute barriers at once as there are threads, which more of them would share.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::net::Pool;
use crate::net::ops::Ops;

/// Limit of the worker groups that compute barriers at once.
#[derive(Debug, Clone, Default)]
pub(crate) struct BarrierLimit(Option<Arc<FreePermits>>);

/// Number of free permits.
#[derive(Debug)]
struct FreePermits {
    count: Mutex<usize>,
    freed: Condvar,
}

/// Permit to compute a barrier, which is given back with the value.
pub(crate) struct BarrierPermit<'a>(Option<&'a FreePermits>);

impl BarrierLimit {
    /// Creates a limit; the default has none.
    pub(crate) fn new(count: usize) -> Self {
        Self(Some(Arc::new(FreePermits { count: Mutex::new(count), freed: Condvar::new() })))
    }

    /// Waits for a permit. Not for threads of the kernels, on which others give theirs back.
    pub(crate) fn acquire(&self) -> BarrierPermit<'_> {
        if let Some(free) = &self.0 {
            let count = free.count.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = free.freed.wait_while(count, |count| *count == 0);
            *waited.unwrap_or_else(PoisonError::into_inner) -= 1;
        }
        BarrierPermit(self.0.as_deref())
    }
}

impl Drop for BarrierPermit<'_> {
    fn drop(&mut self) {
        if let Some(free) = self.0 {
            *free.count.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            free.freed.notify_one();
        }
    }
}

/// Sets of buffers that nobody uses now. Clones share them.
#[derive(Debug)]
pub(crate) struct Pools<O: Ops>(Arc<Mutex<Vec<Pool<O>>>>);

impl<O: Ops> Clone for Pools<O> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<O: Ops> Default for Pools<O> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<O: Ops> Pools<O> {
    /// Lends the buffers that were given back last, or new ones if others use them all.
    pub(crate) fn lend(&self) -> LentPool<O> {
        let pool = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        LentPool { pool: pool.unwrap_or_default(), from: self.clone() }
    }
}

/// Buffers that are given back at the end.
pub(crate) struct LentPool<O: Ops> {
    pool: Pool<O>,
    from: Pools<O>,
}

impl<O: Ops> Deref for LentPool<O> {
    type Target = Pool<O>;

    fn deref(&self) -> &Pool<O> {
        &self.pool
    }
}

impl<O: Ops> DerefMut for LentPool<O> {
    fn deref_mut(&mut self) -> &mut Pool<O> {
        &mut self.pool
    }
}

/// Buffers have no state, so they are given back after a panic, too.
impl<O: Ops> Drop for LentPool<O> {
    fn drop(&mut self) {
        let mut all = self.from.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(mem::take(&mut self.pool));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;
    use crate::net::ops::Cpu;

    #[test]
    fn no_more_barriers_are_computed_at_once_than_the_limit_allows() {
        for (barriers, limit) in
            [(BarrierLimit::new(1), 1), (BarrierLimit::new(2), 2), (BarrierLimit::default(), 5)]
        {
            let [now, most] = [(); 2].map(|()| AtomicUsize::new(0));
            let work = || {
                let _permit = barriers.acquire();
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::yield_now();
                now.fetch_sub(1, Ordering::SeqCst);
            };
            thread::scope(|scope| {
                (0..5).for_each(|_| drop(scope.spawn(|| (0..20).for_each(|_| work()))));
            });
            assert_eq!(now.into_inner(), 0);
            assert!((1..=limit).contains(&most.into_inner()), "{limit} permits");
        }
    }

    #[test]
    fn there_are_as_many_sets_of_buffers_as_are_used_at_once() {
        let pools = Pools::<Cpu>::default();
        let count = || pools.0.lock().unwrap_or_else(PoisonError::into_inner).len();
        for _ in 0..3 {
            let mut one = pools.clone().lend();
            let buffer = one.take(1000);
            assert!(buffer.capacity() >= 1000);
            one.give([buffer]);
        }
        assert_eq!(count(), 1);
        let both = (pools.lend(), pools.lend());
        assert_eq!(count(), 0);
        drop(both);
        assert_eq!(count(), 2);
    }
}
