//! Queries: reads that are not about one known name.

use super::{Claimed, Counts, Flag, Flagged, HistoryQuery, JobState, TimeSource};
use crate::{
    error::{Error, ErrorKind, Result},
    record::Change,
    time::Time,
};
use async_trait::async_trait;
use std::fmt;

/// Queries over the jobs of a store. A backend without them runs jobs in code with leases and every
/// policy; stored schedules and triggers by name need them.
///
/// # Promises
/// Each names the cases of the conformance suite that check it.
/// 1. *What wants attention is found*, by kind, the earliest first, and nothing else is. Cases:
///    `stored::due_schedules_are_found_by_kind_the_earliest_first`,
///    `stored::a_leased_schedule_is_found_again_when_its_lease_ends`,
///    `operators::a_trigger_of_a_job_in_code_is_found`,
///    `stored::the_kinds_of_stored_schedules_are_listed`,
///    `stored::a_query_that_prefers_some_schedules_hides_no_other`.
/// 2. *Lists are ordered* by name as bytes, and jobs that come and go do not shift their pages. The
///    scheduler's own records are in no list, unless its prefix asks for them.
///    Cases: `names::names_are_listed_in_the_order_of_their_bytes`,
///    `stored::stored_jobs_and_jobs_in_code_are_listed_page_by_page`,
///    `lifecycle::the_records_of_nodes_are_in_no_list_and_no_search`.
/// 3. *A query that claims does what claims of the heads do*, and no other node has these claims. Cases:
///    `due_claims::a_query_claims_as_a_claim_of_the_head_does`,
///    `due_claims::a_query_claims_only_what_needs_no_plan`,
///    `due_claims::of_what_is_due_the_earliest_is_claimed_first`,
///    `due_claims::two_nodes_never_claim_the_same_schedule`,
///    `due_claims::a_query_whose_reply_was_lost_finds_its_claims_again`,
///    `due_claims::a_query_claims_nothing_after_not_after`,
///    `due_claims::a_claimed_schedule_that_is_silent_is_found_again`.
/// 4. *Each change by an author is noted once*, with what was before and after, also if it was refused;
///    the newest first, page by page, and of deleted jobs too. Cases:
///    `changes::each_change_by_an_author_is_noted_once`,
///    `changes::a_change_without_an_author_is_not_noted`,
///    `changes::a_refused_change_is_noted_and_changes_nothing`,
///    `changes::of_two_edits_at_once_each_is_noted_as_it_ended`,
///    `changes::the_newest_changes_come_first_page_by_page`,
///    `changes::the_changes_of_a_deleted_job_are_kept`,
///    `changes::a_deletion_keeps_what_is_needed_to_undo_it`,
///    `changes::what_a_change_keeps_comes_back_whole`,
///    `changes::changes_older_than_a_year_are_removed`, `changes::the_newest_changes_are_kept`.
/// 5. *Flags follow the record* with the write that changes them, and numbers agree with the pages.
///    Cases: `flags::a_job_is_found_by_the_flags_of_its_state`,
///    `flags::kind_owner_and_tags_are_found_until_an_edit_or_a_deletion`,
///    `flags::flagged_jobs_come_page_by_page`,
///    `flags::what_runs_and_what_is_overdue_is_found`,
///    `flags::numbers_agree_with_the_pages`.
#[async_trait]
pub trait Queries: Send + Sync {
    /// Records that want attention. Needs no operation beside it: the reply carries the store's
    /// time.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    async fn find_due(&self, query: DueQuery<'_>, time: TimeSource) -> Result<Due>;

    /// `true` if [`claim_due`](Self::claim_due) can be called. Default: `false`; nodes then find what
    /// is due and claim it by operations.
    fn claims_due(&self) -> bool {
        false
    }

