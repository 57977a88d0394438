//! Streaks, skips and moves under a lease, which only the conformance suite and the campaign had tested.

use crate::{
    backend::{
        Action, Advance, Claim, Completion, Cursor, NextRun, NotRun, NotRunReason, Operation,
        Replan, Reply, Sharing,
    },
    error::Result,
    record::{HistoryBuffer, OpContext, Record, apply},
    time::{Time, from_millis},
};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(30);

fn t(minutes: i64) -> Time {
    from_millis(minutes * 60_000).unwrap()
}

/// A job that is due each minute, the first time at minute 1.
struct Job(Option<Record>);

impl Job {
    fn new(definition: &str) -> Self {
        let mut job = Self(None);
        let first = Some(NextRun::from(t(1)));
        job.apply(0, Operation::new("job", Action::Register { definition, version: 0, first }))
            .unwrap();
        job
    }

    fn apply(&mut self, at: i64, operation: Operation<'_>) -> Result<Reply> {
        let context = OpContext::new("node", t(at));
        apply(&mut self.0, &operation, context, &mut HistoryBuffer::off())
    }

    fn record(&self) -> &Record {
        self.0.as_ref().unwrap()
    }

    fn cursor(&self) -> Time {
        self.record().cursor.unwrap().scheduled_at
    }

    /// The fence of the claim of the occurrence at this minute, at most once or at least once.
    fn claimed(&mut self, at: i64, at_most_once: bool) -> i64 {
        let (fence, expected) = (self.record().fence, t(at).into());
        let then = Cursor::To(Some(NextRun::from(t(at + 1))));
        let claim = match at_most_once {
            true => {
                Claim::at_most_once(at as u128, fence, expected, then, LEASE, Sharing::Exclusive)
            }
            false => Claim::at_least_once(at as u128, fence, expected, LEASE),
        };
        match self.apply(at, Operation::claim("job", claim)).unwrap() {
            Reply::Claimed(claimed) => claimed.fence,
            other => panic!("{other:?}"),
        }
    }

    /// The occurrence at this minute is left out, as far as it is still the next one of this generation.
    fn left_out(&self, at: i64, generation: i64) -> Advance {
        let not_run = NotRun { count: Some(1), last: t(at), reason: NotRunReason::Operator };
        Advance::new(generation, t(at), not_run, Some(NextRun::from(t(at + 1))))
    }
}

#[test]
fn a_job_pauses_itself_at_the_failure_that_its_breaker_names() {
    let mut job = Job::new("every 60s; breaker 2");
    for (at, is_paused) in [(1, false), (2, true)] {
        let fence = job.claimed(at, true);
        let end = Operation::complete("job", fence, Cursor::Keep, Completion::Failed("no disk"));
        job.apply(at, end).unwrap();
        assert_eq!(job.record().paused.is_some(), is_paused, "{at}");
    }
    assert!(job.record().paused.as_ref().unwrap().note.contains("no disk"));
}

#[test]
fn only_the_next_occurrence_of_what_was_read_is_skipped() {
    let mut job = Job::new("every 60s");
    let generation = job.record().generation;
    for (at, generation) in [(2, generation), (1, generation + 1)] {
        let skip = job.left_out(at, generation);
        assert!(job.apply(0, Operation::new("job", Action::Skip(skip))).is_err(), "{at}");
        assert_eq!(job.cursor(), t(1));
    }
    let skip = job.left_out(1, generation);
    job.apply(0, Operation::new("job", Action::Skip(skip))).unwrap();
    assert_eq!(job.cursor(), t(2));
}

#[test]
fn the_holder_of_a_lease_moves_the_cursor_of_what_it_has_read_only() {
    let mut job = Job::new("every 60s");
    let (fence, generation) = (job.claimed(1, false), job.record().generation);
    for (at, generation, now_at) in [(1, generation + 1, 1), (2, generation, 1), (1, generation, 2)]
    {
        let advance = job.left_out(at, generation).by_holder(fence);
        job.apply(1, Operation::new("job", Action::Advance(advance))).unwrap();
        assert_eq!(job.cursor(), t(now_at), "{at} of generation {generation}");
    }
}

#[test]
fn a_due_occurrence_that_a_new_definition_passes_over_is_missed() {
    for (then, missed) in [(3, 1), (1, 0)] {
        let mut job = Job::new("every 60s");
        let generation = job.record().generation;
        let plan = Replan::new(Some(NextRun::from(t(1))), Some(NextRun::from(t(then))));
        let redefine = Action::Redefine { generation, definition: "every 180s", version: 1, plan };
        job.apply(2, Operation::new("job", redefine)).unwrap();
        assert_eq!((job.cursor(), job.record().counters.missed), (t(then), missed));
    }
}

#[test]
fn a_claim_whose_move_does_not_fit_its_delivery_is_refused() {
    let mut job = Job::new("every 60s");
    let (fence, expected, then) = (job.record().fence, t(1), Cursor::To(Some(t(2).into())));
    let kept = Claim {
        then: Cursor::Keep,
        ..Claim::at_most_once(1, fence, expected.into(), then, LEASE, Sharing::Exclusive)
    };
    let moved = Claim { then, ..Claim::at_least_once(2, fence, expected.into(), LEASE) };
    for claim in [kept, moved] {
        let reply = job.apply(1, Operation::claim("job", claim)).unwrap();
        assert!(matches!(reply, Reply::State(_)), "{reply:?}");
    }
}
