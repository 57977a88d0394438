//! The search for due records that this node does not have in memory: stored schedules, triggers,
//! and occurrences that other nodes have released.

use crate::{
    backend::{Due, DueQuery, Preferred, TimeSource},
    condition::StorePart,
    error::Result,
    planner::{self, FoundWork, When},
    scheduler::{
        monotonic::later,
        node::Node,
        side_request::SideRequest,
        store_request::{MAX_BACKOFF, MIN_BACKOFF, within},
    },
    stored::Router,
    time::{Time, saturating_add, since},
};
use std::{
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, Instant},
};

/// The time before they are due at which records are searched.
const AHEAD: Duration = Duration::from_secs(1);

/// The largest number of records of one search, in addition to those in memory.
const FOUND: usize = 1_000;

/// The number of offsets at which a search may begin when other nodes work on what is due.
const PLACES: usize = 8;

/// The wait after a search that found records and nothing new to do; doubled each time, up to
/// [`LONGEST`].
const FRUITLESS: Duration = Duration::from_millis(50);

/// The longest wait between searches that find nothing new. Each search reads again what this node
/// knows; but what is due next is searched [`AHEAD`], and must not be found late.
const LONGEST: Duration = AHEAD;

/// The longest wait between two pages of jobs in code, which are of other services.
const NEXT_PAGE: Duration = Duration::from_millis(500);

/// The time for which searches follow each other at [`LONGEST`] at most, after one that shows stored
/// schedules at work. When another node has completed a run, nobody else knows the next occurrence
/// before it is found.
const AT_WORK: Duration = Duration::from_secs(30);

/// The shortest interval between two requests for the store's kinds.
const KINDS: Duration = Duration::from_secs(1);

pub(in crate::scheduler) struct Search {
    node: Arc<Node>,
    /// The backend can be searched, and the node has jobs or kinds that a search may find.
    is_on: bool,
    /// The search that is on its way.
    request: SideRequest<Reply>,
    /// A stored schedule was to be due at the time of the search that is on its way.
    expects_some: bool,
    /// The last time at which stored schedules were at work.
    at_work: Option<Time>,
    /// The time at which they are searched again because they are at work.
    again_at: Option<Time>,
    /// This node runs stored schedules: some kinds are its own.
    has_kinds: bool,
    /// The part that it asks for.
    part: Part,
    /// Both parts, while one search returns all of them that is due; otherwise the stored schedules.
    stored: Sweep,
    /// The jobs in code, while both parts are searched in turn.
    code: Option<Sweep>,
    /// The number of due records that the next search leaves to other nodes.
    skip: usize,
    /// More is due than one search returns, and other nodes work on it, too.
    is_crowded: bool,
    /// The earliest time of a search after one that failed.
    retry_at: Option<Instant>,
    wait: Duration,
    /// The largest number of records of the next search, in addition to those in memory: halved
    /// when a search fails.
    limit: usize,
    kinds: Kinds,
    /// The limited handlers without capacity, whose kinds are left out.
    left_out: Vec<bool>,
}

/// The part of the records that a search asks for. Where one page does not return all that is due, and
/// has nothing for this node, the parts are searched in turn, page by page. So neither what cannot be
/// run here nor the jobs in code of other services hide what comes after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    Stored,
    Code,
}

/// The pages of one part.
#[derive(Clone, Copy, Debug)]
struct Sweep {
    /// The time of the next page, by the store's clock; `None` if nothing is known to be due.
    at: Option<When>,
    /// The number of due records before that page.
    skip: usize,
    /// A page of this sweep had something new.
    has_new: bool,
    /// It follows a sweep with something new, for what that may have left out.
    is_second: bool,
    /// No page of this sweep has left out anything that was due.
    is_whole: bool,
    /// The last page was full of new work, which is due before everything that was not returned.
    has_enough: bool,
    fruitless: Fruitless,
}

impl Sweep {
    /// A sweep that begins at once.
    fn new() -> Self {
        Self {
            at: Some(When::Next),
            skip: 0,
            has_new: false,
            is_second: false,
            is_whole: true,
            has_enough: false,
            fruitless: Fruitless::default(),
        }
    }

    fn by(&mut self, at: When) {
        self.at = Some(self.at.map_or(at, |before| before.min(at)));
    }

