//! The planner: computes the next operations of this node from the time and from replies.
//!
//! [`Planner::handle`] is the only way in: it applies inputs, and returns the requests, starts and
//! events that follow. The planner reads no clock and awaits nothing, so plain values test every
//! policy.
//!
//! It consists of machines, each of which owns its state and answers with values or effects: the
//! [`jobs`] with their queues, the [`outbox`] of what is sent, lost or failing, the [`capacity`]
//! that it reserves, the concurrency [`keys`], the [`due`] stored schedules, the [`turns`] of the
//! nodes, and the [`watch`] over what other nodes have left. What is known and decided of one job is in
//! [`job`]. Work on one job touches several machines, and is in files of its own: [`ask`], [`reply`],
//! [`learn`].

mod ahead;
mod ask;
mod broken;
mod capacity;
mod claim_ids;
mod claimed;
mod congestion_window;
mod contention;
mod delays;
mod due;
mod effects;
mod input;
mod job;
mod job_keys;
mod jobs;
mod key;
mod keys;
mod learn;
mod left_keys;
mod mark;
#[cfg(test)]
mod model;
mod outbox;
mod output;
mod own_claims;
mod places;
mod published;
mod release;
mod reply;
mod request;
mod reserved;
mod shares;
mod slot_id;
mod slots;
mod start;
mod stored;
#[cfg(test)]
mod tests;
mod turns;
mod unplanned;
mod wake_up;
mod watch;

pub(crate) use capacity::{KindRoom, Room};
pub(crate) use due::{ClaimsKind, DueRequest};
pub(crate) use input::{FoundRecords, Input, QueryReply, RunUpdate};
pub(crate) use job::decide::completion_of;
pub(crate) use key::HeldKey;
pub(crate) use outbox::OnWay;
pub(crate) use output::{FoundWork, Output, PlannedJob, Search, Status, Tick, Unfinished};
pub(crate) use release::Release;
pub(crate) use request::Request;
pub(crate) use slot_id::SlotId;
pub(crate) use start::Start;
pub(crate) use wake_up::When;

use self::{
    ahead::AheadJobs, capacity::Capacity, claim_ids::ClaimIds, due::Due, effects::Effects,
    job::decide::Claimant, jobs::Jobs, keys::Keys, outbox::Outbox, turns::Turns, watch::Watch,
};
use crate::{event::Event, stored::Route, time::Time};
use std::{mem, sync::Arc, time::Duration};

pub(crate) struct Planner {
    config: PlannerConfig,
    jobs: Jobs,
    /// The jobs in code that wait for times of a clock that was ahead.
    ahead: AheadJobs,
    outbox: Outbox,
    capacity: Capacity,
    keys: Keys,
    due: Due,
    turns: Turns,
    watch: Watch,
    ids: ClaimIds,
    /// The time of the last input or reply.
    now: Time,
    /// The number of the last tick or search.
    tick: u64,
    /// Notifications tell what changes in the store.
    is_told: bool,
    /// The node had capacity for another run at the last tick.
    has_room: bool,
    effects: Effects,
}

/// The settings of a planner.
pub(crate) struct PlannerConfig {
    /// A random number: the first of this node's claim ids, and its order of the jobs.
    pub(crate) random: u128,
    pub(crate) poll: Duration,
    pub(crate) lost_after: Duration,
    /// The time for which the node waits for a reply: no claim is carried out later than that after it
    /// was sent, by this node's estimate of the store's clock.
    pub(crate) store_timeout: Duration,
    /// The number of attempts beyond the retry policy for runs without a result.
    pub(crate) extra_attempts: u32,
    /// The node's id, if the jobs run on every node: each has a place of a concurrency key for itself.
    pub(crate) every_node: Option<Arc<str>>,
    /// The capacity of the node.
    pub(crate) runs: usize,
    /// The choice of the code of stored schedules; `None` if the node runs none.
    pub(crate) route: Option<Route>,
    /// The kinds of stored schedules that queries claim; `None` if the store makes no such claims.
    pub(crate) claims_kind: Option<ClaimsKind>,
}

/// The default of [`extra_attempts`](PlannerConfig::extra_attempts).
pub(crate) const EXTRA_ATTEMPTS: u32 = 3;

impl PlannerConfig {
    /// The number by which this node ranks its jobs.
    fn seed(&self) -> u64 {
        self.random as u64
    }

    /// The claim of an occurrence without a key.
    fn claimant(&self, claim_id: u128) -> Claimant {
        let (lost_after, extra_attempts) = (self.lost_after, self.extra_attempts);
        let (cursor_went_last, waits_since, key_is_held) = (false, None, false);
        Claimant {
            claim_id,
            lost_after,
            extra_attempts,
            cursor_went_last,
            waits_since,
            key_is_held,
        }
    }
}

