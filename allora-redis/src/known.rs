//! What this process saw last of jobs, so that it can say what becomes of them without asking.
//!
//! A line is like no other that was ever written: a server that still has it has the whole record as
//! it was seen here, and puts the line there that was worked out from it. What is kept here may be
//! old, or may have been dropped; then the server answers with all there is, and the job goes the
//! general way. Nothing else depends on it.

use crate::hash::{Fields, head, is_plain, ms, rare, said, tail};
use allora_core::{
    Time,
    backend::{Counters, Outcome},
    record::Record,
    time::{end_of_time, whole_millis},
};
use chrono::{DateTime, TimeDelta};
use std::{
    collections::HashMap,
    mem,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// How many jobs are new at most; twice as many are kept, each about a kilobyte.
const MOST: usize = 16_384;

/// Jobs by name, in two generations: when the new one is full, the old one is dropped.
#[derive(Default)]
pub(crate) struct Cache {
    new: HashMap<String, Box<Known>>,
    old: HashMap<String, Box<Known>>,
}

impl Cache {
    pub(crate) fn lock(cache: &Mutex<Self>) -> MutexGuard<'_, Self> {
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&mut self, name: String, known: Box<Known>) {
        if self.new.len() >= MOST {
            self.old = mem::take(&mut self.new);
        }
        self.new.insert(name, known);
    }

    /// Takes it out: whoever moves the job puts back what it has become.
    pub(crate) fn take(&mut self, name: &str) -> Option<(String, Box<Known>)> {
        self.new.remove_entry(name).or_else(|| self.old.remove_entry(name))
    }
}

/// A plain record without what may be large, and its line.
pub(crate) struct Known {
    pub(crate) line: Vec<u8>,
    /// Always there, and in the form in which it is decided about.
    record: Option<Record>,
}

/// From when on and until when, in microseconds, a decision holds, and how long a run lasts from
/// then on.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Span {
    pub(crate) from: Option<i64>,
    pub(crate) until: Option<i64>,
    pub(crate) lasts: Option<i64>,
}

/// What becomes of a job within a span.
pub(crate) struct Move {
    pub(crate) span: Span,
    /// Whether it gets a new fence.
    draws: bool,
    /// How its new line goes on.
    pub(crate) tail: Vec<u8>,
    /// When it then wants attention at the latest; `None` for a job in code.
    pub(crate) notice: Option<Option<i64>>,
}

impl Known {
    /// What is known of a job by its record and the line; nothing of one that is not plain.
    pub(crate) fn new(mut record: Record, line: Vec<u8>) -> Option<Box<Self>> {
        if !is_plain(&record) {
            return None;
        }
        record.definition = String::new();
        record.data = Vec::new();
        record.dead = Vec::new();
        Some(Box::new(Self { line, record: Some(record) }))
    }

    pub(crate) fn record(&self) -> Option<&Record> {
        self.record.as_ref()
    }

    pub(crate) fn slot(&mut self) -> &mut Option<Record> {
        &mut self.record
    }

    /// Becomes what `decide` makes of it within that span, if that has its place in the line;
    /// otherwise it is nothing any more.
    pub(crate) fn go(
        &mut self,
        mut span: Span,
        decide: impl FnOnce(&mut Option<Record>, Time),
    ) -> Option<Move> {
        let before = self.record.as_ref()?;
        // Any instant of the span; above the record's fence, so that a new one is the instant.
        let above = before.fence.checked_add(1)?;
        let tried = span.from.map_or(above, |from| from.max(above));
        let before = Before::of(before);
        decide(&mut self.record, DateTime::from_timestamp_micros(tried)?);
        let after = self.record.as_mut()?;
        let is_whole = |at: Time| whole_millis(at) == at && at.timestamp() >= 0;
        let whole = after.cursor.is_none_or(|next| is_whole(next.at) && is_whole(next.due_at));
        if !whole || !is_plain(after) || !before.has_become(after) {
            return None;
        }
        let draws = after.fence == tried;
        if draws {
            span.from = Some(tried);
        }
        let tail = tail(after, tried, span.lasts);
        let notice = if after.kind.is_empty() {
            None
        } else {
            if let (Some(hold), Some(_)) = (after.holds.first_mut(), span.lasts) {
                // When it ends, the server knows.
                hold.until = end_of_time();
            }
            Some(after.notice_at().map(ms))
        };
        Some(Move { span, draws, tail, notice })
    }

