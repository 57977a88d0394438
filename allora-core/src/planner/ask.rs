//! The operations of one tick: registrations and reads, claims of due occurrences, and repetitions
//! of claims whose replies were lost.

use super::{
    Planner, PlannerConfig, Room, Tick,
    job::decide::{Claimant, Decision, GiveUp},
    job::known::Known,
    job::slot::{Exchange, Off, PendingClaim, Phase, Slot},
    job::walk::walk_and_decide,
    key::{KeyStep, SlotKey},
    keys::sort_claims,
    request::{Request, RequestAction},
    slot_id::SlotId,
    wake_up::{WakeUp, When, recheck},
};
use crate::{
    backend::{MAX_BYTES, OPERATION_BYTES},
    job::{CheckedSchedule, Delivery, InvalidNextAt},
    time::{Time, saturating_add, since},
};
use allora_schedule::stable_hash;
use std::time::Duration;

impl Planner {
    /// The operations to send at `now`, with this capacity for more runs.
    ///
    /// Claims whose replies were lost come first, in a request of their own. If that is lost, too,
    /// other operations have their turn before it is repeated. Jobs whose operations fail share no
    /// request with others, either.
    pub(super) fn tick(&mut self, now: Time, room: &Room) -> Tick {
        self.tick += 1;
        self.now = now;
        self.evict_idle(now);
        self.free_finished();
        self.take_turns(now);
        self.capacity.set_room(room);
        // An unresolved claim may have won, and one that is on its way may win.
        let room = self.capacity.left(self.reservations());
        self.has_room = room > 0;
        self.take_from_aside();
        self.ask_without_room(now);
        let mut requests = Vec::new();
        let (mut claims, mut has_held) = (0, false);
        let is_due = |at: Option<When>| at.is_some_and(|at| at.is_due(now));
        let are_due = is_due(self.suspects_at(0));
        let had_suspects = self.outbox.take_had_suspects();
        if !are_due || had_suspects {
            (claims, has_held) = self.ask(now, room, &mut requests);
            sort_claims(&mut requests);
            if !self.outbox.is_failing(None) {
                self.add_without_slot(now, self.outbox.window_left(), &mut requests);
            }
            self.watch_over(now, claims < room, &mut requests);
        }
        let are_suspects = are_due && requests.is_empty();
        if are_suspects {
            self.outbox.has_suspects();
            claims = self.ask_suspects(now, room, &mut requests);
        }
        for request in requests.iter().filter(|request| request.is_claim()) {
            if let Some(id) = request.slot {
                self.outbox.claim_sent(id, self.is_repeated(id, request));
            }
        }
        self.turns.shares.claims_many(claims, now);
        let room = room.saturating_sub(claims);
        let query = self.due.ask(now, room, &self.turns, &mut self.ids);
        let (query_at, query_waits) = self.due.query_at(now, room, &self.turns);
        let sent = usize::from(are_suspects && !requests.is_empty());
        let next_at = self.next_up().map(|(at, ..)| at);
        let repeat_at = self.suspects_at(sent);
        let release_at = self.without_slot_at().filter(|_| !self.outbox.is_failing(None));
        let more = is_due(next_at) || is_due(repeat_at) || is_due(release_at);
        let watch_at = self.watch_at().map(When::At);
        let is_any_due = [next_at, watch_at].into_iter().any(is_due);
        let waits = is_any_due && room == 0 || query_waits;
        let full = waits && !is_due(repeat_at) && !is_due(release_at);
        // Due jobs wait for the end of a run, or for the query. A claim without a reply does not wait.
        let waits = full || has_held && room > 0;
        let next_at = next_at.into_iter().chain(watch_at).min();
        let next_at = next_at.filter(|at| !waits || !at.is_due(now));
        let query_at = query_at.map(When::At);
        let times = [next_at, repeat_at, release_at, query_at];
        let wake_at = times.into_iter().flatten().min().map(|at| at.time(now));
        let walking = self.jobs.take_walking();
        let looks_again = !walking.is_empty() || (self.capacity.has_aside() && room > 0);
        let wake_at = if looks_again { Some(now) } else { wake_at };
        walking.into_iter().for_each(|id| self.wake(id, Some(When::At(now))));
        let search_by = self.due.take_read_at();
        let at_limit = self.capacity.at_limit();
        Tick { requests, are_suspects, query, wake_at, more, full, search_by, at_limit }
    }