    /// Finds stored schedules whose heads are due, the earliest first, and claims these heads in the
    /// same step. Each record is as if the [claim of its head](crate::record::due_claim) had been
    /// applied to it. Nodes that call it at the same time do not claim the same records, and do not
    /// wait for each other; the fence decides in any case. Records for which there is no such claim are
    /// left to [`find_due`](Self::find_due). So may be others: the reply can be short while something
    /// is due.
    ///
    /// Default: unsupported.
    ///
    /// # Errors
    /// `Unavailable`: records may have been claimed. The same query [repeated](ClaimDue::repeated)
    /// returns them. What is not found again runs when its lease has ended.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have claimed records, as after an error.
    async fn claim_due(&self, query: ClaimDue<'_>, time: TimeSource) -> Result<ClaimedDue> {
        let _ = (query, time);
        Err(Error::new(ErrorKind::Unsupported, "the store cannot find and claim in one step"))
    }

    /// The job of this name, stored or in code.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    async fn get(&self, name: &str) -> Result<JobState>;

    /// A page of the jobs, stored and in code, ordered by name as bytes.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    async fn list(&self, page: Page<'_>) -> Result<Vec<JobState>>;

    /// The kinds of the stored schedules that want attention, now or later, in any order. Nodes
    /// that route by patterns choose from them. Kinds without schedules may be among them.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    async fn kinds(&self) -> Result<Vec<String>>;

    /// A page of the changes by clients, the newest first: of one job, also if it was deleted, or of all.
    /// Of the query, only name, cursor and limit count. A change is there if and only if it was
    /// made: it is written with it in one step. Changes are kept for a year, at most 100 000 of them
    /// (in etcd and process memory 10 000); in a store without a record of all changes, the last
    /// [20](crate::record::MAX_CHANGES) of each job, and for a week after its deletion.
    ///
    /// Default: unsupported.
    ///
    /// # Errors
    /// `Unsupported`; `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    async fn changes(&self, query: HistoryQuery<'_>) -> Result<Vec<Change>> {
        let _ = query;
        let none = "this store keeps no record of changes; use one of the others if you need it";
        Err(Error::new(ErrorKind::Unsupported, none).op("changes"))
    }

    /// A page of the jobs with this flag, ordered by name as bytes. Dead letters may be missing in those
    /// that run, are due or are overdue.
    ///
    /// What runs is looked for among the 2 000 schedules that are due first or whose leases end first,
    /// the first 2 000 paused ones and as many jobs in code: in a larger store,
    /// [`Flagged::is_complete`] is `false`. So it is with what cannot be read. What is due or overdue is
    /// complete unless there is as much of it.
    ///
    /// Default: by lists of all jobs. A call reads at most 10 000, and is incomplete if there are more;
    /// [`Flagged::next`] goes on.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    async fn flagged(&self, flag: Flag<'_>, page: Page<'_>, time: TimeSource) -> Result<Flagged> {
        scan_flagged(self, flag, page, time).await
    }

    /// The numbers of jobs with each flag, of those whose names begin with `prefix`.
    ///
    /// Default: among the first 10 000 jobs of the list. If there are more, no number is exact.
    ///
    /// # Errors
    /// `Unavailable`.
    ///
    /// # Cancel safety
    /// Nothing is changed.
    async fn counts(&self, prefix: &str, time: TimeSource) -> Result<Counts> {
        scan_counts(self, prefix, time).await
    }
}

/// The most jobs that a call reads which has no index.
const SCANNED: usize = 10_000;

/// The number of jobs that one of its requests reads.
const SCANNED_AT_ONCE: usize = 500;

/// The store's time: a search for nothing has it.
async fn time_of<Q: Queries + ?Sized>(queries: &Q, time: TimeSource) -> Result<Time> {
    Ok(queries.find_due(DueQuery::new(&[], Time::UNIX_EPOCH, 1), time).await?.now)
}