    /// The move was made, with this token at this instant.
    pub(crate) fn went(&mut self, made: &Move, token: &str, now: Time) {
        let Some(record) = &mut self.record else { return };
        let written = now.timestamp_micros();
        if let Some(hold) = record.holds.first_mut() {
            if made.draws {
                hold.fence = written;
            }
            if let Some(lasts) = made.span.lasts {
                hold.until = whole_millis(now + TimeDelta::microseconds(lasts));
            }
        }
        if made.draws {
            record.fence = written;
        }
        self.line = [head(token, written).as_bytes(), &made.tail].concat();
        debug_assert!(self.is_read_alike(), "{}", String::from_utf8_lossy(&self.line));
    }

    /// Whether readers of the line see this record.
    fn is_read_alike(&self) -> bool {
        let Some(record) = &self.record else { return false };
        let (line, kind) = (self.line.clone(), record.kind.clone().into_bytes());
        let fields = Fields { line, kind, ..Fields::default() };
        let Ok(mut read) = fields.record() else { return false };
        // What has a field of its own.
        let line = (read.counters.started, read.counters.ran);
        (read.counters, read.version) = (record.counters, record.version);
        (read.counters.started, read.counters.ran) = line;
        read.last = read.last.or_else(|| said(record).cloned());
        read == *record
    }
}

/// What of a record tells whether a decision has changed it, and in its line only.
struct Before {
    fence: i64,
    runs: usize,
    until: Option<Time>,
    last: Option<Outcome>,
    counters: Counters,
}

impl Before {
    fn of(record: &Record) -> Self {
        let Record { fence, counters, holds, .. } = record;
        let until = holds.first().map(|hold| hold.until);
        let last = said(record).cloned();
        Self { fence: *fence, runs: holds.len(), until, last, counters: rare(*counters) }
    }

    fn has_become(&self, after: &Record) -> bool {
        let until = after.holds.first().map(|hold| hold.until);
        let is_changed =
            after.fence != self.fence || after.holds.len() != self.runs || until != self.until;
        // What it had of these was left out, and is not changed with a run.
        let is_left_out =
            after.definition.is_empty() && after.data.is_empty() && after.dead.is_empty();
        is_changed
            && is_left_out
            && said(after) == self.last.as_ref()
            && rare(after.counters) == self.counters
    }
}

