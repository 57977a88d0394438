//! The state that the nodes of one simulation share, and the loop that advances it.

use super::{
    clock::{Clock, delta},
    rng::{Rng, Trace},
    tasks::{Key, MAIN, Ready, Task, Tasks, Wakeup},
    timers::Timers,
};
use crate::time::Time;
use futures::future::BoxFuture;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
    time::Instant,
};

/// A number of polls at one instant that no test needs.
pub(super) const ENDLESS: u64 = 10_000_000;

#[derive(Debug)]
pub(super) struct World {
    pub(super) seed: u64,
    pub(super) start: Time,
    /// The reading of the monotonic clocks at the start.
    pub(super) base: Instant,
    ready: Arc<Ready>,
    driven: AtomicBool,
    state: Mutex<State>,
}

/// Times are nanoseconds since the start.
#[derive(Debug)]
pub(super) struct State {
    pub(super) time: u64,
    order: Rng,
    pub(super) trace: Trace,
    pub(super) steps: u64,
    steps_before_this_instant: u64,
    pub(super) nodes: Vec<Node>,
    tasks: Tasks,
    pub(super) timers: Timers,
    closed: bool,
}

#[derive(Debug)]
pub(super) struct Node {
    life: Life,
    pub(super) clock: Clock,
    pub(super) rng: Rng,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Running,
    Paused,
    Crashed,
}

/// The next step of the simulation.
enum Turn {
    Main,
    Task(Key, Task),
    Fired,
    Nothing,
}

impl World {
    pub(super) fn new(seed: u64, start: Time, base: Instant) -> Self {
        let state = State {
            time: 0,
            order: Rng::new(seed, u64::MAX),
            trace: Trace::default(),
            steps: 0,
            steps_before_this_instant: 0,
            nodes: Vec::new(),
            tasks: Tasks::default(),
            timers: Timers::default(),
            closed: false,
        };
        Self {
            seed,
            start,
            base,
            ready: Arc::default(),
            driven: AtomicBool::new(false),
            state: Mutex::new(state),
        }
    }

    /// Locks the state. The lock is never held while user code runs: a poll, a waker, a destructor.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The virtual time `time` nanoseconds after the start.
    pub(super) fn wall(&self, time: u64) -> Time {
        self.start.checked_add_signed(delta(time.into())).unwrap_or(Time::MAX_UTC)
    }

    pub(super) fn spawn(&self, node: usize, future: BoxFuture<'static, ()>) {
        let mut state = self.state();
        if !state.closed && state.nodes[node].life != Life::Crashed {
            state.tasks.add(node, future, &self.ready);
        }
    }

    pub(super) fn pause(&self, node: usize, suspend: bool) {
        let mut state = self.state();
        let now = state.time;
        let node = &mut state.nodes[node];
        if node.life != Life::Crashed {
            node.life = Life::Paused;
            if suspend {
                node.clock.suspend(now);
            }
        }
    }

    pub(super) fn resume(&self, node: usize) {
        let mut state = self.state();
        let State { time, nodes, tasks, timers, .. } = &mut *state;
        let Node { life: life @ Life::Paused, clock, .. } = &mut nodes[node] else { return };
        *life = Life::Running;
        clock.resume(*time);
        timers.requeue(node, |at| clock.due(at));
        tasks.release(node, &self.ready);
    }

    pub(super) fn crash(&self, node: usize) {
        let tasks = {
            let mut state = self.state();
            state.nodes[node].life = Life::Crashed;
            state.tasks.remove(Some(node))
        };
        drop(tasks);
    }

    /// Ends the simulation. It breaks the cycle of references: tasks hold nodes, and nodes hold the
    /// world.
    pub(super) fn close(&self) {
        let tasks = {
            let mut state = self.state();
            state.closed = true;
            state.tasks.remove(None)
        };
        drop(tasks);
    }
}

