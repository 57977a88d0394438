//! Sessions: one etcd lease for each node, and a key that is bound to it. While the key exists, the
//! node's runs are not taken over.
//!
//! A session lasts as long as its node has a lease on a run, and as long as the node sends batches and
//! queries: a scheduler that hangs or was dropped loses its session, also if its process lives. The
//! etcd lease lasts half as long again as the longest lease on a run, so that a session that is renewed
//! every third of its time always covers a new lease. It is renewed by one exchange at a time, each
//! with the deadline of a call, so that a member that hangs is replaced by another.
//!
//! With each restart of a member and each election, a dead node's etcd lease begins again. So a session also ends when
//! another node has seen it for its length without a renewal (`silence`).

use crate::{
    client::{Client, monotonic_now, sleep},
    error::is_lease_not_found,
    keys::{Keys, escape},
    liveness::LiveNodes,
    silence::{self, Revision, Silence},
};
use allora_core::{Result, Time};
use chrono::TimeDelta;
use etcd_client::{Compare, CompareOp, GetOptions, GetResponse, PutOptions, Txn, TxnOp};
use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::{Duration, Instant},
};

/// The shortest session: a leader that hangs and an election must fit in.
const MIN_SESSION: Duration = Duration::from_secs(15);

/// The longest session, in seconds: a hundred years.
const MAX_SESSION: u64 = 100 * 365 * 86_400;

/// The smallest difference between clocks that is reported.
const MAX_SKEW: TimeDelta = TimeDelta::seconds(2);

/// The sessions of the nodes that use this store, and the clocks of the other nodes.
pub(crate) struct Sessions {
    client: Arc<Client>,
    keys: Keys,
    nodes: Mutex<HashMap<String, Arc<Session>>>,
    /// The local wall clock, and when it was read.
    wall: Mutex<Option<(Time, Instant)>>,
    /// The difference by which the local clock is ahead of each other node's.
    ahead: Mutex<BTreeMap<String, TimeDelta>>,
    has_warned: Mutex<bool>,
    silence: Mutex<Silence>,
}

/// The session of one node that uses this store.
struct Session {
    state: Mutex<SessionState>,
    /// Held while the etcd lease is renewed or replaced.
    renewing: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy)]
struct SessionState {
    /// The etcd lease.
    lease: Option<i64>,
    /// The number of the timeline in which the etcd lease was granted.
    timeline: u64,
    /// The length of the etcd lease.
    duration: Duration,
    /// The start of the last exchange that confirmed it.
    confirmed: Instant,
    /// Nothing needs the session after this time.
    needed_until: Instant,
    /// A task renews it.
    is_renewed: bool,
}

impl Session {
    fn state(&self) -> MutexGuard<'_, SessionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SessionState {
    fn new() -> Self {
        let now = monotonic_now();
        Self {
            lease: None,
            timeline: 0,
            duration: MIN_SESSION,
            confirmed: now,
            needed_until: now,
            is_renewed: false,
        }
    }

    fn covers(&self, lease: Duration, timeline: u64) -> bool {
        self.lease.is_some()
            && self.timeline == timeline
            && after(self.confirmed, self.duration) >= after(monotonic_now(), lease)
    }
}

