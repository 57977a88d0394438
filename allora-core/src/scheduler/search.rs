//! The search for due records that this node does not have in memory: stored schedules, triggers,
//! and occurrences that other nodes released.

use super::{
    monotonic::later,
    node::Node,
    side_request::SideRequest,
    store_request::{MIN_BACKOFF, within},
};
use crate::{
    backend::{Due, DueQuery, Preferred, TimeSource},
    error::Result,
    registry::Ranking,
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

/// The wait after a search that found records and nothing new to do; doubled each time, up to the
/// poll interval.
const FRUITLESS: Duration = Duration::from_millis(50);

/// The longest time between searches that find nothing new, while schedules are left to other nodes, which
/// may have died. Each search also reads what this node knows.
const LEFT: Duration = Duration::from_secs(1);

/// The time for which searches follow each other at this interval, after one that shows stored schedules at
/// work. When another node has completed a run, nobody else knows the next occurrence before it is found.
const AT_WORK: Duration = Duration::from_secs(30);

/// The shortest interval between two requests for the store's kinds.
const KINDS: Duration = Duration::from_secs(1);

pub(super) struct Search {
    /// `true` if the backend can be searched.
    is_on: bool,
    /// The search that is on its way.
    request: SideRequest<Reply>,
    /// The time of the next search, by the store's clock.
    at: Time,
    /// A stored schedule was to be due at the time of the search that is on its way.
    expects_some: bool,
    /// The last time at which stored schedules were at work, and that of the search because of it.
    at_work: Option<Time>,
    again_at: Option<Time>,
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
    part: Part,
    /// The due time of the first stored schedule after those found, if the parts are searched one
    /// after the other.
    next_stored: Option<Time>,
    /// The time at which schedules that are left to other nodes are searched again.
    left_until: Option<Time>,
    fruitless: Fruitless,
    kinds: Kinds,
    /// The limited handlers without capacity, whose kinds are left out.
    left_out: Vec<bool>,
}

/// The part of the records that the next search asks for. A page that is full of records that this
/// node has nothing to do with must not hide what comes after them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    All,
    /// The stored schedules.
    Stored,
    /// The jobs in code, behind those that are known to be of other services.
    Code {
        skip: usize,
    },
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
pub(super) struct Reply {
    /// The store's kinds, if they were read before the search.
    pub(super) kinds: Option<Result<Vec<String>>>,
    pub(super) due: Result<Due>,
    /// The largest number of records of the search.
    pub(super) limit: usize,
    /// The planner's number of the search.
    pub(super) number: u64,
    /// The search left out nothing that was due.
    pub(super) is_whole: bool,
    /// It was for stored schedules, too.
    pub(super) has_stored: bool,
    /// The node's wall clock before and after the request.
    pub(super) wall: (Time, Time),
}

/// The result of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    /// The store's time.
    pub(super) now: Time,
    /// The due time of the first record after those found.
    pub(super) next_due: Option<Time>,
    /// The number of records, and of those of jobs in code.
    pub(super) records: usize,
    pub(super) of_code: usize,
    pub(super) is_full: bool,
    /// At least one of them is new to this node, which can run it.
    pub(super) is_new: bool,
    /// The time at which schedules that are left to other nodes are searched again.
    pub(super) left_until: Option<Time>,
    /// The time at which queries begin to claim most of them. Until then, one more search would find the
    /// same ones.
    pub(super) claimed_at: Option<Time>,
}

/// The store's kinds that match this node's patterns.
struct Kinds {
    all: Vec<Arc<str>>,
    /// A kind may have been added since.
    is_old: bool,
    /// The earliest time of the next request.
    ask_at: Option<Instant>,
    /// The time of a repeated search, if the kinds should have been requested and were not. It is a
    /// time of the monotonic clock, which no reply sets back.
    read_at: Option<Instant>,
}

impl Search {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            request: SideRequest::default(),
            at: Time::MIN_UTC,
            expects_some: false,
            at_work: None,
            again_at: None,
            skip: 0,
            is_crowded: false,
            retry_at: None,
            wait: MIN_BACKOFF,
            limit: FOUND,
            part: Part::All,
            next_stored: None,
            left_until: None,
            fruitless: Fruitless::default(),
            kinds: Kinds { all: Vec::new(), is_old: true, ask_at: None, read_at: None },
            left_out: Vec::new(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// `true` while a search is on its way.
    pub(super) fn has_begun(&self) -> bool {
        self.request.has_begun()
    }

    /// Ready if there are replies to take.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.request.poll(cx)
    }

