//! A runtime for tests: one thread, virtual time, and a seed determines every event.
//!
//! # How do I test a schedule without waiting?
//! Pass a [`SimNode`] as the runtime of the code under test, and let virtual time pass. When nothing
//! can go on, time jumps to the next timer; a year takes as long as the work in it.
//! ```
//! use allora::{Runtime, Schedule, Time, runtime::Sim};
//! use std::{sync::{Arc, Mutex}, time::Duration};
//!
//! let daily = |after: Time| Some(after + Duration::from_hours(24));
//! let ran: Arc<Mutex<Vec<Time>>> = Arc::default();
//!
//! let sim = Sim::new(1);
//! let (node, log) = (sim.node(), ran.clone());
//! node.clone().spawn(Box::pin(async move {
//!     while let Some(next) = daily.next_at(node.wall()) {
//!         let wait = (next - node.wall()).to_std().unwrap();
//!         node.sleep_until(node.now() + wait).await;
//!         log.lock().unwrap().push(node.wall());
//!     }
//! }));
//!
//! sim.run_for(Duration::from_hours(24 * 365));
//! let ran = ran.lock().unwrap();
//! assert_eq!(ran.len(), 365);
//! assert_eq!(ran[58].to_string(), "2026-03-01 00:00:00 UTC");
//! ```
//!
//! # How do I try many orders of events?
//! Run the test for many seeds: each has an order of its own, the same one every time. A panic
//! names the seed.
//! ```
//! use allora::{Runtime, runtime::Sim};
//! use std::time::Duration;
//!
//! for seed in 0..100 {
//!     let sim = Sim::new(seed);
//!     let node = sim.node();
//!     sim.block_on(async {
//!         // … start what is under test on `node`, then watch it:
//!         sim.sleep_until(sim.now() + Duration::from_secs(10)).await;
//!         node.crash();
//!         sim.sleep_until(sim.now() + Duration::from_secs(60)).await;
//!         assert_eq!(sim.elapsed(), Duration::from_secs(70));
//!     });
//! }
//! ```
//!
//! # What breaks the repetition?
//! Anything that does not come from the runtime: real clocks, threads, the order of a `HashMap`, and
//! `select!`, which draws a branch at random (`select_biased!` does not). Two runs of one seed that
//! differ in [`Sim::trace`] show that the test depends on such a source.

mod clock;
mod rng;
mod tasks;
mod timers;
mod world;

