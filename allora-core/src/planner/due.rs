//! Stored schedules that are due and not in memory: what a search has found, and what queries find
//! and claim in one step.
//!
//! There may be many stored schedules, so each has a slot only while it is due soon. Where the
//! store can claim by a query, schedules need no slot at all: the query claims what is due, and
//! each occurrence is planned afterwards.

use super::{
    broken::Broken, capacity::Reserved, claim_ids::ClaimIds, congestion_window::CongestionWindow,
    release::Release, turns::Turns, unplanned::Unplanned, wake_up::When,
};
use crate::{
    backend::JobState,
    backoff,
    condition::Condition,
    event::Event,
    job::{JobSpec, window_in},
    record::due_claim,
    stored::{Route, Routed},
    time::{Time, saturating_add},
};
use std::{collections::BTreeMap, mem, sync::Arc, time::Duration};

/// The most instants whose turns are compared: this node may be the first for a later one.
const MAX_TURNS: usize = 8;

const MILLI: Duration = Duration::from_millis(1);

/// The time without a reply after which what a query is for is searched and claimed by other requests,
/// too: it may have been lost on its way to the store.
const LATE: Duration = Duration::from_secs(1);

/// The longest wait before a query is repeated.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The number of losses after which repetitions still follow soon: the leases of what was claimed are
/// running.
const SOON: u32 = 10;

/// The number of queries without a reply that are repeated. What older ones have claimed is run when
/// its leases have ended, as if the node had died.
const MAX_LOST: usize = 16;

/// The most kinds of one query.
const MAX_KINDS: usize = 16;

/// The longest wait for more capacity, when runs of the last query are ending.
const GATHER: Duration = Duration::from_millis(2);

/// A query that finds and claims, to be sent now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueRequest {
    pub(crate) claim_id: u128,
    pub(crate) limit: usize,
    pub(crate) is_repeated: bool,
}

/// `true` for a kind that queries claim.
pub(crate) type ClaimsKind = Arc<dyn Fn(&str) -> bool + Send + Sync>;

#[derive(Default)]
pub(super) struct Due {
    /// The choice of the code of stored schedules; `None` if the node runs none.
    route: Option<Route>,
    /// The earliest due time of the schedules that are not in memory, and that no search has found
    /// since.
    read_at: Option<When>,
    /// The due schedules that this node cannot run, for their searches and reports.
    broken: Broken,
    /// Says which kinds are claimed by queries; `None` if the store makes no such claims.
    claims: Option<ClaimsKind>,
    /// The schedules that the last search has found, and a query claims, by their due times.
    found: BTreeMap<Time, DueGroup>,
    /// The next occurrences of what queries have claimed before.
    next: BTreeMap<Time, DueGroup>,
    /// The node asks for many kinds, each of which costs a query a step. Schedules have claims of their
    /// own then.
    has_many_kinds: bool,
    /// The last search did not return all that was due.
    is_crowded: bool,
    /// There is more than is known, and none of it was due before this time.
    more_since: Option<Time>,
    /// The last query was for schedules that were found, or are the next ones of what was claimed.
    is_known: bool,
    /// The searches have no reply: queries claim what they would find.
    is_blind: bool,
    /// The store's time of the last query that claimed all that it could.
    exhausted_at: Option<Time>,
    /// The last query claimed less than it could have, because other nodes claim from the same
    /// schedules.
    was_shared: bool,
    /// The query that is on its way.
    asked: Option<Asked>,
    /// Queries whose replies were lost, also those to a repetition. They reserve no capacity: what they
    /// have claimed is released.
    lost: Vec<Asked>,
    /// The largest limit of a query: one that is lost may have been too large for the store.
    window: CongestionWindow,
    /// The limit of the last query, and since when there has been less capacity than that.
    last: usize,
    gathers_since: Option<Time>,
    /// Claimed occurrences that are to be planned.
    unplanned: Vec<Unplanned>,
    /// The number of those about which an operation is on its way.
    sent: usize,
}

