//! The engine: applies batches of operations to the records of a store.
//!
//! `load` locks nothing, and `commit` compares a version for each record: row locks across round
//! trips would make nodes wait, and deadlock. A record that an operation leaves as it was is not
//! committed, so a losing claim costs one read. Of a snapshot that may be old (`must_confirm`), only
//! replies that a commit proves are returned; the rest is loaded again.

use super::{
    RecordStore,
    batch::{Commit, Draft, FastPath, Load, Loaded, Outcome, Snapshot},
    history::prune_changes,
    prune,
};
use crate::{
    backend::{
        Action, Applied, Backend, Batch, History, HistoryEntry, Notification, Notifier, Operation,
        Queries, Reply, StreakReport, TimeSource, TriggerStatus,
    },
    error::{Error, ErrorKind, Result},
    name::{MAX_NAME, check_name},
    record::{
        Change, HistoryBuffer, OpContext, Record, apply, apply_unreadable, missing, unreadable,
    },
    time::Time,
};
use async_trait::async_trait;
use std::collections::HashMap;

/// The largest number of loads of one batch after conflicts with other nodes. Each conflict means
/// progress of another node, so that no wait is needed.
const MAX_ATTEMPTS: usize = 64;

const OP: &str = "reschedule";

#[async_trait]
impl<S: RecordStore> Backend for S {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        Engine::new(self, batch).run().await
    }

    fn namespace(&self) -> &str {
        RecordStore::namespace(self)
    }

    fn durability_warning(&self) -> Option<&str> {
        RecordStore::durability_warning(self)
    }

    fn security_warning(&self) -> Option<&str> {
        RecordStore::security_warning(self)
    }

    fn grants(&self, login: &str) -> Option<Vec<String>> {
        RecordStore::grants(self, login)
    }

    async fn prune(&self, time: TimeSource) -> Result {
        let now = RecordStore::now(self, time).await?;
        let pruned = RecordStore::prune(self, now).await;
        if let Some(history) = self.history_store() {
            prune::prune(self, history, time, now).await?;
        }
        if let Some(changes) = self.change_store() {
            prune_changes(changes, now).await?;
        }
        pruned
    }

    fn queries(&self) -> Option<&dyn Queries> {
        Some(self)
    }

    fn history(&self) -> Option<&dyn History> {
        self.history_store().map(|_| self as _)
    }

    fn notifier(&self) -> Option<&dyn Notifier> {
        RecordStore::notifier(self)
    }
}

/// One batch on its way through load, apply and commit.
struct Engine<'a, S: RecordStore> {
    store: &'a S,
    batch: Batch<'a>,
    replies: Vec<Option<Result<Reply>>>,
    now: Option<Time>,
    /// The names that have operations without replies.
    open: Vec<Group<'a, S::Version>>,
    notifications: Vec<Notification>,
    /// The highest fence of tombstones that are the same as none.
    min_fence: i64,
    /// The runs that were recorded as lost or expired.
    lapsed: Vec<HistoryEntry>,
    reports: Vec<StreakReport>,
    /// The jobs whose outboxes are not empty.
    outboxes: Vec<String>,
}

/// The operations on one name.
struct Group<'a, V> {
    name: &'a str,
    /// The positions of its operations, in their order.
    positions: Vec<usize>,
    loaded: Option<Box<Loaded<V>>>,
    /// A cached record must not be used any more.
    fresh: bool,
}

impl<'a, S: RecordStore> Engine<'a, S> {
    fn new(store: &'a S, batch: Batch<'a>) -> Self {
        Self {
            store,
            batch,
            replies: batch.operations.iter().map(|operation| too_long(operation)).collect(),
            now: None,
            open: Vec::new(),
            notifications: Vec::new(),
            min_fence: 0,
            lapsed: Vec::new(),
            reports: Vec::new(),
            outboxes: Vec::new(),
        }
    }

