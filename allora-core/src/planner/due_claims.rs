//! The claims that the store makes itself: what is due is found and claimed in one step, without a
//! plan. Then each occurrence is run, or its lease is moved or ended as the policies decide.

use super::{
    Planner,
    ask::walk_and_decide,
    decide::{Claimant, Decision, completion_of},
    due_queries::{Asked, ClaimsKind, DueClaims, DueRequest, LeftLease, Step, Unplanned},
    machine::not_run,
    request::{Request, RequestAction, Start, moved},
    slot_id::SlotId,
    wake_up::NOW,
};
use crate::{
    backend::{Advance, Claimed, ClaimedDue, Cursor, JobState, NextRun, Occurrence, Reply},
    backoff::{MAX_BACKOFF, MIN_BACKOFF},
    event::Event,
    job::{CheckedSchedule, Delivery, JobSpec, window_in},
    record::due_claim,
    time::{Time, saturating_add, since},
};
use std::time::Duration;

/// The longest wait before a query is repeated.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The number of losses after which repetitions still follow soon: the leases of what was claimed are running.
const SOON: u32 = 10;

/// The number of queries without a reply that are repeated. What older ones have claimed is run when
/// its leases have ended, as if the node had died.
const MAX_LOST: usize = 16;

/// The most kinds of one query.
const MAX_KINDS: usize = 16;

/// The longest wait for more capacity, when runs of the last query are ending.
const GATHER: Duration = Duration::from_millis(2);

impl Unplanned {
    /// The run of the claimed occurrence; `None` if its schedule is faulty.
    fn start(&self, late: Duration) -> Option<Start> {
        let (spec, name) = (self.spec.clone()?, self.name());
        let started = self.state.counters.started;
        let then = completion_of(&name, &spec, &self.claimed.occurrence, started).ok()?;
        let claimed = self.claimed.clone();
        let passes = moved(&claimed.occurrence, [then, Cursor::Keep]);
        let (slot, key, has_room) = (SlotId::NONE, None, true);
        Some(Start { slot, name, spec, claimed, then, late, passes, key, has_room })
    }
}

impl Planner {
    /// Stored schedules of these kinds are claimed by queries.
    pub(crate) fn with_due_claims(mut self, claims: ClaimsKind) -> Self {
        self.due_claims.claims = Some(claims);
        self
    }

    /// Leaves a found schedule to a query. Returns `false` if it needs a claim of its own.
    pub(super) fn leave_to_query(&mut self, state: &JobState, now: Time) -> bool {
        let claims = &mut self.due_claims;
        let is_claimed = claims.claims.as_ref().is_some_and(|claims| claims(&state.kind));
        let is_claimed = is_claimed && !claims.has_many_kinds;
        let Some(due_at) = state.due_at.filter(|_| is_claimed) else { return false };
        // It was due when a query claimed all that it could, and was left.
        let was_left = claims.exhausted_at.is_some_and(|at| due_at <= at && at <= now);
        let is_late = claims.late_since(now).is_some_and(|since| due_at <= since);
        if was_left || is_late || due_claim(state, 0).is_none() {
            return false;
        }
        claims.found.entry(due_at).or_default().add(window_in(&state.definition));
        true
    }

    /// A search for stored schedules has a reply, which replaces that of the one before, unless it is
    /// another page of that. `is_full`: it does not have all that is due. `kinds`: the number of kinds
    /// that the node can run.
    pub(crate) fn on_search(&mut self, is_full: bool, is_first: bool, kinds: usize) {
        if is_first {
            self.due_claims.found.clear();
        }
        self.due_claims.is_blind = false;
        self.due_claims.has_many_kinds = kinds > MAX_KINDS;
        self.due_claims.is_crowded = is_full;
    }

    /// A search has no reply. Until one has, queries claim what is due without being told how much that
    /// is: one now, and one for each next occurrence of what they have claimed.
    pub(crate) fn on_failed_search(&mut self, now: Time) {
        let claims = &mut self.due_claims;
        claims.is_blind = self.stored.route.is_some() && claims.claims.is_some();
        if claims.is_blind && !claims.has_many_kinds {
            claims.more_since.get_or_insert(now);
        }
    }