    /// Adds operations about jobs whose time has come. Returns the number of claims, and whether a job
    /// was held back: a query claims what was due before it.
    fn ask(&mut self, now: Time, room: usize, requests: &mut Vec<Request>) -> (usize, bool) {
        let size = self.outbox.window_left();
        let mut bytes = 0;
        while requests.len() < size
            && let Some((at @ When::Next, _, id)) = self.next_up()
        {
            bytes += self.jobs.get(id).map_or(0, Slot::operation_bytes);
            if bytes > MAX_BYTES && !requests.is_empty() {
                return (0, false);
            }
            self.jobs.pop_up();
            requests.extend(self.ask_about(id, at, now));
        }
        let most = self.turns.contention.size(room);
        let has_query = self.due.has_query(now, &self.turns);
        // The occurrence that was due first is claimed first, by either way. Of two at one time, a draw
        // decides.
        let draw = self.config.seed() ^ self.tick;
        let is_query_first = stable_hash(&[&draw.to_le_bytes()]).is_multiple_of(2);
        let (mut claims, mut has_held) = (0, false);
        while claims < most
            && !has_held
            && requests.len() < size
            && (requests.is_empty() || bytes + OPERATION_BYTES <= MAX_BYTES)
        {
            let due = self.due_now(now, (most - claims).min(size - requests.len()));
            if due.is_empty() {
                break;
            }
            for wake_up @ (at, _, id) in due {
                let more = self.jobs.get(id).map_or(0, Slot::operation_bytes);
                let fits = requests.is_empty() || bytes + more <= MAX_BYTES;
                let by_query = match at {
                    When::At(at) if has_query => self.due.before(at, is_query_first, room),
                    When::At(_) | When::Next => 0,
                };
                has_held |= claims + by_query >= room;
                if has_held || claims >= most || requests.len() >= size || !fits {
                    self.jobs.put_back(wake_up);
                    continue;
                }
                let request = self.ask_about(id, at, now);
                bytes += request.as_ref().map_or(0, |_| more);
                claims += usize::from(request.as_ref().is_some_and(Request::is_claim));
                requests.extend(request);
            }
        }
        (claims, has_held)
    }

    /// Looks now, whatever the node's capacity, at the jobs that are due and need none: those whose
    /// next occurrence replaces their runs, because a run may be the one that it waits for; and those
    /// that hold a key, or may hold one, because the capacity that they would wait for is reserved for
    /// themselves.
    fn ask_without_room(&mut self, now: Time) {
        let needs_none = |id: &SlotId| {
            let slot = self.jobs.get(*id);
            slot.is_some_and(|slot| slot.wake_at.is_some_and(|at| at.is_due(now)))
                && !self.outbox.is_failing(Some(*id))
                && !self.needs_room(*id)
        };
        let due = self.jobs.replacing().chain(self.keys.jobs()).filter(needs_none);
        let due: Vec<SlotId> = due.collect();
        for id in due {
            // A job that was held back is due when that time is over.
            self.outbox.release(Some(id));
            self.wake(id, Some(When::Next));
        }
    }

    /// `true` if the reply to an earlier request for the same was lost.
    fn is_repeated(&self, id: SlotId, request: &Request) -> bool {
        match &request.action {
            RequestAction::Claim(pending) => pending.lease_end.is_some(),
            _ => self.keys.get(id).is_some_and(|key| key.was_lost),
        }
    }

    /// The time of the next request about jobs whose operations fail. `sent`: the number of such
    /// requests that are sent now.
    fn suspects_at(&mut self, sent: usize) -> Option<When> {
        if !self.outbox.takes_suspects(sent) {
            return None;
        }
        self.suspect_times().into_iter().flatten().min()
    }

    /// The times of the next repeated claim, of the next operation without a slot, and of the next on
    /// another job whose last operation failed.
    fn suspect_times(&mut self) -> [Option<When>; 3] {
        let queued = self.jobs.next_suspect().map(|(at, ..)| at);
        let without_slot = self.without_slot_at().filter(|_| self.outbox.is_failing(None));
        [self.outbox.repeat_at(), without_slot, queued]
    }