    async fn run(mut self) -> Result<Applied> {
        self.fast_path().await?;
        let mut attempts = 0;
        while !self.open.is_empty() {
            attempts += 1;
            if attempts > MAX_ATTEMPTS {
                self.give_up();
                break;
            }
            let (mut now, min_fence) = self.load().await?;
            let mut drafts = self.apply(now, min_fence);
            if !self.open.is_empty() {
                // Cached records that a commit would not prove are read now, so that one commit
                // writes all drafts.
                let (later, min_fence) = self.load().await?;
                drafts.extend(self.apply(later, min_fence));
                now = now.max(later);
            }
            self.commit(now, drafts).await?;
        }
        self.end().await
    }

    /// Applies the most common operations in one round trip; groups the others by name.
    async fn fast_path(&mut self) -> Result {
        let FastPath { now, replies, due, lapsed, reports, outboxes, snapshot } =
            self.store.fast_path(self.batch).await?;
        self.now = now;
        self.outboxes = outboxes;
        self.lapsed.extend(lapsed);
        self.reports.extend(reports);
        for (position, reply) in replies {
            if let Some(place) = self.replies.get_mut(position) {
                place.get_or_insert(reply);
            }
        }
        self.notifications.extend(due.into_iter().map(Notification::Job));
        let count = self.replies.iter().filter(|reply| reply.is_none()).count();
        let mut by_name: HashMap<&str, usize> = HashMap::with_capacity(count);
        self.open.reserve(count);
        for (position, operation) in self.batch.operations.iter().enumerate() {
            if self.replies[position].is_some() {
                continue;
            }
            let group = *by_name.entry(operation.name).or_insert_with(|| {
                let (positions, loaded) = (Vec::new(), None);
                self.open.push(Group { name: operation.name, positions, loaded, fresh: false });
                self.open.len() - 1
            });
            self.open[group].positions.push(position);
        }
        if let Some(snapshot) = snapshot.filter(|read| read.records.len() == self.open.len()) {
            let Snapshot { now, min_fence, records } = snapshot;
            let which = 0..self.open.len();
            self.keep(which.zip(records));
            let drafts = self.apply(now, min_fence);
            self.commit(now, drafts).await?;
        }
        Ok(())
    }

    /// Loads the records that the last commit has not returned.
    async fn load(&mut self) -> Result<(Time, i64)> {
        let missing: Vec<usize> =
            (0..self.open.len()).filter(|i| self.open[*i].loaded.is_none()).collect();
        let (mut now, mut min_fence) = (None, 0);
        // A record that lost a commit must be read; others may come from a cache.
        let (stale, rest): (Vec<usize>, Vec<usize>) =
            missing.into_iter().partition(|i| self.open[*i].fresh);
        for (which, fresh) in [(rest, false), (stale, true)] {
            if which.is_empty() {
                continue;
            }
            let names: Vec<&str> = which.iter().map(|i| self.open[*i].name).collect();
            let load = Load { fresh, ..Load::new(self.batch.node, self.batch.time, &names) };
            let snapshot = self.store.load(load).await?;
            if snapshot.records.len() != which.len() {
                let (given, asked) = (snapshot.records.len(), which.len());
                return Err(Error::new(
                    ErrorKind::Other,
                    format!("the store loaded {given} records of {asked}; report it to its author"),
                ));
            }
            now = now.max(Some(snapshot.now));
            min_fence = min_fence.max(snapshot.min_fence);
            self.keep(which.into_iter().zip(snapshot.records));
        }
        // Every record was returned by the lost commit: only its time has to be read again.
        let now = match now {
            Some(now) => now,
            None => self.store.now(self.batch.time).await?,
        };
        Ok((now, min_fence))
    }

    /// Keeps what was loaded for the open groups of these numbers. An error is the reply to all
    /// operations of its group, which is closed by the next [`apply`](Self::apply).
    fn keep(&mut self, loaded: impl Iterator<Item = (usize, Result<Loaded<S::Version>>)>) {
        for (i, loaded) in loaded {
            match loaded {
                Ok(loaded) => self.open[i].loaded = Some(Box::new(loaded)),
                Err(error) => {
                    let positions = std::mem::take(&mut self.open[i].positions);
                    self.fail(&positions, &error);
                }
            }
        }
    }

