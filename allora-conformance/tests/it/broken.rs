//! A backend that is right but for one defect: the reference model, with one function replaced.

use allora_conformance::{Fixture, reference::ReferenceModel};
use allora_core::{
    Backend, Error, ErrorKind, Result, Time,
    backend::{
        Action, Applied, Batch, Claim, ClaimDue, ClaimedDue, Counts, Due, DueQuery, Flag, Flagged,
        History, HistoryCursor, HistoryEntry, HistoryLimits, HistoryQuery, JobState, Notification,
        Notifier, Operation, Page, Queries, Reply, TimeSource,
    },
    record::{Change, HistoryBuffer, OpContext, Record, apply, due_claim, next_fence},
};
use async_trait::async_trait;
use futures::{StreamExt, channel::mpsc, stream::BoxStream};
use std::{
    fmt,
    marker::PhantomData,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

/// One operation on one record.
pub(crate) struct Step<'a> {
    pub(crate) record: &'a mut Option<Record>,
    pub(crate) operation: &'a Operation<'a>,
    pub(crate) context: OpContext<'a>,
    pub(crate) history: &'a mut HistoryBuffer,
}

impl Step<'_> {
    /// As every sound store applies it.
    pub(crate) fn apply(&mut self) -> Result<Reply> {
        apply(self.record, self.operation, self.context, self.history)
    }

    /// Applies this in its place.
    pub(crate) fn apply_instead(&mut self, action: Action<'_>) -> Result<Reply> {
        let Operation { name, output, value, checkpoint, author, .. } = *self.operation;
        let operation = Operation::new(name, action).output(output).value(value).by(author);
        let operation = operation.checkpoint(checkpoint);
        apply(self.record, &operation, self.context, self.history)
    }

    /// The reply to a read.
    pub(crate) fn read(&mut self) -> Result<Reply> {
        self.apply_instead(Action::Read)
    }
}

/// The defect: each replaces one of these functions.
pub(crate) trait Defect: Send + Sync + 'static {
    fn key(name: &str) -> String {
        name.to_owned()
    }
    fn apply(step: &mut Step<'_>) -> Result<Reply> {
        step.apply()
    }
    fn replies(replies: Vec<Result<Reply>>) -> Vec<Result<Reply>> {
        replies
    }
    fn query(query: DueQuery<'_>) -> DueQuery<'_> {
        query
    }
    fn claim_query(query: ClaimDue<'_>) -> ClaimDue<'_> {
        query
    }
    fn due_claim(state: &JobState, claim_id: u128) -> Option<Claim> {
        due_claim(state, claim_id)
    }
    fn listed(states: Vec<JobState>) -> Vec<JobState> {
        states
    }
    fn kinds(kinds: Vec<String>) -> Vec<String> {
        kinds
    }
    fn has_flag(flag: Flag<'_>, state: &JobState, now: Time) -> bool {
        flag.holds(state, now)
    }
    fn counted_prefix(prefix: &str) -> &str {
        prefix
    }
    fn entries(entries: Vec<HistoryEntry>) -> Vec<HistoryEntry> {
        entries
    }
    fn changes(changes: Vec<Change>) -> Vec<Change> {
        changes
    }
    fn leaves_successes_out() -> bool {
        true
    }
    fn history_cursor(before: Option<&HistoryCursor>) -> Option<HistoryCursor> {
        before.cloned()
    }
    fn history_query(query: HistoryQuery<'_>) -> HistoryQuery<'_> {
        query
    }
    fn prune(model: &mut ReferenceModel, limits: &HistoryLimits, now: Time) {
        model.prune_history(limits, now);
    }
    fn prune_changes(model: &mut ReferenceModel, limits: &HistoryLimits, now: Time) {
        model.prune_changes(limits, now);
    }
    fn notifies() -> bool {
        true
    }
    fn is_atomic() -> bool {
        true
    }
    fn is_durable() -> bool {
        true
    }
    /// The highest fence of the removed tombstones, when the store was emptied at the time of this
    /// fence.
    fn min_fence_when_emptied(_: i64) -> i64 {
        0
    }
}

#[derive(Default)]
struct Shared {
    model: Mutex<ReferenceModel>,
    /// The highest fence of the removed tombstones.
    min_fence: AtomicI64,
    /// The time of the last batch.
    now: Mutex<Option<Time>>,
    subscribers: Mutex<Vec<mpsc::UnboundedSender<Notification>>>,
}

pub(crate) struct Broken<D> {
    shared: Arc<Shared>,
    limits: Option<HistoryLimits>,
    defect: PhantomData<D>,
}

impl<D> fmt::Debug for Broken<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Broken")
    }
}

#[async_trait]
impl<D: Defect> Fixture for Broken<D> {
    async fn set_up(_: &str) -> Result<Self> {
        Ok(Self { shared: Arc::default(), limits: None, defect: PhantomData })
    }
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Ok(Arc::new(self.limited(None)))
    }
    async fn connect_with_history(
        &self,
        limits: HistoryLimits,
    ) -> Result<Option<Arc<dyn Backend>>> {
        Ok(Some(Arc::new(self.limited(Some(limits)))))
    }
    /// The model stands for a disk.
    async fn reopen(self) -> Result<Self> {
        let shared: Arc<Shared> = Arc::default();
        if D::is_durable() {
            *shared.model.lock().unwrap() = self.model().clone();
        }
        Ok(Self { shared, limits: None, defect: PhantomData })
    }
    async fn empty(&self) -> Result<bool> {
        *self.model() = ReferenceModel::default();
        let now = self.shared.now.lock().unwrap().unwrap_or_default();
        let min_fence = D::min_fence_when_emptied(next_fence(0, now));
        self.shared.min_fence.store(min_fence, Relaxed);
        Ok(true)
    }
}