/// Microseconds of a time that is whole ones, as far as Lua can count with it.
pub(crate) fn micros(lasts: Duration) -> Option<i64> {
    let whole = lasts.subsec_nanos().is_multiple_of(1_000);
    i64::try_from(lasts.as_micros()).ok().filter(|us| whole && *us < 1 << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{
        backend::{
            Act, Answer, Cursor, Deliver, End, Ended, Ending, Next, Plan, Settled, Take, Taken,
        },
        record::{At, Ledger, settle, step},
        time::from_millis,
    };

    const LEASE: Duration = Duration::from_secs(60);

    fn at(us: i64) -> Time {
        DateTime::from_timestamp_micros(us).unwrap()
    }

    fn next(ms: i64) -> Next {
        from_millis(ms).unwrap().into()
    }

    fn plan(slot: &mut Option<Record>, act: Act<'_>, now: Time) -> Answer {
        step(slot, &Plan::new("a", act), At::new("n", now), &mut Ledger::off())
    }

    /// A stored schedule that is due at 5 s, and what is known of it.
    fn stored() -> (Record, Box<Known>) {
        let mut slot = None;
        let act = Act::Register { definition: "d", version: 3, first: Some(next(5_000)) };
        plan(&mut slot, act, at(1_000_000));
        let record = Record { kind: "mail".into(), data: vec![1], ..slot.unwrap() };
        let fields = Fields::of(&record, "token", 1_000_000);
        (record.clone(), Known::new(record, fields.line).unwrap())
    }

    fn take(record: &Record, deliver: Deliver) -> Act<'static> {
        Act::Take(Take::new(7, record.fence, next(5_000).at.into(), deliver))
    }

    /// What the clock decides is what it would have decided, and the line says it.
    #[test]
    fn what_was_worked_out_before_the_instant_is_what_it_decides() {
        let lasts = micros(LEASE);
        for now in [5_000_000, 5_000_001, 7_123_456].map(at) {
            let (record, mut known) = stored();
            let act = || take(&record, Deliver::AtLeastOnce { lease: LEASE });
            let span = Span { from: Some(5_000_000), until: None, lasts };
            let made = known.go(span, |slot, now| drop(plan(slot, act(), now))).unwrap();
            assert_eq!(made.notice, Some(Some(ms(end_of_time()))), "the server knows better");
            known.went(&made, "next", now);
            let mut slot = Some(record.clone());
            let answer = plan(&mut slot, act(), now);
            assert_eq!(plan(known.slot(), act(), now), answer, "it is told again");
            let Answer::Taken(Taken { fence, .. }) = answer else { panic!("{answer:?}") };

            let then = Cursor::To(Some(next(65_000)));
            let finish = End::Finish { then, outcome: Ended::Ran };
            let extend = End::Extend { lasts: LEASE };
            for (end, later, lasts) in [(extend, 9_000_000, lasts), (finish, 9_500_000, None)] {
                let ending = Ending::new("a", fence, end);
                let settle = |slot: &mut _, now| {
                    settle(slot, &ending, At::new("n", now), &mut Ledger::off())
                };
                let span = Span { from: Some(8_000_000), until: None, lasts };
                let made = known
                    .go(span, |slot, now| {
                        settle(slot, now);
                    })
                    .unwrap();
                known.went(&made, "next", at(later));
                let settled = settle(&mut slot, at(later));
                assert_ne!(settled, Settled::Lost);
                assert_eq!(settle(known.slot(), at(later)), settled);
            }
            let slot = slot.unwrap();
            let left_out = Record { definition: String::new(), data: Vec::new(), ..slot.clone() };
            assert_eq!(known.record(), Some(&left_out));
            let fields = Fields { line: known.line, ..Fields::of(&slot, "token", 0) };
            assert_eq!(fields.record(), Ok(slot));
        }
    }

    #[test]
    fn what_has_no_place_in_the_line_goes_the_general_way() {
        let (record, mut known) = stored();
        let span = Span { from: Some(5_000_000), until: None, lasts: micros(LEASE) };
        let unheld = Deliver::AtMostOnce { then: Cursor::To(None), mark: None };
        for act in [take(&Record { fence: 3, ..record.clone() }, unheld), take(&record, unheld)] {
            let made = known.go(span, |slot, now| drop(plan(slot, act, now)));
            assert!(made.is_none());
            known = stored().1;
        }
        let held = Deliver::AtLeastOnce { lease: LEASE };
        let made = known.go(span, |slot, now| drop(plan(slot, take(&record, held), now))).unwrap();
        known.went(&made, "next", at(5_000_000));
        let failed = End::Finish { then: Cursor::Keep, outcome: Ended::Failed("no") };
        let ending = Ending::new("a", 5_000_000, failed);
        let made = known.go(Span::default(), |slot, now| {
            settle(slot, &ending, At::new("n", now), &mut Ledger::off());
        });
        assert!(made.is_none(), "why it failed is a field of its own");
    }

    #[test]
    fn what_is_kept_is_bounded_and_the_newest_is_among_it() {
        let mut cache = Cache::default();
        for i in 0..3 * MOST {
            cache.put(i.to_string(), Box::new(Known { line: Vec::new(), record: None }));
            assert!(cache.new.len() <= MOST && cache.old.len() <= MOST);
        }
        assert!((2 * MOST..3 * MOST).all(|i| cache.take(&i.to_string()).is_some()));
        assert!(cache.take("0").is_none());
    }
}