/// Schedules that are due at one time.
#[derive(Clone, Copy, Debug, Default)]
struct DueGroup {
    count: usize,
    /// The shortest window among them.
    window: Option<Duration>,
}

impl DueGroup {
    fn add(&mut self, window: Option<Duration>) {
        self.count += 1;
        self.window = self.window.into_iter().chain(window).min();
    }
}

/// A query without a reply.
struct Asked {
    request: DueRequest,
    sent_at: Time,
    /// A search was asked for because it is late.
    was_late: bool,
    /// The time at which it is repeated, if its reply was lost.
    repeat_at: Time,
    /// The number of times that it was among the lost ones.
    losses: u32,
}

impl Asked {
    /// The time from which it is late.
    fn late_at(&self) -> Time {
        saturating_add(self.sent_at, LATE)
    }

    fn is_doubtful(&self) -> bool {
        self.losses > 0
    }
}

/// Schedules in the store, and their code.
impl Due {
    pub(super) fn new(route: Option<Route>, claims: Option<ClaimsKind>) -> Self {
        Self { route, claims, ..Self::default() }
    }

    /// Notes that a record that is not in memory is due at `at`.
    pub(super) fn read_by(&mut self, at: When) {
        if self.route.is_some() {
            let read_at = self.read_at.get_or_insert(at);
            *read_at = at.min(*read_at);
        }
    }

    /// The earliest of these times since the last call.
    pub(super) fn take_read_at(&mut self) -> Option<When> {
        self.read_at.take()
    }

    /// The code for a stored schedule. Reports each generation that this node cannot run once, unless
    /// there are very many.
    pub(super) fn code_of(&mut self, state: &JobState, events: &mut Vec<Event>) -> Option<JobSpec> {
        let route = self.route.as_ref()?;
        let name: Arc<str> = state.name.as_str().into();
        let job = name.clone();
        let condition = match &state.unreadable {
            Some(reason) => Condition::RecordUnreadable { job, reason: reason.clone() },
            None => match route(state) {
                Routed::Here(spec) => {
                    self.broken.is_mended(&name, events);
                    return Some(spec);
                }
                Routed::Elsewhere => return None,
                Routed::Later => {
                    self.broken.waits(name);
                    return None;
                }
                Routed::Broken(reason) => Condition::JobInvalid { job, reason },
            },
        };
        self.broken.found(name, state.generation, condition, events);
        None
    }

    /// Forgets the schedules that this node cannot run. Those of its kinds are found again.
    pub(super) fn forget_broken(&mut self, events: &mut Vec<Event>) {
        self.broken.begin_sweep();
        self.broken.end_sweep(events);
    }

    /// The number of schedules that this node cannot run and remembers.
    pub(super) fn broken(&self) -> usize {
        self.broken.len()
    }

    pub(super) fn is_broken(&self, name: &str) -> bool {
        self.broken.contains(name)
    }

    /// A search for stored schedules has a reply, which replaces that of the one before, unless it is
    /// another page of that. `is_full`: it does not have all that is due. `kinds`: the number of kinds
    /// that the node can run.
    pub(super) fn on_search(&mut self, is_full: bool, is_first: bool, kinds: usize) {
        if is_first {
            self.broken.begin_sweep();
            self.found.clear();
        }
        self.is_blind = false;
        self.has_many_kinds = kinds > MAX_KINDS;
        self.is_crowded = is_full;
    }

    /// A search for everything due, which may have had several pages, has found the last of it.
    pub(super) fn end_sweep(&mut self, events: &mut Vec<Event>) {
        self.broken.end_sweep(events);
    }

    /// A search has no reply. Until one has, queries claim what is due without being told how much that
    /// is: one now, and one for each next occurrence of what they have claimed.
    pub(super) fn on_failed_search(&mut self, now: Time) {
        self.is_blind = self.route.is_some() && self.claims.is_some();
        if self.is_blind && !self.has_many_kinds {
            self.more_since.get_or_insert(now);
        }
    }
}

