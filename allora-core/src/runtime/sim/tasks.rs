//! The tasks, and the list of those that are ready.

use futures::future::BoxFuture;
use std::{
    fmt, mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
};

/// The key of a task: a slot, and a number that the slot's next task does not share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) slot: usize,
    pub(super) serial: u64,
}

/// The future that `block_on` was given is not in the list, but it is woken like a task.
pub(super) const MAIN: Key = Key { slot: usize::MAX, serial: 0 };

/// The tasks that were woken and not polled yet. The list is separate from the rest of the state,
/// so that wakers may be called from anywhere and keep nothing alive.
#[derive(Debug, Default)]
pub(super) struct Ready(Mutex<Vec<Key>>);

impl Ready {
    pub(super) fn list(&self) -> MutexGuard<'_, Vec<Key>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The target of a waker.
#[derive(Debug)]
pub(super) struct Wakeup {
    key: Key,
    /// The task is in the list, or held back while the node is paused.
    woken: AtomicBool,
    ready: Arc<Ready>,
}

impl Wakeup {
    /// Woken from the start: a task is polled once before its first wake-up.
    pub(super) fn new(key: Key, ready: &Arc<Ready>) -> Arc<Self> {
        ready.list().push(key);
        Arc::new(Self { key, woken: AtomicBool::new(true), ready: Arc::clone(ready) })
    }

    /// Marks the start of a poll: a wake-up from then on counts again.
    pub(super) fn polled(&self) {
        self.woken.store(false, Ordering::Release);
    }
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.ready.list().push(self.key);
        }
    }
}

pub(super) struct Task {
    pub(super) node: usize,
    pub(super) future: BoxFuture<'static, ()>,
    pub(super) waker: Waker,
    pub(super) wakeup: Arc<Wakeup>,
    /// Woken while its node was paused.
    held: bool,
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("node", &self.node)
            .field("held", &self.held)
            .finish_non_exhaustive()
    }
}

/// A slot is empty while its task is being polled; only then is it not in `free`.
#[derive(Debug, Default)]
pub(super) struct Tasks {
    slots: Vec<(u64, Option<Task>)>,
    free: Vec<usize>,
    serial: u64,
}

impl Tasks {
    pub(super) fn add(&mut self, node: usize, future: BoxFuture<'static, ()>, ready: &Arc<Ready>) {
        self.serial += 1;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => {
                self.slots.push((0, None));
                self.slots.len() - 1
            }
        };
        let wakeup = Wakeup::new(Key { slot, serial: self.serial }, ready);
        let task =
            Task { node, future, waker: Waker::from(Arc::clone(&wakeup)), wakeup, held: false };
        self.slots[slot] = (self.serial, Some(task));
    }

    /// Removes a task for its poll; `None` if it has ended.
    pub(super) fn take(&mut self, key: Key) -> Option<Task> {
        let (serial, task) = &mut self.slots[key.slot];
        task.take_if(|_| *serial == key.serial)
    }

    /// Returns a task to its slot after a poll.
    pub(super) fn put(&mut self, key: Key, task: Task) {
        self.slots[key.slot].1 = Some(task);
    }

    /// Frees the slot of a task that ended in a poll.
    pub(super) fn ended(&mut self, key: Key) {
        self.free.push(key.slot);
    }

    /// Keeps a woken task until its node continues.
    pub(super) fn hold(&mut self, key: Key, mut task: Task) {
        task.held = true;
        self.put(key, task);
    }

    /// Releases the tasks of a node that continues.
    pub(super) fn release(&mut self, node: usize, ready: &Ready) {
        let mut ready = ready.list();
        for (slot, (serial, task)) in self.slots.iter_mut().enumerate() {
            let Some(task) = task.as_mut().filter(|task| task.node == node) else { continue };
            if mem::take(&mut task.held) {
                ready.push(Key { slot, serial: *serial });
            }
        }
    }

    /// Removes the tasks of this node, or all, so that the caller drops them without a lock: their
    /// destructors may run user code.
    pub(super) fn remove(&mut self, node: Option<usize>) -> Vec<Task> {
        let mut removed = Vec::new();
        for (slot, (_, task)) in self.slots.iter_mut().enumerate() {
            if let Some(task) = task.take_if(|task| node.is_none_or(|node| node == task.node)) {
                self.free.push(slot);
                removed.push(task);
            }
        }
        removed
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}