    /// `true` if a query claims what is due at this time, and a search need not find it.
    pub(super) fn is_claimed_by_query(&self, due_at: Time, soon: Duration) -> bool {
        self.due_claims.is_blind || due_at <= saturating_add(self.now, soon)
    }

    /// A query claims what is due at this time, and may be late by `window`.
    pub(super) fn claim_by_query(&mut self, due_at: Time, window: Option<Duration>) {
        self.due_claims.next.entry(due_at).or_default().add(window);
    }

    /// `true` if a query can be sent now, and has something to claim.
    pub(super) fn has_query(&self, now: Time) -> bool {
        let claims = &self.due_claims;
        let is_turn = claims.first_turn().is_some_and(|turn| turn <= now);
        claims.asked.is_none()
            && claims.lost.iter().all(|lost| lost.repeat_at > now)
            && (is_turn || claims.more_since.is_some())
    }

    /// The query to send at `now` with this capacity.
    pub(super) fn ask_query(&mut self, now: Time, room: usize) -> Option<DueRequest> {
        let claims = &mut self.due_claims;
        if let Some(asked) = &mut claims.asked {
            if asked.late_at() <= now && !std::mem::replace(&mut asked.was_late, true) {
                self.stored.read_by(NOW);
            }
            return None;
        }
        if let Some(i) = claims.lost.iter().position(|lost| lost.repeat_at <= now) {
            let mut asked = claims.lost.remove(i);
            asked.request.is_repeated = true;
            (asked.sent_at, asked.was_late) = (now, false);
            return Some(claims.asked.insert(asked).request);
        }
        // Only for as many as are known: the capacity is reserved until the reply comes.
        let known = match claims.more_since {
            Some(_) => room.div_ceil(2),
            None if claims.first_turn().is_none_or(|turn| turn > now) => 0,
            None => claims.known(now),
        };
        claims.is_known = claims.more_since.is_none();
        let limit = room.min(known).min(claims.window.size());
        if limit == 0 {
            return None;
        }
        let gathers_since = *claims.gathers_since.get_or_insert(now);
        let few = (claims.more_since.is_some() || limit < known) && 2 * limit < claims.last;
        if few && now < saturating_add(gathers_since, GATHER) {
            return None;
        }
        claims.gathers_since = None;
        claims.last = limit;
        let request = DueRequest { claim_id: self.next_claim_id, limit, is_repeated: false };
        self.next_claim_id = self.next_claim_id.wrapping_add(1);
        let (sent_at, repeat_at, wait) = (now, now, MIN_BACKOFF);
        let asked = Asked { request, sent_at, was_late: false, repeat_at, wait, losses: 0 };
        claims.asked = Some(asked);
        Some(request)
    }

    /// The time of the next query, and whether it waits for capacity.
    pub(super) fn query_at(&self, now: Time, room: usize) -> (Option<Time>, bool) {
        let claims = &self.due_claims;
        if let Some(asked) = &claims.asked {
            return (Some(asked.late_at()).filter(|_| !asked.was_late), false);
        }
        let repeat_at = claims.lost.iter().map(|lost| lost.repeat_at).min();
        let at = claims.more_since.map_or_else(|| claims.first_turn(), |_| Some(NOW));
        let (at, waits) = match at {
            Some(at) if at <= now && room == 0 => (None, true),
            Some(at) if at <= now => {
                let gathered_at = |since| saturating_add(since, GATHER);
                (Some(claims.gathers_since.map_or(now, gathered_at)), false)
            }
            at => (at, false),
        };
        (repeat_at.into_iter().chain(at).min(), waits)
    }

    /// The time at which queries begin to claim most of so many `found` records, if the last search did
    /// not return all that will be due: until then, one more search would find the same ones.
    pub(crate) fn claims_found_at(&self, found: usize) -> Option<Time> {
        let claims = &self.due_claims;
        let left: usize = claims.found.values().map(|group| group.count).sum();
        let first = claims.found.keys().next().copied();
        first.filter(|_| claims.is_crowded && 2 * left > found)
    }

