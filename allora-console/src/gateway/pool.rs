//! The workers that wait, and the runs that they have.

use super::{Node, demand::Demand};
use crate::access::Access;
use allora_core::{Pattern, Run};
use futures::channel::oneshot;
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::{Duration, Instant},
};

/// The interval at which kinds are forgotten.
const FORGET: Duration = Duration::from_secs(15);

/// The result that a worker reports.
#[derive(Debug)]
pub(crate) enum Verdict {
    Complete {
        output: Option<String>,
        value: Option<String>,
    },
    Fail {
        error: String,
        retry_after: Option<Duration>,
        is_final: bool,
    },
    /// After this time.
    Release(Duration),
}

/// The job and the fence of a run.
pub(crate) type Key = (String, i64);

/// A request for runs.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) access: Access,
    /// The name of the worker, for people.
    pub(crate) worker: String,
    pub(crate) kinds: Vec<Pattern>,
    pub(crate) max: usize,
    /// Repeated, the request gets the same runs.
    pub(crate) claim_id: String,
}

impl Asked {
    fn claim(&self) -> Claim {
        (self.access.who().to_owned(), self.claim_id.clone())
    }

    fn wants(&self, run: &Run) -> bool {
        let is_asked = self.kinds.iter().any(|kind| kind.matches(run.kind()));
        is_asked && self.access.may_see(run.name(), run.kind())
    }
}

/// The caller and its id of a request for runs.
type Claim = (String, String);

/// All requests that wait, and all runs that workers have.
#[derive(Default)]
pub(crate) struct Pool {
    node: OnceLock<Node>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    demand: Demand,
    /// The requests that wait, the longest first.
    waiting: BTreeMap<u64, Waiting>,
    /// The number of requests so far.
    requests: u64,
    held: HashMap<Key, Held>,
    claims: HashMap<Claim, Vec<Key>>,
    /// Wakes the runs for which no request waits.
    unplaced: Vec<oneshot::Sender<()>>,
    /// A task forgets kinds.
    forgets: bool,
}

struct Waiting {
    asked: Asked,
    room: usize,
    /// Wakes the request: it has its first run.
    first: Option<oneshot::Sender<()>>,
}

/// A run that a worker has.
struct Held {
    run: Run,
    worker: String,
    kinds: Vec<Pattern>,
    claim: Claim,
    /// The time of its last heartbeat.
    heard: Instant,
    verdict: Option<oneshot::Sender<Verdict>>,
    counted: Arc<Counted>,
}

/// A run, for the answer to its worker.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) run: Run,
    /// The run counts as active as long as this is kept.
    _counted: Arc<Counted>,
}

/// One of the active runs: those whose ends the store does not have.
struct Counted {
    pool: Arc<Pool>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.demand.active = state.demand.active.saturating_sub(1);
        // The kinds are as before, so nothing is rejected.
        let _ = self.pool.tell(&mut state);
    }
}

impl Pool {
    /// The node of the gateway; a further call changes nothing.
    pub(crate) fn connect(&self, node: Node) {
        let _ = self.node.set(node);
    }

    pub(crate) fn node(&self) -> Option<&Node> {
        self.node.get()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self, state: &mut State) -> allora_core::Result {
        self.node.get().map_or(Ok(()), |node| state.demand.tell(&node.handle))
    }

    /// Gives a run to the request that has waited longest for it. If none waits, returns what is ready at the next
    /// request.
    pub(super) fn offer(
        pool: &Arc<Self>,
        run: &Run,
        now: Instant,
    ) -> Result<Seat, oneshot::Receiver<()>> {
        let mut state = pool.state();
        let State { demand, waiting, held, claims, unplaced, .. } = &mut *state;
        let Some((&id, taker)) = waiting.iter_mut().find(|(_, one)| one.asked.wants(run)) else {
            let (wake, asked) = oneshot::channel();
            unplaced.push(wake);
            return Err(asked);
        };
        let (verdict, result) = oneshot::channel();
        let key = (run.name().to_owned(), run.fence());
        let Asked { worker, kinds, .. } = &taker.asked;
        let (worker, kinds, claim) = (worker.clone(), kinds.clone(), taker.asked.claim());
        let counted = Arc::new(Counted { pool: pool.clone() });
        claims.entry(claim.clone()).or_default().push(key.clone());
        let (run, verdict, heard) = (run.clone(), Some(verdict), now);
        held.insert(key.clone(), Held { run, worker, kinds, claim, heard, verdict, counted });
        taker.room -= 1;
        // The capacity stays: one that waits becomes one that is active.
        (demand.room, demand.active) = (demand.room - 1, demand.active + 1);
        if let Some(first) = taker.first.take() {
            let _ = first.send(());
        }
        if taker.room == 0 {
            let full = waiting.remove(&id);
            demand.leave(&full.map(|full| full.asked.kinds).unwrap_or_default(), now);
        }
        Ok(Seat { pool: pool.clone(), key, verdict: result })
    }

    /// No worker asks for this kind: no run of it is claimed until one does.
    pub(super) fn hold_back(&self, kind: &str) {
        let mut state = self.state();
        state.demand.hold_back(kind);
        // The kinds become fewer, so nothing is rejected.
        let _ = self.tell(&mut state);
    }