    /// The next page is wanted when the first record after those found is due.
    fn by_due(&mut self, next_due: Option<Time>) {
        if let Some(at) = next_due {
            self.by(When::At(at));
        }
    }

    fn is_due(&self, now: Time) -> bool {
        self.at.is_some_and(|at| at.is_due(saturating_add(now, AHEAD)))
            && self.fruitless.until(now).is_none_or(|at| at <= now)
    }

    /// The time until the next page. Records are searched a little before they are due.
    fn due_in(&self, now: Time) -> Duration {
        let wait = self.fruitless.until(now).map_or(Duration::ZERO, |until| since(until, now));
        let due = self.at.map_or(Duration::MAX, |at| since(at.time(now), now));
        due.saturating_sub(AHEAD).max(wait)
    }

    /// The last page has come. Returns whether it was not the first.
    fn ends(&mut self, node: &Node, found: Found, has_new: bool) -> bool {
        let Found { now, records, work: FoundWork { claimed_at, left_until, .. }, .. } = found;
        (self.has_new, self.is_whole) = (false, true);
        let longest = LONGEST.min(node.config.poll_interval);
        if has_new {
            self.fruitless = Fruitless::default();
        } else if left_until.is_some() || records > 0 {
            self.fruitless.again(now, longest);
        }
        if let Some(at) = claimed_at.or(left_until) {
            self.by(When::At(saturating_add(at, AHEAD)));
        }
        std::mem::take(&mut self.skip) > 0
    }
}

/// Successive searches that found records and nothing new.
#[derive(Clone, Copy, Debug, Default)]
struct Fruitless {
    count: u32,
    /// The time of the last of them.
    last: Option<Time>,
    /// No search before this time, except by polling.
    until: Option<Time>,
}

impl Fruitless {
    fn wait(self, most: Duration) -> Duration {
        (FRUITLESS * (1 << self.count)).min(most)
    }

    /// No search before this time. The last one was not in the future, unless the clock was set
    /// back since.
    fn until(self, now: Time) -> Option<Time> {
        self.until.filter(|_| self.last <= Some(now))
    }

    /// A search that was made as soon as the one before allowed waits twice as long, up to `most`.
    fn again(&mut self, now: Time, most: Duration) {
        let was_soon = self.last.is_some_and(|last| since(now, last) <= 2 * self.wait(most));
        self.count = if was_soon { (self.count + 1).min(16) } else { 0 };
        self.last = Some(now);
        self.until = Some(saturating_add(now, self.wait(most)));
    }
}

/// The replies to one search.
pub(in crate::scheduler) struct Reply {
    /// The store's kinds, if they were read before the search.
    pub(in crate::scheduler) kinds: Option<Result<Vec<String>>>,
    pub(in crate::scheduler) due: Result<Due>,
    /// The largest number of records of the search.
    pub(in crate::scheduler) limit: usize,
    /// The planner's number of the search.
    pub(in crate::scheduler) number: u64,
    /// Neither it nor the pages before it left out anything that was due.
    pub(in crate::scheduler) is_whole: bool,
    /// It asked for stored schedules, and not for jobs in code alone.
    pub(in crate::scheduler) has_stored: bool,
    /// It is no further page of an earlier search.
    pub(in crate::scheduler) is_first: bool,
    /// The node's wall clock before and after the request.
    pub(in crate::scheduler) wall: (Time, Time),
}

/// The result of a search.
#[derive(Clone, Copy, Debug)]
pub(in crate::scheduler) struct Found {
    /// The store's time.
    pub(in crate::scheduler) now: Time,
    /// The due time of the first record after those found.
    pub(in crate::scheduler) next_due: Option<Time>,
    /// The number of records, and of those of jobs in code.
    pub(in crate::scheduler) records: usize,
    pub(in crate::scheduler) of_code: usize,
    pub(in crate::scheduler) is_full: bool,
    /// The planner's part of the result.
    pub(in crate::scheduler) work: FoundWork,
}