    /// `true` while a query has something to claim: a search would find the same schedules.
    pub(crate) fn knows_due(&self) -> bool {
        self.due_claims.known(self.now) > 0 && self.due_claims.late_since(self.now).is_none()
    }

    /// `true` if other nodes have claimed a part of what the last query was for. A search at once would
    /// find what their queries have locked and not yet claimed.
    pub(crate) fn was_shared(&self) -> bool {
        self.due_claims.was_shared
    }

    /// `true` while due schedules are claimed by queries: a search would find the same ones.
    pub(crate) fn is_claiming_due(&self) -> bool {
        self.due_claims.more_since.is_some() || self.due_claims.asked.is_some()
    }

    /// Notes what a query has claimed at this time.
    /// `last`: the due time of the last of them.
    fn count_claimed(&mut self, request: DueRequest, count: usize, last: Option<Time>, now: Time) {
        // A repetition does not show how much there was to claim.
        if request.is_repeated {
            return;
        }
        let claims = &mut self.due_claims;
        claims.was_shared = count < request.limit && !claims.ranking.is_alone();
        if count < request.limit {
            claims.is_crowded = false;
            claims.exhaust(now);
            // No other node has claimed the rest: it needs claims of its own.
            if claims.ranking.is_alone() && claims.is_known {
                self.stored.read_by(NOW);
            }
            return;
        }
        let mut left = count;
        for times in [&mut claims.next, &mut claims.found] {
            while left > 0
                && let Some(mut first) = times.first_entry()
                && *first.key() <= now
            {
                let taken = left.min(first.get().count);
                left -= taken;
                first.get_mut().count -= taken;
                if first.get().count == 0 {
                    first.remove();
                }
            }
        }
        let has_more = claims.is_crowded && claims.known(now) == 0;
        claims.more_since = has_more.then_some(last.unwrap_or(now));
    }