/// The jobs with a flag, by lists.
pub(crate) async fn scan_flagged<Q: Queries + ?Sized>(
    queries: &Q,
    flag: Flag<'_>,
    page: Page<'_>,
    time: TimeSource,
) -> Result<Flagged> {
    let now = time_of(queries, time).await?;
    let mut after = page.after.map(str::to_owned);
    let (mut found, mut read) = (Vec::new(), 0);
    while read < SCANNED {
        let part = Page { after: after.as_deref(), limit: SCANNED_AT_ONCE, ..page };
        let listed = queries.list(part).await?;
        let is_last = listed.len() < SCANNED_AT_ONCE;
        read += listed.len();
        for state in listed {
            if found.len() == page.limit {
                return Ok(Flagged::new(found, after));
            }
            after = Some(state.name.clone());
            found.extend(flag.holds(&state, now).then_some(state));
        }
        if is_last {
            return Ok(Flagged::new(found, None));
        }
    }
    Ok(Flagged::new(found, after).incomplete())
}

/// The numbers of jobs with each flag, among the first ones of a list.
pub(crate) async fn scan_counts<Q: Queries + ?Sized>(
    queries: &Q,
    prefix: &str,
    time: TimeSource,
) -> Result<Counts> {
    let now = time_of(queries, time).await?;
    let mut all: Vec<JobState> = Vec::new();
    let mut is_whole = false;
    while !is_whole && all.len() < SCANNED {
        let mut part = Page::first(SCANNED_AT_ONCE).prefix(prefix);
        part.after = all.last().map(|state| &*state.name);
        let listed = queries.list(part).await?;
        is_whole = listed.len() < SCANNED_AT_ONCE;
        all.extend(listed);
    }
    Ok(Counts::among(&all, now, is_whole))
}

/// The records to find: of these kinds, wanting attention before `until`, at most `limit`. The
/// empty kind is that of jobs in code: of these only what their nodes cannot know, such as a manual
/// trigger (see [`Record::index_at`](crate::record::Record::index_at)).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct DueQuery<'a> {
    /// The node that asks, whose own leases end by its own clock if the store has none; empty for a
    /// client.
    pub node: &'a str,
    /// The kinds that the node can run.
    pub kinds: &'a [&'a str],
    /// The end of the range, a little ahead of now, so that the node can plan before the time.
    pub until: Time,
    /// The most records to return; the earliest first.
    pub limit: usize,
    /// The number of the earliest records of each kind that may be left out because other nodes
    /// work on them. A node that uses it queries again without it before it believes that nothing
    /// is due.
    pub skip: usize,
    /// The records to choose if more want attention than `limit`. A store may ignore it.
    pub preferred: Option<Preferred<'a>>,
}

/// The order of a node among those that can run the same records, for each name.
///
/// If more records want attention than a query asks for, a store whose index has the names returns
/// those for which the node comes first. So nodes that ask at the same time find different records.
///
/// # Examples
/// ```
/// use allora::{Time, backend::{DueQuery, Preferred}};
///
/// // Of two nodes, this one is the first for all names before "n".
/// let rank = |name: &str| usize::from(name >= "n");
/// let query = DueQuery::new(&["mail"], Time::MAX_UTC, 100);
/// let query = query.preferring(Preferred::new(2, &rank));
/// assert_eq!(query.preferred.map(|order| order.rank("reminder")), Some(1));
/// ```
#[derive(Clone, Copy)]
pub struct Preferred<'a> {
    nodes: usize,
    rank: &'a (dyn Fn(&str) -> usize + Sync),
}

impl<'a> Preferred<'a> {
    /// The order among so many nodes. `rank`: the number of nodes that come before this one for a name.
    pub fn new(nodes: usize, rank: &'a (dyn Fn(&str) -> usize + Sync)) -> Self {
        Self { nodes, rank }
    }

    /// The number of nodes, with the one that asks.
    pub fn nodes(self) -> usize {
        self.nodes
    }

    /// The number of nodes that come before the one that asks for the record of this name.
    pub fn rank(self, name: &str) -> usize {
        (self.rank)(name)
    }
}