/// The store's kinds.
struct Kinds {
    all: Vec<String>,
    /// The handlers of the node, and those of the kinds that match their patterns, and of which no
    /// handler is for that kind alone.
    router: Arc<Router>,
    matching: Vec<Arc<str>>,
    /// A kind may have been added since.
    is_old: bool,
    /// The earliest time of the next request.
    ask_at: Option<Instant>,
    /// The time of a repeated search, if the kinds should have been requested and were not. It is a
    /// time of the monotonic clock, which no reply sets back.
    read_at: Option<Instant>,
}

impl Search {
    pub(in crate::scheduler) fn new(node: Arc<Node>) -> Self {
        let (all, router, matching) = (Vec::new(), node.router(), Vec::new());
        let kinds = Kinds { all, router, matching, is_old: true, ask_at: None, read_at: None };
        Self {
            is_on: node.backend.queries().is_some(),
            node,
            request: SideRequest::default(),
            expects_some: false,
            at_work: None,
            again_at: None,
            has_kinds: true,
            part: Part::All,
            stored: Sweep::new(),
            code: None,
            skip: 0,
            is_crowded: false,
            retry_at: None,
            wait: MIN_BACKOFF,
            limit: FOUND,
            kinds,
            left_out: Vec::new(),
        }
    }

    pub(in crate::scheduler) fn is_on(&self) -> bool {
        self.is_on
    }

    /// `true` while stored schedules and jobs in code are searched in turn.
    pub(in crate::scheduler) fn is_in_parts(&self) -> bool {
        self.code.is_some()
    }

    /// `true` while a search is on its way.
    pub(in crate::scheduler) fn has_begun(&self) -> bool {
        self.request.has_begun()
    }