    /// Adds operations of one sort: repeated claims, those without a slot, or those on jobs whose last
    /// operation failed. The sort that has waited longest comes first, so that many that hang keep none
    /// of another sort from its reply. Returns the number of new claims.
    fn ask_suspects(&mut self, now: Time, room: usize, requests: &mut Vec<Request>) -> usize {
        let mut size = self.outbox.window_of_suspects();
        let times @ [repeat_at, without_slot_at, queued_at] = self.suspect_times();
        let first = times.into_iter().flatten().min();
        if repeat_at == first {
            let repeated = self.outbox.take_repeated(now, size);
            requests.extend(repeated.into_iter().filter_map(|id| self.repeat_claim(id, now)));
        } else if without_slot_at == first {
            size = size.min(self.outbox.most(None));
            self.add_without_slot(now, size, requests);
        }
        if queued_at != first || !requests.is_empty() {
            return 0;
        }
        let mut due = self.jobs.take_suspects(now);
        due.sort_by_key(|wake_up| (self.outbox.suspicion(wake_up.2), *wake_up));
        let (mut claims, mut bytes) = (0, 0);
        let mut due = due.into_iter();
        for wake_up @ (at, _, id) in due.by_ref() {
            size = size.min(self.outbox.most(Some(id)));
            bytes += self.jobs.get(id).map_or(0, Slot::operation_bytes);
            let is_full = requests.len() >= size || bytes > MAX_BYTES;
            if !requests.is_empty() && is_full {
                self.jobs.put_suspects_back([wake_up]);
                break;
            }
            let needs_room = self.needs_room(id);
            if needs_room
                && claims >= room
                && let Some(slot) = self.jobs.get_mut(id)
            {
                // A read needs no capacity, and shows if the store answers.
                slot.phase = Phase::Stale;
            }
            let request = self.ask_about(id, at, now);
            let is_claim = request.as_ref().is_some_and(Request::is_claim);
            claims += usize::from(is_claim && needs_room);
            requests.extend(request);
        }
        self.jobs.put_suspects_back(due);
        sort_claims(requests);
        claims
    }

    /// Adds the operations that belong to no slot, up to this number of operations.
    fn add_without_slot(&mut self, now: Time, most: usize, requests: &mut Vec<Request>) {
        if self.without_slot_at().is_none_or(|at| !at.is_due(now)) {
            return;
        }
        let releases = &mut self.effects.releases;
        let releases = releases.drain(..most.min(releases.len())).map(Request::release);
        // In front of the claims, which may be for the same keys.
        requests.splice(..0, releases);
        let left = most.saturating_sub(requests.len());
        requests.extend(self.ask_about_claimed(now, left));
    }

    /// The time of the next of them.
    fn without_slot_at(&self) -> Option<When> {
        let has_any = !self.effects.releases.is_empty() || self.due.has_unplanned();
        has_any.then(|| self.outbox.delay(None, When::Next))
    }

    /// The claim is decided again, for the time of now. If nothing is to be claimed any more, it is
    /// sent as it was, because its reply must come.
    fn repeat_claim(&mut self, id: SlotId, now: Time) -> Option<Request> {
        let slot = self.jobs.get_mut(id)?;
        let mut pending = slot.exchange.repeat()?;
        slot.asked_in = self.tick;
        if let Phase::Known(known) = &slot.phase {
            let mut known = known.clone();
            // The claim itself records these runs as lost.
            known.retain_leases(|_, until| until > now);
            let claim_id = pending.claim.claim_id;
            let key = self.keys.get(id);
            let claimant = claimant(slot, key, claim_id, known.fence, &self.config);
            let mut backlog = slot.take_backlog();
            let Slot { name, spec, .. } = slot;
            let decided = walk_and_decide(name, spec, &known, &mut backlog, now, claimant, 1);
            slot.set_backlog(backlog);
            if let Ok(Decision::Claim { claim, then }) = decided {
                pending.started = known.started_with(&claim.expected);
                let until = slot.claim_until(now, self.config.store_timeout);
                (pending.claim, pending.then) = (claim.until(until), then);
            }
        }
        Some(request(id, slot, RequestAction::Claim(pending)))
    }

