//! The MCS lock: a queue of nodes, in which each waiter spins on its own node. FIFO.
//!
//! Source: J. M. Mellor-Crummey and M. L. Scott, "Algorithms for scalable synchronization
//! on shared-memory multiprocessors", ACM TOCS 9(1), 1991, algorithm 5. Linux's qspinlock builds
//! on it.

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use super::{Padded, RawLock, spin_until};

/// An MCS lock: the tail of the queue, null if the lock is free.
#[derive(Default)]
pub struct Mcs {
    tail: Padded<AtomicPtr<Node>>,
}

/// A thread's place in the queue.
#[derive(Default)]
#[repr(align(128))]
pub struct Node {
    next: AtomicPtr<Node>,
    waits: AtomicBool,
}

impl RawLock for Mcs {
    type Node = Node;

    #[inline]
    unsafe fn lock(&self, node: &Node, stop: &AtomicBool) -> bool {
        node.next.store(ptr::null_mut(), Ordering::Relaxed);
        node.waits.store(true, Ordering::Relaxed);
        let me = ptr::from_ref(node).cast_mut();
        // Release publishes the node's fields; acquire sees the predecessor's fields.
        let previous = self.tail.0.swap(me, Ordering::AcqRel);
        // SAFETY: a non-null tail is a node in the queue. The caller keeps nodes alive as long
        // as any thread uses the lock, and a node is accessed by shared reference only.
        let Some(previous) = (unsafe { previous.as_ref() }) else { return true };
        previous.next.store(me, Ordering::Release);
        spin_until(stop, || !node.waits.load(Ordering::Acquire))
    }

    #[inline]
    unsafe fn unlock(&self, node: &Node) {
        let me = ptr::from_ref(node).cast_mut();
        let mut next = node.next.load(Ordering::Acquire);
        if next.is_null() {
            let free = ptr::null_mut();
            if self.tail.0.compare_exchange(me, free, Ordering::Release, Ordering::Relaxed).is_ok()
            {
                return;
            }
            // A successor is between its swap and its link. It does not check the stop flag there,
            // so this loop ends.
            while next.is_null() {
                std::hint::spin_loop();
                next = node.next.load(Ordering::Acquire);
            }
        }
        // SAFETY: the successor's node is alive as above, even if the successor gave up.
        unsafe { &*next }.waits.store(false, Ordering::Release);
    }
}