impl fmt::Debug for Preferred<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Preferred").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl<'a> DueQuery<'a> {
    /// Records of these kinds that want attention before `until`, at most `limit`.
    pub fn new(kinds: &'a [&'a str], until: Time, limit: usize) -> Self {
        Self { node: "", kinds, until, limit, skip: 0, preferred: None }
    }

    /// Asked by this node.
    #[must_use]
    pub fn node(mut self, node: &'a str) -> Self {
        self.node = node;
        self
    }

    /// May leave out this number of the earliest records of each kind.
    #[must_use]
    pub fn skipping(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Chooses these if there are more than `limit`.
    #[must_use]
    pub fn preferring(mut self, preferred: Preferred<'a>) -> Self {
        self.preferred = Some(preferred);
        self
    }
}

/// The result of a due query.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Due {
    /// The store's time.
    pub now: Time,
    /// The records, the earliest first, of equal times in any order. Their dead letters may be
    /// missing: a store may keep those apart.
    pub found: Vec<JobState>,
    /// The time at which the next record of the same kinds wants attention, beyond those found.
    pub next_due: Option<Time>,
}

impl Due {
    /// The records found at `now`, and when the next one wants attention.
    pub fn new(now: Time, found: Vec<JobState>, next_due: Option<Time>) -> Self {
        Self { now, found, next_due }
    }
}

/// The records to find and claim: of these kinds, due by the store's clock, at most `limit`.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ClaimDue<'a> {
    /// The node that claims.
    pub node: &'a str,
    /// The kinds that the node can run.
    pub kinds: &'a [&'a str],
    /// The most records to claim.
    pub limit: usize,
    /// A random number for the claims of this query.
    pub claim_id: u128,
    /// Nothing is claimed after this time. With it, no copy of the query that is late claims records
    /// after the reply to its repetition.
    pub not_after: Option<Time>,
    /// The reply to this query was lost, and it is the last query of its node. What it has claimed is
    /// returned, as far as that still is of these kinds and leased under its `claim_id`, without a
    /// request to cancel it. Nothing is claimed.
    pub is_repeated: bool,
}

impl<'a> ClaimDue<'a> {
    /// At most `limit` records of these kinds, for this node.
    pub fn new(node: &'a str, claim_id: u128, kinds: &'a [&'a str], limit: usize) -> Self {
        Self { node, kinds, limit, claim_id, not_after: None, is_repeated: false }
    }

    /// Claims nothing after this time.
    #[must_use]
    pub fn not_after(mut self, not_after: Time) -> Self {
        self.not_after = Some(not_after);
        self
    }

    /// Asked again, because the reply was lost.
    #[must_use]
    pub fn repeated(mut self) -> Self {
        self.is_repeated = true;
        self
    }
}

/// The result of a query that claims.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClaimedDue {
    /// The store's time.
    pub now: Time,
    /// The claimed records, in any order. Each is as it is after the claim: its leases have that of the
    /// claim. Dead letters may be missing.
    pub claimed: Vec<(JobState, Claimed)>,
}

impl ClaimedDue {
    /// The records claimed at `now`.
    pub fn new(now: Time, claimed: Vec<(JobState, Claimed)>) -> Self {
        Self { now, claimed }
    }
}

/// A part of the list.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Page<'a> {
    /// Names after this one; `None` from the beginning.
    pub after: Option<&'a str>,
    /// Names that begin with this text.
    pub prefix: &'a str,
    /// Jobs of this kind only.
    pub kind: Option<&'a str>,
    /// The most jobs to return. Range: from 1.
    pub limit: usize,
}

impl<'a> Page<'a> {
    /// The first `limit` jobs.
    pub fn first(limit: usize) -> Self {
        Self { after: None, prefix: "", kind: None, limit }
    }

    /// The jobs after this name.
    #[must_use]
    pub fn after(mut self, name: &'a str) -> Self {
        self.after = Some(name);
        self
    }

    /// The jobs whose names begin with this text.
    #[must_use]
    pub fn prefix(mut self, prefix: &'a str) -> Self {
        self.prefix = prefix;
        self
    }

    /// The jobs of this kind.
    #[must_use]
    pub fn kind(mut self, kind: &'a str) -> Self {
        self.kind = Some(kind);
        self
    }
}