use self::world::World;
use crate::{runtime::Runtime, time::Time};
use chrono::TimeDelta;
use futures::future::BoxFuture;
use std::{
    fmt,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// A simulation: its nodes, their tasks, and time.
///
/// Nothing runs but inside [`block_on`](Self::block_on), [`run_until`](Self::run_until) and
/// [`run_for`](Self::run_for). Those poll the tasks that can go on, one at a time, in an order
/// drawn from the seed; when there is none, time jumps to the next timer. Polling itself takes no
/// time. Virtual time is kept in nanoseconds and reaches 584 years from the start.
///
/// The value itself is a [`Runtime`] too, for the test: a node with true clocks that nothing can
/// happen to. Hand [`node`](Self::node)s to what is under test. Dropping the simulation drops all
/// tasks; for nodes that are kept beyond that, time stands still.
///
/// See the [module](self) for examples.
pub struct Sim {
    outside: SimNode,
}

impl Sim {
    /// A simulation that starts when 2026 does.
    pub fn new(seed: u64) -> Self {
        const START: i64 = 1_767_225_600;
        Self::starting_at(seed, Time::from_timestamp(START, 0).expect("a constant in range"))
    }

    /// A simulation that starts at `start`.
    pub fn starting_at(seed: u64, start: Time) -> Self {
        // The one thing that differs from run to run; only differences to it can be seen.
        #[expect(clippy::disallowed_methods, reason = "an `Instant` cannot be made from nothing")]
        let base = Instant::now();
        let world = Arc::new(World::new(seed, start, base));
        let id = world.state().add_node(seed);
        Self { outside: SimNode { world, id } }
    }

    /// Adds a node: a runtime with its own clocks that can be paused and crashed.
    pub fn node(&self) -> SimNode {
        let id = self.world().state().add_node(self.seed());
        SimNode { world: Arc::clone(self.world()), id }
    }

    /// Runs everything until `future` is done. It may borrow, and is on no node.
    ///
    /// # Panics
    /// With the seed and the time: if the future or a task panics; if the future waits and no
    /// timer is left (a deadlock: a thread outside that would wake it is not waited for); if ten
    /// million polls pass and no time does. Also inside a task of this simulation and while another
    /// thread drives it.
    pub fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.world().block_on(pin!(future))
    }

    /// Runs everything that happens up to and at `until`, a true time; then it is that time.
    /// If it is past, runs what is ready now.
    ///
    /// # Panics
    /// As [`block_on`](Self::block_on), but for the deadlock: time passes until `until` anyway.
    pub fn run_until(&self, until: Time) {
        self.world().run_until(nanos((until - self.world().start).to_std().unwrap_or_default()));
    }

    /// Runs everything that happens in the next `span`.
    ///
    /// # Panics
    /// As [`run_until`](Self::run_until).
    pub fn run_for(&self, span: Duration) {
        let until = self.world().state().time.saturating_add(nanos(span));
        self.world().run_until(until);
    }

    /// The virtual time since the start.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.world().state().time)
    }

    /// The seed, which determines every event.
    pub fn seed(&self) -> u64 {
        self.world().seed
    }

    /// A hash over every poll and every timer so far, with its time and in order: equal for two
    /// runs with the same events.
    pub fn trace(&self) -> u64 {
        self.world().state().trace.hash()
    }

    /// The number of polls and timers so far: a measure of work that is the same on any machine.
    pub fn steps(&self) -> u64 {
        self.world().state().steps
    }

    fn world(&self) -> &Arc<World> {
        &self.outside.world
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.world().close();
    }
}

impl fmt::Debug for Sim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.world().state();
        f.debug_struct("Sim")
            .field("seed", &self.world().seed)
            .field("elapsed", &Duration::from_nanos(state.time))
            .field("nodes", &state.nodes.len())
            .field("tasks", &state.tasks())
            .finish_non_exhaustive()
    }
}

/// A machine of a [`Sim`]: a [`Runtime`] with clocks of its own. Clones are the same machine.
///
/// # Examples
/// ```
/// use allora::{Runtime, runtime::Sim};
/// use chrono::TimeDelta;
///
/// let sim = Sim::new(1);
/// let late = sim.node();
/// late.set_skew(TimeDelta::hours(-1));
/// assert_eq!(sim.wall() - late.wall(), TimeDelta::hours(1));
/// ```
#[derive(Clone)]
pub struct SimNode {
    world: Arc<World>,
    id: usize,
}

impl SimNode {
    /// The node's number, from 1 in the order they were added.
    pub fn id(&self) -> usize {
        self.id
    }

    /// Steps the wall clock: from now on it is `skew` ahead of virtual time (behind, if negative).
    /// It stops at the first and last times that a [`Time`] can represent.
    pub fn set_skew(&self, skew: TimeDelta) {
        let mut state = self.world.state();
        let now = state.time;
        state.nodes[self.id].clock.set_skew(now, skew);
    }

    /// Makes the wall clock gain `ppm` microseconds in each second from now on (lose, if negative).
    /// The present lead stays.
    pub fn set_drift(&self, ppm: i32) {
        let mut state = self.world.state();
        let now = state.time;
        state.nodes[self.id].clock.set_drift(now, ppm);
    }

    /// The present lead of the wall clock over virtual time.
    pub fn skew(&self) -> TimeDelta {
        let state = self.world.state();
        state.nodes[self.id].clock.skew(state.time)
    }