impl Planner {
    pub(crate) fn new(mut config: PlannerConfig) -> Self {
        let is_every_node = config.every_node.is_some();
        Self {
            jobs: Jobs::default(),
            ahead: AheadJobs::default(),
            outbox: Outbox::default(),
            capacity: Capacity::new(config.runs, is_every_node),
            keys: Keys::default(),
            due: Due::new(config.route.take(), config.claims_kind.take()),
            turns: Turns::default(),
            watch: Watch::default(),
            ids: ClaimIds::from_random(config.random),
            now: Time::MIN_UTC,
            tick: 0,
            is_told: true,
            has_room: true,
            effects: Effects::default(),
            config,
        }
    }

    /// Applies what has happened, in this order, at `now` by this node's estimate of the store's clock.
    /// Returns what follows from it.
    pub(crate) fn handle(&mut self, inputs: Vec<Input>, now: Time) -> Output {
        let is_new = |input: &&Input| matches!(input, Input::Add(..));
        self.jobs.reserve(inputs.iter().filter(is_new).count());
        self.now = now;
        let mut output = Output::default();
        for input in inputs {
            self.apply(input, now, &mut output);
        }
        for name in self.watch.take_planned() {
            self.publish(&name, &mut output);
        }
        output.events = mem::take(&mut self.effects.events);
        output.status = self.status();
        output
    }

    fn apply(&mut self, input: Input, now: Time, output: &mut Output) {
        let name = input.job();
        match input {
            Input::Add(name, spec) => self.add_or_report(name, spec),
            Input::Remove(name) => {
                self.remove(&name);
            }
            Input::Changed(name) => self.on_notification(&name),
            Input::KeyFree(record) => self.on_key_free(record.as_deref()),
            Input::Updated(update) => {
                self.on_run_update(&update);
                self.publish_place(self.place_of(update.slot, &update.name), output);
            }
            Input::UpdateFailed(slot, name) => self.on_failed_update(slot, &name, now),
            Input::Hold(names, until) => self.hold(&names, until),
            Input::Rankings(rankings) => self.turns.set_rankings(rankings),
            Input::Calendars => self.on_calendars(),
            Input::Handlers(router) => self.on_handlers(&router),
            Input::ClockSetBack => self.on_clock_set_back(),
            Input::Tick { room, on_way, is_told } => {
                self.outbox.set_on_way(on_way);
                self.is_told = is_told;
                output.tick = self.tick(now, &room);
                for name in self.effects.events.iter().filter_map(Event::job) {
                    self.publish(name, output);
                }
            }
            Input::Answered { requests, applied, room } => {
                self.on_answer(requests, applied, &room, output);
            }
            Input::Lost(requests) => self.on_lost_replies(requests, now),
            Input::TimedOut { requests, load } => {
                let jobs = requests.iter().filter(|request| !request.is_about_mark());
                let jobs = jobs.map(|request| request.slot);
                self.outbox.request_lost(jobs, requests.len(), load, now);
                self.on_lost_replies(requests, now);
            }
            Input::Search => output.search = Some(self.begin_search()),
            Input::Found(found) => output.found = Some(self.on_found(found)),
            Input::SearchFailed => self.due.on_failed_search(now),
            Input::Queried { is_repeated, reply } => {
                if is_repeated {
                    self.due.was_repeated();
                }
                match reply {
                    QueryReply::Claimed(due) => output.starts.extend(self.on_claimed_due(due)),
                    QueryReply::Lost => self.due.query_lost(now),
                    QueryReply::Rejected => self.due.query_rejected(now),
                }
            }
        }
        if let Some(name) = name {
            self.publish(&name, output);
        }
    }

    /// Hands over the claims without a reply, and what is claimed and has no run: the node stops.
    pub(crate) fn stop(mut self) -> Unfinished {
        let unresolved = self.outbox.take_unresolved().into_iter().filter_map(|id| {
            let slot = self.jobs.get_mut(id)?;
            let pending = slot.exchange.repeat()?;
            Some(Release::unresolved(slot.name.clone(), pending.claim, pending.then))
        });
        let mut releases: Vec<Release> = unresolved.collect();
        self.keys.release_all(&mut self.effects);
        let (queries, claimed) = self.due.take_claimed();
        let given_back = self.effects.releases.into_iter().chain(claimed);
        releases.extend(given_back.map(Release::read_first));
        Unfinished { releases, queries }
    }

    fn status(&self) -> Status {
        Status {
            reserved: self.capacity.reserved(self.reservations()),
            unresolved: self.outbox.unresolved(),
            is_failing: self.is_failing(),
            knows_due: self.due.knows_due(self.now),
            is_claiming_due: self.due.is_claiming(),
            was_shared: self.due.was_shared(),
        }
    }

    /// `true` if the last operation on some job has failed. What failed long ago and is not asked again
    /// counts no more.
    fn is_failing(&self) -> bool {
        let slot = |id| self.jobs.get(id);
        let is_asked = |id| slot(id).is_some_and(|slot| !slot.exchange.is_idle());
        let mut failing = self.outbox.failing(self.now);
        failing.any(|(id, is_recent)| is_recent || id.is_some_and(is_asked))
    }
}