/// Queries that find and claim.
impl Due {
    /// Leaves a found schedule to a query. Returns `false` if it needs a claim of its own.
    pub(super) fn leave_to_query(&mut self, state: &JobState, now: Time) -> bool {
        let is_claimed = self.claims.as_ref().is_some_and(|claims| claims(&state.kind));
        let is_claimed = is_claimed && !self.has_many_kinds;
        let Some(due_at) = state.due_at.filter(|_| is_claimed) else { return false };
        // It was due when a query claimed all that it could, and was left.
        let was_left = self.exhausted_at.is_some_and(|at| due_at <= at && at <= now);
        let is_late = self.late_since(now).is_some_and(|since| due_at <= since);
        if was_left || is_late || due_claim(state, 0).is_none() {
            return false;
        }
        self.found.entry(due_at).or_default().add(window_in(&state.definition));
        true
    }

    /// `true` if a query claims what is due at this time, and a search need not find it.
    pub(super) fn claims_next(&self, due_at: Time, soon: Time) -> bool {
        self.is_blind || due_at <= soon
    }

    /// A query claims what is due at this time, and may be late by `window`.
    pub(super) fn claim_next(&mut self, due_at: Time, window: Option<Duration>) {
        self.next.entry(due_at).or_default().add(window);
    }

    /// The number of schedules that are known to be due.
    fn known(&self, now: Time) -> usize {
        let due = self.found.range(..=now).chain(self.next.range(..=now));
        due.map(|(_, group)| group.count).sum()
    }

    /// The time at which a query was sent that has no reply for long.
    fn late_since(&self, now: Time) -> Option<Time> {
        let late = self.asked.as_ref().filter(|asked| asked.late_at() <= now);
        late.map(|asked| asked.sent_at)
    }

    /// The first time at which it is this node's turn to claim what is due.
    fn first_turn(&self, turns: &Turns) -> Option<Time> {
        let turn = |(due_at, group): (&Time, &DueGroup)| turns.of_query(*due_at, group.window);
        let times = [&self.found, &self.next].into_iter();
        times.flat_map(|times| times.iter().take(MAX_TURNS).map(turn)).min()
    }

    /// The number of schedules for which a query with this capacity claims before anything that is due
    /// at `at`; at the same time, if `has_precedence`.
    pub(super) fn before(&self, at: Time, has_precedence: bool, room: usize) -> usize {
        let is_before = |due_at: Time| due_at < at || has_precedence && due_at == at;
        let count = match self.more_since {
            Some(since) if is_before(since) => room.div_ceil(2),
            Some(_) => 0,
            None => {
                let times = self.found.range(..=at).chain(self.next.range(..=at));
                times.filter(|(due_at, _)| is_before(**due_at)).map(|(_, group)| group.count).sum()
            }
        };
        count.min(self.window.size())
    }

    /// No query claims what is due by now and still there.
    fn exhaust(&mut self, now: Time) {
        (self.more_since, self.exhausted_at) = (None, Some(now));
        let after = saturating_add(now, MILLI);
        self.found = self.found.split_off(&after);
        self.next = self.next.split_off(&after);
    }

    /// `true` if a query can be sent now, and has something to claim.
    pub(super) fn has_query(&self, now: Time, turns: &Turns) -> bool {
        let is_turn = || self.first_turn(turns).is_some_and(|turn| turn <= now);
        self.asked.is_none()
            && self.lost.iter().all(|lost| lost.repeat_at > now)
            && (self.more_since.is_some() || is_turn())
    }