    /// Applies the operations to the loaded records. What changed nothing has its replies; what
    /// changed its record becomes a draft.
    fn apply(&mut self, now: Time, min_fence: i64) -> Drafts<'a, S::Version> {
        self.now = self.now.max(Some(now));
        self.min_fence = self.min_fence.max(min_fence);
        let mut drafts = Drafts::with_capacity(self.open.len());
        let mut unproved = Vec::new();
        for mut group in std::mem::take(&mut self.open) {
            let Some(loaded) = group.loaded.take() else { continue };
            let now = loaded.now.unwrap_or(now);
            if let Ok(Some(tombstone)) = &loaded.record
                && tombstone.is_forgotten(now)
            {
                self.min_fence = self.min_fence.max(tombstone.fence);
            }
            let applied = self.apply_to(&group, &loaded, now, min_fence);
            let is_proved = applied.after.is_some() && applied.replies.iter().all(proved_by_commit);
            if loaded.must_confirm && !is_proved {
                group.fresh = true;
                unproved.push(group);
                continue;
            }
            self.outboxes.extend(applied.has_outbox.then(|| group.name.to_owned()));
            match applied.after {
                None => self.answer(&group.positions, applied.replies),
                Some(after) => {
                    drafts.drafts.push(Draft {
                        name: group.name,
                        loaded: *loaded,
                        after,
                        history: applied.history,
                        changes: applied.changes,
                        not_after: self.not_after(&group.positions, now),
                        notification: applied.notification,
                    });
                    let AppliedTo { replies, lapsed, reports, .. } = applied;
                    drafts.uncommitted.push(Decided { group, replies, lapsed, reports });
                }
            }
        }
        self.open = unproved;
        drafts
    }

    fn apply_to(
        &self,
        group: &Group<'a, S::Version>,
        loaded: &Loaded<S::Version>,
        now: Time,
        min_fence: i64,
    ) -> AppliedTo {
        let mut context = OpContext { node: self.batch.node, now, min_fence };
        let (before, reason) = match &loaded.record {
            Ok(record) => (loaded.view.as_deref().or(record.as_ref()), None),
            Err(unreadable) => {
                context.min_fence = min_fence.max(unreadable.fence);
                (None, Some(unreadable.reason.as_str()))
            }
        };
        // An expired tombstone is the same as none.
        let before = match before {
            Some(record) if record.is_forgotten(now) => {
                context.min_fence = min_fence.max(record.fence);
                None
            }
            before => before,
        };
        let mut slot = before.cloned();
        let mut history = match self.store.history_store() {
            None => HistoryBuffer::lapsed(),
            Some(history) => history.pruning().buffer(),
        };
        let mut notification = None;
        let mut reason = reason;
        let replies = group.positions.iter().map(|position| {
            let operation = &self.batch.operations[*position];
            let reply = match reason {
                None => apply(&mut slot, operation, context, &mut history),
                Some(why) => apply_unreadable(why, operation, context, &mut slot, &mut history),
            };
            if slot.is_some() {
                reason = None;
            }
            if let Some(next) = notification_of(operation, &reply, slot.as_ref(), now) {
                notification.get_or_insert(next);
            }
            reply
        });
        let replies = replies.collect();
        let has_outbox = slot.as_ref().is_some_and(Record::has_outbox);
        let mut changes = history.take_changes();
        if self.store.change_store().is_none()
            && let Some(record) = &mut slot
        {
            record.keep_changes(std::mem::take(&mut changes));
        }
        let after = if slot.as_ref() == before { None } else { slot };
        let reports = history.take_reports();
        let mut history = history.take();
        let lapsed = history.iter().filter(|entry| entry.has_lapsed()).cloned().collect();
        if self.store.history_store().is_none() {
            // They were wanted for that alone.
            history.clear();
        }
        AppliedTo { replies, after, history, changes, lapsed, reports, notification, has_outbox }
    }

    async fn commit(&mut self, now: Time, drafts: Drafts<'a, S::Version>) -> Result {
        let Drafts { uncommitted, drafts } = drafts;
        if drafts.is_empty() {
            return Ok(());
        }
        let count = drafts.len();
        let effects: Vec<Effects> = drafts.iter().map(Effects::of).collect();
        let (node, time) = (self.batch.node, self.batch.time);
        let outcomes = self.store.commit(Commit { node, time, now, drafts }).await?;
        if outcomes.len() != count {
            let wrong = format!(
                "the store returned {} outcomes of {count} drafts; report it to its author",
                outcomes.len()
            );
            return Err(Error::new(ErrorKind::Other, wrong));
        }
        let uncommitted = uncommitted.into_iter().zip(effects);
        for (outcome, (decided, effects)) in outcomes.into_iter().zip(uncommitted) {
            let Decided { mut group, replies: answer, lapsed, reports } = decided;
            let Effects { notification, new } = effects;
            match outcome {
                Ok(Outcome::Written { notified }) => {
                    self.lapsed.extend(lapsed);
                    self.reports.extend(reports);
                    if let Some(history) = self.store.history_store() {
                        history.pruning().appended(std::iter::repeat_n(group.name, new));
                    }
                    self.notifications.extend(notification.filter(|_| !notified));
                    self.answer(&group.positions, answer);
                }
                Ok(Outcome::Conflict(current)) => {
                    group.loaded = current;
                    group.fresh = true;
                    self.open.push(group);
                }
                Err(error) => self.fail(&group.positions, &error),
            }
        }
        Ok(())
    }

    /// The last moment of the claims among these, if the store's clock decides. A claim that came too
    /// late at `now` was given nothing, and does not hold up the others.
    fn not_after(&self, positions: &[usize], now: Time) -> Option<Time> {
        let times = positions.iter().filter_map(|i| match &self.batch.operations[*i].action {
            Action::Claim(claim) => claim.not_after,
            Action::ClaimKey(claim) => claim.not_after,
            _ => None,
        });
        times.filter(|end| *end >= now).min().filter(|_| self.batch.time.is_store())
    }

    fn answer(&mut self, positions: &[usize], replies: Vec<Result<Reply>>) {
        for (position, reply) in positions.iter().zip(replies) {
            self.replies[*position] = Some(reply);
        }
    }

    /// One error for several operations.
    fn fail(&mut self, positions: &[usize], error: &Error) {
        for position in positions {
            self.replies[*position] = Some(Err(error.clone()));
        }
    }

    fn give_up(&mut self) {
        for group in std::mem::take(&mut self.open) {
            let busy = format!(
                "{:?}: other nodes wrote first {MAX_ATTEMPTS} times; send the batch again",
                group.name
            );
            self.fail(&group.positions, &Error::new(ErrorKind::Unavailable, busy).op(OP));
        }
    }

    async fn end(self) -> Result<Applied> {
        let Self { store, batch, replies, now, notifications, min_fence, .. } = self;
        let (lapsed, reports, outboxes) = (self.lapsed, self.reports, self.outboxes);
        let now = match now {
            Some(now) => now,
            None => store.now(batch.time).await?,
        };
        if !notifications.is_empty() {
            store.notify(merged(notifications)).await;
        }
        let replies = replies.into_iter().map(|reply| {
            reply.unwrap_or_else(|| {
                let none = "the engine has no reply to an operation; report it as a fault";
                Err(Error::new(ErrorKind::Other, none).op(OP))
            })
        });
        let applied = Applied::new(now, replies.collect()).min_fence(min_fence);
        Ok(applied.lapsed(lapsed).reports(reports).outboxes(outboxes))
    }
}

