//! A long random walk on two backends: equal calls give equal answers, equal states, and the same
//! notice of what is due.
//!
//! The [suite](crate::suite) has walks too, which compare with the pure functions. These go on for
//! longer, are cruel with instants and names, and look at everything after every call: for backends
//! that have written the commonest plans in a language of their own.

use allora_core::{
    Backend, Occurrence, Time,
    backend::{
        Act, Answer, Beside, Change, Cursor, Deliver, End, Ended, Ending, Find, Mark, NewSchedule,
        Next, Now, Page, Passed, Plan, Reschedule, Schedules, Settle, Skip, State, Take,
    },
    time::{from_millis, whole_millis},
};
use std::time::Duration;

const NAMES: &[&str] = &["a", "A", "b {x}", "'; DROP TABLE x; --", "🧾", "c"];
const KINDS: &[&str] = &["", "mail", "Mail"];
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

/// Walks 300 calls long on two empty stores; with an even seed mostly by what nodes do all day, which
/// is what fast paths are for. Of the two, the second is the one to agree with. Both have
/// leases and schedules; histories are compared where both have one.
///
/// # Panics
/// Where they disagree, with the seed and the call; if a call fails.
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
        let said = walk.turn(ours, theirs).await;
        let case = format!("ALLORA_SEED={seed}, turn {turn}: {}", said.call);
        assert_eq!(said.ours, said.theirs, "{case}");
        assert_eq!(all(ours).await, all(theirs).await, "states after {case}");
        assert_eq!(notices(ours).await, notices(theirs).await, "notices after {case}");
        if let (Some(mine), Some(yours)) = (ours.history(), theirs.history()) {
            let told = mine.past(None, None, 1_000_000).await.unwrap();
            assert_eq!(told, yours.past(None, None, 1_000_000).await.unwrap(), "{case}");
        }
    }
    assert!(walk.fences.len() > 20, "the walk took next to nothing");
}

async fn all(backend: &dyn Backend) -> Vec<State> {
    backend.schedules().unwrap().list(Page::first(1000)).await.unwrap()
}

/// Everything that is to be noticed, and each time of it.
async fn notices(backend: &dyn Backend) -> Vec<(Vec<String>, Option<Time>)> {
    let now = Now::At(from_millis(0).unwrap());
    let mut notices = Vec::new();
    // One more each time: what a backend puts right when it finds it is seen wrong before.
    for limit in 0..=6 {
        let find = Find::new(KINDS, allora_core::time::end_of_time(), limit);
        let request = Reschedule::new("n1", now, &[]).find(find);
        let answer = backend.reschedule(request).await.unwrap();
        let names = answer.found.into_iter().map(|state| state.name).collect();
        notices.push((names, answer.next_due));
    }
    notices
}

/// What both said to one call, as text where they are not of one type.
struct Said {
    call: String,
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

impl Walk {
    /// Now and then; on a usual walk seldom.
    fn seldom(&mut self) -> bool {
        !self.is_usual || self.random.below(8) == 0
    }

    async fn turn(&mut self, ours: &dyn Backend, theirs: &dyn Backend) -> Said {
        let now = Now::At(Time::from_timestamp_micros(self.now_us).unwrap());
        match self.random.below(9) {
            0 => self.operate(ours, theirs, now).await,
            1..=3 => self.settle(ours, theirs, now).await,
            4 | 5 if self.is_usual => self.settle(ours, theirs, now).await,
            _ => self.reschedule(ours, theirs, now).await,
        }
    }

