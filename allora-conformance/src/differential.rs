//! A long random walk on two backends: equal batches give equal replies, equal states, and the same
//! answers to queries of what is due.
//!
//! The [suite](crate::suite) has walks too, which compare with the pure functions. These are longer,
//! use harsher instants and names, and compare everything after every batch: for backends with a
//! fast path in a language of their own.

use allora_core::{
    Backend, Occurrence, Time,
    backend::{
        Action, Advance, Author, Batch, CancelScope, Claim, ClaimKey, Completion, Cursor, DueQuery,
        Edit, HistoryQuery, JobState, NewSchedule, NextRun, NotRun, NotRunReason, OPERATOR,
        Operation, Page, Queries, Replan, Reply, RetryCause, Sharing, TimeSource,
    },
    record::Change,
    time::{end_of_time, from_millis, whole_millis},
};
use std::time::Duration;

const NAMES: &[&str] = &["a", "A", "b {x}", "'; DROP TABLE x; --", "🧾", "c"];
const KINDS: &[&str] = &["", "mail", "Mail"];
const KEYS: &[&str] = &["allora:key:k", "allora:key:'; --🧾"];
const NODES: &[&str] = &["n1", "n2"];

/// The walks of a test run: `ALLORA_SEED` alone, to see a failure again, or else four of them.
///
/// # Panics
/// If the variable is no number.
pub fn seeds() -> Vec<u64> {
    match std::env::var("ALLORA_SEED") {
        Ok(seed) => vec![seed.parse().expect("ALLORA_SEED is a number")],
        Err(_) => (1..=4).collect(),
    }
}

/// Walks 300 batches long on two empty stores; with an even seed mostly by what nodes do all day,
/// which is what fast paths are for. The second store is the one to agree with. Both have queries;
/// histories are compared where both have one.
///
/// # Panics
/// Where they disagree, with the seed and the batch; if a call fails.
pub async fn walk(seed: u64, ours: &dyn Backend, theirs: &dyn Backend) {
    let mut walk = Walk {
        random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
        now_us: 1_700_000_000_000_000,
        fences: Vec::new(),
        claims: vec![1],
        is_usual: seed.is_multiple_of(2),
    };
    for turn in 0..300 {
        walk.now_us += [0, 1, 700, 1_500_000, 30_000_000][walk.random.below(5)];
        if turn % 3 == 0 {
            // Up to the very instant at which something is due.
            let due = all(theirs).await.iter().filter_map(|state| state.due_at).min();
            let soon = due.map_or(0, |due| due.timestamp_micros());
            walk.now_us = walk.now_us.max(soon.min(walk.now_us + 60_000_000));
        }
        let observed = walk.turn(ours, theirs).await;
        let case = format!("ALLORA_SEED={seed}, turn {turn}: {}", observed.batch);
        assert_eq!(observed.ours, observed.theirs, "{case}");
        assert_eq!(all(ours).await, all(theirs).await, "states after {case}");
        assert_eq!(dues(ours).await, dues(theirs).await, "due queries after {case}");
        assert_eq!(changes(ours).await, changes(theirs).await, "changes after {case}");
        if let (Some(mine), Some(yours)) = (ours.history(), theirs.history()) {
            let entries = mine.entries(HistoryQuery::new(1_000_000)).await.unwrap();
            assert_eq!(
                entries,
                yours.entries(HistoryQuery::new(1_000_000)).await.unwrap(),
                "{case}"
            );
        }
    }
    assert!(walk.fences.len() > 20, "the walk claimed next to nothing");
}

fn queries(backend: &dyn Backend) -> &dyn Queries {
    backend.queries().expect("both backends have queries")
}

/// The jobs and the concurrency keys.
async fn all(backend: &dyn Backend) -> Vec<JobState> {
    let mut all = queries(backend).list(Page::first(1000)).await.unwrap();
    all.extend(queries(backend).list(Page::first(1000).prefix("allora:key:")).await.unwrap());
    all
}

async fn changes(backend: &dyn Backend) -> Vec<Change> {
    queries(backend).changes(HistoryQuery::new(10_000)).await.unwrap()
}