    /// The query to send at `now` with this capacity.
    pub(super) fn ask(
        &mut self,
        now: Time,
        room: usize,
        turns: &Turns,
        ids: &mut ClaimIds,
    ) -> Option<DueRequest> {
        if let Some(asked) = &mut self.asked {
            if asked.late_at() <= now && !mem::replace(&mut asked.was_late, true) {
                self.read_by(When::Next);
            }
            return None;
        }
        if let Some(i) = self.lost.iter().position(|lost| lost.repeat_at <= now) {
            let mut asked = self.lost.remove(i);
            asked.request.is_repeated = true;
            (asked.sent_at, asked.was_late) = (now, false);
            return Some(self.asked.insert(asked).request);
        }
        // Only for as many as are known: the capacity is reserved until the reply comes.
        let known = match self.more_since {
            Some(_) => room.div_ceil(2),
            None if self.first_turn(turns).is_none_or(|turn| turn > now) => 0,
            None => self.known(now),
        };
        self.is_known = self.more_since.is_none();
        let limit = room.min(known).min(self.window.size());
        if limit == 0 {
            return None;
        }
        let gathers_since = *self.gathers_since.get_or_insert(now);
        let few = (self.more_since.is_some() || limit < known) && 2 * limit < self.last;
        if few && now < saturating_add(gathers_since, GATHER) {
            return None;
        }
        self.gathers_since = None;
        self.last = limit;
        let request = DueRequest { claim_id: ids.draw(), limit, is_repeated: false };
        let (sent_at, repeat_at) = (now, now);
        let asked = Asked { request, sent_at, was_late: false, repeat_at, losses: 0 };
        self.asked = Some(asked);
        Some(request)
    }

    /// The time of the next query, and whether it waits for capacity.
    pub(super) fn query_at(&self, now: Time, room: usize, turns: &Turns) -> (Option<Time>, bool) {
        if let Some(asked) = &self.asked {
            return (Some(asked.late_at()).filter(|_| !asked.was_late), false);
        }
        let repeat_at = self.lost.iter().map(|lost| lost.repeat_at).min();
        let at = self.more_since.map_or_else(|| self.first_turn(turns), |_| Some(now));
        let (at, waits) = match at {
            Some(at) if at <= now && room == 0 => (None, true),
            Some(at) if at <= now => {
                let gathered_at = |since| saturating_add(since, GATHER);
                (Some(self.gathers_since.map_or(now, gathered_at)), false)
            }
            at => (at, false),
        };
        (repeat_at.into_iter().chain(at).min(), waits)
    }

    /// The time at which queries begin to claim most of so many `found` records, if the last search did
    /// not return all that will be due: until then, one more search would find the same ones.
    pub(super) fn claims_found_at(&self, found: usize) -> Option<Time> {
        let left: usize = self.found.values().map(|group| group.count).sum();
        let first = self.found.keys().next().copied();
        first.filter(|_| self.is_crowded && 2 * left > found)
    }

    /// `true` while a query has something to claim: a search would find the same schedules.
    pub(super) fn knows_due(&self, now: Time) -> bool {
        self.known(now) > 0 && self.late_since(now).is_none()
    }

    /// `true` if other nodes have claimed a part of what the last query was for. A search at once would
    /// find what their queries have locked and not yet claimed.
    pub(super) fn was_shared(&self) -> bool {
        self.was_shared
    }

    /// `true` while due schedules are claimed by queries: a search would find the same ones.
    pub(super) fn is_claiming(&self) -> bool {
        self.more_since.is_some() || self.asked.is_some()
    }

    /// The query on its way has claimed so many at this time; the last of them was due at `last`.
    /// Returns whether they are run: `None` if there is no such query.
    pub(super) fn claimed(
        &mut self,
        count: usize,
        last: Option<Time>,
        is_alone: bool,
        now: Time,
    ) -> Option<bool> {
        let asked = self.asked.take()?;
        self.window.answered(count);
        // A repetition does not show how much there was to claim.
        if !asked.request.is_repeated {
            self.count_claimed(asked.request, count, last, is_alone, now);
        }
        Some(!asked.is_doubtful())
    }