    /// The replies, if they have come.
    pub(super) fn take(&mut self) -> Option<Reply> {
        self.request.take()
    }

    /// Requests a search at once.
    pub(super) fn at_once(&mut self) {
        self.at = Time::MIN_UTC;
    }

    /// Requests a search at this time at the latest.
    pub(super) fn by(&mut self, at: Time) {
        self.at = self.at.min(at);
    }

    /// Records that a job was added or changed.
    pub(super) fn on_change(&mut self) {
        self.kinds.is_old = true;
    }

    /// Records that a job was added or changed that is due at `at`.
    pub(super) fn on_notification(&mut self, at: Time) {
        self.on_change();
        self.by(at);
    }

    /// The time before which the next search is made, by [`AHEAD`].
    fn at(&self) -> Time {
        self.again_at.map_or(self.at, |again| self.at.min(saturating_add(again, AHEAD)))
    }

    pub(super) fn is_due(&self, now: Time, mono: Instant) -> bool {
        self.at() <= saturating_add(now, AHEAD)
            && self.fruitless.until(now).is_none_or(|at| at <= now)
            && self.retry_at.is_none_or(|at| at <= mono)
    }

    /// The time until the next search. Records are searched a little before they are due.
    pub(super) fn due_in(&self, now: Time, mono: Instant) -> Option<Duration> {
        let wait = self.fruitless.until(now).map_or(Duration::ZERO, |until| since(until, now));
        let retry = self.retry_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(mono));
        self.is_on.then(|| since(self.at(), now).saturating_sub(AHEAD).max(wait).max(retry))
    }

    /// The time at which something is due that the last search has seen.
    pub(super) fn next_at(&self) -> Option<Time> {
        Some(self.at).filter(|at| ![Time::MIN_UTC, Time::MAX_UTC].contains(at))
    }

    /// Delays the next search, twice as long each time up to the poll interval. Returns its time.
    pub(super) fn failed(&mut self, node: &Node) -> Instant {
        let wait = self.wait.clamp(MIN_BACKOFF, node.config.poll_interval);
        let retry_at = later(node.runtime.now(), wait);
        (self.retry_at, self.wait) = (Some(retry_at), wait * 2);
        self.limit = (self.limit / 2).max(1);
        self.at_once();
        retry_at
    }

    /// The time of a repeated search because of kinds that were not requested.
    pub(super) fn kinds_at(&self) -> Option<Instant> {
        self.kinds.read_at
    }

    pub(super) fn stored_kinds(&self, node: &Node) -> impl Iterator<Item = Arc<str>> {
        node.router.certain().map(Arc::from).chain(self.kinds.all.iter().cloned())
    }

    /// Leaves out the kinds of limited handlers without capacity. When one has capacity again, its kinds
    /// are searched at once.
    pub(super) fn leave_out(&mut self, handlers: Vec<bool>) {
        let before = std::mem::replace(&mut self.left_out, handlers);
        if before.iter().zip(&self.left_out).any(|(before, now)| *before && !now) {
            self.at_once();
        }
    }

    /// `true` if the next search leaves out nothing that is due.
    fn is_whole(&self) -> bool {
        self.part == Part::All && self.skip == 0 && !self.left_out.contains(&true)
    }

    /// Sends a search, after a request for the store's kinds if one may have been added. Its limit
    /// grows by the number of `known` records, because records that cannot be run now would
    /// otherwise hide others. The reply has the planner's `number` of it.
    pub(super) fn begin(
        &mut self,
        node: &Arc<Node>,
        poll_at: Instant,
        known: usize,
        number: u64,
        preferred: Option<Arc<Ranking>>,
    ) {
        let reads_kinds = self.kinds.begin(node, poll_at);
        let is_soon = self.at <= saturating_add(node.now(&node.shared()), AHEAD);
        self.expects_some = is_soon && self.at != Time::MIN_UTC;
        // Later changes set this time again.
        (self.at, self.again_at) = (Time::MAX_UTC, None);
        let is_whole = self.is_whole();
        let (part, limit, known_kinds) = (self.part, self.limit + known, self.kinds.all.clone());
        let skip = match part {
            Part::All => self.skip,
            Part::Stored => 0,
            Part::Code { skip } => skip,
        };
        let (node, left_out) = (node.clone(), self.left_out.clone());
        self.request.begin(async move {
            let kinds = if reads_kinds { Some(read_kinds(&node).await) } else { None };
            let matching = match &kinds {
                Some(Ok(kinds)) => matching(&node, kinds),
                _ => known_kinds,
            };
            let stored = node.router.certain().chain(matching.iter().map(|kind| &**kind));
            let is_left_out = |kind: &str| {
                let limited = node.router.limit_of(kind).and_then(|one| left_out.get(one));
                limited.is_some_and(|is_left_out| *is_left_out)
            };
            let stored =
                stored.filter(|kind| !matches!(part, Part::Code { .. }) && !is_left_out(kind));
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
            let has_stored = !matches!(part, Part::Code { .. });
            Reply { kinds, due, limit, number, is_whole, has_stored, wall }
        });
    }

    /// Applies a result. If other nodes work on what is due, and one search does not return all of
    /// it, the next search begins at a random offset. If a full page has nothing for this node, the
    /// next search continues behind it.
    pub(super) fn answered(&mut self, node: &Node, found: Found, is_losing: bool) {
        (self.retry_at, self.wait) = (None, MIN_BACKOFF);
        self.limit = (self.limit * 2).min(FOUND);
        let Found { now, next_due, records, of_code, is_full, is_new, claimed_at, left_until } =
            found;
        if records > of_code || self.expects_some && records == 0 {
            self.at_work = Some(now);
        }
        let is_at_work =
            self.at_work.is_some_and(|at| at <= now && now < saturating_add(at, AT_WORK));
        self.again_at = is_at_work.then(|| saturating_add(now, LEFT));
        if is_new {
            self.fruitless = Fruitless::default();
        } else if is_at_work || left_until.is_some() {
            self.fruitless.again(now, LEFT.min(node.config.poll_interval));
        } else if records > 0 {
            self.fruitless.again(now, node.config.poll_interval);
        }
        let part = std::mem::replace(&mut self.part, Part::All);
        if !matches!(part, Part::Code { .. }) {
            self.left_until = left_until;
        }
        if let Some(claimed_at) = claimed_at {
            return self.by(saturating_add(claimed_at, AHEAD));
        }
        let left_out = part == Part::All && self.skip > 0;
        let next = match part {
            Part::Stored if is_full && is_new => Some(Part::Stored),
            Part::Stored => Some(Part::Code { skip: 0 }),
            Part::Code { skip } if is_full => Some(Part::Code { skip: skip + records }),
            Part::All if is_full && !is_new && !left_out => {
                Some(match self.stored_kinds(node).next() {
                    Some(_) if left_until.is_none() => Part::Stored,
                    _ => Part::Code { skip: of_code },
                })
            }
            Part::All | Part::Code { .. } => None,
        };
        if part == Part::Stored && !is_full {
            self.next_stored = next_due;
        }
        if let Some(next) = next {
            self.part = next;
            return self.at_once();
        }
        let next_due = next_due.into_iter().chain(self.next_stored.take()).min();
        if let Some(at) = self.left_until.take() {
            self.by(saturating_add(at, AHEAD));
        }
        // Records that the search left out are still due.
        self.by(if left_out { Time::MIN_UTC } else { next_due.unwrap_or(Time::MAX_UTC) });
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

    /// Applies the store's kinds.
    pub(super) fn learn_kinds(&mut self, node: &Node, kinds: &[String]) {
        self.kinds.all = matching(node, kinds);
        self.kinds.ask_at = Some(later(node.runtime.now(), KINDS));
    }

    /// The request for the store's kinds has failed.
    pub(super) fn kinds_failed(&mut self) {
        self.kinds.is_old = true;
    }
}

impl Kinds {
    /// `true` if the kinds are read before this search. They are read again when one may have been
    /// added, but not each time: a busy store has many notifications and few new kinds.
    fn begin(&mut self, node: &Node, poll_at: Instant) -> bool {
        let now = node.runtime.now();
        if !node.router.has_patterns() {
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

/// The kinds among these that match this node's patterns, and have no code of their own.
fn matching(node: &Node, kinds: &[String]) -> Vec<Arc<str>> {
    let is_certain = |kind: &str| node.router.certain().any(|certain| certain == kind);
    let mine = |kind: &&String| node.router.matches(kind) && !is_certain(kind);
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
