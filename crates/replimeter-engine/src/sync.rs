//! Helpers for state that threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, also after a panic in another thread: shared state is consistent between any two statements.
#[inline]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