    fn count_claimed(
        &mut self,
        request: DueRequest,
        count: usize,
        last: Option<Time>,
        is_alone: bool,
        now: Time,
    ) {
        self.was_shared = count < request.limit && !is_alone;
        if count < request.limit {
            self.is_crowded = false;
            self.exhaust(now);
            // No other node has claimed the rest: it needs claims of its own.
            if is_alone && self.is_known {
                self.read_by(When::Next);
            }
            return;
        }
        let mut left = count;
        for times in [&mut self.next, &mut self.found] {
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
        let has_more = self.is_crowded && self.known(now) == 0;
        self.more_since = has_more.then_some(last.unwrap_or(now));
    }

    /// The query on its way is a repetition: the reply to the first copy was lost.
    pub(super) fn was_repeated(&mut self) {
        if let Some(asked) = self.asked.as_mut().filter(|asked| !asked.request.is_repeated) {
            asked.request.is_repeated = true;
            self.window.lost(asked.request.limit);
        }
    }

    /// The replies to the query and to its repetitions were lost: it is repeated later. Until one has a
    /// reply, searches find what is due as well, so a store that never answers these queries stops no
    /// schedule.
    pub(super) fn query_lost(&mut self, now: Time) {
        let Some(mut asked) = self.asked.take() else { return };
        self.exhausted_at = Some(now);
        asked.losses += 1;
        let wait = if asked.losses < SOON { backoff::after(asked.losses) } else { MAX_WAIT };
        asked.repeat_at = saturating_add(now, wait);
        if self.lost.len() >= MAX_LOST {
            self.lost.remove(0);
        }
        self.lost.push(asked);
    }

    /// The store has rejected the query, and claimed nothing. Searches find what is due.
    pub(super) fn query_rejected(&mut self, now: Time) {
        self.asked = None;
        self.exhaust(now);
    }
}

/// Occurrences that queries have claimed.
impl Due {
    /// The capacity that queries and what they have claimed have reserved. `is_failing`: so do
    /// operations on the latter.
    pub(super) fn reserved(&self, is_failing: bool) -> Reserved {
        let asked = self.asked.as_ref().filter(|asked| !asked.is_doubtful());
        let asked = asked.map_or(0, |asked| asked.request.limit);
        let claimed = self.unplanned.len() + self.sent;
        match is_failing {
            true => Reserved { firm: asked, unresolved: claimed },
            false => Reserved { firm: asked + claimed, unresolved: 0 },
        }
    }

    /// A claimed occurrence is to be planned, or planned again.
    pub(super) fn plan_later(&mut self, unplanned: Unplanned) {
        self.unplanned.push(unplanned);
    }

    /// `true` if claimed occurrences are to be planned.
    pub(super) fn has_unplanned(&self) -> bool {
        !self.unplanned.is_empty()
    }

    /// Claimed occurrences to plan now, at most so many.
    pub(super) fn take_unplanned(&mut self, most: usize) -> Vec<Unplanned> {
        let rest = self.unplanned.split_off(most.min(self.unplanned.len()));
        mem::replace(&mut self.unplanned, rest)
    }

    /// An operation on a claimed occurrence is sent.
    pub(super) fn operation_sent(&mut self) {
        self.sent += 1;
    }

    /// An operation on a claimed occurrence has a reply, or none will come.
    pub(super) fn operation_ended(&mut self) {
        self.sent -= 1;
    }

    /// The queries without a reply, first that which is on its way, and the releases of what queries
    /// have claimed.
    pub(super) fn take_claimed(&mut self) -> (Vec<DueRequest>, Vec<Release>) {
        let asked = self.asked.take().into_iter().chain(mem::take(&mut self.lost));
        let unplanned = mem::take(&mut self.unplanned).into_iter();
        (asked.map(|asked| asked.request).collect(), unplanned.map(Unplanned::release).collect())
    }
}