/// The operations that one draft decides.
struct Decided<'a, V> {
    group: Group<'a, V>,
    replies: Vec<Result<Reply>>,
    /// The entries of the runs that were recorded as lost or expired.
    lapsed: Vec<HistoryEntry>,
    reports: Vec<StreakReport>,
}

/// The drafts of one commit, and by position the operations that they decide.
struct Drafts<'a, V> {
    uncommitted: Vec<Decided<'a, V>>,
    drafts: Vec<Draft<'a, V>>,
}

impl<V> Drafts<'_, V> {
    /// With room for so many: a draft is large, and is not moved again.
    fn with_capacity(count: usize) -> Self {
        Self { uncommitted: Vec::with_capacity(count), drafts: Vec::with_capacity(count) }
    }

    fn extend(&mut self, other: Self) {
        self.uncommitted.extend(other.uncommitted);
        self.drafts.extend(other.drafts);
    }
}

/// The effects of a draft beside its record, once it is written.
struct Effects {
    notification: Option<Notification>,
    /// The number of history entries.
    new: usize,
}

impl Effects {
    fn of<V>(draft: &Draft<'_, V>) -> Self {
        let new = draft.history.len();
        Self { notification: draft.notification.clone(), new }
    }
}

/// The result of the operations on one record.
struct AppliedTo {
    replies: Vec<Result<Reply>>,
    /// The record to write; `None` if nothing changed.
    after: Option<Record>,
    history: Vec<HistoryEntry>,
    /// For the record of all changes.
    changes: Vec<Change>,
    /// The entries of the runs that were recorded as lost or expired.
    lapsed: Vec<HistoryEntry>,
    reports: Vec<StreakReport>,
    notification: Option<Notification>,
    /// Its outbox is not empty.
    has_outbox: bool,
}

