//! What to do about one job, now: the policies, as one pure function.

use super::slot::Known;
use crate::{
    backend::{Beside, Cursor, Deliver, Mark, Next, Occurrence, Passed, Skip, Take},
    job::{CatchUp, Delivery, Entry, Fault, Overlap, Placement, Timetable},
    record::MAX_HOLDS,
    time::{Time, saturating_add},
};
use std::time::Duration;

/// What to do about one job.
#[derive(Clone, Debug)]
pub(crate) enum Decision {
    /// Nothing before this time; `None`: nothing until somebody changes something.
    Wait(Option<Time>),
    /// Win this occurrence; `then` is where a finish moves the cursor.
    Take { take: Take, then: Cursor },
    /// Pass these instants over.
    Skip(Skip),
    /// A run's node has kept silent: have it recorded.
    Reap,
    /// It may not start beside the runs that are marked, the first of which ends at this time at
    /// the latest; look again before.
    Blocked(Time),
    /// Runs were marked before it became due, and may have ended since: find out.
    Look,
}

/// What the backend can do, as far as decisions depend on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Powers {
    /// How long a mark lasts.
    pub(crate) mark: Duration,
    /// Whether the backend has leases, and so marks; the records of jobs that run on every node,
    /// which are not in it, have both.
    pub(crate) leases: bool,
}

/// Decides about one job. `claim` is for the take, if there is one.
pub(crate) fn decide(
    name: &str,
    entry: &Entry,
    known: &Known,
    now: Time,
    powers: Powers,
    claim: u128,
) -> Result<Decision, Fault> {
    if known.next_mark().is_some_and(|until| until <= now) {
        return Ok(Decision::Reap);
    }
    let (Some(head), Some(due_at)) = (&known.head, known.due_at) else {
        return Ok(Decision::Wait(known.next_mark()));
    };
    if due_at > now {
        return Ok(Decision::Wait(Some(known.next_mark().map_or(due_at, |mark| mark.min(due_at)))));
    }
    if !known.head_is_cursor() {
        return other_head(name, entry, known, (head, due_at), powers, claim);
    }
    let timetable = Timetable::of(name, entry);
    let due = Due { timetable, entry, known, first: head.at, due_at, now };
    due.decide(powers, claim)
}

/// A trigger, or what a dead or failed run left: taken as it is.
fn other_head(
    name: &str,
    entry: &Entry,
    known: &Known,
    (head, due_at): (&Occurrence, Time),
    powers: Powers,
    claim: u128,
) -> Result<Decision, Fault> {
    if let Some(until) = no_room(entry, known) {
        return Ok(if known.as_of < due_at { Decision::Look } else { Decision::Blocked(until) });
    }
    // Begun at least once, and now taken at most once: the cursor is still on it.
    let cursor = if known.head_is_at_cursor() {
        Cursor::To(Timetable::of(name, entry).following(head.at, known.started)?)
    } else {
        Cursor::Keep
    };
    let deliver = deliver(entry, powers, cursor);
    let take = Take::new(claim, known.fence, head.clone(), deliver);
    let then = finish_of(name, entry, head, known.started)?;
    Ok(Decision::Take { take, then })
}

/// Where the finish of a run moves the cursor, when `started` occurrences were started, this one
/// included. Worked out before the run, so that a bad `next_at` shows early.
pub(crate) fn finish_of(
    name: &str,
    entry: &Entry,
    run: &Occurrence,
    started: u64,
) -> Result<Cursor, Fault> {
    match entry.settings.delivery {
        Delivery::AtLeastOnce { .. } if run.trigger.is_none() => {
            Ok(Cursor::To(Timetable::of(name, entry).following(run.at, started)?))
        }
        _ => Ok(Cursor::Keep),
    }
}

/// The schedule's next occurrence is due, and perhaps others after it.
struct Due<'a> {
    timetable: Timetable<'a>,
    entry: &'a Entry,
    known: &'a Known,
    first: Time,
    due_at: Time,
    now: Time,
}

