//! The watch over jobs in code for which this node is not among the first three.
//!
//! Half a second after an instant, somebody must check that its occurrences are claimed, because
//! the first three nodes may be dead, full, of another build, or exist in the registry only. If
//! every node read every record, the store's work would grow with the nodes. So the nodes check one
//! after the other within a second, in an order that depends on the instant. Each first reads the
//! [mark](super::mark), which is one small record. If it says that an earlier node has checked
//! everything since the instant, the node plans the next occurrences by their schedules and reads
//! nothing else. Otherwise it reads the jobs itself, all in one request, claims what is left, and
//! writes the mark.
//!
//! Whatever the others do, the last node has checked 1.5 s after the instant. A mark says nothing
//! about jobs that its node could not claim, and nodes that know other definitions do not believe
//! it.

use super::{
    Planner,
    delays::WATCHED,
    job::slot::{Phase, Slot},
    mark::{Mark, record_of},
    request::{MarkAction, Request, RequestAction},
    slot_id::SlotId,
    wake_up::When,
};
use crate::{
    backend::Reply,
    job::CheckedSchedule,
    registry::name_hash,
    time::{Time, saturating_add},
};
use allora_schedule::stable_hash;
use chrono::TimeDelta;
use std::{collections::BTreeSet, sync::Arc, time::Duration};

/// The time after which a check ends that is not complete.
const PATIENCE: Duration = Duration::from_millis(900);

/// The most jobs for which a mark does not vouch.
const MOST_EXCEPT: usize = 16;

/// The most occurrences that are passed without a read.
const MOST_STEPS: usize = 32;

/// The shortest time between two reads of the mark. What is due for less than half a second at the
/// first is due for less than 1.5 s at the second.
const PACE: Duration = Duration::from_secs(1);

const MILLI: Duration = Duration::from_millis(1);

/// A mark with a later time than this after now is of a clock that was ahead.
const AHEAD: Duration = Duration::from_secs(1);

/// The watch of one node.
#[derive(Default)]
pub(super) struct Watch {
    /// The hash of the names of the jobs in code.
    jobs: u64,
    /// The mark as it was read or written last, if it is believed, and the generation of its record.
    mark: Option<Mark>,
    generation: Option<i64>,
    /// The jobs that are due for half a second by what this node knows, and the time since which each
    /// is.
    waiting: BTreeSet<(Time, SlotId)>,
    /// The jobs that were planned by their schedules, because the mark vouched for them.
    covered: BTreeSet<SlotId>,
    /// The names of these jobs whose next time is not published yet.
    planned: Vec<Arc<str>>,
    /// The first time at which a run of one of these must be looked after.
    next: Option<Time>,
    /// The time of the next read of the mark, that of the last one, and whether it has no reply yet.
    check_at: Option<Time>,
    checked_at: Option<Time>,
    is_asked: bool,
    check: Option<Check>,
    /// The last instant whose place in the order was computed, and this node's delay in it.
    delay: Option<(Time, Duration)>,
}

/// A check of all jobs by this node.
struct Check {
    began_at: Time,
    /// The latest due time of what is checked. Half a second before the check, so that the first three
    /// nodes have had their turn.
    until: Time,
    /// The jobs that may have an unclaimed occurrence of before.
    open: BTreeSet<SlotId>,
    /// The first time at which a run must be looked after of a job that is not read.
    next: Option<Time>,
}

impl Watch {
    /// A job in code was added.
    pub(super) fn job_added(&mut self, name: &str) {
        self.jobs = self.jobs.wrapping_add(stable_hash(&[name.as_bytes()]));
    }

    /// A job in code was removed.
    pub(super) fn job_removed(&mut self, name: &str) {
        self.jobs = self.jobs.wrapping_sub(stable_hash(&[name.as_bytes()]));
    }

    /// The hash of the names of the jobs in code.
    #[cfg(test)]
    pub(super) fn jobs(&self) -> u64 {
        self.jobs
    }