    /// Ready if there are replies to take.
    pub(in crate::scheduler) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.request.poll(cx)
    }

    /// The replies, if they have come.
    pub(in crate::scheduler) fn take(&mut self) -> Option<Reply> {
        self.request.take()
    }

    /// Requests a search at once.
    pub(in crate::scheduler) fn at_once(&mut self) {
        self.by(When::Next);
    }

    /// Requests a search at this time at the latest.
    pub(in crate::scheduler) fn by(&mut self, at: When) {
        self.sweeps().for_each(|sweep| sweep.by(at));
    }

    /// Requests a search for a stored schedule that is due at this time.
    pub(in crate::scheduler) fn stored_by(&mut self, at: When) {
        self.stored.by(at);
    }

    fn sweeps(&mut self) -> impl Iterator<Item = &mut Sweep> {
        [&mut self.stored].into_iter().chain(&mut self.code)
    }

    /// Records that a job was added or changed.
    pub(in crate::scheduler) fn on_change(&mut self) {
        self.kinds.is_old = true;
    }

    /// Records that a job was added or changed that is due at `at`.
    pub(in crate::scheduler) fn on_notification(&mut self, at: When) {
        self.on_change();
        self.by(at);
    }

    pub(in crate::scheduler) fn is_due(&self, now: Time, mono: Instant) -> bool {
        let is_due = |sweep: &Sweep| sweep.is_due(now);
        (self.stored_is_due(now) || self.code.as_ref().is_some_and(is_due))
            && self.retry_at.is_none_or(|at| at <= mono)
    }

    /// `true` if no page asks for stored schedules: jobs in code have pages of their own, and this node
    /// has no kinds.
    fn asks_for_code_alone(&self) -> bool {
        self.code.is_some() && !self.has_kinds
    }

    fn stored_is_due(&self, now: Time) -> bool {
        let again = self.again_at.is_some_and(|at| at <= now);
        !self.asks_for_code_alone() && (again || self.stored.is_due(now))
    }

    fn stored_due_in(&self, now: Time) -> Duration {
        if self.asks_for_code_alone() {
            return Duration::MAX;
        }
        let again = self.again_at.map_or(Duration::MAX, |at| since(at, now));
        self.stored.due_in(now).min(again)
    }

    /// The time until the next search.
    pub(in crate::scheduler) fn due_in(&self, now: Time, mono: Instant) -> Option<Duration> {
        let retry = self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(mono));
        let code = self.code.map_or(Duration::MAX, |sweep| sweep.due_in(now));
        self.is_on.then(|| self.stored_due_in(now).min(code).max(retry))
    }

    /// The time at which something is due that the last search has seen.
    pub(in crate::scheduler) fn next_at(&self) -> Option<Time> {
        let of_code = self.code.and_then(|code| code.at);
        match of_code.into_iter().chain(self.stored.at).min() {
            Some(When::At(at)) => Some(at),
            Some(When::Next) | None => None,
        }
    }

    /// `true` if what the last page has returned is due before everything that is not known.
    pub(in crate::scheduler) fn has_enough(&self) -> bool {
        self.stored.has_enough
    }

    /// Delays the next search: if the store has refused this one at once, twice as long each time up to
    /// the longest back-off. One that was not answered in time has waited long enough. Returns its
    /// time.
    pub(in crate::scheduler) fn failed(&mut self, node: &Node, is_refused: bool) -> Instant {
        let wait = if is_refused { self.wait.min(MAX_BACKOFF) } else { MIN_BACKOFF };
        let retry_at = later(node.runtime.now(), wait);
        (self.retry_at, self.wait) = (Some(retry_at), wait * 2);
        self.limit = (self.limit / 2).max(1);
        self.at_once();
        retry_at
    }

    /// The time of a repeated search because of kinds that were not requested.
    pub(in crate::scheduler) fn kinds_at(&self) -> Option<Instant> {
        self.kinds.read_at.filter(|_| self.is_on)
    }

    /// The kinds that the node runs, and that are not left out.
    pub(in crate::scheduler) fn stored_kinds(&self) -> impl Iterator<Item = Arc<str>> {
        stored_kinds(&self.kinds.router, &self.kinds.matching, &self.left_out).map(Arc::from)
    }

    /// Leaves out the kinds of limited handlers without capacity. When one has capacity again, or
    /// handlers have other kinds, the kinds are searched at once. A node that has nothing which a search
    /// could find makes none.
    pub(in crate::scheduler) fn renew(&mut self, at_limit: Vec<bool>) {
        let before = std::mem::replace(&mut self.left_out, at_limit);
        let router = self.node.router();
        let has_changed = !Arc::ptr_eq(&router, &self.kinds.router);
        if has_changed {
            (self.kinds.router, self.kinds.is_old) = (router, true);
            self.kinds.match_all();
        }
        if has_changed || before.iter().zip(&self.left_out).any(|(before, now)| *before && !now) {
            self.has_kinds = true;
            self.at_once();
        }
        let has_work = self.node.jobs() > 0 || self.kinds.router.has_kinds(&self.left_out);
        let was_on = self.is_on;
        self.is_on = self.node.backend.queries().is_some() && has_work;
        if was_on && !self.is_on {
            self.node.store_is_idle(StorePart::Search);
        }
    }

    /// The part of the next search: the one that is due, in turn if both are.
    fn next_part(&self, now: Time) -> Part {
        let Some(code) = &self.code else { return Part::All };
        let (stored, code) = (self.stored_is_due(now), code.is_due(now));
        match stored && (!code || self.part != Part::Stored) {
            true => Part::Stored,
            // Nothing is due: it is a poll.
            false if self.has_kinds && !code => Part::Stored,
            false => Part::Code,
        }
    }

    /// Sends a search, after a request for the store's kinds if one may have been added. Its limit
    /// grows by the number of `known` records, because records that cannot be run now would
    /// otherwise hide others. The reply has the planner's `number` of it.
    pub(in crate::scheduler) fn begin(
        &mut self,
        node: &Arc<Node>,
        poll_at: Instant,
        search: planner::Search,
    ) {
        let planner::Search { number, known, preferred } = search;
        let reads_kinds = self.kinds.begin(node, poll_at);
        if node.runtime.now() >= poll_at {
            match &mut self.code {
                // The stored schedules have a search of their own within a second.
                Some(code) if self.again_at.is_some() => code.by(When::Next),
                _ => self.at_once(),
            }
        }
        let has_kinds = self.stored_kinds().next().is_some();
        self.has_kinds = has_kinds;
        self.part = self.next_part(node.now(&node.shared()));
        let part = self.part;
        if part != Part::Code {
            self.again_at = None;
        }
        let expected = self.stored.at;
        let soon = saturating_add(node.now(&node.shared()), AHEAD);
        let is_soon = matches!(expected, Some(When::At(at)) if at <= soon);
        self.expects_some = part != Part::Code && is_soon;
        let is_whole = self.skip == 0 && !self.left_out.contains(&true);
        let sweep = match (part, &mut self.code) {
            (Part::Code, Some(code)) => code,
            _ => &mut self.stored,
        };
        // Later changes set this time again.
        sweep.at = None;
        sweep.is_whole &= is_whole;
        let (is_first, is_whole) = (sweep.skip == 0, sweep.is_whole);
        let skip = if part == Part::All { self.skip } else { sweep.skip };
        let (limit, known_kinds) = (self.limit + known, self.kinds.matching.clone());
        let (node, left_out) = (node.clone(), self.left_out.clone());
        let router = self.kinds.router.clone();
        self.request.begin(async move {
            let kinds = if reads_kinds { Some(read_kinds(&node).await) } else { None };
            let matching = match &kinds {
                Some(Ok(kinds)) => matching(&router, kinds),
                _ => known_kinds,
            };
            let stored = stored_kinds(&router, &matching, &left_out);
            let stored = stored.filter(|_| part != Part::Code);
            // The empty kind is that of jobs in code.
            let code = (part != Part::Stored).then_some("");
            let asked: Vec<&str> = code.into_iter().chain(stored).collect();
            let (sent, before) = (node.runtime.now(), node.runtime.wall());
            let now = node.now(&node.shared());
            // Up to and including the times that `is_due` accepts: times are whole milliseconds.
            let until = saturating_add(now, AHEAD + Duration::from_millis(1));
            let mut query = DueQuery::new(&asked, until, limit).skipping(skip).node(&node.id);
            let preferred = preferred.as_deref();
            let rank = |name: &str| preferred.map_or(0, |ranking| ranking.rank(name));
            query.preferred = preferred.map(|ranking| Preferred::new(ranking.nodes(), &rank));
            let due = find_due(&node, query, TimeSource::Store { fallback: before }).await;
            if let Ok(due) = &due {
                node.on_contact(sent, due.now);
            }
            let wall = (before, node.runtime.wall());
            let has_stored = part != Part::Code;
            Reply { kinds, due, limit, number, is_whole, has_stored, is_first, wall }
        });
    }

    /// Applies a result. If other nodes work on what is due, and one search does not return all of
    /// it, the next search begins at a random offset. If a full page has nothing for this node, the
    /// parts are searched in turn.
    pub(in crate::scheduler) fn answered(&mut self, node: &Node, found: Found) {
        (self.retry_at, self.wait) = (None, MIN_BACKOFF);
        self.limit = (self.limit * 2).min(FOUND);
        let Found { now, records, of_code, .. } = found;
        if records > of_code || self.expects_some && records == 0 {
            self.at_work = Some(now);
        }
        match self.part {
            Part::All => self.found_all(node, found),
            Part::Stored => self.found_stored(node, found),
            Part::Code => self.found_code(node, found),
        }
        if self.at_work.is_some_and(|at| at <= now && now < saturating_add(at, AT_WORK)) {
            self.again_at = Some(saturating_add(now, LONGEST.min(node.config.poll_interval)));
        }
    }

    /// A search for both parts has a reply.
    fn found_all(&mut self, node: &Node, found: Found) {
        let Found { next_due, is_full, work, .. } = found;
        let FoundWork { is_new, claimed_at, left_until, is_losing } = work;
        let left_out = self.skip > 0;
        self.stored.ends(node, found, is_new);
        self.stored.has_enough = is_full && is_new;
        if claimed_at.is_some() {
            return;
        }
        if is_full && !is_new && !left_out {
            self.code = Some(Sweep::new());
            // The page has not returned more of those that are left to other nodes.
            if left_until.is_none() {
                self.stored = Sweep::new();
            }
            return;
        }
        // Records that the search left out are still due.
        match left_out {
            true => self.stored.by(When::Next),
            false => self.stored.by_due(next_due),
        }
        if is_full {
            self.is_crowded |= is_losing;
        } else if !left_out {
            self.is_crowded = false;
        }
        self.skip = match self.is_crowded && is_full {
            true => FOUND * (node.runtime.random() as usize % PLACES),
            false => 0,
        };
    }

    /// A page of stored schedules has come.
    fn found_stored(&mut self, node: &Node, found: Found) {
        let Found { next_due, records, is_full, work, .. } = found;
        let FoundWork { is_new, claimed_at, left_until, .. } = work;
        let sweep = &mut self.stored;
        sweep.has_new |= is_new;
        sweep.has_enough = is_full && is_new;
        if is_full && left_until.is_none() && claimed_at.is_none() {
            sweep.skip += records;
            return sweep.by(When::Next);
        }
        let has_new = sweep.has_new;
        let had_pages = sweep.ends(node, found, has_new);
        if claimed_at.is_some() {
            return;
        }
        sweep.by_due(next_due);
        sweep.is_second = had_pages && has_new && !sweep.is_second;
        if sweep.is_second {
            // What was claimed meanwhile has moved others to pages that were read before.
            sweep.by(When::Next);
        }
    }

    /// A page of jobs in code has come. If it has all of them, both parts are searched at once again.
    fn found_code(&mut self, node: &Node, found: Found) {
        let Found { now, next_due, records, is_full, work: FoundWork { is_new, .. }, .. } = found;
        let Some(sweep) = &mut self.code else { return };
        sweep.has_new |= is_new;
        if is_full {
            sweep.skip += records;
            sweep.fruitless.again(now, NEXT_PAGE);
            return sweep.by(When::Next);
        }
        let has_new = sweep.has_new;
        let had_pages = sweep.ends(node, found, has_new);
        sweep.by_due(next_due);
        if !had_pages && self.stored.skip == 0 {
            let at = sweep.at;
            self.code = None;
            at.into_iter().for_each(|at| self.stored.by(at));
        }
    }

    /// Applies the store's kinds.
    pub(in crate::scheduler) fn learn_kinds(&mut self, node: &Node, kinds: Vec<String>) {
        self.kinds.all = kinds;
        self.kinds.match_all();
        self.kinds.ask_at = Some(later(node.runtime.now(), KINDS));
    }

    /// The request for the store's kinds has failed.
    pub(in crate::scheduler) fn kinds_failed(&mut self) {
        self.kinds.is_old = true;
    }
}

