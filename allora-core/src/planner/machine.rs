//! The planner's state: its jobs, and when each is looked at next.

use super::{
    ahead::AheadJobs,
    capacity::Capacity,
    congestion_window::CongestionWindow,
    contention::Contention,
    due_queries::DueClaims,
    failing::Failing,
    finished_jobs::FinishedJobs,
    key::KeyRelease,
    key_lines::KeyLines,
    left_keys::LeftKeys,
    mark::Watch,
    own_claims::OwnClaims,
    shares::Shares,
    slot::{Off, Origin, Phase, Slot},
    slot_id::SlotId,
    slots::Slots,
    wake_up::{MINUTE, NOW, WakeUp},
    working_set::WorkingSet,
};
use crate::{
    backend::{Claim, Cursor, NotRun, Outcome},
    error::{Error, ErrorKind, Result},
    event::Event,
    job::{CheckedSchedule, JobSpec},
    name::is_key_record,
    registry::{OtherBuilds, Ranking},
    time::{Time, saturating_add},
};
use allora_schedule::stable_hash;
use std::{
    cmp::Reverse,
    collections::{BTreeSet, BinaryHeap, HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Duration,
};

pub(crate) struct Planner {
    pub(super) slots: Slots,
    pub(super) by_name: HashMap<Arc<str>, SlotId>,
    /// They are not in `by_name`.
    pub(super) finished: FinishedJobs,
    /// The wake-up times of the jobs. Entries that their slot does not confirm are stale.
    pub(super) queue: BinaryHeap<Reverse<WakeUp>>,
    /// The jobs with unresolved claims, in the order in which the replies were lost. Each reserves
    /// capacity.
    pub(super) unresolved: VecDeque<SlotId>,
    pub(super) failing: Failing,
    /// As `queue`, of the jobs whose operations fail.
    pub(super) suspects: BinaryHeap<Reverse<WakeUp>>,
    /// The last request was about jobs whose operations fail, or consisted of unresolved claims.
    pub(super) had_suspects: bool,
    /// The jobs whose claims are on their way. Each reserves capacity.
    pub(super) claiming: HashSet<SlotId>,
    /// The jobs whose claims are repeated and on their way.
    pub(super) repeating: HashSet<SlotId>,
    pub(super) capacity: Capacity,
    /// The requests on their way.
    pub(super) on_way: OnWay,
    /// The jobs whose due occurrences are not all found yet.
    pub(super) counting: Vec<SlotId>,
    /// The number of these jobs after the last tick, which share a slice.
    pub(super) walking: usize,
    /// Jobs that were removed, to be dropped outside the lock.
    pub(super) removed: Vec<JobSpec>,
    /// The slots that hold a concurrency key, or wait for one.
    pub(super) keyed: BTreeSet<SlotId>,
    pub(super) key_lines: KeyLines,
    /// The jobs whose active runs their next occurrence replaces. Some may be gone.
    pub(super) replacing: BTreeSet<SlotId>,
    /// The jobs in code that wait for times of a clock that was ahead.
    pub(super) ahead: AheadJobs,
    pub(super) left_keys: LeftKeys,
    /// Places of keys that are to be released.
    pub(super) releases: Vec<KeyRelease>,
    /// The ends of waits for keys that the next tick reports.
    pub(super) ended_waits: Vec<Event>,
    /// The handlers with a limit of their own.
    pub(super) limited: Vec<Limited>,
    /// The time of the last tick or reply.
    pub(super) now: Time,
    /// The number of the last tick or search.
    pub(super) tick: u64,
    pub(super) stored: WorkingSet,
    pub(super) due_claims: DueClaims,
    pub(super) shares: Shares,
    pub(super) window: CongestionWindow,
    pub(super) contention: Contention,
    pub(super) turns: Turns,
    pub(super) watch: Watch,
    /// The jobs that other live nodes can run; `None` if that is not known.
    pub(super) others: Option<OtherBuilds>,
    /// A random number of this node, which ranks the jobs.
    pub(super) seed: u64,
    /// Ids never repeat: they count up from a random number of 128 bits.
    pub(super) first_claim_id: u128,
    pub(super) next_claim_id: u128,
    pub(super) poll: Duration,
    pub(super) lost_after: Duration,
    /// The time for which the node waits for a reply of the store.
    pub(super) store_timeout: Duration,
    /// The time for which a due occurrence waits for a node that can run its stored definition.
    pub(super) abandoned_after: Duration,
    /// Notifications tell what changes in the store.
    pub(super) is_told: bool,
    /// The node had capacity for another run at the last tick.
    pub(super) has_room: bool,
    /// The number of attempts beyond the retry policy for runs without a result.
    pub(super) extra_attempts: u32,
    /// The node's id, if the jobs run on every node: each has a place of a concurrency key for itself.
    pub(super) every_node: Option<Arc<str>>,
}

/// A limited handler.
#[derive(Debug, Default)]
pub(super) struct Limited {
    /// The number of runs for which it has capacity.
    pub(super) room: usize,
    /// The jobs that were due when it had none. Entries that their slot does not confirm are stale.
    pub(super) aside: BTreeSet<WakeUp>,
}

/// The nodes with the same jobs, as this node last saw them.
#[derive(Default)]
pub(super) struct Turns {
    pub(super) ranking: Ranking,
    /// The delays have changed since the wake-ups were set.
    pub(super) have_changed: bool,
    /// The registry was read since the last tick.
    pub(super) others_have_changed: bool,
    pub(super) own_claims: OwnClaims,
}

/// The requests on their way when others are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OnWay {
    /// The number of operations in requests with more than one.
    pub(crate) operations: usize,
    /// The number of requests about jobs whose operations fail.
    pub(crate) suspects: usize,
}