    async fn operate(&mut self, ours: &dyn Backend, theirs: &dyn Backend, now: Now) -> Said {
        let name = self.name();
        let known = theirs.schedules().unwrap().get(name).await.ok();
        let next = self.next(self.ms());
        let data = [vec![], vec![0, 255], b"x".repeat(3000)][self.random.below(3)].clone();
        let (mine, yours) = (ours.schedules().unwrap(), theirs.schedules().unwrap());
        if self.random.below(8) == 0 {
            let (a, b) = (mine.delete(name, now).await, yours.delete(name, now).await);
            return said(format!("delete {name}"), kinds(a), kinds(b));
        }
        if known.is_none() || self.random.below(4) == 0 {
            let kind = KINDS[1 + self.random.below(2)];
            let new = NewSchedule::new(name, kind, "d\0ef", next).data(&data);
            let one = async |store: &dyn Schedules| store.add(&[new], now).await.unwrap().remove(0);
            let (a, b) = (one(mine).await, one(yours).await);
            return said(format!("{new:?}"), kinds(a), kinds(b));
        }
        let edition =
            known.as_ref().map_or(0, |state| state.edition) - i64::from(self.random.below(5) == 0);
        let ids = ["t1", "t2", "bad\n"];
        let kind = (self.random.below(3) == 0).then(|| KINDS[1 + self.random.below(2)]);
        let letter =
            known.as_ref().and_then(|state| state.dead.first()).map(|letter| letter.run.clone());
        let letter = letter.unwrap_or_else(|| now.here().into());
        let change = match self.random.below(8) {
            0 => Change::Edit { edition, kind, definition: Some(("other", next)), data: None },
            1 => Change::Edit { edition, kind: None, definition: None, data: Some(&data) },
            2 => Change::Pause { note: "by\0 hand" },
            3 => {
                let cursor = known.as_ref().and_then(|state| state.cursor);
                let skip = cursor.filter(|_| self.random.below(2) == 0).map(|cursor| {
                    let last = whole_millis(now.here()).max(cursor.at);
                    let passed = Passed { count: Some(3), last, overlap: false };
                    Skip::new(edition, cursor.at, passed, next)
                });
                Change::Resume { skip }
            }
            4 => Change::Rerun { run: &letter },
            5 => Change::Dismiss { run: &letter },
            _ => Change::Trigger { id: ids[self.random.below(3)], at: None },
        };
        let (a, b) = (mine.modify(name, change, now).await, yours.modify(name, change, now).await);
        said(format!("{name} {change:?}"), kinds(a), kinds(b))
    }

    async fn settle(&mut self, ours: &dyn Backend, theirs: &dyn Backend, now: Now) -> Said {
        let mut held = Vec::new();
        for state in all(theirs).await {
            held.extend(state.holds.iter().map(|hold| (state.name.clone(), hold.fence)));
        }
        let picked: Vec<(String, i64)> = (0..1 + self.random.below(3))
            .filter_map(|_| {
                if !held.is_empty() && self.random.below(4) > 0 {
                    return Some(held[self.random.below(held.len())].clone());
                }
                let recent = self.fences.len().min(12);
                (recent > 0)
                    .then(|| self.fences[self.fences.len() - 1 - self.random.below(recent)].clone())
            })
            .collect();
        let endings: Vec<Ending<'_>> = picked
            .iter()
            .map(|(name, fence)| {
                let fence = fence + i64::from(self.random.below(8) == 0);
                Ending::new(name, fence, self.end())
            })
            .collect();
        let node = NODES[self.random.below(2)];
        let request = Settle::new(node, now, &endings);
        let a = ours.leases().unwrap().settle(request).await.unwrap();
        let b = theirs.leases().unwrap().settle(request).await.unwrap();
        said(format!("{request:?}"), a, b)
    }

    fn end(&mut self) -> End<'static> {
        let back = [60_000, 0][self.random.below(2)];
        let then = match self.random.below(4) {
            0 => Cursor::Keep,
            _ => Cursor::To(self.next(self.ms() - back)),
        };
        match if self.seldom() { self.random.below(10) } else { [4, 6, 7, 8][self.random.below(4)] }
        {
            0 => End::Retry { at: from_millis(self.ms() + 1000).unwrap(), error: "e\0" },
            1 => End::Release,
            2 => End::Finish { then, outcome: Ended::Failed("boom") },
            3 => End::Finish { then, outcome: Ended::Cancelled },
            4 => End::Extend { lasts: Duration::from_micros(20_000_300) },
            6 => End::Extend { lasts: Duration::from_millis(10) },
            5 => End::Finish { then, outcome: Ended::Dead("") },
            _ => End::Finish { then, outcome: Ended::Ran },
        }
    }

    async fn reschedule(&mut self, ours: &dyn Backend, theirs: &dyn Backend, now: Now) -> Said {
        let mut names = NAMES.to_vec();
        for _ in 0..self.random.below(NAMES.len() + 1) {
            names.remove(self.random.below(names.len()));
        }
        let mut plans = Vec::new();
        for name in names {
            let state = theirs.schedules().unwrap().get(name).await.ok();
            plans.push(Plan::new(name, self.act(state)));
        }
        let node = NODES[self.random.below(2)];
        let mut request = Reschedule::new(node, now, &plans);
        let until = from_millis(self.ms() + 5_000).unwrap();
        if self.random.below(3) == 0 {
            request = request.find(Find::new(KINDS, until, self.random.below(4)));
        }
        let a = ours.reschedule(request).await.unwrap();
        let b = theirs.reschedule(request).await.unwrap();
        for (plan, answer) in plans.iter().zip(&b.answers) {
            if let Answer::Taken(taken) = answer {
                self.fences.push((plan.name.to_owned(), taken.fence));
            }
        }
        let show = |r: allora_core::backend::Rescheduled| {
            format!("{:?} {:?} {:?} {:?}", r.now, r.answers, r.found, r.next_due)
        };
        said(format!("{request:?}"), show(a), show(b))
    }