/// Everything that wants attention, and each time of it. Of equal times, any may be first: the names
/// are left out where the limit is between such.
async fn dues(backend: &dyn Backend) -> Vec<(Vec<String>, Option<Time>)> {
    let time = TimeSource::Fixed(from_millis(0).unwrap());
    let mut dues = Vec::new();
    // One more each time: an entry that a query repairs is seen wrong before.
    for limit in 0..=6 {
        let query = DueQuery::new(KINDS, end_of_time(), limit);
        let due = queries(backend).find_due(query, time).await.unwrap();
        let mut names: Vec<String> = due.found.into_iter().map(|state| state.name).collect();
        names.sort_unstable();
        dues.push((names, due.next_due));
    }
    let times: Vec<Option<Time>> = dues.iter().map(|(_, next_due)| *next_due).collect();
    for i in 1..dues.len() {
        if times[i].is_some() && times[i] == times[i - 1] {
            dues[i].0.clear();
        }
    }
    dues
}

/// The replies of both to one batch, as text.
struct Observed {
    batch: String,
    ours: String,
    theirs: String,
}

struct Walk {
    random: Random,
    now_us: i64,
    fences: Vec<(String, i64)>,
    claims: Vec<u128>,
    is_usual: bool,
}

/// The values that the operations of a batch borrow.
struct Borrowed {
    names: Vec<String>,
    data: Vec<u8>,
    letters: Vec<Occurrence>,
}

impl Walk {
    /// Now and then; on a usual walk seldom.
    fn seldom(&mut self) -> bool {
        !self.is_usual || self.random.below(8) == 0
    }

    /// One batch of any operations. Mostly each is on a job of its own, as nodes send them.
    async fn turn(&mut self, ours: &dyn Backend, theirs: &dyn Backend) -> Observed {
        let states = all(theirs).await;
        let (node, names) = match self.random.below(9) {
            0 => (OPERATOR, vec![self.name().to_owned()]),
            _ => (NODES[self.random.below(2)], self.names()),
        };
        let letter = |name: &String| {
            let state = states.iter().find(|state| state.name == *name);
            let letter = state.and_then(|state| state.dead.first());
            letter.map_or_else(|| self.now().into(), |letter| letter.occurrence.clone())
        };
        let letters = names.iter().map(letter).collect();
        let data = [vec![], vec![0, 255], b"x".repeat(3000)][self.random.below(3)].clone();
        let borrowed = Borrowed { names, data, letters };
        let author = Author::new("ann").via("a walk").note("why\0");
        let author = (node == OPERATOR).then_some(&author);
        let mut operations = Vec::new();
        for i in 0..borrowed.names.len() {
            let name = &*borrowed.names[i];
            let state = states.iter().find(|state| state.name == name);
            let action = match self.random.below(9) {
                _ if KEYS.contains(&name) => self.key_action(state),
                _ if node == OPERATOR => self.operate(state, &borrowed, i),
                0..=3 => self.end(state, name).unwrap_or(Action::Read),
                4 | 5 if self.is_usual => self.end(state, name).unwrap_or(Action::Read),
                6 if self.seldom() => self.operate(state, &borrowed, i),
                _ => self.node_action(state),
            };
            let output = (self.random.below(4) == 0).then_some("out\0put");
            let value = output.filter(|_| i % 2 == 0).map(|_| "[1]");
            let checkpoint = (self.random.below(4) == 0).then_some(&b"\0\xff7"[..]);
            let operation = Operation::new(name, action).output(output).value(value);
            let mut operation = operation.checkpoint(checkpoint);
            operation.works_on = self.random.below(4) == 0;
            operations.push(operation.by(author));
        }
        let batch = Batch::new(node, TimeSource::Fixed(self.now()), &operations);
        let a = ours.reschedule(batch).await.unwrap();
        let b = theirs.reschedule(batch).await.unwrap();
        for (operation, reply) in operations.iter().zip(&b.replies) {
            if let Ok(Reply::Claimed(claimed)) = reply
                && !KEYS.contains(&operation.name)
            {
                self.fences.push((operation.name.to_owned(), claimed.fence));
            }
        }
        Observed { batch: format!("{batch:?}"), ours: shown(a), theirs: shown(b) }
    }