/// `true` if the commit of a decision on a possibly old record proves this reply. Other replies
/// show the record, which may lack its data.
fn proved_by_commit(reply: &Result<Reply>) -> bool {
    matches!(reply, Ok(Reply::Claimed(_) | Reply::Extended(_) | Reply::Accepted))
}

/// The notification that follows from an applied operation.
fn notification_of(
    operation: &Operation<'_>,
    reply: &Result<Reply>,
    record: Option<&Record>,
    now: Time,
) -> Option<Notification> {
    let job = || Notification::Job(operation.name.to_owned());
    let cancel = || Notification::Cancel(operation.name.to_owned());
    let is_cancelled = |record: &Record| record.leases.iter().any(|lease| lease.cancel_requested);
    let head_due_at = || record.and_then(Record::head).map(|head| head.due_at);
    match (&operation.action, reply) {
        // Another run may wait for this one's end.
        (
            Action::Complete { .. }
            | Action::Retry { .. }
            | Action::Release { .. }
            | Action::GiveUp { .. },
            Ok(Reply::Accepted),
        ) => head_due_at().filter(|due_at| *due_at <= now).map(|_| job()),
        (Action::Cancel(_) | Action::Replace { .. } | Action::Delete, Ok(_))
            if record.is_some_and(is_cancelled) =>
        {
            Some(cancel())
        }
        // A job waits for the place.
        (Action::ReleaseKey { .. }, Ok(Reply::Accepted)) => {
            record.filter(|record| !record.waiters.is_empty()).map(|_| job())
        }
        (Action::Trigger { .. }, Ok(Reply::Triggered(triggered)))
            if triggered.status == TriggerStatus::Ended =>
        {
            None
        }
        (Action::Create(_), Ok(_)) => head_due_at().map(Notification::DueAt),
        (
            Action::Modify(_)
            | Action::Pause { .. }
            | Action::Resume
            | Action::Skip(_)
            | Action::Trigger { .. }
            | Action::Rerun { .. }
            | Action::Dismiss { .. }
            | Action::MarkSucceeded { .. }
            | Action::Reset { .. }
            | Action::Delete,
            Ok(_),
        )
        | (Action::FollowUp { .. }, Ok(Reply::Accepted)) => Some(job()),
        _ => None,
    }
}

/// The fewest notifications with the same meaning: the earliest due time, and one job or all of
/// them.
fn merged(notifications: Vec<Notification>) -> Vec<Notification> {
    let due = notifications.iter().filter_map(|notification| match notification {
        Notification::DueAt(at) => Some(*at),
        _ => None,
    });
    let due = due.min().map(Notification::DueAt);
    let mut jobs =
        notifications.iter().filter(|notification| !matches!(notification, Notification::DueAt(_)));
    let others = match (jobs.next(), jobs.next()) {
        (None, _) => None,
        (Some(one), None) => Some(one.clone()),
        (Some(_), Some(_)) => Some(Notification::Changed),
    };
    others.into_iter().chain(due).collect()
}