    /// The operation for a job that was in the queue for `at`.
    fn ask_about(&mut self, id: SlotId, at: When, now: Time) -> Option<Request> {
        let slot = self.jobs.get_mut(id)?;
        // It may have been in the queue twice.
        slot.wake_at.take_if(|wake_at| *wake_at == at)?;
        let had_key = self.keys.may_hold(id);
        if self.put_aside(id, at) {
            return None;
        }
        let slot = self.jobs.get_mut(id)?;
        let action = match slot.phase {
            Phase::Known(_) => self.due(id, now),
            _ => registration(slot, now),
        };
        match action {
            Ok(None) => None,
            Ok(Some(action)) => {
                let slot = self.jobs.get_mut(id)?;
                slot.exchange = Exchange::Asked { newer: false };
                slot.asked_in = self.tick;
                let request = request(id, slot, action);
                // A key that was held has its capacity already.
                if request.is_claim() && !had_key {
                    self.capacity.take_kind(self.kind_of(id));
                }
                Some(request)
            }
            Err(fault) => {
                self.turn_off(id, Off::Invalid(fault.to_string()), now);
                None
            }
        }
    }

    /// Removes due entries from the queue that may be sent now, in this node's order.
    fn due_now(&mut self, now: Time, most: usize) -> Vec<WakeUp> {
        let choice = self.turns.contention.choice(most);
        let mut due = Vec::new();
        while due.len() < choice
            && let Some(wake_up) = self.next_up()
            && wake_up.0.is_due(now)
        {
            self.jobs.pop_up();
            due.push(wake_up);
        }
        self.turns.contention.order(&mut due);
        due
    }

    fn next_up(&mut self) -> Option<WakeUp> {
        self.jobs.next_up(|id| self.outbox.is_failing(Some(id)))
    }

    /// The operation for a job whose state is known.
    fn due(&mut self, id: SlotId, now: Time) -> Result<Option<RequestAction>, InvalidNextAt> {
        let Some(slot) = self.jobs.get(id) else { return Ok(None) };
        let turn = self.turn_of(id, slot);
        if let Some(until) = self.stays_with_others_until(id, turn, now) {
            self.wake(id, Some(When::At(until)));
            return Ok(None);
        }
        if self.leave_to_watch(id, turn, now) {
            return Ok(None);
        }
        // It was planned by its schedule only.
        if self.watch.was_covered(id) {
            return Ok(Some(RequestAction::Read));
        }
        let (poll, share_slice) = (self.config.poll, self.jobs.share_slice());
        let Some(slot) = self.jobs.get_mut(id) else { return Ok(None) };
        let Phase::Known(known) = &mut slot.phase else { return Ok(None) };
        known.assume_completed(now);
        let fence = known.fence;
        let claimant = claimant(slot, self.keys.get(id), self.ids.next(), fence, &self.config);
        let mut backlog = slot.take_backlog();
        let Slot { name, spec, phase, .. } = &*slot;
        let Phase::Known(known) = phase else { return Ok(None) };
        let decided = walk_and_decide(name, spec, known, &mut backlog, now, claimant, share_slice);
        let due_at = known.due_at;
        let started = match &decided {
            Ok(Decision::Claim { claim, .. }) => known.started_with(&claim.expected),
            _ => known.started,
        };
        let is_own = turn.is_zero() && !slot.is_stored();
        let own_instant = known.wants_attention().filter(|_| is_own);
        let decided = decided.map(|decision| in_turn(decision, known, turn, now));
        let is_old = !slot.is_stored() && slot.recheck_at(known, poll, self.is_told) <= now;
        slot.set_backlog(backlog);
        let decision = decided?;
        let is_at_most_once = slot.spec.settings.delivery == Delivery::AtMostOnce;
        let is_adopted = slot.is_adopted();
        if matches!(slot.reported(), Some(Off::Invalid(_))) {
            self.turn_on(id);
        }
        match self.key_step(id, &decision, due_at, now) {
            KeyStep::Go => {}
            KeyStep::Ask(claim) => {
                return Ok(Some(RequestAction::ClaimKey(self.timed_key_claim(id, claim, now))));
            }
            KeyStep::Later(at) => {
                self.wake(id, Some(at));
                return Ok(None);
            }
        }
        Ok(Some(match decision {
            Decision::Walk => {
                self.jobs.walks(id);
                return Ok(None);
            }
            Decision::Wait if is_old => RequestAction::Read,
            Decision::Wait => {
                self.look_again(id);
                return Ok(None);
            }
            Decision::Read => RequestAction::Read,
            Decision::Blocked(until) => {
                let at = recheck(due_at.unwrap_or(now), now, poll).min(until);
                self.read_at(id, When::At(at));
                return Ok(None);
            }
            Decision::Claim { claim, then } => {
                let claim = match self.jobs.get(id) {
                    Some(slot) => claim.until(slot.claim_until(now, self.config.store_timeout)),
                    None => claim,
                };
                self.ids.draw();
                self.turns.own_claim_sent(own_instant);
                let late = due_at.map_or(Duration::ZERO, |due| since(now, due));
                let lease_end = None;
                let pending = PendingClaim { claim, then, late, started, lease_end, own_instant };
                RequestAction::Claim(Box::new(pending))
            }
            Decision::Advance(advance) => RequestAction::Advance(advance),
            Decision::Replace(replacement) => RequestAction::Replace(replacement),
            Decision::Reap => RequestAction::Reap,
            // Under the stored definition another node may run the attempt.
            Decision::GiveUp(GiveUp { is_cancelled: false, .. })
                if is_adopted && is_at_most_once =>
            {
                RequestAction::Read
            }
            Decision::GiveUp(give_up) => RequestAction::GiveUp(Box::new(give_up)),
        }))
    }
}