    /// The jobs that were planned by their schedules since the last call.
    pub(super) fn take_planned(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.planned)
    }

    /// Ends that the job was planned by its schedule only. Returns whether it was.
    pub(super) fn was_covered(&mut self, id: SlotId) -> bool {
        self.covered.remove(&id)
    }

    /// Forgets what is known of the mark: the store's clock was set back.
    pub(super) fn forget_mark(&mut self) {
        *self = Self { jobs: self.jobs, ..Self::default() };
    }

    fn check_by(&mut self, at: Time) {
        self.check_at = Some(self.check_at.map_or(at, |check_at| check_at.min(at)));
    }

    /// The time of the next read of the mark.
    fn due_at(&self) -> Option<Time> {
        let paced = self.checked_at.map(|at| saturating_add(at, PACE));
        self.check_at.filter(|_| !self.is_asked).map(|at| paced.map_or(at, |paced| at.max(paced)))
    }

    fn is_due(&self, now: Time) -> bool {
        self.due_at().is_some_and(|at| at <= now)
    }
}

/// The state of one job in a check.
enum JobCheck {
    /// An occurrence may be unclaimed.
    Open,
    /// None is; the time at which one of its runs must be looked after.
    Claimed(Option<Time>),
    /// This node does not run it, or only in the order of its concurrency key, or the store does not
    /// answer about it.
    Unknown,
}

impl Planner {
    /// Leaves a due job to the watch, if it is for others to run by what this node knows. Returns
    /// `false` if it is to be looked at now.
    pub(super) fn leave_to_watch(&mut self, id: SlotId, turn: Duration, now: Time) -> bool {
        let Some(slot) = self.jobs.get(id).filter(|_| turn == WATCHED) else { return false };
        let Phase::Known(known) = &slot.phase else { return false };
        let Some(due_at) = known.wants_attention() else { return false };
        let is_read = known.as_of >= saturating_add(due_at, turn / 2);
        if is_read || now < saturating_add(due_at, turn) || known.waits_for_trigger() {
            return false;
        }
        if self.watch.mark.as_ref().is_some_and(|mark| due_at <= mark.until) {
            return self.plan_by_mark(id);
        }
        self.watch.waiting.insert((due_at, id));
        let check_at = self.check_at(due_at);
        self.watch.check_by(check_at);
        true
    }

    /// The time at which this node checks what is due at an instant.
    fn check_at(&mut self, due_at: Time) -> Time {
        let (_, delay) = match self.watch.delay {
            Some(delay) if delay.0 == due_at => delay,
            _ => *self.watch.delay.insert((due_at, self.turns.of_check(due_at))),
        };
        saturating_add(due_at, WATCHED + delay)
    }

    /// Plans the next occurrence of a job whose last ones the mark vouches for. Returns `false` if it
    /// does not, or if the schedule does not show that occurrence soon.
    fn plan_by_mark(&mut self, id: SlotId) -> bool {
        let Some(mark) = &self.watch.mark else { return false };
        let Some(slot) = self.jobs.get_mut(id).filter(|slot| !mark.excepts(&slot.name)) else {
            return false;
        };
        let until = mark.until;
        let Slot { name, spec, phase, .. } = slot;
        let Phase::Known(known) = phase else { return true };
        let schedule = CheckedSchedule::of(name, spec);
        let mut next = known.cursor;
        let is_open = known.open_cursor().is_some();
        for step in 0..MOST_STEPS {
            let Some(last) = next else { break };
            if last.due_at > until && (step > 0 || is_open) {
                break;
            }
            if schedule.follows_end() {
                return false;
            }
            match schedule.following(last.scheduled_at, known.started) {
                Ok(following) if step + 1 < MOST_STEPS => next = following,
                _ => return false,
            }
        }
        known.go_to(next);
        known.forget_runs();
        self.watch.planned.push(name.clone());
        self.watch.covered.insert(id);
        if let Some(next) = self.watch.next {
            let check_at = self.check_at(next);
            self.watch.check_by(check_at);
        }
        self.look_again(id);
        true
    }