/// The reply to an operation on a name that is too long to be stored; `None` for any other name. The
/// engine gives it before it loads anything, and so does a [`Backend`] without the engine.
pub fn too_long(operation: &Operation<'_>) -> Option<Result<Reply>> {
    let name = operation.name;
    if name.len() <= MAX_NAME {
        return None;
    }
    Some(match &operation.action {
        Action::Register { .. } => {
            let len = name.len();
            let reason = format!("its name has {len} bytes, at most {MAX_NAME} can be stored");
            Ok(unreadable(name, reason))
        }
        Action::Create(_) => check_name(name).map(|()| Reply::Absent),
        Action::Extend { .. }
        | Action::Complete { .. }
        | Action::Retry { .. }
        | Action::Release { .. }
        | Action::ClaimKey(_)
        | Action::ReleaseKey { .. }
        | Action::FollowUp { .. }
        | Action::Confirm { .. }
        | Action::Read
        | Action::Redefine { .. }
        | Action::Claim(_)
        | Action::Advance(_)
        | Action::GiveUp { .. }
        | Action::Prune { .. }
        | Action::Replace { .. }
        | Action::Reap => Ok(Reply::Absent),
        _ => Err(missing(name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::from_millis;
    use futures::{FutureExt, executor::block_on, future::pending};

    /// A store of two servers. The one with the names that begin with `a` has a clock of its own; the
    /// other one does not answer.
    #[derive(Debug)]
    struct HalfDown;

    #[async_trait]
    impl RecordStore for HalfDown {
        type Version = ();

        async fn load(&self, load: Load<'_>) -> Result<Snapshot<()>> {
            let records = load.names.iter().map(|name| match name.starts_with('a') {
                true => Ok(Loaded::new(None, ()).read_at(at(5_000))),
                false => Err(Error::new(ErrorKind::Unavailable, "no answer")),
            });
            Ok(Snapshot::partial(at(9_000), records.collect()))
        }

        async fn commit(&self, commit: Commit<'_, ()>) -> Result<Vec<Result<Outcome<()>>>> {
            let written = |_| Ok(Outcome::Written { notified: false });
            Ok(commit.drafts.iter().map(written).collect())
        }

        async fn prune(&self, _: Time) -> Result {
            pending().await
        }

        async fn scan(
            &self,
            _: &str,
            _: Option<&str>,
            _: usize,
        ) -> Result<Vec<(String, Result<Record, String>)>> {
            Ok(Vec::new())
        }
    }

    fn at(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    #[test]
    fn no_batch_prunes() {
        let create =
            Operation::new("a", Action::Register { definition: "d", version: 0, first: None });
        let time = TimeSource::Store { fallback: at(0) };
        let operations = [create, Operation::new("a", Action::Delete)];
        let batch = Batch::new("n", time, &operations);
        assert!(HalfDown.reschedule(batch).now_or_never().is_some());
        assert!(Backend::prune(&HalfDown, time).now_or_never().is_none());
    }

    #[test]
    fn names_whose_server_does_not_answer_fail_alone_and_each_server_decides_by_its_clock() {
        let register = |name| {
            let action = Action::Register { definition: "d", version: 0, first: None };
            Operation::new(name, action)
        };
        let operations = ["b", "a1", "b", "a2"].map(register);
        let time = TimeSource::Store { fallback: at(0) };
        let applied = block_on(HalfDown.reschedule(Batch::new("n", time, &operations))).unwrap();
        let fences = applied.replies.into_iter().map(|reply| match reply {
            Ok(reply) => Ok(reply.state().unwrap().fence),
            Err(error) => Err(error.kind()),
        });
        let (down, up) = (Err(ErrorKind::Unavailable), Ok(5_000_000));
        assert_eq!(fences.collect::<Vec<_>>(), [down, up, down, up]);
    }
}