impl Kinds {
    fn match_all(&mut self) {
        self.matching = matching(&self.router, &self.all);
    }

    /// `true` if the kinds are read before this search. They are read again when one may have been
    /// added, but not each time: a busy store has many notifications and few new kinds.
    fn begin(&mut self, node: &Node, poll_at: Instant) -> bool {
        let now = node.runtime.now();
        if !self.router.has_patterns() {
            return false;
        }
        let asked_before = self.read_at.take().is_some();
        if !self.is_old && !asked_before && now < poll_at {
            return false;
        }
        self.read_at = self.ask_at.filter(|ask_at| *ask_at > now);
        let reads = self.read_at.is_none();
        if reads {
            self.is_old = false;
        }
        reads
    }
}

/// The kinds of this router among which are these `matching` its patterns, without those of the limited
/// handlers that are left out.
fn stored_kinds<'a>(
    router: &'a Router,
    matching: &'a [Arc<str>],
    left_out: &'a [bool],
) -> impl Iterator<Item = &'a str> {
    let is_left_out =
        |kind: &str| router.limit_of(kind).is_some_and(|one| left_out.get(one) == Some(&true));
    let all = router.certain().chain(matching.iter().map(|kind| &**kind));
    all.filter(move |kind| !left_out.contains(&true) || !is_left_out(kind))
}

/// The kinds among these that match patterns of this router, and have no code of their own.
fn matching(router: &Router, kinds: &[String]) -> Vec<Arc<str>> {
    let is_certain = |kind: &str| router.certain().any(|certain| certain == kind);
    let mine = |kind: &&String| router.matches(kind) && !is_certain(kind);
    kinds.iter().filter(mine).map(|kind| Arc::from(kind.as_str())).collect()
}

async fn read_kinds(node: &Node) -> Result<Vec<String>> {
    match node.backend.queries() {
        Some(queries) => within(node, "kinds", queries.kinds()).await,
        None => Ok(Vec::new()),
    }
}

async fn find_due(node: &Node, query: DueQuery<'_>, time: TimeSource) -> Result<Due> {
    match node.backend.queries() {
        Some(queries) => within(node, "find_due", queries.find_due(query, time)).await,
        None => Ok(Due::new(node.runtime.wall(), Vec::new(), None)),
    }
}