    /// Adds the operations on the mark.
    pub(super) fn watch_over(&mut self, now: Time, has_room: bool, requests: &mut Vec<Request>) {
        if self.watch.check.is_some() {
            let text = self.end_check(now);
            let generation = self.watch.generation;
            let write = text.map(|text| MarkAction::Write { generation, text: text.into() });
            requests.extend(write.map(|action| self.mark_request(action)));
        } else if has_room && self.watch.is_due(now) {
            (self.watch.is_asked, self.watch.checked_at) = (true, Some(now));
            requests.push(self.mark_request(MarkAction::Read));
        }
    }

    fn mark_request(&self, action: MarkAction) -> Request {
        let (slot, name) = (None, record_of(self.watch.jobs));
        Request { slot, name, action: RequestAction::Mark(action) }
    }

    /// Applies the reply to an operation on the mark; `None` if it was lost.
    pub(super) fn on_mark(&mut self, action: &MarkAction, reply: Option<&Reply>, now: Time) {
        if let Some(reply) = reply {
            let state = match reply {
                Reply::State(state) => Some(state),
                _ => None,
            };
            self.watch.generation = state.map(|state| state.generation);
            let mark = state.and_then(|state| Mark::parse(&state.definition));
            let is_true = |mark: &Mark| {
                mark.until <= saturating_add(now, AHEAD) && mark.view == self.view(&mark.except)
            };
            self.watch.mark = mark.filter(is_true);
        }
        if let MarkAction::Write { .. } = action {
            return;
        }
        self.watch.is_asked = false;
        let vouched = self.watch.mark.as_ref().filter(|_| reply.is_some());
        let vouched = vouched.map(|mark| (mark.until, mark.next));
        let (until, next) = vouched.unzip();
        let after = until.map(|until| (saturating_add(until, MILLI), SlotId::FIRST));
        let rest = after.map(|after| self.watch.waiting.split_off(&after));
        let vouched = rest.map(|rest| std::mem::replace(&mut self.watch.waiting, rest));
        for (due_at, id) in vouched.into_iter().flatten() {
            if self.is_waiting(id, due_at) && !self.plan_by_mark(id) {
                self.read_at(id, When::Next);
            }
        }
        let later = self.watch.next.filter(|next| Some(*next) > until);
        self.watch.next = later.into_iter().chain(next.flatten()).min();
        let must_look = |next: Time| saturating_add(next, WATCHED) <= now;
        let looks = self.watch.next.is_some_and(must_look) && !self.watch.covered.is_empty();
        if looks || !self.watch.waiting.is_empty() {
            self.begin_check(now);
        } else {
            self.wait_for_next();
        }
    }

    /// `true` if it is still the job that was left to the watch because of that instant.
    fn is_waiting(&self, id: SlotId, due_at: Time) -> bool {
        let slot = self.jobs.get(id).filter(|slot| slot.exchange.is_idle());
        let phase = slot.map(|slot| &slot.phase);
        matches!(phase, Some(Phase::Known(known)) if known.wants_attention() == Some(due_at))
    }

    /// Reads the jobs that are due, and those whose runs must be looked after.
    fn begin_check(&mut self, now: Time) {
        let waiting = std::mem::take(&mut self.watch.waiting);
        let mut ids: Vec<SlotId> = waiting
            .into_iter()
            .filter(|(due_at, id)| self.is_waiting(*id, *due_at))
            .map(|(_, id)| id)
            .collect();
        let until = TimeDelta::from_std(WATCHED).ok().and_then(|wait| now.checked_sub_signed(wait));
        let until = until.unwrap_or(Time::MIN_UTC);
        if self.watch.next.is_some_and(|next| next <= until) {
            ids.extend(std::mem::take(&mut self.watch.covered));
        }
        if self.watch.covered.is_empty() {
            self.watch.next = None;
        }
        for id in ids {
            if self.jobs.get(id).is_some_and(|slot| slot.exchange.is_idle()) {
                self.read_at(id, When::Next);
            }
        }
        let is_open = |(id, slot): (SlotId, &Slot)| {
            matches!(self.check_of(id, slot, until), Some(JobCheck::Open)).then_some(id)
        };
        let open = self.jobs.iter().filter_map(is_open).collect();
        self.watch.check_at = None;
        self.watch.check = Some(Check { began_at: now, until, open, next: self.watch.next });
    }