    /// Waits for runs, for which [`Parked::first`] is woken; or has those of an earlier copy of the request.
    ///
    /// # Errors
    /// `Invalid` for a kind that another handler of this node runs.
    pub(crate) fn park(pool: &Arc<Self>, node: &Node, asked: Asked) -> allora_core::Result<Parked> {
        let now = node.runtime.now();
        let (first, woken) = oneshot::channel();
        let mut state = pool.state();
        let claim = asked.claim();
        // The earlier copy ends without runs.
        let is_same = |one: &Asked| {
            (one.access.who(), &*one.claim_id) == (asked.access.who(), &*asked.claim_id)
        };
        let earlier = state.waiting.iter().find(|(_, one)| is_same(&one.asked)).map(|(id, _)| *id);
        if let Some(id) = earlier {
            state.unpark(id, now);
        }
        let id = state.requests;
        state.requests += 1;
        let parked = Parked { pool: pool.clone(), claim: claim.clone(), id, first: Some(woken) };
        if state.claims.contains_key(&claim) {
            let _ = first.send(());
            return Ok(parked);
        }
        let (kinds, room) = (asked.kinds.clone(), asked.max);
        state.demand.wait(&kinds, now);
        state.demand.room += room;
        state.waiting.insert(id, Waiting { asked, room, first: Some(first) });
        if let Err(error) = pool.tell(&mut state) {
            state.unpark(id, now);
            state.demand.forget(now + super::demand::REMEMBERED);
            let _ = pool.tell(&mut state);
            drop(state);
            return Err(error);
        }
        let begins = !std::mem::replace(&mut state.forgets, true);
        let unplaced = std::mem::take(&mut state.unplaced);
        drop(state);
        for run in unplaced {
            // One that is gone needs no request.
            let _ = run.send(());
        }
        if begins {
            node.runtime.spawn(Box::pin(forget(pool.clone(), node.clone())));
        }
        Ok(parked)
    }

    /// A worker has been heard about this run. `None` if this gateway does not have it.
    pub(crate) fn heard(&self, key: &Key, now: Instant) -> Option<Run> {
        let mut state = self.state();
        let State { held, demand, .. } = &mut *state;
        let held = held.get_mut(key)?;
        held.heard = now;
        demand.touch(&held.kinds, now);
        Some(held.run.clone())
    }

    /// Ends a run with the first verdict; a later one changes nothing. `None` if this gateway does not have it.
    pub(crate) fn end(&self, key: &Key, verdict: Verdict, now: Instant) -> Option<Given> {
        self.heard(key, now)?;
        let mut state = self.state();
        let held = state.held.get_mut(key)?;
        if let Some(sender) = held.verdict.take() {
            // Without a receiver, the run has just ended otherwise.
            let _ = sender.send(verdict);
        }
        Some(Given { run: held.run.clone(), _counted: held.counted.clone() })
    }

    /// The run is over, or given up.
    fn leave(&self, key: &Key) {
        let mut state = self.state();
        let Some(held) = state.held.remove(key) else { return };
        if let Some(keys) = state.claims.get_mut(&held.claim) {
            keys.retain(|other| other != key);
            if keys.is_empty() {
                state.claims.remove(&held.claim);
            }
        }
        drop(state);
        // Its count takes the lock.
        drop(held);
    }
}

impl State {
    fn unpark(&mut self, id: u64, now: Instant) {
        let Some(waiting) = self.waiting.remove(&id) else { return };
        self.demand.room -= waiting.room;
        self.demand.leave(&waiting.asked.kinds, now);
    }
}

/// Forgets kinds as long as there are some.
async fn forget(pool: Arc<Pool>, node: Node) {
    loop {
        node.runtime.sleep_until(node.runtime.now() + FORGET).await;
        let mut state = pool.state();
        state.forgets = state.demand.forget(node.runtime.now());
        let _ = pool.tell(&mut state);
        if !state.forgets {
            return;
        }
    }
}

/// A request that waits. Dropped, it waits no more; runs that it has got stay with the id of the request.
pub(crate) struct Parked {
    pool: Arc<Pool>,
    claim: Claim,
    id: u64,
    /// Ready when the first run is there, or a later copy of the request has taken its place.
    pub(crate) first: Option<oneshot::Receiver<()>>,
}

impl Parked {
    /// Ends the wait. Returns the runs of the request.
    pub(crate) fn end(self, now: Instant) -> Vec<Run> {
        let mut state = self.pool.state();
        state.unpark(self.id, now);
        let _ = self.pool.tell(&mut state);
        let State { claims, held, .. } = &mut *state;
        let keys = claims.get(&self.claim).map(Vec::as_slice).unwrap_or_default();
        let runs = keys.iter().filter_map(|key| {
            let held = held.get_mut(key)?;
            // The worker has its lease from here on.
            held.heard = now;
            Some(held.run.clone())
        });
        runs.collect()
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let Some(node) = self.pool.node.get() else { return };
        let mut state = self.pool.state();
        state.unpark(self.id, node.runtime.now());
        let _ = self.pool.tell(&mut state);
    }
}

/// The place of a run with a worker, for the handler.
pub(super) struct Seat {
    pool: Arc<Pool>,
    key: Key,
    pub(super) verdict: oneshot::Receiver<Verdict>,
}

impl Seat {
    /// The name of the worker, and the time of its last heartbeat.
    pub(super) fn worker(&self) -> Option<(String, Instant)> {
        let state = self.pool.state();
        state.held.get(&self.key).map(|held| (held.worker.clone(), held.heard))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.pool.leave(&self.key);
    }
}
