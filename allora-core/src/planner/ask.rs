//! The operations of one tick: registrations and reads, claims of due occurrences, and claims whose
//! replies were lost.

use super::{
    Planner,
    backlog::Backlog,
    decide::{Claimant, Decision, GiveUp, decide},
    key::{KeyRelease, KeyStep, SlotKey},
    keys::sort_claims,
    known::Known,
    request::{Request, RequestAction, Tick},
    slot::{Exchange, Off, PendingClaim, Phase, Slot},
    slot_id::SlotId,
    wake_up::{NOW, WakeUp, recheck},
};
use crate::{
    backend::{MAX_BYTES, OPERATION_BYTES},
    event::Event,
    job::{CatchUp, CheckedSchedule, Delivery, InvalidNextAt, JobSpec},
    time::{Time, saturating_add, since},
};
use allora_schedule::stable_hash;
use std::{cmp::Reverse, time::Duration};

/// The largest number of requests on their way about jobs whose operations fail.
const SUSPECTS: usize = 16;

impl Planner {
    /// The operations to send at `now`, with capacity for `room` more runs.
    ///
    /// Claims whose replies were lost come first, in a request of their own. If that is lost, too,
    /// other operations have their turn before it is repeated. Jobs whose operations fail share no
    /// request with others, either.
    pub(crate) fn tick(&mut self, now: Time, room: usize, events: &mut Vec<Event>) -> Tick {
        self.tick += 1;
        self.now = now;
        self.evict_idle(now);
        self.free_finished();
        events.append(&mut self.ended_waits);
        self.take_turns(now);
        self.set_room(room, Vec::new());
        // An unresolved claim may have won, and one that is on its way may win.
        let room = room.saturating_sub(self.reserved());
        self.has_room = room > 0;
        self.take_from_aside();
        self.ask_without_room(now);
        let mut requests = Vec::new();
        let (mut claims, mut has_held) = (0, false);
        let is_due = |at: Option<Time>| at.is_some_and(|at| at <= now);
        let are_due = is_due(self.suspects_at(0));
        let had_suspects = std::mem::take(&mut self.had_suspects);
        if !are_due || had_suspects {
            (claims, has_held) = self.ask(now, room, &mut requests, events);
            sort_claims(&mut requests);
            if !self.failing.contains(SlotId::NONE) {
                self.add_without_slot(now, self.window_left(), &mut requests);
            }
            self.watch_over(now, claims < room, &mut requests);
        }
        let are_suspects = are_due && requests.is_empty();
        if are_suspects {
            self.had_suspects = true;
            claims = self.ask_suspects(now, room, &mut requests, events);
        }
        for request in requests.iter().filter(|request| request.is_claim()) {
            let is_repeated = self.is_repeated(request);
            let claims = if is_repeated { &mut self.repeating } else { &mut self.claiming };
            claims.insert(request.slot);
        }
        self.shares.claims_many(claims, now);
        let room = room.saturating_sub(claims);
        let query = self.ask_query(now, room);
        let (query_at, query_waits) = self.query_at(now, room);
        let sent = usize::from(are_suspects && !requests.is_empty());
        let next_at = self.next_up().map(|(at, ..)| at);
        let repeat_at = self.suspects_at(sent);
        let release_at = self.without_slot_at().filter(|_| !self.failing.contains(SlotId::NONE));
        let more = is_due(next_at) || is_due(repeat_at) || is_due(release_at);
        let watch_at = self.watch_at();
        let is_any_due = [next_at, watch_at].into_iter().any(is_due);
        let waits = is_any_due && room == 0 || query_waits;
        let full = waits && !is_due(repeat_at) && !is_due(release_at);
        // Due jobs wait for the end of a run, or for the query. A claim without a reply does not wait.
        let waits = full || has_held && room > 0;
        let next_at = next_at.into_iter().chain(watch_at).min();
        let next_at = next_at.filter(|at| !waits || *at > now);
        let wake_at = next_at.into_iter().chain(repeat_at).chain(release_at).chain(query_at).min();
        let counting = std::mem::take(&mut self.counting);
        self.walking = counting.len();
        let looks_again = !counting.is_empty() || (self.has_aside() && room > 0);
        let wake_at = if looks_again { Some(now) } else { wake_at };
        counting.into_iter().for_each(|id| self.wake(id, Some(now)));
        let removed = std::mem::take(&mut self.removed);
        Tick { requests, are_suspects, query, wake_at, more, full, removed }
    }