    /// Ends the check if nothing is open any more, or after a while. Returns the text of the mark.
    fn end_check(&mut self, now: Time) -> Option<String> {
        let Check { began_at, until, mut open, next } = self.watch.check.take()?;
        open.retain(|id| {
            let slot = self.jobs.get(*id);
            let check = slot.and_then(|slot| self.check_of(*id, slot, until));
            matches!(check, Some(JobCheck::Open))
        });
        if !open.is_empty() && now < saturating_add(began_at, PATIENCE) {
            self.watch.check = Some(Check { began_at, until, open, next });
            return None;
        }
        let (mut next, mut except) = (next, Vec::new());
        for (id, slot) in self.jobs.iter() {
            match self.check_of(id, slot, until) {
                None => {}
                Some(JobCheck::Claimed(at)) => next = next.into_iter().chain(at).min(),
                Some(_) => except.push(name_hash(&slot.name)),
            }
            if except.len() > MOST_EXCEPT {
                break;
            }
        }
        if except.len() > MOST_EXCEPT {
            self.wait_for_next();
            return None;
        }
        let mark = Mark { until, next, view: self.view(&except), except };
        let text = mark.text();
        self.watch.next = next;
        self.watch.mark = Some(mark);
        self.wait_for_next();
        Some(text)
    }

    /// Sets the time of the next look at the mark because of the runs of covered jobs.
    fn wait_for_next(&mut self) {
        self.watch.check_at = None;
        let next = self.watch.next.filter(|_| !self.watch.covered.is_empty());
        let next = next.map(|next| self.check_at(next));
        let waiting = self.watch.waiting.first().map(|(due_at, _)| *due_at);
        let waiting = waiting.map(|due_at| self.check_at(due_at));
        next.into_iter().chain(waiting).for_each(|at| self.watch.check_by(at));
    }

    /// The hash of the jobs and their generations, without those of these names.
    fn view(&self, except: &[u32]) -> u64 {
        let is_seen = |name: &str| except.is_empty() || !except.contains(&name_hash(name));
        let hash = |(name, agreed): (&Arc<str>, Option<i64>)| {
            let generation = agreed.unwrap_or_default().to_be_bytes();
            stable_hash(&[name.as_bytes(), &generation])
        };
        let jobs = self.jobs.in_code().filter(|(name, _)| is_seen(name));
        jobs.fold(0, |sum, job| hash(job).wrapping_add(sum))
    }

    /// The time of the next step of the watch.
    pub(super) fn watch_at(&self) -> Option<Time> {
        let Watch { check, .. } = &self.watch;
        let check_ends = check.as_ref().map(|check| saturating_add(check.began_at, PATIENCE));
        check_ends.or_else(|| self.watch.due_at())
    }

    /// The state of a job in code in a check up to this time; `None` for other slots.
    fn check_of(&self, id: SlotId, slot: &Slot, until: Time) -> Option<JobCheck> {
        if !slot.is_in_code() {
            return None;
        }
        Some(match &slot.phase {
            _ if self.keys.get(id).is_some() || self.outbox.is_failing(Some(id)) => {
                JobCheck::Unknown
            }
            Phase::Off(_) => JobCheck::Unknown,
            Phase::New(_) | Phase::Redefine(_) => JobCheck::Open,
            Phase::Stale => match slot.wake_at {
                Some(When::At(at)) if at > until => JobCheck::Claimed(Some(at)),
                _ => JobCheck::Open,
            },
            Phase::Known(known) => match known.wants_attention() {
                Some(at) if at <= until => JobCheck::Open,
                _ => JobCheck::Claimed(known.run_ends_at()),
            },
        })
    }
}