impl Sessions {
    pub(crate) fn new(client: Arc<Client>, keys: Keys) -> Self {
        Self {
            client,
            keys,
            nodes: Mutex::default(),
            wall: Mutex::default(),
            ahead: Mutex::default(),
            has_warned: Mutex::default(),
            silence: Mutex::default(),
        }
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<String, Arc<Session>>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The session of this node; a new one, without an etcd lease, if it has none.
    fn of(&self, node: &str) -> Arc<Session> {
        let mut nodes = self.nodes();
        let session = nodes.entry(node.to_owned()).or_insert_with(|| {
            let state = Mutex::new(SessionState::new());
            Arc::new(Session { state, renewing: tokio::sync::Mutex::default() })
        });
        session.clone()
    }

    /// A node sends a batch or a query: it is alive, and keeps its session if it has one.
    pub(crate) fn keep(&self, node: &str, wall: Time) {
        *self.wall.lock().unwrap_or_else(PoisonError::into_inner) = Some((wall, monotonic_now()));
        if let Some(session) = self.nodes().get(node) {
            let mut state = session.state();
            state.needed_until = state.needed_until.max(after(monotonic_now(), state.duration));
        }
    }

    /// The session of this node has ended: a new one is opened before the next lease.
    pub(crate) fn invalidate(&self, node: &str) {
        if let Some(session) = self.nodes().get(node) {
            session.state().lease = None;
        }
    }

    /// Reads all sessions.
    pub(crate) fn read(&self) -> TxnOp {
        TxnOp::get(self.keys.sessions(), Some(GetOptions::new().with_prefix()))
    }

    /// The nodes that have a session, from the reply to [`read`](Self::read).
    pub(crate) fn live_nodes(&self, reply: &GetResponse) -> LiveNodes {
        let mut silence = self.silence.lock().unwrap_or_else(PoisonError::into_inner);
        for silent in silence.note(reply, monotonic_now()) {
            self.remove(silent);
        }
        drop(silence);
        let all = self.keys.sessions();
        let id = |kv: &etcd_client::KeyValue| kv.key().strip_prefix(all.as_bytes()).map(Vec::from);
        LiveNodes::new(reply.kvs().iter().filter_map(id))
    }

    /// Removes a session that its node does not renew any more. The watch tells the others that its runs are free.
    fn remove(&self, silent: Revision) {
        let Revision { key, value, number } = silent;
        let is_same = [
            Compare::mod_revision(key.clone(), CompareOp::Equal, number),
            Compare::value(key.clone(), CompareOp::Equal, value),
        ];
        let removal = Txn::new().when(is_same).and_then([TxnOp::delete(key, None)]);
        let client = self.client.clone();
        self.client.spawn(async move {
            // The next look tries it again.
            if let Err(error) = client.txn("end session", removal).await {
                tracing::debug!(%error, "a silent session was not removed");
            }
        });
    }

    /// Opens or renews the node's session if it would not outlast a lease that is granted now.
    pub(crate) async fn ensure_session(
        self: &Arc<Self>,
        op: &'static str,
        node: &str,
        lease: Duration,
    ) -> Result {
        loop {
            let session = self.of(node);
            if self.try_ensure(op, &session, node, lease).await? {
                return Ok(());
            }
        }
    }

    /// `false` if the session was closed meanwhile: the caller opens another one.
    async fn try_ensure(
        self: &Arc<Self>,
        op: &'static str,
        session: &Arc<Session>,
        node: &str,
        lease: Duration,
    ) -> Result<bool> {
        {
            let mut state = session.state();
            state.needed_until = state.needed_until.max(after(monotonic_now(), lease));
            if state.covers(lease, self.client.timeline()) {
                return Ok(true);
            }
        }
        let _guard = session.renewing.lock().await;
        if !self.nodes().get(node).is_some_and(|current| Arc::ptr_eq(current, session)) {
            return Ok(false);
        }
        let needed = lease.saturating_add(lease / 2).clamp(MIN_SESSION, max_session());
        let state = *session.state();
        let timeline = self.client.timeline();
        if state.covers(lease, timeline) {
            return Ok(true);
        }
        if state.duration >= needed
            && state.timeline == timeline
            && self.renew(op, session, node).await?
        {
            return Ok(true);
        }
        self.open(op, session, node, needed.max(state.duration)).await?;
        let is_first = !std::mem::replace(&mut session.state().is_renewed, true);
        if is_first {
            let task =
                renew_until_closed(Arc::downgrade(self), Arc::downgrade(session), node.to_owned());
            self.client.spawn(task);
        }
        Ok(true)
    }

    /// Opens a session: a new etcd lease, and the key that is bound to it.
    async fn open(
        &self,
        op: &'static str,
        session: &Session,
        node: &str,
        duration: Duration,
    ) -> Result {
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        let ttl = i64::try_from(seconds.min(MAX_SESSION)).unwrap_or(i64::MAX);
        let (started, timeline) = (monotonic_now(), self.client.timeline());
        let granted = self
            .client
            .call(op, move |client| async move { client.lease_client().grant(ttl, None).await });
        let lease = granted.await?.id();
        self.client.txn(op, self.bound(node, lease, Duration::from_secs(seconds))).await?;
        let mut state = session.state();
        state.lease = Some(lease);
        state.timeline = timeline;
        state.duration = Duration::from_secs(seconds);
        state.confirmed = started;
        Ok(())
    }

    /// Writes the session's key, bound to its etcd lease, and the node among those that may leave runs: each time,
    /// because the store may have been emptied.
    fn bound(&self, node: &str, lease: i64, length: Duration) -> Txn {
        let bound = Some(PutOptions::new().with_lease(lease));
        let clock = self.local_now().map(|wall| wall.timestamp_millis());
        Txn::new().and_then([
            TxnOp::put(self.keys.session(node), silence::value(clock, length), bound),
            TxnOp::put(self.keys.node(node), "", None),
        ])
    }

    /// Renews a session; `false` if its etcd lease has ended.
    async fn renew(&self, op: &'static str, session: &Session, node: &str) -> Result<bool> {
        let SessionState { lease, duration, .. } = *session.state();
        let Some(lease) = lease else { return Ok(false) };
        let started = monotonic_now();
        let bound = self.bound(node, lease, duration);
        let renewed = self.client.call(op, move |client| {
            let bound = bound.clone();
            async move {
                let renewed = match client.lease_client().keep_alive(lease).await {
                    Ok(_) => client.kv_client().txn(bound).await.map(drop),
                    Err(ended) => Err(ended),
                };
                match renewed {
                    Ok(()) => Ok(true),
                    Err(cause) if is_lease_not_found(&cause) => Ok(false),
                    Err(cause) => Err(cause),
                }
            }
        });
        let is_renewed = renewed.await?;
        let mut state = session.state();
        match is_renewed {
            true => state.confirmed = started,
            false => state.lease = None,
        }
        Ok(is_renewed)
    }

    /// Closes the session if nothing needs it any more. A lease that is granted at this moment finds
    /// no session, waits, and opens another one.
    async fn close(&self, session: &Session, node: &str) -> Result<bool> {
        let lease = {
            let mut state = session.state();
            if monotonic_now() < state.needed_until {
                return Ok(false);
            }
            state.lease.take()
        };
        self.nodes().remove(node);
        let Some(lease) = lease else { return Ok(true) };
        let revoked = self.client.call("close session", move |client| async move {
            client.lease_client().revoke(lease).await
        });
        revoked.await.map(|_| true)
    }

    /// The time of the local clock now.
    fn local_now(&self) -> Option<Time> {
        let read = *self.wall.lock().unwrap_or_else(PoisonError::into_inner);
        let (wall, at) = read?;
        let since = monotonic_now().saturating_duration_since(at);
        Some(allora_core::time::saturating_add(wall, since))
    }

    /// The watch has received the clock of another node: the value of its session.
    pub(crate) fn on_clock(&self, node: &str, value: &[u8]) {
        let shown = silence::clock(value);
        let Some(clock) = shown.and_then(allora_core::time::from_millis) else { return };
        if self.nodes().keys().any(|local| escape(local) == node) {
            return;
        }
        let Some(local) = self.local_now() else { return };
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.insert(node.into(), local - clock);
        drop(ahead);
        self.report_skew();
    }

    /// The watch has received the end of another node's session.
    pub(crate) fn on_session_end(&self, node: &str) {
        self.ahead.lock().unwrap_or_else(PoisonError::into_inner).remove(node);
    }

    /// The difference by which the local clock is ahead of the other nodes', by their median.
    pub(crate) fn skew(&self) -> Option<TimeDelta> {
        let ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<TimeDelta> = ahead.values().copied().collect();
        all.sort_unstable();
        all.get(all.len().saturating_sub(1) / 2).copied()
    }

    fn report_skew(&self) {
        let Some(skew) = self.skew() else { return };
        let is_skewed = skew.abs() > MAX_SKEW;
        let mut has_warned = self.has_warned.lock().unwrap_or_else(PoisonError::into_inner);
        if is_skewed != *has_warned {
            *has_warned = is_skewed;
            let ahead_ms = skew.num_milliseconds();
            if is_skewed {
                tracing::warn!(ahead_ms, "this clock differs from those of the other nodes");
            } else {
                tracing::info!(ahead_ms, "this clock agrees with those of the other nodes again");
            }
        }
    }
}

/// Renews one session as long as anything needs it.
async fn renew_until_closed(sessions: Weak<Sessions>, session: Weak<Session>, node: String) {
    const OP: &str = "renew session";
    loop {
        let Some(duration) = session.upgrade().map(|session| session.state().duration) else {
            return;
        };
        sleep(duration.mul_f64(0.3)).await;
        loop {
            let (Some(sessions), Some(session)) = (sessions.upgrade(), session.upgrade()) else {
                return;
            };
            let guard = session.renewing.lock().await;
            // An etcd lease that cannot be revoked ends by itself.
            if !matches!(sessions.close(&session, &node).await, Ok(false)) {
                return;
            }
            let state = *session.state();
            let renewed = match sessions.renew(OP, &session, &node).await {
                Ok(true) => Ok(()),
                Ok(false) => sessions.open(OP, &session, &node, state.duration).await,
                Err(error) => Err(error),
            };
            drop(guard);
            match renewed {
                Ok(()) => break,
                Err(error) => tracing::warn!(%error, "the node's session was not renewed"),
            }
            drop((sessions, session));
            sleep(Duration::from_millis(500)).await;
        }
    }
}

fn max_session() -> Duration {
    Duration::from_secs(MAX_SESSION)
}

fn after(at: Instant, duration: Duration) -> Instant {
    at.checked_add(duration).unwrap_or_else(|| at + max_session())
}