impl Due<'_> {
    fn decide(&self, powers: Powers, claim: u128) -> Result<Decision, Fault> {
        let latest = self.latest()?;
        if let Some(too_late) = self.too_late(latest)? {
            return self.skip(too_late, false);
        }
        let start = match self.entry.settings.catch_up {
            CatchUp::All { limit } => self.last_of(latest, limit)?,
            CatchUp::Latest | CatchUp::None => latest,
        };
        if let Some(until) = no_room(self.entry, self.known) {
            return match self.entry.settings.overlap {
                _ if self.known.as_of < self.due_at => Ok(Decision::Look),
                Overlap::Skip => self.skip(latest, true),
                Overlap::Allow | Overlap::Wait => Ok(Decision::Blocked(until)),
            };
        }
        let then = Cursor::To(self.after(start, 1)?);
        let deliver = deliver(self.entry, powers, then);
        let expected = Occurrence::from(self.first);
        let mut take = Take::new(claim, self.known.fence, expected, deliver);
        if start > self.first {
            let count = self.timetable.count(self.first, start)?;
            let last = self.last_before(start)?;
            take = take.starting(start.into(), Passed { count, last, overlap: false });
        }
        take.fresh_until = self.window_end(start);
        let then = match deliver {
            Deliver::AtMostOnce { .. } => Cursor::Keep,
            Deliver::AtLeastOnce { .. } => then,
        };
        Ok(Decision::Take { take, then })
    }

    /// The latest instant that is due; where that costs too much to find, the schedule is taken up
    /// again from now.
    fn latest(&self) -> Result<Time, Fault> {
        match self.timetable.latest(self.first, self.now)? {
            Some(latest) => Ok(latest),
            None => {
                let mut latest = self.first;
                // No chain is known here: look back over ever longer stretches for an instant.
                for seconds in [1, 60, 3_600, 86_400, 31 * 86_400, 366 * 86_400] {
                    let back = self.now - chrono::TimeDelta::seconds(seconds);
                    if let Some(at) = self.timetable.instant_after(back.max(self.first))?
                        && self.timetable.next(at).is_some_and(|next| next.due_at <= self.now)
                    {
                        latest = at;
                        break;
                    }
                }
                Ok(self.timetable.latest(latest, self.now)?.unwrap_or(latest))
            }
        }
    }

    /// The last instant that is too late to run, if even the latest is.
    fn too_late(&self, latest: Time) -> Result<Option<Time>, Fault> {
        Ok(self.window_end(latest).is_some_and(|end| end < self.now).then_some(latest))
    }

    /// Until when an instant may be run.
    fn window_end(&self, at: Time) -> Option<Time> {
        let window = self.entry.settings.late_by_at_most()?;
        Some(saturating_add(self.timetable.next(at)?.due_at, window))
    }

    /// The first of the last `limit` instants up to `latest` that the window allows.
    fn last_of(&self, latest: Time, limit: u32) -> Result<Time, Fault> {
        let fits = |from: Time| -> Result<bool, Fault> {
            Ok(self.window_end(from).is_none_or(|end| end >= self.now)
                && self.are_few(from, latest, limit)?)
        };
        if fits(self.first)? {
            return Ok(self.first);
        }
        // The instants of the chain are ordered: halve the time until one is found that fits while
        // the one before does not.
        let (mut low, mut high) = (self.first, latest);
        while low < high {
            let middle = low + (high - low) / 2;
            let Some(at) = self.timetable.latest_of_chain(self.first, middle)? else {
                return Ok(latest);
            };
            if at <= low {
                let Some(next) = self.timetable.instant_after(low)? else { break };
                if next >= high || fits(next)? {
                    high = next.min(high);
                    break;
                }
                low = next;
            } else if fits(at)? {
                high = at;
            } else {
                low = at;
            }
        }
        Ok(high)
    }

    /// Whether at most `limit` instants lie from `from` to `latest`.
    fn are_few(&self, from: Time, latest: Time, limit: u32) -> Result<bool, Fault> {
        if let Some(after) = self.timetable.count(from, latest)? {
            return Ok(after < u64::from(limit));
        }
        let mut at = from;
        for _ in 0..limit {
            match self.timetable.instant_after(at)? {
                Some(next) if at < latest => at = next,
                _ => return Ok(true),
            }
        }
        Ok(false)
    }

    fn skip(&self, last: Time, overlap: bool) -> Result<Decision, Fault> {
        let then = self.after(last, 0)?;
        let count = self.timetable.count(self.first, last)?.map(|count| count + 1);
        let passed = Passed { count, last, overlap };
        Ok(Decision::Skip(Skip::new(self.known.edition, self.first, passed, then)))
    }

    fn after(&self, at: Time, more: u64) -> Result<Option<Next>, Fault> {
        self.timetable.following(at, self.known.started + more)
    }

    fn last_before(&self, start: Time) -> Result<Time, Fault> {
        let before = start - chrono::TimeDelta::milliseconds(1);
        Ok(self.timetable.latest_of_chain(self.first, before)?.unwrap_or(self.first))
    }
}

/// If the job may not start beside the runs that are marked, when the first of them ends at last.
fn no_room(entry: &Entry, known: &Known) -> Option<Time> {
    let limit = match (entry.settings.delivery, entry.settings.overlap) {
        (Delivery::AtMostOnce, Overlap::Allow) => MAX_HOLDS,
        _ => 1,
    };
    known.next_mark().filter(|_| known.marks.len() >= limit)
}

fn deliver(entry: &Entry, powers: Powers, then: Cursor) -> Deliver {
    match entry.settings.delivery {
        Delivery::AtLeastOnce { lease } => Deliver::AtLeastOnce { lease },
        Delivery::AtMostOnce => {
            let beside = match entry.settings.overlap {
                Overlap::Allow => Beside::Others,
                Overlap::Skip | Overlap::Wait => Beside::None,
            };
            let marked = powers.leases || entry.settings.placement == Placement::EveryNode;
            let mark = marked.then_some(Mark { lasts: powers.mark, beside });
            Deliver::AtMostOnce { then, mark }
        }
    }
}