impl<D: Defect> Broken<D> {
    fn limited(&self, limits: Option<HistoryLimits>) -> Self {
        Self { shared: self.shared.clone(), limits, defect: PhantomData }
    }
    fn model(&self) -> MutexGuard<'_, ReferenceModel> {
        self.shared.model.lock().unwrap()
    }
    fn notify(&self) {
        let mut subscribers = self.shared.subscribers.lock().unwrap();
        subscribers.retain(|one| one.unbounded_send(Notification::Changed).is_ok());
    }
}

#[async_trait]
impl<D: Defect> Backend for Broken<D> {
    async fn reschedule(&self, batch: Batch<'_>) -> Result<Applied> {
        let now = batch.time.without_store_clock();
        *self.shared.now.lock().unwrap() = Some(now);
        let mut model = self.model();
        if !D::is_atomic() {
            let read = |operation: &Operation<'_>| model.record(operation.name).cloned();
            let before: Vec<_> = batch.operations.iter().map(read).collect();
            drop(model);
            // Another node's turn.
            std::thread::yield_now();
            model = self.model();
            for (operation, before) in batch.operations.iter().zip(before) {
                model.put_back(operation.name, before);
            }
        }
        let is_without = self.limits.is_some_and(|limits| !limits.successes);
        model.without_successes = is_without && D::leaves_successes_out();
        let context = OpContext::new(batch.node, now);
        let mut outboxes = Vec::new();
        let replies = batch.operations.iter().map(|operation| {
            model.with(&D::key(operation.name), |record, history| {
                let reply = D::apply(&mut Step { record, operation, context, history });
                let has_outbox = record.as_ref().is_some_and(Record::has_outbox);
                outboxes.extend(has_outbox.then(|| operation.name.to_owned()));
                reply
            })
        });
        let replies = D::replies(replies.collect());
        drop(model);
        let is_read = |operation: &Operation<'_>| matches!(operation.action, Action::Read);
        if !batch.operations.iter().all(is_read) {
            self.notify();
        }
        let applied = Applied::new(now, replies).outboxes(outboxes);
        Ok(applied.min_fence(self.shared.min_fence.load(Relaxed)))
    }
    async fn prune(&self, time: TimeSource) -> Result {
        if let Some(limits) = &self.limits {
            let (mut model, now) = (self.model(), time.without_store_clock());
            D::prune(&mut model, limits, now);
            D::prune_changes(&mut model, limits, now);
        }
        Ok(())
    }
    fn queries(&self) -> Option<&dyn Queries> {
        Some(self)
    }
    fn history(&self) -> Option<&dyn History> {
        Some(self)
    }
    fn notifier(&self) -> Option<&dyn Notifier> {
        Some(self)
    }
}

#[async_trait]
impl<D: Defect> Queries for Broken<D> {
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
        Ok(self.model().find_due(D::query(query), time.without_store_clock()))
    }
    fn claims_due(&self) -> bool {
        true
    }
    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue> {
        let now = time.without_store_clock();
        *self.shared.now.lock().unwrap() = Some(now);
        Ok(self.model().claim_due(D::claim_query(query), now, D::due_claim))
    }
    async fn get(&self, name: &str) -> Result<JobState> {
        let Some(mut state) = self.model().get(&D::key(name)) else {
            return Err(Error::new(ErrorKind::NotFound, format!("there is no job {name:?}")));
        };
        // Under the name that was asked for.
        name.clone_into(&mut state.name);
        Ok(state)
    }
    async fn list(&self, page: Page<'_>) -> Result<Vec<JobState>> {
        Ok(D::listed(self.model().list(page)))
    }
    async fn kinds(&self) -> Result<Vec<String>> {
        Ok(D::kinds(self.model().kinds()))
    }
    async fn changes(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
        Ok(D::changes(self.model().changes(query)))
    }
    async fn flagged(&self, flag: Flag<'_>, page: Page<'_>, time: TimeSource) -> Result<Flagged> {
        let now = time.without_store_clock();
        let mut all = page;
        all.limit = usize::MAX;
        let mut found = D::listed(self.model().list(all));
        found.retain(|state| D::has_flag(flag, state, now));
        let has_more = found.len() > page.limit;
        found.truncate(page.limit);
        let next = found.last().filter(|_| has_more).map(|state| state.name.clone());
        Ok(Flagged::new(found, next))
    }
    async fn counts(&self, prefix: &str, time: TimeSource) -> Result<Counts> {
        let prefix = D::counted_prefix(prefix);
        let all = D::listed(self.model().list(Page::first(usize::MAX).prefix(prefix)));
        Ok(Counts::among(&all, time.without_store_clock(), true))
    }
}

#[async_trait]
impl<D: Defect> History for Broken<D> {
    async fn entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        let cursor = D::history_cursor(query.before);
        let query = match &cursor {
            Some(cursor) => query.before(cursor),
            None => query,
        };
        let query = D::history_query(query);
        Ok(D::entries(self.model().entries(query)))
    }
    fn limits(&self) -> HistoryLimits {
        self.limits.unwrap_or_default()
    }
}

#[async_trait]
impl<D: Defect> Notifier for Broken<D> {
    async fn subscribe(&self) -> Result<BoxStream<'static, Notification>> {
        let (subscriber, notifications) = mpsc::unbounded();
        // Without the sender the notifications end at once, and no case waits in vain.
        if D::notifies() {
            self.shared.subscribers.lock().unwrap().push(subscriber);
        }
        Ok(notifications.boxed())
    }
}