/// The decision of a node that leaves due occurrences to others for the time `turn`. After that, it
/// reads the record, and claims what is still due.
fn in_turn(decision: Decision, known: &Known, turn: Duration, now: Time) -> Decision {
    // The time from which the wake-up counts.
    let since = known.wants_attention().filter(|_| !turn.is_zero());
    match (&decision, since) {
        (Decision::Claim { .. }, Some(since)) if now < saturating_add(since, turn) => {
            Decision::Wait
        }
        // The two clocks are not quite alike: a read within the second half counts.
        (Decision::Claim { .. }, Some(since)) if known.as_of < saturating_add(since, turn / 2) => {
            Decision::Read
        }
        _ => decision,
    }
}

/// The registration or the read of a job whose state is not known.
fn registration(slot: &mut Slot, now: Time) -> Result<Option<RequestAction>, InvalidNextAt> {
    if slot.is_stored() {
        return Ok(Some(RequestAction::Read));
    }
    if let Phase::New(None) = slot.phase {
        slot.phase = Phase::New(Some(slot.definition()?.into()));
    }
    let new = CheckedSchedule::of(&slot.name, slot.own());
    let version = slot.own().settings.version;
    Ok(Some(match &slot.phase {
        Phase::Known(_) | Phase::Off(Off::Removed) => return Ok(None),
        Phase::Redefine(former) => {
            let definition = former.own.clone();
            let plan = former.plan(&slot.name, new, now)?;
            let (generation, version) = (former.generation, version.max(former.version));
            RequestAction::Redefine { generation, definition, version, plan }
        }
        Phase::Stale => RequestAction::Read,
        // The reason may be over.
        Phase::Off(_) if slot.fence.is_some() => RequestAction::Read,
        Phase::New(_) | Phase::Off(_) => {
            // The store was emptied: what was under way is run again, at least once.
            let first = match slot.leased_cursor() {
                Some(cursor) => Some(cursor),
                None => new.first(now)?,
            };
            RequestAction::Register { definition: slot.definition()?.into(), version, first }
        }
    }))
}

fn request(id: SlotId, slot: &Slot, action: RequestAction) -> Request {
    Request { slot: Some(id), name: slot.name.clone(), action }
}

/// The claim that this node would make of a job, whose record has this fence.
fn claimant(
    slot: &Slot,
    key: Option<&SlotKey>,
    claim_id: u128,
    fence: i64,
    config: &PlannerConfig,
) -> Claimant {
    Claimant {
        cursor_went_last: slot.rare.as_ref().and_then(|rare| rare.cursor_claim) == Some(fence),
        waits_since: key.and_then(|key| key.claim.since),
        key_is_held: key.is_some_and(SlotKey::is_granted),
        ..config.claimant(claim_id)
    }
}