impl OnWay {
    /// With a request with this number of operations.
    pub(crate) fn with(self, operations: usize, are_suspects: bool) -> Self {
        Self {
            operations: self.operations + counted(operations),
            suspects: self.suspects + usize::from(are_suspects),
        }
    }

    pub(crate) fn without(self, operations: usize, are_suspects: bool) -> Self {
        Self {
            operations: self.operations - counted(operations),
            suspects: self.suspects - usize::from(are_suspects),
        }
    }
}

/// A single operation is never too much for the store.
fn counted(operations: usize) -> usize {
    if operations > 1 { operations } else { 0 }
}

/// A job in code, with its definition.
pub(crate) struct NewJob {
    name: Arc<str>,
    spec: JobSpec,
    /// `None` if its schedule is faulty.
    definition: Option<Box<str>>,
}

impl NewJob {
    /// Computes the definition. It is user code: call it without a lock.
    pub(crate) fn new(name: Arc<str>, spec: JobSpec) -> Self {
        let definition = CheckedSchedule::definition(&spec).ok().map(String::into_boxed_str);
        Self { name, spec, definition }
    }
}

/// The default of [`Planner::with_store_timeout`].
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// The default of [`Planner::with_extra_attempts`].
pub(crate) const EXTRA_ATTEMPTS: u32 = 3;

impl Planner {
    /// `claims`: a random number, the first of this node's claim ids.
    pub(crate) fn new(claims: u128, poll: Duration, lost_after: Duration) -> Self {
        Self {
            slots: Slots::default(),
            by_name: HashMap::new(),
            finished: FinishedJobs::default(),
            queue: BinaryHeap::new(),
            unresolved: VecDeque::new(),
            failing: Failing::default(),
            suspects: BinaryHeap::new(),
            had_suspects: false,
            claiming: HashSet::new(),
            repeating: HashSet::new(),
            capacity: Capacity::default(),
            on_way: OnWay::default(),
            counting: Vec::new(),
            walking: 0,
            removed: Vec::new(),
            keyed: BTreeSet::new(),
            key_lines: KeyLines::default(),
            replacing: BTreeSet::new(),
            ahead: AheadJobs::default(),
            left_keys: LeftKeys::default(),
            releases: Vec::new(),
            ended_waits: Vec::new(),
            limited: Vec::new(),
            now: NOW,
            tick: 0,
            stored: WorkingSet::default(),
            due_claims: DueClaims::default(),
            shares: Shares::default(),
            window: CongestionWindow::default(),
            contention: Contention::default(),
            turns: Turns::default(),
            watch: Watch::default(),
            others: None,
            seed: claims as u64,
            first_claim_id: claims,
            next_claim_id: claims,
            poll,
            lost_after,
            store_timeout: STORE_TIMEOUT,
            abandoned_after: MINUTE,
            is_told: true,
            has_room: true,
            extra_attempts: EXTRA_ATTEMPTS,
            every_node: None,
        }
    }

    /// The jobs run on every node, of which this one has the id `node`.
    pub(crate) fn on_every_node(mut self, node: Arc<str>) -> Self {
        self.every_node = Some(node);
        self
    }

    /// Sets the time after which this node replaces a stored definition that it cannot read, if a
    /// due occurrence waits. Default: a minute.
    pub(crate) fn abandoned_after(mut self, after: Duration) -> Self {
        self.abandoned_after = after;
        self
    }

    /// Sets the time for which the node waits for a reply: no claim is carried out later than that after it
    /// was sent, by this node's estimate of the store's clock. Default: 1 s.
    pub(crate) fn with_store_timeout(mut self, timeout: Duration) -> Self {
        self.store_timeout = timeout;
        self
    }

    /// Occurrences whose runs end without a result have this number of attempts beyond the retry
    /// policy.
    pub(crate) fn with_extra_attempts(mut self, extra_attempts: u32) -> Self {
        self.extra_attempts = extra_attempts;
        self
    }

