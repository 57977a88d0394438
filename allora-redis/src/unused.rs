//! Forgetting jobs in code that no code has any more.
//!
//! Nobody says so when a job is removed from the code, so it is concluded: its occurrence is due, and
//! for a long time nobody moves it, though nodes are there. No job is marked for that, and a live one
//! is not written to; what is kept is since when nodes have watched. Without it, the first node after
//! a long outage would forget what the others are about to take.

use crate::{
    schedules::Each,
    script::Call,
    store::{CHUNK, Slot, Store, bytes, number},
};
use allora_core::{
    Result, Time,
    backend::{Hint, Now},
    record::{At, Ledger, Record, delete},
    time::saturating_add,
};
use chrono::DateTime;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

const OP: &str = "forget unused jobs";

/// How many records are read at once: whoever called waits meanwhile.
const PART: usize = CHUNK / 10;

/// How long a call that took nothing may take longer.
const LONGER: Duration = Duration::from_millis(50);

/// When this node looks again, and how far it has come.
pub(crate) struct Unused {
    after: Duration,
    look: Mutex<Look>,
}

#[derive(Default)]
struct Look {
    next: Option<Instant>,
    place: Option<Place>,
}

/// How far a look has come.
#[derive(Default)]
struct Place {
    shard: u32,
    /// The name after which it goes on; `None` before anything was asked of the shard.
    from: Option<Vec<u8>>,
}

impl Unused {
    pub(crate) fn new(after: Duration) -> Self {
        Self { after, look: Mutex::default() }
    }

    /// Eight looks in the time: one that is left out is no gap.
    fn period(&self) -> Duration {
        self.after / 8
    }

    fn gap(&self) -> Duration {
        self.after / 4
    }

    fn is_over(&self, from: Time, now: Time) -> bool {
        saturating_add(from, self.after) <= now
    }

    fn look(&self) -> MutexGuard<'_, Look> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where to go on; `None` if nothing is to be done now, or somebody is at it.
    fn begin(&self, now: Instant) -> Option<Place> {
        let mut look = self.look();
        if let Some(place) = look.place.take() {
            return Some(place);
        }
        let is_time = look.next.is_none_or(|next| next <= now);
        is_time.then(|| {
            look.next = now.checked_add(self.period());
            Place::default()
        })
    }
}

impl Store {
    /// Forgets some of what is unused, if it is time to look. An error is no matter: the next look is
    /// soon enough, and whoever called asked for something else.
    #[expect(clippy::disallowed_methods, reason = "how often this process asks is its own matter")]
    pub(crate) async fn forget_unused(&self, has_taken: bool) {
        let Some(unused) = &self.unused else { return };
        let begun = Instant::now();
        let Some(mut place) = unused.begin(begun) else { return };
        let most = if has_taken { Duration::ZERO } else { LONGER };
        while let Ok(Some(further)) = self.forget_part(unused, place).await {
            if begun.elapsed() >= most {
                unused.look().place = Some(further);
                return;
            }
            place = further;
        }
    }

    /// Answers with where to go on.
    async fn forget_part(&self, unused: &Unused, place: Place) -> Result<Option<Place>> {
        let shard = place.shard;
        let next = Some(shard + 1).filter(|next| *next < self.keys.shards);
        let next = next.map(|shard| Place { shard, from: None });
        let Some(from) = place.from else {
            let go_on = self.is_watched(shard, unused).await?;
            return Ok(if go_on { Some(Place { shard, from: Some(b"-".to_vec()) }) } else { next });
        };
        let names = self.names(OP, shard, &from, b"+", PART).await?;
        let Some(last) = names.last() else { return Ok(next) };
        let from = Some([b"(", last.as_bytes()].concat());
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let (head, read) = self.read(OP, shard, &names).await?;
        let Some(now) = DateTime::from_timestamp_micros(head.clock) else { return Ok(None) };
        let is_old = |record: &Record, now| moved(record).is_some_and(|at| unused.is_over(at, now));
        let old = read.iter().filter(|stored| {
            let sound = stored.record.as_ref().and_then(|record| record.as_ref().ok());
            sound.is_some_and(|record| is_old(record, now))
        });
        let old: Vec<&str> = old.map(|stored| stored.name.as_str()).collect();
        if let Some(one) = old.first() {
            let work = |i: usize, slot: Slot<'_>, at: At<'_>, _: &mut Ledger| match slot {
                // Whoever takes it meanwhile is first.
                Slot::Sound(record) if record.as_ref().is_some_and(|it| is_old(it, at.now)) => {
                    delete(record, old[i], at)
                }
                _ => Ok(()),
            };
            self.with(OP, &old, "unused", Now::Store { node: now }, &Each(work)).await?;
            self.tell(Hint::Look).await;
            self.forget(OP, one, now).await?;
        }
        Ok(Some(Place { shard, from }))
    }