/// The loop.
impl World {
    pub(super) fn block_on<T>(&self, mut future: Pin<&mut dyn Future<Output = T>>) -> T {
        let wakeup = Wakeup::new(MAIN, &self.ready);
        let waker = Waker::from(Arc::clone(&wakeup));
        let output = self.drive(u64::MAX, || {
            wakeup.polled();
            match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            }
        });
        output.unwrap_or_else(|| {
            let waiting = self.state().waiting();
            self.fail(&format!("deadlock: {waiting}"))
        })
    }

    pub(super) fn run_until(&self, limit: u64) {
        // The waker of an earlier `block_on` may still be called. Its future does not exist any
        // more.
        let _: Option<()> = self.drive(limit, || None);
        let mut state = self.state();
        state.time = state.time.max(limit);
    }

    /// Runs until the main future is done, or no event is left up to the limit.
    fn drive<T>(&self, limit: u64, mut main: impl FnMut() -> Option<T>) -> Option<T> {
        let _driving = Driving::new(self);
        let mut fired = Vec::new();
        loop {
            match self.turn(limit, &mut fired) {
                Turn::Main => match catch_unwind(AssertUnwindSafe(&mut main)) {
                    Ok(Some(output)) => return Some(output),
                    Ok(None) => {}
                    Err(panic) => self.fail(text_of(&*panic)),
                },
                Turn::Task(key, task) => self.poll(key, task),
                Turn::Fired => fired.drain(..).for_each(Waker::wake),
                Turn::Nothing => return None,
            }
        }
    }

    fn turn(&self, limit: u64, fired: &mut Vec<Waker>) -> Turn {
        let mut state = self.state();
        while let Some(key) = self.pick(&mut state.order) {
            let Some(turn) = state.begin(key) else { continue };
            if state.steps - state.steps_before_this_instant > ENDLESS {
                drop(state);
                self.fail(&format!(
                    "{ENDLESS} polls without progress of time: a task wakes itself forever"
                ));
            }
            return turn;
        }
        if state.fire(limit, fired) { Turn::Fired } else { Turn::Nothing }
    }

    fn pick(&self, order: &mut Rng) -> Option<Key> {
        let mut ready = self.ready.list();
        let len = ready.len();
        (len > 0).then(|| ready.swap_remove(order.below(len)))
    }

    fn poll(&self, key: Key, mut task: Task) {
        task.wakeup.polled();
        let poll = || task.future.as_mut().poll(&mut Context::from_waker(&task.waker));
        let polled = catch_unwind(AssertUnwindSafe(poll));
        let node = task.node;
        let ended = self.state().end(key, task, matches!(polled, Ok(Poll::Pending)));
        drop(ended);
        if let Err(panic) = polled {
            self.fail(&format!("a task of node {node} panicked: {}", text_of(&*panic)));
        }
    }

    fn fail(&self, what: &str) -> ! {
        let at = self.wall(self.state().time);
        panic!("simulation with seed {}, at {at}: {what}", self.seed)
    }
}

impl State {
    pub(super) fn add_node(&mut self, seed: u64) -> usize {
        let id = self.nodes.len();
        let rng = Rng::new(seed, id as u64);
        self.nodes.push(Node { life: Life::Running, clock: Clock::default(), rng });
        id
    }

    /// Ready at once if the node's monotonic clock shows `at` and the node runs; else `waker` is
    /// called then. The caller drops the returned value without the lock.
    pub(super) fn poll_sleep(
        &mut self,
        node: usize,
        at: u64,
        slot: &mut Option<usize>,
        waker: &Waker,
    ) -> (Poll<()>, Option<Waker>) {
        let Node { life, clock, .. } = &self.nodes[node];
        if *life == Life::Running && clock.monotonic(self.time) >= at {
            return (Poll::Ready(()), slot.take().and_then(|slot| self.timers.disarm(slot)));
        }
        let old = match *slot {
            Some(slot) => self.timers.renew(slot, clock.due(at), waker),
            None => {
                *slot = Some(self.timers.arm(node, at, clock.due(at), waker.clone()));
                None
            }
        };
        (Poll::Pending, old)
    }

    /// The step for a key that was selected.
    fn begin(&mut self, key: Key) -> Option<Turn> {
        let (turn, node) = if key == MAIN {
            (Turn::Main, 0)
        } else {
            let task = self.tasks.take(key)?;
            let node = task.node;
            if self.nodes[node].life != Life::Running {
                self.tasks.hold(key, task);
                return None;
            }
            (Turn::Task(key, task), node)
        };
        self.steps += 1;
        self.trace.fold([self.time, key.serial << 16 ^ node as u64]);
        Some(turn)
    }

    /// Ends a poll: returns the task to its slot, or to the caller, who drops it.
    fn end(&mut self, key: Key, task: Task, pending: bool) -> Option<Task> {
        if pending && self.nodes[task.node].life != Life::Crashed && !self.closed {
            self.tasks.put(key, task);
            return None;
        }
        self.tasks.ended(key);
        Some(task)
    }

    /// Advances time to the next timer, if there is one up to the limit, and fires all that are
    /// due.
    fn fire(&mut self, limit: u64, fired: &mut Vec<Waker>) -> bool {
        let nodes = &self.nodes;
        let due = |node: usize, at| {
            (nodes[node].life == Life::Running).then(|| nodes[node].clock.due(at))
        };
        let Some(next) = self.timers.next_due(due).filter(|&next| next <= limit) else {
            return false;
        };
        if next > self.time {
            self.time = next;
            self.steps_before_this_instant = self.steps;
        }
        while self.timers.next_due(due).is_some_and(|due| due <= self.time) {
            let Some((serial, waker)) = self.timers.fire() else { break };
            self.steps += 1;
            self.trace.fold([self.time, !serial]);
            fired.extend(waker);
        }
        true
    }

    fn waiting(&self) -> String {
        let paused = self.nodes.iter().filter(|node| node.life == Life::Paused).count();
        format!(
            "the future waits, but no task is ready and no timer is set \
             (waiting tasks: {}, paused nodes: {paused})",
            self.tasks.len()
        )
    }

    pub(super) fn tasks(&self) -> usize {
        self.tasks.len()
    }
}

/// The right to drive a simulation: one thread at a time, and not a task.
struct Driving<'w>(&'w World);

impl<'w> Driving<'w> {
    fn new(world: &'w World) -> Self {
        if world.driven.swap(true, Ordering::AcqRel) {
            panic!(
                "simulation with seed {}: it is already being driven; drive it from one thread at a time, and not from its tasks",
                world.seed
            );
        }
        Self(world)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.driven.store(false, Ordering::Release);
    }
}

fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a panic without a text")
}