    /// Some of the names, in any order; now and then one of them twice.
    fn names(&mut self) -> Vec<String> {
        let mut names = NAMES.to_vec();
        for _ in 0..self.random.below(NAMES.len()) {
            names.remove(self.random.below(names.len()));
        }
        if self.seldom() && self.random.below(3) == 0 {
            names.push(names[self.random.below(names.len())]);
        }
        if self.seldom() && self.random.below(2) == 0 {
            for _ in 0..1 + self.random.below(2) {
                names.push(KEYS[self.random.below(KEYS.len())]);
            }
        }
        names.into_iter().map(str::to_owned).collect()
    }

    /// An operation of a client.
    fn operate<'a>(
        &mut self,
        state: Option<&JobState>,
        borrowed: &'a Borrowed,
        i: usize,
    ) -> Action<'a> {
        let next = self.next(self.ms());
        if self.random.below(8) == 0 {
            return match state {
                Some(state) if state.fence % 2 == 0 => Action::Prune {
                    fence: state.fence,
                    cursor: state.next.map(|cursor| cursor.scheduled_at),
                },
                _ => Action::Delete,
            };
        }
        let Some(state) = state.filter(|_| self.random.below(4) > 0) else {
            let kind = KINDS[1 + self.random.below(2)];
            return Action::Create(NewSchedule::new(kind, "d\0ef", next).data(&borrowed.data));
        };
        let generation = state.generation - i64::from(self.random.below(5) == 0);
        let mut edit = Edit::of(generation);
        let occurrence = &borrowed.letters[i];
        match self.random.below(11) {
            9 => Action::Cancel(CancelScope::All),
            10 => {
                let leases = &state.leases;
                let lease = leases.get(self.random.below(leases.len().max(1)));
                Action::Cancel(CancelScope::Run(lease.map_or(7, |lease| lease.fence)))
            }
            0 => {
                edit.definition = Some(("other", self.replan(state, next)));
                edit.kind = (self.random.below(3) == 0).then(|| KINDS[1 + self.random.below(2)]);
                Action::Modify(edit)
            }
            1 => {
                edit.data = Some(&borrowed.data);
                Action::Modify(edit)
            }
            2 => {
                let until = next.filter(|_| self.random.below(2) == 0).map(|next| next.due_at);
                Action::Pause { note: "by\0 hand", until }
            }
            3 => {
                let cursor = state.next.filter(|_| self.random.below(2) == 0);
                match cursor {
                    None => Action::Resume,
                    Some(cursor) => {
                        let last = whole_millis(self.now()).max(cursor.scheduled_at);
                        let reason = NotRunReason::CatchUp;
                        let not_run = NotRun { count: Some(3), last, reason };
                        Action::Skip(Advance::new(generation, cursor.scheduled_at, not_run, next))
                    }
                }
            }
            4 => Action::Rerun { occurrence },
            5 => Action::Dismiss { occurrence },
            6 => Action::Reset { incarnation: state.incarnation, first: next },
            _ => {
                let id = ["t1", "t2", "bad\n"][self.random.below(3)];
                let scheduled_at = (self.random.below(4) == 0).then_some(next);
                let scheduled_at = scheduled_at.flatten().map(|next| next.scheduled_at);
                let retention = Duration::from_secs([0, 60, 86_400][self.random.below(3)]);
                let data = i.is_multiple_of(2).then_some(&*borrowed.data);
                Action::Trigger { id, scheduled_at, retention, data }
            }
        }
    }

    /// An operation on a run of this job; `None` if there is no run that it could be.
    fn end(&mut self, state: Option<&JobState>, name: &str) -> Option<Action<'static>> {
        let leases = state.map(|state| &*state.leases).unwrap_or_default();
        let fence = if !leases.is_empty() && self.random.below(4) > 0 {
            leases[self.random.below(leases.len())].fence
        } else {
            let mine = self.fences.iter().rev().filter(|(of, _)| of == name);
            let recent: Vec<i64> = mine.take(4).map(|(_, fence)| *fence).collect();
            if recent.is_empty() {
                return None;
            }
            recent[self.random.below(recent.len())]
        };
        let fence = fence + i64::from(self.random.below(8) == 0);
        let back = [60_000, 0][self.random.below(2)];
        let then = match self.random.below(4) {
            0 => Cursor::Keep,
            _ => Cursor::To(self.next(self.ms() - back)),
        };
        let complete = |completion| Action::Complete { fence, then, completion };
        let which = match self.seldom() {
            true => self.random.below(10),
            false => [4, 6, 7, 8][self.random.below(4)],
        };
        Some(match which {
            0 => {
                let not_before = from_millis(self.ms() + 1000).unwrap();
                let cause = match self.random.below(2) {
                    0 => RetryCause::Failed("e\0"),
                    _ => RetryCause::Released,
                };
                Action::Retry { fence, not_before, cause }
            }
            1 => Action::Release { fence },
            2 => complete(Completion::Failed("boom")),
            3 => complete(Completion::Cancelled),
            4 => Action::Extend { fence, duration: Duration::from_micros(20_000_300) },
            5 => complete(Completion::Dead("")),
            6 => Action::Extend { fence, duration: Duration::from_millis(10) },
            _ => complete(Completion::Succeeded),
        })
    }

    /// An operation on a concurrency key.
    fn key_action(&mut self, state: Option<&JobState>) -> Action<'static> {
        let leases = state.map(|state| &*state.leases).unwrap_or_default();
        if !leases.is_empty() && self.random.below(3) == 0 {
            let fence = leases[self.random.below(leases.len())].fence;
            let fence = fence + i64::from(self.random.below(8) == 0);
            return match self.random.below(3) {
                0 => Action::Extend { fence, duration: Duration::from_micros(7_000_900) },
                _ => Action::ReleaseKey { fence },
            };
        }
        match (self.random.below(24), state) {
            (0, _) => Action::Delete,
            (1, Some(state)) => Action::Prune { fence: state.fence, cursor: None },
            (2, _) => Action::Read,
            _ => {
                let claim_id = match self.random.below(6) {
                    0 => self.claims[self.random.below(self.claims.len())],
                    _ => u128::from(self.random.next()) << 64 | u128::from(self.random.next()),
                };
                self.claims.push(claim_id);
                let job = NAMES[self.random.below(NAMES.len())];
                let due_at = from_millis(self.ms() - self.random.below(5) as i64).unwrap();
                let limit = 1 + self.random.below(3) as u32;
                let lease = Duration::from_millis([5_000, 0, 60_000][self.random.below(3)]);
                let since = (self.random.below(4) == 0).then(|| self.now());
                let claim = ClaimKey::new(claim_id, limit, job, due_at, lease);
                let not_after = (self.seldom() && self.random.below(8) == 0)
                    .then(|| from_millis(self.ms() - 500 + self.random.below(1000) as i64))
                    .flatten();
                Action::ClaimKey(claim.waiting_since(since).not_after(not_after))
            }
        }
    }

    /// An operation of a node that plans this job.
    fn node_action(&mut self, state: Option<&JobState>) -> Action<'static> {
        let Some(state) = state else {
            let first = self.next(self.ms());
            // Most are left to be created as stored schedules.
            return match self.random.below(if self.is_usual { 8 } else { 2 }) {
                1.. => Action::Read,
                0 => Action::Register { definition: "def", version: u64::MAX - 1, first },
            };
        };
        let stale = i64::from(self.random.below(10) == 0);
        let (generation, fence) = (state.generation - stale, state.fence - stale);
        let after =
            state.head.as_ref().map_or(self.ms(), |head| head.scheduled_at.timestamp_millis());
        match if self.seldom() { self.random.below(12) } else { 12 } {
            0 => Action::Read,
            1 if self.random.below(2) == 0 => Action::Reap,
            1 => {
                let expected = state.next.map_or(self.now(), |next| next.scheduled_at);
                Action::Replace { generation, expected, by: expected }
            }
            2 => Action::Register { definition: "def", version: 0, first: self.next(self.ms()) },
            3 if self.random.below(2) == 0 => {
                let (next, version) =
                    (self.next(self.ms()), u64::MAX - self.random.below(2) as u64);
                let plan = self.replan(state, next);
                Action::Redefine { generation, definition: "new", version, plan }
            }
            4 => {
                let expected =
                    state.next.map_or(from_millis(after).unwrap(), |next| next.scheduled_at);
                let not_run = self.not_run();
                Action::Advance(Advance::new(generation, expected, not_run, self.next(after)))
            }
            _ => {
                // The cursor's occurrence may have been started already: then it is no head.
                let cursor = state.next.map(|next| Occurrence::from(next.scheduled_at));
                self.claim(state.head.clone().or(cursor), fence, after)
            }
        }
    }

    /// Mostly for the cursor that was read, sometimes with a range that is not run.
    fn replan(&mut self, state: &JobState, then: Option<NextRun>) -> Replan {
        let mut plan = Replan::new(state.next.filter(|_| self.random.below(8) > 0), then);
        if let (0, Some(cursor)) = (self.random.below(2), state.next) {
            let late = chrono::TimeDelta::seconds(self.random.below(3) as i64);
            plan.not_run = Some((cursor.scheduled_at + late, self.not_run()));
        }
        plan
    }

    fn claim(&mut self, head: Option<Occurrence>, fence: i64, after: i64) -> Action<'static> {
        let expected = match (self.random.below(12), head) {
            (0, _) | (_, None) => Occurrence::from(from_millis(after + 1).unwrap()),
            (_, Some(head)) => head,
        };
        let then = match (&expected.trigger, self.random.below(8)) {
            (Some(_), 1..) | (None, 0) => Cursor::Keep,
            _ => Cursor::To(self.next(after)),
        };
        let lease = Duration::from_millis([5_000, 5_000, 0, 60_000][self.random.below(4)]);
        let sharing = [Sharing::Shared, Sharing::Exclusive][self.random.below(2)];
        let claim_id = if self.random.below(10) == 0 {
            self.claims[self.random.below(self.claims.len())]
        } else {
            u128::from(self.random.next()) << 64 | u128::from(self.random.next())
        };
        self.claims.push(claim_id);
        let mut claim = match self.random.below(3) {
            0 => {
                let lease = Duration::from_micros(7_000_900);
                let mut claim = Claim::at_least_once(claim_id, fence, expected, lease);
                if self.seldom() && self.random.below(8) == 0 {
                    claim.then = then;
                }
                claim
            }
            _ => Claim::at_most_once(claim_id, fence, expected, then, lease, sharing),
        };
        if self.seldom() && self.random.below(8) == 0 {
            let later = after + self.random.below(3000) as i64;
            let [scheduled_at, due_at] = [later, later + 7].map(|ms| from_millis(ms).unwrap());
            let start = NextRun { scheduled_at, due_at };
            claim = claim.starting(start, self.not_run());
        }
        if self.seldom() && self.random.below(8) == 0 {
            claim.not_after = from_millis(self.ms() - 500 + self.random.below(1000) as i64);
        }
        Action::Claim(claim)
    }

    fn not_run(&mut self) -> NotRun {
        let count = [None, Some(3), Some(u64::MAX)][self.random.below(3)];
        let last = from_millis(self.ms() - 10).unwrap();
        let reasons = [NotRunReason::CatchUp, NotRunReason::Window, NotRunReason::Overlap];
        NotRun { count, last, reason: reasons[self.random.below(3)] }
    }

    /// Something a little after `after`, now and then nothing or the end of time.
    fn next(&mut self, after: i64) -> Option<NextRun> {
        let at = from_millis(after + 1 + self.random.below(20_000) as i64).unwrap();
        match self.random.below(12) {
            0 => None,
            1 => Some(NextRun { scheduled_at: at, due_at: end_of_time() }),
            2 => Some(NextRun { scheduled_at: at, due_at: at + Duration::from_millis(1500) }),
            3 => Some(NextRun { scheduled_at: at, due_at: at - Duration::from_millis(1500) }),
            _ => Some(NextRun::from(at)),
        }
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.random.below(NAMES.len())]
    }

    fn now(&self) -> Time {
        Time::from_timestamp_micros(self.now_us).unwrap()
    }

    fn ms(&self) -> i64 {
        self.now_us / 1000
    }
}

/// The replies as text. Errors are equal if their kinds are.
fn shown(applied: allora_core::backend::Applied) -> String {
    let replies = applied.replies.into_iter().map(|reply| reply.map_err(|error| error.kind()));
    format!("{:?} {:?}", applied.now, replies.collect::<Vec<_>>())
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 11) as usize % limit
    }
}