    /// `true` if other nodes claim the same occurrences.
    pub(crate) fn is_losing(&self) -> bool {
        self.contention.is_losing()
    }

    /// Adds operations about jobs whose time has come. Returns the number of claims, and whether a job was
    /// held back: a query claims what was due before it.
    fn ask(
        &mut self,
        now: Time,
        room: usize,
        requests: &mut Vec<Request>,
        events: &mut Vec<Event>,
    ) -> (usize, bool) {
        let size = self.window_left();
        let mut bytes = 0;
        while requests.len() < size
            && let Some((at, _, id)) = self.next_up()
            && at == NOW
        {
            bytes += self.slots.get(id).map_or(0, Slot::operation_bytes);
            if bytes > MAX_BYTES && !requests.is_empty() {
                return (0, false);
            }
            self.queue.pop();
            requests.extend(self.ask_about(id, at, now, events));
        }
        let most = self.contention.size(room);
        let has_query = self.has_query(now);
        // The occurrence that was due first is claimed first, by either way. Of two at one time, a draw decides.
        let is_query_first =
            stable_hash(&[&(self.seed ^ self.tick).to_le_bytes()]).is_multiple_of(2);
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
                let more = self.slots.get(id).map_or(0, Slot::operation_bytes);
                let fits = requests.is_empty() || bytes + more <= MAX_BYTES;
                let by_query = match has_query {
                    true => self.due_claims.before(at, is_query_first, room),
                    false => 0,
                };
                has_held |= claims + by_query >= room;
                if has_held || claims >= most || requests.len() >= size || !fits {
                    self.queue.push(Reverse(wake_up));
                    continue;
                }
                let request = self.ask_about(id, at, now, events);
                bytes += request.as_ref().map_or(0, |_| more);
                claims += usize::from(request.as_ref().is_some_and(Request::is_claim));
                requests.extend(request);
            }
        }
        (claims, has_held)
    }

    /// Looks now, whatever the node's capacity, at the jobs that are due and need none: those whose next
    /// occurrence replaces their runs, because a run may be the one that it waits for; and those that hold
    /// a key, or may hold one, because the capacity that they would wait for is reserved for themselves.
    fn ask_without_room(&mut self, now: Time) {
        let needs_none = |id: &&SlotId| {
            let slot = self.slots.get(**id);
            slot.is_some_and(|slot| slot.wake_at.is_some_and(|at| at <= now))
                && !self.failing.contains(**id)
                && !self.needs_room(**id)
        };
        let due: Vec<SlotId> =
            self.replacing.iter().chain(&self.keyed).filter(needs_none).copied().collect();
        for id in due {
            // A job that was held back is due when that time is over.
            self.failing.release(id);
            self.wake(id, Some(NOW));
        }
    }

    /// `true` if the reply to an earlier request for the same was lost.
    fn is_repeated(&self, request: &Request) -> bool {
        match &request.action {
            RequestAction::Claim(pending) => pending.lease_end.is_some(),
            RequestAction::ClaimKey(_) => {
                let key = self.slots.get(request.slot).and_then(Slot::key);
                key.is_some_and(|key| key.was_lost)
            }
            _ => false,
        }
    }

    /// The largest number of operations in the next request, beside those on their way.
    fn window_left(&self) -> usize {
        self.window.size().saturating_sub(self.on_way.operations).max(1)
    }

    /// The time of the next request about jobs whose operations fail. `sent`: the number of such requests
    /// that are sent now. None of them waits for capacity: it may be reserved for what they resolve.
    fn suspects_at(&mut self, sent: usize) -> Option<Time> {
        if self.on_way.suspects + sent >= SUSPECTS {
            return None;
        }
        self.suspect_times().into_iter().flatten().min()
    }

    /// The times of the next repeated claim, of the next operation without a slot, and of the next on
    /// another job whose last operation failed.
    fn suspect_times(&mut self) -> [Option<Time>; 3] {
        let queued = self.next_suspect().map(|(at, ..)| at);
        let without_slot = self.without_slot_at().filter(|_| self.failing.contains(SlotId::NONE));
        [self.repeat_at(), without_slot, queued]
    }

    /// Adds operations of one sort: repeated claims, those without a slot, or those on jobs whose last
    /// operation failed. The sort that has waited longest comes first, so that many that hang keep none of
    /// another sort from its reply. Returns the number of new claims. The others have half of the window.
    fn ask_suspects(
        &mut self,
        now: Time,
        room: usize,
        requests: &mut Vec<Request>,
        events: &mut Vec<Event>,
    ) -> usize {
        let mut size = (self.window.size() / 2).max(1);
        let [repeat_at, without_slot_at, queued_at] = self.suspect_times();
        let first = repeat_at.into_iter().chain(without_slot_at).chain(queued_at).min();
        if repeat_at == first {
            requests.extend(self.repeat_claims(now, size));
        } else if without_slot_at == first {
            size = size.min(self.failing.most(SlotId::NONE));
            self.add_without_slot(now, size, requests);
        }
        if queued_at != first || !requests.is_empty() {
            return 0;
        }
        let mut due = Vec::new();
        while let Some(wake_up) = self.next_suspect().filter(|(at, ..)| *at <= now) {
            self.suspects.pop();
            due.push(wake_up);
        }
        due.sort_by_key(|wake_up| (self.failing.suspicion(wake_up.2), *wake_up));
        let (mut claims, mut bytes) = (0, 0);
        let mut due = due.into_iter();
        for wake_up @ (at, _, id) in due.by_ref() {
            size = size.min(self.failing.most(id));
            bytes += self.slots.get(id).map_or(0, Slot::operation_bytes);
            let is_full = requests.len() >= size || bytes > MAX_BYTES;
            if !requests.is_empty() && is_full {
                self.suspects.push(Reverse(wake_up));
                break;
            }
            let needs_room = self.needs_room(id);
            if needs_room && claims >= room {
                self.make_stale(id);
            }
            let request = self.ask_about(id, at, now, events);
            let is_claim = request.as_ref().is_some_and(Request::is_claim);
            claims += usize::from(is_claim && needs_room);
            requests.extend(request);
        }
        self.suspects.extend(due.map(Reverse));
        sort_claims(requests);
        claims
    }

    /// The job is read instead of claimed, which needs no capacity and shows if the store answers.
    fn make_stale(&mut self, id: SlotId) {
        if let Some(slot) = self.slots.get_mut(id) {
            slot.phase = Phase::Stale;
        }
    }

    /// The earliest entry of the queue of jobs whose operations fail that its slot confirms.
    fn next_suspect(&mut self) -> Option<WakeUp> {
        while let Some(Reverse(wake_up @ (at, _, id))) = self.suspects.peek().copied() {
            if self.slots.get(id).is_some_and(|slot| slot.wake_at == Some(at)) {
                return Some(wake_up);
            }
            self.suspects.pop();
        }
        None
    }

    /// Adds the operations that belong to no slot, up to this number of operations.
    fn add_without_slot(&mut self, now: Time, most: usize, requests: &mut Vec<Request>) {
        // In front of the claims, which may be for the same keys.
        requests.splice(..0, self.release_keys(now, most));
        let left = most.saturating_sub(requests.len());
        requests.extend(self.ask_about_claimed(now, left));
    }

    /// The time of the next of them.
    fn without_slot_at(&self) -> Option<Time> {
        self.release_at().into_iter().chain(self.claimed_at()).min()
    }

    /// The time of the first repetition of a claim whose reply was lost.
    fn repeat_at(&self) -> Option<Time> {
        self.unresolved.iter().map(|id| self.failing.delay(*id, NOW)).min()
    }

    /// The time at which keys are released with which no occurrence was claimed.
    fn release_at(&self) -> Option<Time> {
        (!self.releases.is_empty()).then(|| self.failing.delay(SlotId::NONE, NOW))
    }

    /// The releases of keys with which no occurrence was claimed, at most so many.
    fn release_keys(&mut self, now: Time, most: usize) -> Vec<Request> {
        if self.release_at().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let releases = self.release_requests(most).into_iter();
        let request = |release: KeyRelease| {
            let (slot, name) = (SlotId::NONE, release.job());
            Request { slot, name, action: RequestAction::ReleaseKey(Box::new(release)) }
        };
        releases.map(request).collect()
    }

    /// The claims whose replies were lost, if they need not wait, at most so many. They have their
    /// capacity already.
    fn repeat_claims(&mut self, now: Time, mut most: usize) -> Vec<Request> {
        let mut ids = Vec::new();
        let failing = &self.failing;
        self.unresolved.make_contiguous().sort_by_key(|id| failing.suspicion(*id));
        self.unresolved.retain(|id| {
            let with_it = most.min(self.failing.most(*id));
            let is_due = ids.len() < with_it && self.failing.delay(*id, NOW) <= now;
            if is_due {
                most = with_it;
                ids.push(*id);
            }
            !is_due
        });
        ids.into_iter().filter_map(|id| self.repeat_claim(id, now)).collect()
    }

    /// The claim is decided again, for the time of now. If nothing is to be claimed any more, it is
    /// sent as it was, because its reply must come.
    fn repeat_claim(&mut self, id: SlotId, now: Time) -> Option<Request> {
        let (lost_after, extra_attempts) = (self.lost_after, self.extra_attempts);
        let slot = self.slots.get_mut(id)?;
        let mut pending = slot.exchange.repeat()?;
        slot.asked_in = self.tick;
        if let Phase::Known(known) = &slot.phase {
            let mut known = known.clone();
            // The claim itself records these runs as lost.
            known.retain_leases(|_, until| until > now);
            let claim_id = pending.claim.claim_id;
            let claimant = slot.claimant(claim_id, known.fence, lost_after, extra_attempts);
            let mut backlog = slot.take_backlog();
            let Slot { name, spec, .. } = slot;
            let decided = walk_and_decide(name, spec, &known, &mut backlog, now, claimant, 1);
            slot.set_backlog(backlog);
            if let Ok(Decision::Claim { claim, then }) = decided {
                pending.started = known.started_with(&claim.expected);
                let until = slot.claim_until(now, self.store_timeout);
                (pending.claim, pending.then) = (claim.until(until), then);
            }
        }
        Some(request(id, slot, RequestAction::Claim(pending)))
    }

    /// The operation for a job that was in the queue for `at`.
    fn ask_about(
        &mut self,
        id: SlotId,
        at: Time,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Option<Request> {
        let slot = self.slots.get_mut(id)?;
        // It may have been in the queue twice.
        slot.wake_at.take_if(|wake_at| *wake_at == at)?;
        let had_key = slot.key().is_some_and(SlotKey::may_be_held);
        if self.put_aside(id, at) {
            return None;
        }
        let slot = self.slots.get_mut(id)?;
        let action = match slot.phase {
            Phase::Known(_) => self.due(id, now, events),
            _ => registration(slot, now),
        };
        match action {
            Ok(None) => None,
            Ok(Some(action)) => {
                let slot = self.slots.get_mut(id)?;
                slot.exchange = Exchange::Asked { newer: false };
                slot.asked_in = self.tick;
                let request = request(id, slot, action);
                if request.is_claim() {
                    self.take_kind_room(id, had_key);
                }
                Some(request)
            }
            Err(fault) => {
                self.turn_off(id, Off::Invalid(fault.to_string()), now, events);
                None
            }
        }
    }

    /// Removes due entries from the queue that may be sent now, in this node's order.
    fn due_now(&mut self, now: Time, most: usize) -> Vec<WakeUp> {
        let choice = self.contention.choice(most);
        let mut due = Vec::new();
        while due.len() < choice
            && let Some(wake_up) = self.next_up()
            && wake_up.0 <= now
        {
            self.queue.pop();
            due.push(wake_up);
        }
        self.contention.order(&mut due);
        due
    }

    /// The earliest entry of the queue that its slot confirms.
    fn next_up(&mut self) -> Option<WakeUp> {
        while let Some(Reverse(wake_up @ (at, _, id))) = self.queue.peek().copied() {
            let is_up = self.slots.get(id).is_some_and(|slot| slot.wake_at == Some(at));
            if is_up && !self.failing.contains(id) {
                return Some(wake_up);
            }
            self.queue.pop();
            self.suspects.extend(is_up.then_some(Reverse(wake_up)));
        }
        None
    }

    /// The operation for a job whose state is known.
    fn due(
        &mut self,
        id: SlotId,
        now: Time,
        events: &mut Vec<Event>,
    ) -> Result<Option<RequestAction>, InvalidNextAt> {
        let Self { poll, lost_after, extra_attempts, .. } = *self;
        let claim_id = self.next_claim_id;
        let turn = self.slots.get(id).map_or(Duration::ZERO, |slot| self.turn_of(slot));
        if let Some(until) = self.stays_with_others_until(id, turn, now) {
            self.wake(id, Some(until));
            return Ok(None);
        }
        if self.leave_to_watch(id, turn, now) {
            return Ok(None);
        }
        // It was planned by its schedule only.
        if self.was_covered(id) {
            return Ok(Some(RequestAction::Read));
        }
        let Some(slot) = self.slots.get_mut(id) else { return Ok(None) };
        let Phase::Known(known) = &mut slot.phase else { return Ok(None) };
        known.assume_completed(now);
        let fence = known.fence;
        let claimant = slot.claimant(claim_id, fence, lost_after, extra_attempts);
        let mut backlog = slot.take_backlog();
        let Slot { name, spec, phase, .. } = &*slot;
        let Phase::Known(known) = phase else { return Ok(None) };
        let walking = self.walking;
        let decided = walk_and_decide(name, spec, known, &mut backlog, now, claimant, walking);
        let due_at = known.due_at;
        let started = match &decided {
            Ok(Decision::Claim { claim, .. }) => known.started_with(&claim.expected),
            _ => known.started,
        };
        let is_own = turn.is_zero() && !slot.is_stored();
        let own_instant = known.wants_attention().filter(|_| is_own);
        let decided = decided.map(|decision| in_turn(decision, known, turn, now));
        let is_old = !slot.is_stored() && known.recheck_at(poll, self.is_told) <= now;
        slot.set_backlog(backlog);
        let decision = decided?;
        let is_at_most_once = slot.spec.settings.delivery == Delivery::AtMostOnce;
        let is_adopted = slot.is_adopted();
        if matches!(slot.reported(), Some(Off::Invalid(_))) {
            self.turn_on(id, events);
        }
        match self.key_step(id, &decision, due_at, now, events) {
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
                self.counting.push(id);
                return Ok(None);
            }
            Decision::Wait if is_old => RequestAction::Read,
            Decision::Wait => {
                self.look_again(id);
                return Ok(None);
            }
            Decision::Read => RequestAction::Read,
            Decision::Blocked(until) => {
                self.read_at(id, recheck(due_at.unwrap_or(now), now, poll).min(until));
                return Ok(None);
            }
            Decision::Claim { claim, then } => {
                let claim = match self.slots.get(id) {
                    Some(slot) => claim.until(slot.claim_until(now, self.store_timeout)),
                    None => claim,
                };
                self.next_claim_id = self.next_claim_id.wrapping_add(1);
                self.own_claim_sent(own_instant);
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

/// The decision of a node that leaves due occurrences to others for the time `turn`. After that, it reads
/// the record, and claims what is still due.
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

/// Decides about a job. If its schedule must be walked, one slice of that comes first; the decision
/// is [`Walk`](Decision::Walk) if there is more. `walking`: the number of jobs that share a slice.
pub(super) fn walk_and_decide(
    name: &str,
    spec: &JobSpec,
    known: &Known,
    backlog: &mut Option<Box<Backlog>>,
    now: Time,
    claimant: Claimant,
    walking: usize,
) -> Result<Decision, InvalidNextAt> {
    let Some(cursor) = known.open_cursor().filter(|next| next.due_at <= now) else {
        *backlog = None;
        return decide(name, spec, known, None, now, claimant);
    };
    let first = cursor.scheduled_at;
    *backlog = backlog.take().and_then(|found| Some(Box::new(found.starting(first)?)));
    if backlog.is_none() {
        let decision = decide(name, spec, known, None, now, claimant)?;
        let Decision::Walk = decision else { return Ok(decision) };
    }
    let keep = match spec.settings.catch_up {
        CatchUp::All { limit } => limit,
        CatchUp::Latest | CatchUp::None => 1,
    };
    let found = backlog.get_or_insert_with(|| Box::new(Backlog::new(first, keep)));
    let schedule = CheckedSchedule::of(name, spec);
    let until = schedule.due_until(now).unwrap_or(first);
    if !found.walk(schedule, until, walking)? {
        return Ok(Decision::Walk);
    }
    decide(name, spec, known, Some(found), now, claimant)
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
    Request { slot: id, name: slot.name.clone(), action }
}