    /// Makes room for so many more jobs at once: tables that grow step by step leave gaps in the memory of
    /// the process.
    pub(crate) fn reserve(&mut self, jobs: usize) {
        self.slots.reserve(jobs);
        self.by_name.reserve(jobs);
        self.queue.reserve(jobs);
    }

    /// Adds a job in code. A stored schedule of this name leaves its place to it: the record tells
    /// which of them the store has, and this node runs no other.
    ///
    /// # Errors
    /// `AlreadyExists` if the planner has a job in code of this name.
    pub(crate) fn add(&mut self, job: NewJob) -> Result {
        let NewJob { name, spec, definition } = job;
        let placed = self.by_name.get(&name).copied();
        let is_stored = |id| self.slots.get(id).is_some_and(Slot::is_stored);
        if self.finished.contains(&name) || placed.is_some_and(|id| !is_stored(id)) {
            let twice = format!("the job {name:?} is added twice; names are unique");
            return Err(Error::new(ErrorKind::AlreadyExists, twice));
        }
        if let Some(id) = placed {
            self.leave_place(id);
        }
        let mut slot = Slot::new(name.clone(), spec, Origin::Code, self.seed);
        slot.phase = Phase::New(definition);
        let id = self.slots.insert(slot);
        let id = id.ok_or_else(|| Error::invalid("a scheduler has at most 4 294 967 295 jobs"))?;
        self.watch.jobs = self.watch.jobs.wrapping_add(stable_hash(&[name.as_bytes()]));
        self.by_name.insert(name, id);
        self.ahead.read_first(id);
        self.wake(id, Some(NOW));
        Ok(())
    }

    /// Removes a job. Returns it if the planner had it, to be dropped without a lock. Its requests
    /// and runs continue, and the name is free.
    pub(crate) fn remove(&mut self, name: &str) -> Option<JobSpec> {
        let removed = self.finished.remove(name).or_else(|| {
            let id = *self.by_name.get(name)?;
            // Stored schedules come and go with the store.
            let slot = self.slots.get_mut(id).filter(|slot| !slot.is_stored())?;
            let spec = slot.spec.clone();
            self.leave_place(id);
            Some(spec)
        });
        if removed.is_some() {
            self.watch.jobs = self.watch.jobs.wrapping_sub(stable_hash(&[name.as_bytes()]));
        }
        removed
    }

    /// Makes a name free. Requests and runs of its job continue.
    fn leave_place(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.phase = Phase::Off(Off::Removed);
        slot.wake_at = None;
        self.ahead.remove(id);
        let is_idle = slot.exchange.is_idle();
        self.stored.placed -= usize::from(slot.is_stored());
        self.by_name.remove(&slot.name);
        if is_idle {
            self.forget_key(id);
        }
        self.free_removed(id);
    }

    /// Frees the slot of a removed job, unless a claim of it may succeed: that is repeated until
    /// there is a reply.
    pub(super) fn free_removed(&mut self, id: SlotId) {
        if self.slots.get(id).is_some_and(|slot| slot.is_removed() && slot.exchange.is_idle()) {
            self.forget_key(id);
            self.failing.answered(id);
            self.replacing.remove(&id);
            self.ahead.remove(id);
            if let Some(slot) = self.slots.remove(id) {
                self.removed.push(slot.spec);
            }
        }
    }

    /// Sets the requests that are on their way, for the next tick.
    pub(crate) fn set_on_way(&mut self, on_way: OnWay) {
        self.on_way = on_way;
    }

    /// Sets whether notifications tell what changes in the store.
    pub(crate) fn set_told(&mut self, is_told: bool) {
        self.is_told = is_told;
    }

    /// The number of unresolved claims.
    pub(crate) fn unresolved(&self) -> usize {
        self.unresolved.len()
    }

    /// Hands over the unresolved claims, with the names of their jobs and the cursors' moves by their
    /// completions. The planner is not used after that.
    pub(crate) fn take_unresolved(&mut self) -> Vec<(Arc<str>, Claim, Cursor)> {
        let ids = std::mem::take(&mut self.unresolved);
        let claims = ids.into_iter().filter_map(|id| {
            let slot = self.slots.get_mut(id)?;
            let pending = slot.exchange.repeat()?;
            Some((slot.name.clone(), pending.claim, pending.then))
        });
        claims.collect()
    }

    /// Handles a notification about this job.
    pub(crate) fn on_notification(&mut self, name: &str) {
        if is_key_record(name) {
            return self.on_key_free(Some(name));
        }
        match self.by_name.get(name).copied() {
            Some(id) => self.mark_dirty(id),
            None if self.resume_finished(name) => {}
            None => self.stored.read_by(NOW),
        }
    }

