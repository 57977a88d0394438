//! One lease of etcd for each node, and the mark that is bound to it: while the mark is there, the
//! node's runs are not taken over.
//!
//! A mark is there for as long as its node has promised to keep a run, and for as long as the node
//! asks for anything at all: a scheduler that hangs or was dropped lets go, also where its process
//! lives. The lease lasts half as long again as the longest promise, so that one which is renewed
//! every third of its time always covers a new promise. It is renewed by one exchange at a time,
//! each with the deadline of a call, so that a member that hangs is left for another.

use crate::{
    driver::{pause, steady},
    error::{is_no_lease, strange},
    store::Store,
};
use allora_core::{Result, Time};
use chrono::TimeDelta;
use etcd_client::{GetOptions, PutOptions, Txn, TxnOp};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

/// The shortest lease: a leader that hangs and an election must fit in.
const SHORTEST: Duration = Duration::from_secs(15);

/// The longest lease, in seconds: a hundred years.
const LONGEST: u64 = 100 * 365 * 86_400;

/// From which difference on clocks are reported as wrong.
const SKEWED: TimeDelta = TimeDelta::seconds(2);

/// The nodes that ask through this store, and what is known of the others' clocks.
#[derive(Default)]
pub(crate) struct Marks {
    nodes: Mutex<HashMap<String, Arc<Mark>>>,
    /// Our clock, and when it was read.
    wall: Mutex<Option<(Time, Instant)>>,
    /// How far our clock is ahead of each other node's.
    ahead: Mutex<BTreeMap<String, TimeDelta>>,
    warned: Mutex<bool>,
}

/// One node that asks through this store.
struct Mark {
    state: Mutex<State>,
    /// Held while the lease is renewed or replaced.
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
struct State {
    lease: Option<i64>,
    /// What the lease was granted for.
    lasts: Duration,
    /// When the last exchange was begun that confirmed it.
    confirmed: Instant,
    /// Nothing is promised beyond it.
    wanted: Instant,
    /// Somebody renews it.
    is_kept: bool,
}

impl Mark {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn covers(&self, promise: Duration) -> bool {
        self.lease.is_some() && later(self.confirmed, self.lasts) >= later(steady(), promise)
    }
}

impl Marks {
    fn nodes(&self) -> MutexGuard<'_, HashMap<String, Arc<Mark>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What our clock shows now.
    fn wall_now(&self) -> Option<Time> {
        let read = *self.wall.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, at) = read?;
        let since = steady().saturating_duration_since(at);
        Some(allora_core::time::saturating_add(wall, since))
    }

    fn of(&self, node: &str) -> Arc<Mark> {
        let mut nodes = self.nodes();
        let mark = nodes.entry(node.to_owned()).or_insert_with(|| {
            let now = steady();
            let lasts = SHORTEST;
            let state = State { lease: None, lasts, confirmed: now, wanted: now, is_kept: false };
            Arc::new(Mark { state: Mutex::new(state), renewing: tokio::sync::Mutex::default() })
        });
        mark.clone()
    }

    /// A node asks for something: it lives.
    pub(crate) fn seen(&self, node: &str, wall: Time) {
        *self.wall.lock().unwrap_or_else(PoisonError::into_inner) = Some((wall, steady()));
        if let Some(mark) = self.nodes().get(node) {
            let mut state = mark.state();
            state.wanted = state.wanted.max(later(steady(), state.lasts));
        }
    }

    /// The mark of this node is not there any more: it is made anew before the next promise.
    pub(crate) fn is_gone(&self, node: &str) {
        if let Some(mark) = self.nodes().get(node) {
            mark.state().lease = None;
        }
    }

    /// What another node's clock showed just now.
    pub(crate) fn shows(&self, node: &str, clock: Time) {
        if self.nodes().contains_key(node) {
            return;
        }
        let Some(own) = self.wall_now() else { return };
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).insert(node.into(), own - clock);
        self.report();
    }

    pub(crate) fn left(&self, node: &str) {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    /// What our clock shows now, as a mark has it.
    fn shown(&self) -> String {
        self.wall_now().map_or_else(String::new, |wall| wall.timestamp_millis().to_string())
    }

    /// How far this machine's clock is ahead of the other nodes', by their median.
    pub(crate) fn skew(&self) -> Option<TimeDelta> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<TimeDelta> = ahead.values().copied().collect();
        all.sort_unstable();
        all.get(all.len().saturating_sub(1) / 2).copied()
    }

    fn report(&self) {
        let Some(skew) = self.skew() else { return };
        let wrong = skew.abs() > SKEWED;
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if wrong != *warned {
            *warned = wrong;
            let ahead_ms = skew.num_milliseconds();
            if wrong {
                tracing::warn!(ahead_ms, "this clock differs from those of the other nodes");
            } else {
                tracing::info!(ahead_ms, "this clock agrees with those of the other nodes again");
            }
        }
    }
}

impl Store {
    /// Sees to it that the node's mark outlasts a promise that is given now.
    pub(crate) async fn promise(
        self: &Arc<Self>,
        op: &'static str,
        node: &str,
        promise: Duration,
    ) -> Result {
        loop {
            let mark = self.marks.of(node);
            if self.promised(op, &mark, node, promise).await? {
                return Ok(());
            }
        }
    }