    /// Whether it is this node's turn, and nodes have watched for long enough.
    async fn is_watched(&self, shard: u32, unused: &Unused) -> Result<bool> {
        let mut call = Call::new(&self.scripts.watch, &[self.keys.shard(shard).state()]);
        for time in [unused.period(), unused.gap()] {
            call.arg(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
        }
        let (head, rest) = self.call(OP, shard, &call).await?;
        let watched = rest.into_iter().next().and_then(bytes).and_then(|word| number(&word));
        let times = watched.and_then(DateTime::from_timestamp_micros);
        let times = times.zip(DateTime::from_timestamp_micros(head.clock));
        Ok(times.is_some_and(|(watched, now)| unused.is_over(watched, now)))
    }
}

/// When a job in code was moved last, or should have been; `None` where nobody can tell.
fn moved(record: &Record) -> Option<Time> {
    if !record.kind.is_empty() || !record.is_live() || record.paused.is_some() {
        return None;
    }
    // A fence is the time of the take or the change that drew it, unless clocks went back.
    let drawn = DateTime::from_timestamp_micros(record.fence)?;
    let held = record.holds.iter().map(|hold| hold.until);
    let again = record.again.iter().map(|again| again.at);
    let triggers = record.triggers.iter().map(|run| run.at);
    let waits = [record.cursor?.due_at, drawn].into_iter();
    waits.chain(held).chain(again).chain(triggers).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{
        Occurrence,
        backend::{Act, Next, Pause, Plan},
        record::{Hold, step},
        time::from_millis,
    };

    fn at(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    /// A job that was registered at 1 s and is due at 5 s, changed by this.
    fn seen(change: impl FnOnce(&mut Record)) -> Option<Time> {
        let mut slot = None;
        let next = Next { at: at(5_000), due_at: at(5_000) };
        let act = Act::Register { definition: "d", version: 0, first: Some(next) };
        let registered = At::new("n", at(1_000));
        step(&mut slot, &Plan::new("a", act), registered, &mut Ledger::off());
        let mut record = slot.unwrap();
        change(&mut record);
        moved(&record)
    }

    #[test]
    fn a_job_counts_from_when_it_was_due() {
        assert_eq!(seen(|_| {}), Some(at(5_000)));
    }

    #[test]
    fn whatever_came_later_counts_instead() {
        assert_eq!(seen(|record| record.fence = 7_000_000), Some(at(7_000)));
        let hold = |record: &mut Record| {
            record.holds.push(Hold {
                node: "n".into(),
                claim: 1,
                fence: 1,
                run: Occurrence::from(at(5_000)),
                attempt: 1,
                until: at(9_000),
                at_least_once: true,
            });
        };
        assert_eq!(seen(hold), Some(at(9_000)));
        let trigger = Occurrence { at: at(8_000), trigger: Some("t".into()) };
        assert_eq!(seen(|record| record.triggers.push(trigger)), Some(at(8_000)));
    }

    #[test]
    fn what_nobody_can_tell_stays() {
        assert_eq!(seen(|record| record.cursor = None), None, "ended, or run by triggers");
        assert_eq!(seen(|record| record.kind = "mail".into()), None, "stored");
        assert_eq!(seen(|record| record.gone = Some(at(1))), None, "deleted");
        let pause = Pause { since: at(1), note: String::new() };
        assert_eq!(seen(|record| record.paused = Some(pause)), None, "paused");
    }
}