    /// Reads every job again: the store's clock was set back, so that times that are known may be of
    /// a clock that was ahead.
    pub(crate) fn on_clock_set_back(&mut self) {
        self.failing.clock_was_set_back();
        self.forget_mark();
        self.ask_for_keys_now();
        let ids: Vec<SlotId> = self.slots.iter().map(|(id, _)| id).collect();
        let in_code = self.slots.iter().filter(|(_, slot)| !slot.is_stored() && !slot.is_removed());
        self.ahead.read_again(in_code.map(|(id, _)| id));
        ids.into_iter().for_each(|id| self.mark_dirty(id));
    }

    /// Marks a job as changed. It is read after the pending reply, if there is one. The same holds
    /// while a claim whose reply was lost waits for its repetition: a read before would discard a
    /// claim that may have succeeded.
    pub(super) fn mark_dirty(&mut self, id: SlotId) {
        let Some(slot) = self.slots.get_mut(id) else { return };
        if slot.exchange.note_newer() {
            return;
        }
        match slot.phase {
            Phase::Known(_) | Phase::Stale => self.read_at(id, NOW),
            // A registration shows the record, too.
            Phase::New(_) | Phase::Redefine(_) | Phase::Off(_) => self.wake(id, Some(NOW)),
        }
    }

    /// Sets the time at which the job is looked at next. A job whose operations fail waits longer.
    pub(super) fn wake(&mut self, id: SlotId, at: Option<Time>) {
        let at = at.map(|at| self.failing.delay(id, at));
        let Some(slot) = self.slots.get_mut(id).filter(|slot| !slot.is_removed()) else { return };
        if slot.is_stored() {
            self.stored.idle.push(id);
        }
        // Nothing else is asked until a pending operation has its reply, which sets the time.
        if !slot.exchange.is_idle() || slot.wake_at == at {
            return;
        }
        slot.wake_at = at;
        let rank = slot.rank;
        if let Some(at) = at {
            let is_failing = self.failing.contains(id);
            let queue = if is_failing { &mut self.suspects } else { &mut self.queue };
            queue.push(Reverse((at, rank, id)));
            self.compact();
        }
    }

    /// Removes stale entries when most are.
    fn compact(&mut self) {
        if self.queue.len().max(self.suspects.len()) > 2 * self.slots.len() + 1_024 {
            let entry = |(id, slot): (SlotId, &Slot)| Some(Reverse((slot.wake_at?, slot.rank, id)));
            let entries = self.slots.iter().filter_map(entry);
            let is_failing = |wake_up: &Reverse<WakeUp>| self.failing.contains(wake_up.0.2);
            (self.suspects, self.queue) = entries.partition(is_failing);
        }
    }

    pub(super) fn read_at(&mut self, id: SlotId, at: Time) {
        if let Some(slot) = self.slots.get_mut(id).filter(|slot| !slot.is_removed()) {
            slot.phase = Phase::Stale;
            self.wake(id, Some(at));
        }
    }

    /// Stops running a job for a reason, until it is looked at again.
    pub(super) fn turn_off(&mut self, id: SlotId, off: Off, now: Time, events: &mut Vec<Event>) {
        let recheck_at = self.off_until(id, &off, now);
        let Some(slot) = self.slots.get_mut(id) else { return };
        slot.report(Some(off.clone()), events);
        if off == Off::Deleted {
            slot.note_cursor(None);
        }
        slot.phase = Phase::Off(off);
        self.release_key(id, events);
        self.wake(id, Some(recheck_at));
    }

    /// The time at which a job that is off is looked at again.
    fn off_until(&self, id: SlotId, off: &Off, now: Time) -> Time {
        let soonest = saturating_add(now, MINUTE);
        let Some(slot) = self.slots.get(id).filter(|_| *off == Off::Deleted) else {
            return soonest;
        };
        let next = CheckedSchedule::of(&slot.name, &slot.spec).following(now, 0);
        let latest = saturating_add(now, crate::record::TOMBSTONE / 2);
        next.map_or(soonest, |next| next.map_or(latest, |next| next.due_at.clamp(soonest, latest)))
    }

    /// Reports that a job runs again that was off.
    pub(super) fn turn_on(&mut self, id: SlotId, events: &mut Vec<Event>) {
        self.ahead.resumes(id);
        if let Some(slot) = self.slots.get_mut(id) {
            slot.report(None, events);
        }
    }
}

pub(super) fn not_run(name: Arc<str>, kind: Arc<str>, first: Time, range: &NotRun) -> Event {
    let NotRun { last, count, reason } = *range;
    match range.outcome() {
        Outcome::Skipped => Event::OccurrencesSkipped { name, kind, first, last, count, reason },
        _ => Event::OccurrencesMissed { name, kind, first, last, count, reason },
    }
}