    /// `false` if the mark was given up meanwhile: another one is to be made.
    async fn promised(
        self: &Arc<Self>,
        op: &'static str,
        mark: &Arc<Mark>,
        node: &str,
        promise: Duration,
    ) -> Result<bool> {
        {
            let mut state = mark.state();
            state.wanted = state.wanted.max(later(steady(), promise));
            if state.covers(promise) {
                return Ok(true);
            }
        }
        let _alone = mark.renewing.lock().await;
        if !self.marks.nodes().get(node).is_some_and(|current| Arc::ptr_eq(current, mark)) {
            return Ok(false);
        }
        let needed = promise.saturating_add(promise / 2).clamp(SHORTEST, longest());
        let known = *mark.state();
        if known.covers(promise) {
            return Ok(true);
        }
        if known.lasts >= needed && self.renew(op, mark, node).await? {
            return Ok(true);
        }
        self.grant(op, mark, node, needed.max(known.lasts)).await?;
        let starts = !std::mem::replace(&mut mark.state().is_kept, true);
        if starts {
            let keeping = keep(Arc::downgrade(self), Arc::downgrade(mark), node.to_owned());
            self.driver.handle.spawn(keeping);
        }
        Ok(true)
    }

    /// A new lease, and the mark bound to it.
    async fn grant(&self, op: &'static str, mark: &Mark, node: &str, lasts: Duration) -> Result {
        let seconds = lasts.as_secs() + u64::from(lasts.subsec_nanos() > 0);
        let asked = i64::try_from(seconds.min(LONGEST)).unwrap_or(i64::MAX);
        let begun = steady();
        let granted = self
            .driver
            .call(op, move |client| async move { client.lease_client().grant(asked, None).await });
        let lease = granted.await?.id();
        let shows = self.marks.shown();
        let bound = Some(PutOptions::new().with_lease(lease));
        let txn = Txn::new().and_then([
            TxnOp::put(self.keys.mark(node), shows, bound),
            TxnOp::put(self.keys.fleet(node), "", None),
        ]);
        self.txn(op, txn).await?;
        let mut state = mark.state();
        state.lease = Some(lease);
        state.lasts = Duration::from_secs(seconds);
        state.confirmed = begun;
        Ok(())
    }

    /// One more time of the lease; `false` if it is gone.
    async fn renew(&self, op: &'static str, mark: &Mark, node: &str) -> Result<bool> {
        let Some(lease) = mark.state().lease else { return Ok(false) };
        let begun = steady();
        let (key, shows) = (self.keys.mark(node), self.marks.shown());
        let asked = self.driver.call(op, move |client| {
            let (key, shows) = (key.clone(), shows.clone());
            async move {
                let lasting = match client.lease_client().keep_alive(lease).await {
                    Ok(_) => {
                        let bound = Some(PutOptions::new().with_lease(lease));
                        client.kv_client().put(key, shows, bound).await.map(drop)
                    }
                    Err(gone) => Err(gone),
                };
                match lasting {
                    Ok(()) => Ok(true),
                    Err(cause) if is_no_lease(&cause) => Ok(false),
                    Err(cause) => Err(cause),
                }
            }
        });
        let lasts = asked.await?;
        let mut state = mark.state();
        match lasts {
            true => state.confirmed = begun,
            false => state.lease = None,
        }
        Ok(lasts)
    }

    /// Reads all marks.
    pub(crate) fn all_marks(&self) -> TxnOp {
        TxnOp::get(self.keys.marks(), Some(GetOptions::new().with_prefix().with_keys_only()))
    }

    /// The nodes whose marks are there, from an answer that has them all.
    pub(crate) fn nodes_in(
        &self,
        answer: &etcd_client::GetResponse,
    ) -> std::collections::HashSet<Vec<u8>> {
        let all = self.keys.marks();
        let id = |kv: &etcd_client::KeyValue| kv.key().strip_prefix(all.as_bytes()).map(Vec::from);
        answer.kvs().iter().filter_map(id).collect()
    }

    /// Takes the mark away, if nothing is promised any more. Whoever promises at this moment finds
    /// no lease, waits, and makes another mark.
    async fn let_go(&self, mark: &Mark, node: &str) -> Result<bool> {
        let lease = {
            let mut state = mark.state();
            if steady() < state.wanted {
                return Ok(false);
            }
            state.lease.take()
        };
        self.marks.nodes().remove(node);
        let Some(lease) = lease else { return Ok(true) };
        let revoked = self
            .driver
            .call("leave", move |client| async move { client.lease_client().revoke(lease).await });
        revoked.await.map(|_| true)
    }
}

/// Keeps one mark, as long as anything is promised under it.
async fn keep(store: Weak<Store>, mark: Weak<Mark>, node: String) {
    const OP: &str = "keep alive";
    loop {
        let Some(lasts) = mark.upgrade().map(|mark| mark.state().lasts) else { return };
        pause(lasts.mul_f64(0.3)).await;
        loop {
            let (Some(store), Some(mark)) = (store.upgrade(), mark.upgrade()) else { return };
            let alone = mark.renewing.lock().await;
            // A lease that cannot be revoked ends by itself.
            if !matches!(store.let_go(&mark, &node).await, Ok(false)) {
                return;
            }
            let state = *mark.state();
            let kept = match store.renew(OP, &mark, &node).await {
                Ok(true) => Ok(()),
                Ok(false) => store.grant(OP, &mark, &node, state.lasts).await,
                Err(error) => Err(error),
            };
            drop(alone);
            match kept {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "the node's lease was not renewed"),
            }
            drop((store, mark));
            pause(Duration::from_millis(500)).await;
        }
    }
}

fn longest() -> Duration {
    Duration::from_secs(LONGEST)
}

fn later(at: Instant, by: Duration) -> Instant {
    at.checked_add(by).unwrap_or_else(|| at + longest())
}

/// What another node wrote into its mark.
pub(crate) fn clock_in(value: &[u8]) -> Result<Time> {
    let shown = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    shown.and_then(allora_core::time::from_millis).ok_or_else(|| strange("watch"))
}