    fn act(&mut self, state: Option<State>) -> Act<'static> {
        let Some(state) = state else {
            let first = self.next(self.ms());
            // Most are left to be added as stored schedules.
            return match self.random.below(if self.is_usual { 8 } else { 2 }) {
                1.. => Act::Look,
                0 => Act::Register { definition: "def", version: u64::MAX - 1, first },
            };
        };
        let stale = i64::from(self.random.below(10) == 0);
        let (edition, fence) = (state.edition - stale, state.fence - stale);
        let after = state.head.as_ref().map_or(self.ms(), |head| head.at.timestamp_millis());
        match if self.seldom() { self.random.below(12) } else { 12 } {
            0 => Act::Look,
            1 => Act::Reap,
            2 => Act::Register { definition: "def", version: 0, first: self.next(self.ms()) },
            3 if self.random.below(2) == 0 => {
                let (next, version) =
                    (self.next(self.ms()), u64::MAX - self.random.below(2) as u64);
                Act::Redefine { edition, definition: "new", version, next }
            }
            4 => {
                let expected = state.cursor.map_or(from_millis(after).unwrap(), |next| next.at);
                Act::Skip(Skip::new(edition, expected, self.passed(), self.next(after)))
            }
            _ => {
                // What the cursor is on may have been started already: then it is no head.
                let cursor = state.cursor.map(|next| Occurrence::from(next.at));
                self.take(state.head.or(cursor), fence, after)
            }
        }
    }

    fn take(&mut self, head: Option<Occurrence>, fence: i64, after: i64) -> Act<'static> {
        let expected = match (self.random.below(12), head) {
            (0, _) | (_, None) => Occurrence::from(from_millis(after + 1).unwrap()),
            (_, Some(head)) => head,
        };
        let then = match (&expected.trigger, self.random.below(8)) {
            (Some(_), 1..) | (None, 0) => Cursor::Keep,
            _ => Cursor::To(self.next(after)),
        };
        let lasts = Duration::from_millis(5_000);
        let beside = if self.random.below(2) == 0 { Beside::Others } else { Beside::None };
        let mark = (self.random.below(6) > 0).then_some(Mark { lasts, beside });
        let deliver = match self.random.below(3) {
            0 => Deliver::AtLeastOnce { lease: Duration::from_micros(7_000_900) },
            _ => Deliver::AtMostOnce { then, mark },
        };
        let claim = if self.random.below(10) == 0 {
            self.claims[self.random.below(self.claims.len())]
        } else {
            u128::from(self.random.next()) << 64 | u128::from(self.random.next())
        };
        self.claims.push(claim);
        let mut take = Take::new(claim, fence, expected, deliver);
        if self.seldom() && self.random.below(8) == 0 {
            let later = from_millis(after + self.random.below(3000) as i64).unwrap();
            take = take.starting(Occurrence::from(later), self.passed());
        }
        if self.seldom() && self.random.below(8) == 0 {
            take.fresh_until = from_millis(self.ms() - 500 + self.random.below(1000) as i64);
        }
        Act::Take(take)
    }

    fn passed(&mut self) -> Passed {
        let count = [None, Some(3), Some(u64::MAX)][self.random.below(3)];
        let last = from_millis(self.ms() - 10).unwrap();
        Passed { count, last, overlap: self.random.below(2) == 0 }
    }

    /// Something a little after `after`, now and then nothing or the end of time.
    fn next(&mut self, after: i64) -> Option<Next> {
        let at = from_millis(after + 1 + self.random.below(20_000) as i64).unwrap();
        match self.random.below(12) {
            0 => None,
            1 => Some(Next { at, due_at: allora_core::time::end_of_time() }),
            2 => Some(Next { at, due_at: at + Duration::from_millis(1500) }),
            3 => Some(Next { at, due_at: at - Duration::from_millis(1500) }),
            _ => Some(Next::from(at)),
        }
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.random.below(NAMES.len())]
    }

    fn ms(&self) -> i64 {
        self.now_us / 1000
    }
}

fn said<A: std::fmt::Debug, B: std::fmt::Debug>(call: String, ours: A, theirs: B) -> Said {
    Said { call, ours: format!("{ours:?}"), theirs: format!("{theirs:?}") }
}

/// Errors are alike if their kinds are.
fn kinds<T>(result: allora_core::Result<T>) -> Result<T, allora_core::Kind> {
    result.map_err(|error| error.kind())
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