    /// Stops the node like a stopped process: its tasks are not polled and its timers do not fire
    /// until [`resume`](Self::resume). All clocks continue. Timers that were due meanwhile fire on
    /// resumption. A task that pauses its own node completes its poll.
    pub fn pause(&self) {
        self.world.pause(self.id, false);
    }

    /// Stops the node like a sleeping machine: as [`pause`](Self::pause), but the monotonic clock
    /// stops, too, so that its timers are delayed by that time.
    pub fn suspend(&self) {
        self.world.pause(self.id, true);
    }

    /// Lets a paused or suspended node continue. A crashed node stays crashed; a restart is a new
    /// [`Sim::node`].
    pub fn resume(&self) {
        self.world.resume(self.id);
    }

    /// Ends the node like a lost machine: drops all its tasks at once (one that is being polled, at
    /// the end of that poll). Tasks spawned later are dropped, and its timers never fire.
    pub fn crash(&self) {
        self.world.crash(self.id);
    }
}

impl Runtime for SimNode {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.world.spawn(self.id, task);
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let at = nanos(at.saturating_duration_since(self.world.base));
        Box::pin(Sleep { node: self.clone(), at, timer: None })
    }

    fn now(&self) -> Instant {
        let state = self.world.state();
        self.world.base + Duration::from_nanos(state.nodes[self.id].clock.monotonic(state.time))
    }

    fn wall(&self) -> Time {
        let state = self.world.state();
        let skew = state.nodes[self.id].clock.skew(state.time);
        let shown = self.world.wall(state.time).checked_add_signed(skew);
        shown.unwrap_or(if skew < TimeDelta::zero() { Time::MIN_UTC } else { Time::MAX_UTC })
    }

    fn random(&self) -> u64 {
        self.world.state().nodes[self.id].rng.draw()
    }
}

impl fmt::Debug for SimNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimNode").field(&self.id).finish()
    }
}

impl Runtime for Sim {
    fn spawn(&self, task: BoxFuture<'static, ()>) {
        self.outside.spawn(task);
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        self.outside.sleep_until(at)
    }

    fn now(&self) -> Instant {
        self.outside.now()
    }

    fn wall(&self) -> Time {
        self.outside.wall()
    }

    fn random(&self) -> u64 {
        self.outside.random()
    }
}

/// A sleep until `at` on the node's monotonic clock. The first poll that has to wait arms the
/// timer.
struct Sleep {
    node: SimNode,
    at: u64,
    timer: Option<usize>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Self { node, at, timer } = &mut *self;
        let (polled, old) = {
            let mut state = node.world.state();
            state.poll_sleep(node.id, *at, timer, cx.waker())
        };
        drop(old);
        polled
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = {
                let mut state = self.node.world.state();
                state.timers.disarm(timer)
            };
            drop(waker);
        }
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::future::select;

    #[test]
    fn timers_of_dropped_sleeps_do_not_pile_up() {
        let sim = Sim::new(1);
        sim.block_on(async {
            for _ in 0..10_000 {
                let now = sim.now();
                let long = sim.sleep_until(now + Duration::from_hours(1));
                select(sim.sleep_until(now + Duration::from_millis(1)), long).await;
            }
        });
        let (heap, slots) = sim.world().state().timers.entries();
        assert!(heap <= 200 && slots <= 2, "{heap} entries, {slots} slots");
    }

    #[test]
    fn many_polls_are_not_endless_if_time_passes() {
        let sim = Sim::new(1);
        let wait = || sim.sleep_until(sim.now() + Duration::from_millis(1));
        sim.world().state().steps = world::ENDLESS - 1;
        sim.block_on(async {
            wait().await;
            wait().await;
        });
        assert!(sim.steps() > world::ENDLESS);
    }

    #[test]
    fn a_simulation_goes_between_threads() {
        fn check<T: Send + Sync>() {}
        check::<Sim>();
        check::<SimNode>();
    }
}