    /// Applies the reply to the query that is on its way. Returns the runs to start.
    pub(crate) fn on_claimed_due(
        &mut self,
        reply: ClaimedDue,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Vec<Start> {
        self.now = now;
        let Some(asked) = self.due_claims.asked.take() else { return Vec::new() };
        let (request, is_doubtful) = (asked.request, asked.is_doubtful());
        let ClaimedDue { claimed, .. } = reply;
        self.due_claims.window.answered(claimed.len());
        let due_at = |(state, claimed): &(JobState, Claimed)| {
            state.leases.iter().find(|lease| lease.fence == claimed.fence).map(|one| one.due_at)
        };
        let last = claimed.iter().filter_map(due_at).max();
        self.count_claimed(request, claimed.len(), last, now);
        let mut starts = Vec::with_capacity(claimed.len());
        for (state, claimed) in claimed {
            let spec = match self.by_name.get(state.name.as_str()) {
                Some(&id) if self.slots.get(id).is_some_and(|slot| !slot.is_stored()) => None,
                Some(&id) => {
                    let is_idle = self.slots.get(id).is_some_and(|slot| slot.exchange.is_idle());
                    if is_idle {
                        self.evict(id)
                    } else {
                        self.mark_dirty(id)
                    }
                    self.routed(&state, events)
                }
                None if self.finished.contains(&state.name) => None,
                None => self.routed(&state, events),
            };
            let is_run = spec.is_some() && !is_doubtful;
            let step = if is_run { Step::Undecided } else { Step::Release };
            let mut unplanned = Unplanned { state, spec, claimed, backlog: None, step };
            match self.plan_claimed(&mut unplanned, now) {
                Some(start) => starts.push(start),
                None => self.due_claims.unplanned.push(unplanned),
            }
        }
        starts
    }

    /// The query on its way is a repetition: the reply to the first copy was lost.
    pub(crate) fn on_repeated_claimed_due(&mut self) {
        let DueClaims { asked, window, .. } = &mut self.due_claims;
        if let Some(asked) = asked.as_mut().filter(|asked| !asked.request.is_repeated) {
            asked.request.is_repeated = true;
            window.lost(asked.request.limit);
        }
    }

    /// The replies to the query and to its repetitions were lost: it is repeated later. Until there is a
    /// reply, searches find what is due, too, so that a store which answers no such query stops nothing.
    pub(crate) fn on_lost_claimed_due(&mut self, now: Time) {
        let claims = &mut self.due_claims;
        let Some(mut asked) = claims.asked.take() else { return };
        claims.exhausted_at = Some(now);
        asked.repeat_at = saturating_add(now, asked.wait);
        asked.losses += 1;
        let longest = if asked.losses < SOON { MAX_BACKOFF } else { MAX_WAIT };
        asked.wait = (asked.wait * 2).min(longest);
        if claims.lost.len() >= MAX_LOST {
            claims.lost.remove(0);
        }
        claims.lost.push(asked);
    }

    /// The store has rejected the query, and claimed nothing. Searches find what is due.
    pub(crate) fn on_rejected_claimed_due(&mut self, now: Time) {
        self.due_claims.asked = None;
        self.due_claims.exhaust(now);
    }

    /// The queries without a reply, first that which is on its way, and what queries have claimed and no
    /// run has. The planner is not used after that.
    pub(crate) fn take_claimed_due(&mut self) -> (Vec<DueRequest>, Vec<LeftLease>) {
        let lost = std::mem::take(&mut self.due_claims.lost);
        let asked = self.due_claims.asked.take().into_iter().chain(lost);
        let asked = asked.map(|asked| asked.request).collect();
        let unplanned = std::mem::take(&mut self.due_claims.unplanned).into_iter();
        (asked, unplanned.map(Unplanned::left).collect())
    }

    /// Decides about a claimed occurrence: its run, if it is to be run as it was claimed; otherwise its
    /// next step, which is undecided if the schedule must be walked further.
    fn plan_claimed(&mut self, unplanned: &mut Unplanned, now: Time) -> Option<Start> {
        let Step::Undecided = unplanned.step else { return None };
        let claimant = Claimant {
            claim_id: 0,
            lost_after: self.lost_after,
            extra_attempts: self.extra_attempts,
            cursor_went_last: false,
            waits_since: None,
            key_is_held: true,
        };
        let known = unplanned.before(now);
        let Unplanned { state, spec, backlog, claimed, .. } = &mut *unplanned;
        let Some(spec) = &*spec else { return None };
        let was_walked = backlog.is_some();
        let decision = walk_and_decide(&state.name, spec, &known, backlog, now, claimant, 1);
        let fence = claimed.fence;
        unplanned.step = match decision {
            Ok(Decision::Walk) => Step::Undecided,
            Ok(Decision::Claim { claim, then }) => match claim.not_run {
                Some(not_run) => {
                    let scheduled_at = claim.start.scheduled_at;
                    let due_at = claim.start_due_at.unwrap_or(scheduled_at);
                    let then = Some(NextRun { scheduled_at, due_at });
                    let expected = claim.expected.scheduled_at;
                    let schedule = CheckedSchedule::of(&state.name, spec);
                    let excluded = schedule.excluded(expected, scheduled_at).ok().flatten();
                    let advance = Advance::new(state.generation, expected, not_run, then);
                    Step::Advance(advance.excluded(excluded).by_holder(fence))
                }
                None if was_walked => Step::Extend(lease_of(spec)),
                None => {
                    let late = known.due_at.map_or(Duration::ZERO, |due_at| since(now, due_at));
                    let (name, spec) = (state.name.as_str().into(), spec.clone());
                    let (slot, claimed) = (SlotId::NONE, claimed.clone());
                    let passes = moved(&claimed.occurrence, [then, Cursor::Keep]);
                    return Some(Start {
                        slot,
                        name,
                        spec,
                        claimed,
                        then,
                        late,
                        passes,
                        key: None,
                        has_room: true,
                    });
                }
            },
            Ok(Decision::Advance(advance)) => Step::Advance(advance.by_holder(fence)),
            // The general way decides, and reports what is wrong.
            Ok(_) | Err(_) => Step::Release,
        };
        None
    }

    /// Operations on claimed occurrences that are not run as they are, at most so many.
    pub(super) fn ask_about_claimed(&mut self, now: Time, most: usize) -> Vec<Request> {
        if self.failing.delay(SlotId::NONE, NOW) > now {
            return Vec::new();
        }
        let mut requests = Vec::new();
        let mut waiting = std::mem::take(&mut self.due_claims.unplanned);
        let rest = waiting.split_off(most.min(waiting.len()));
        for mut unplanned in waiting {
            if let Some(start) = self.plan_claimed(&mut unplanned, now) {
                // Only a reply starts a run.
                unplanned.step = Step::Extend(lease_of(&start.spec));
            }
            if let Step::Undecided = unplanned.step {
                self.due_claims.unplanned.push(unplanned);
                continue;
            }
            let (slot, name) = (SlotId::NONE, unplanned.name());
            let action = RequestAction::Claimed(Box::new(unplanned));
            requests.push(Request { slot, name, action });
        }
        self.due_claims.sent += requests.len();
        self.due_claims.unplanned.extend(rest);
        requests
    }

    /// The time at which claimed occurrences are planned.
    pub(super) fn claimed_at(&self) -> Option<Time> {
        let waits = !self.due_claims.unplanned.is_empty();
        waits.then(|| self.failing.delay(SlotId::NONE, NOW))
    }

    /// Applies the reply to an operation on a claimed occurrence. Returns its run.
    pub(super) fn on_claimed_reply(
        &mut self,
        mut unplanned: Unplanned,
        reply: Reply,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Option<Start> {
        self.due_claims.sent -= 1;
        self.failing.answered(SlotId::NONE);
        if let (Step::Advance(advance), Reply::Claimed(_) | Reply::State(_)) =
            (&unplanned.step, &reply)
        {
            let is_moved = match &reply {
                Reply::State(state) => state.cursor == advance.then,
                _ => true,
            };
            let (name, first) = (unplanned.name(), advance.expected);
            let kind = unplanned.state.kind.as_str().into();
            events.extend(is_moved.then(|| not_run(name, kind, first, &advance.not_run)));
        }
        match reply {
            Reply::Claimed(claimed) => unplanned.claimed = claimed,
            Reply::Extended(until) | Reply::CancelRequested(until) => {
                unplanned.claimed.until = until;
            }
            Reply::State(state) => {
                let fence = unplanned.claimed.fence;
                let mut before = unplanned.state.leases.iter();
                let claim_id = before.find(|lease| lease.fence == fence).map(|one| one.claim_id);
                let mut leases = state.leases.iter();
                if let Some(lease) = leases.find(|lease| Some(lease.claim_id) == claim_id) {
                    // The record has changed, and its occurrence still is this node's.
                    unplanned.claimed.fence = lease.fence;
                    unplanned.claimed.occurrence = Occurrence::clone(&lease.occurrence);
                    (unplanned.state, unplanned.backlog) = (*state, None);
                    unplanned.step = match unplanned.step {
                        Step::Release => Step::Release,
                        _ => Step::Undecided,
                    };
                    self.due_claims.unplanned.push(unplanned);
                } else {
                    self.stored.read_by(state.due_at.unwrap_or(NOW));
                }
                return None;
            }
            _ => {
                self.stored.read_by(NOW);
                return None;
            }
        }
        let due_at = unplanned.claimed.occurrence.scheduled_at;
        let has_room = self.has_room_for(SlotId::NONE);
        let start = unplanned.start(since(now, due_at)).filter(|_| has_room);
        match &start {
            Some(_) => self.take_room(SlotId::NONE),
            None => {
                unplanned.step = Step::Release;
                self.due_claims.unplanned.push(unplanned);
            }
        }
        start
    }

    /// The reply to an operation on a claimed occurrence was lost.
    pub(super) fn on_lost_claimed(&mut self, mut unplanned: Unplanned) {
        self.due_claims.sent -= 1;
        unplanned.step = match unplanned.step {
            Step::Release => Step::Release,
            _ => Step::Undecided,
        };
        self.due_claims.unplanned.push(unplanned);
    }
}

fn lease_of(spec: &JobSpec) -> Duration {
    match spec.settings.delivery {
        Delivery::AtLeastOnce { lease } => lease,
        Delivery::AtMostOnce => Duration::ZERO,
    }
}
