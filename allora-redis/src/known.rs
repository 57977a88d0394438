//! What this process saw last of jobs, so that it can say what becomes of them without asking.
//!
//! A line is like no other that was ever written: a server that still has it has the whole record as
//! it was seen here, and puts the line there that was worked out from it. What is kept here may be
//! old, or may have been dropped; then the server answers with all there is, and the job goes the
//! general way. Nothing else depends on it.

use crate::hash::{Fields, have_equal_fields, head, is_plain, ms, tail};
use allora_core::{
    Time,
    backend::Outcome,
    record::Record,
    time::{end_of_time, whole_millis},
};
use chrono::DateTime;
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
    new: HashMap<String, Known>,
    old: HashMap<String, Known>,
}

impl Cache {
    pub(crate) fn lock(cache: &Mutex<Self>) -> MutexGuard<'_, Self> {
        cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&mut self, name: String, known: Known) {
        if self.new.len() >= MOST {
            self.old = mem::take(&mut self.new);
        }
        self.new.insert(name, known);
    }

    /// Takes it out: whoever moves the job puts back what it has become.
    pub(crate) fn take(&mut self, name: &str) -> Option<(String, Known)> {
        self.new.remove_entry(name).or_else(|| self.old.remove_entry(name))
    }
}

/// A plain record without what may be large, and its line.
pub(crate) struct Known {
    pub(crate) line: Vec<u8>,
    pub(crate) record: Record,
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
    /// How its new line goes on.
    pub(crate) tail: String,
    /// When it then wants attention at the latest; `None` for a job in code.
    pub(crate) notice: Option<Option<i64>>,
}

impl Known {
    /// What is known of a job by its record and the line; nothing of one that is not plain.
    pub(crate) fn new(mut record: Record, line: Vec<u8>) -> Option<Self> {
        if !is_plain(&record) {
            return None;
        }
        record.definition = String::new();
        record.data = Vec::new();
        record.dead = Vec::new();
        Some(Self { line, record })
    }

    /// What `decide` makes of it within that span, if that has its place in the line.
    pub(crate) fn next(
        &self,
        mut span: Span,
        decide: impl FnOnce(&mut Option<Record>, Time),
    ) -> Option<Move> {
        // Above the record's fence, so that a new one is the instant.
        let above = self.record.fence.checked_add(1)?;
        let from = span.from.map_or(above, |from| from.max(above));
        span.from = Some(from);
        let mut slot = Some(self.record.clone());
        decide(&mut slot, DateTime::from_timestamp_micros(from)?);
        let mut after = slot?;
        let is_whole = |at: Time| whole_millis(at) == at && at.timestamp() >= 0;
        let whole = after.cursor.is_none_or(|next| is_whole(next.at) && is_whole(next.due_at));
        let fits = whole && is_plain(&after) && have_equal_fields(&self.record, &after);
        if !fits || after == self.record {
            return None;
        }
        let tail = tail(&after, from, span.lasts);
        let notice = (!after.kind.is_empty()).then(|| {
            if let (Some(hold), Some(_)) = (after.holds.first_mut(), span.lasts) {
                // When it ends, the server knows.
                hold.until = end_of_time();
            }
            after.notice_at().map(ms)
        });
        Some(Move { span, tail, notice })
    }

    /// Has become what `decide` makes of it, by the move that this token has written at this instant.
    pub(crate) fn move_on<T>(
        self,
        made: &Move,
        token: &str,
        now: Time,
        decide: impl FnOnce(&mut Option<Record>, Time) -> T,
    ) -> (T, Option<Self>) {
        let mut slot = Some(self.record);
        let answer = decide(&mut slot, now);
        let line = format!("{}{}", head(token, now.timestamp_micros()), made.tail).into_bytes();
        let known = slot.map(|record| Self { line, record });
        debug_assert!(known.as_ref().is_some_and(Self::is_read_alike));
        (answer, known)
    }

    /// Whether readers of the line see this record.
    fn is_read_alike(&self) -> bool {
        let Record { kind, counters, last, version, .. } = self.record.clone();
        let fields =
            Fields { line: self.line.clone(), kind: kind.into_bytes(), ..Fields::default() };
        let Ok(mut read) = fields.record() else { return false };
        // What has a field of its own.
        let (started, ran) = (read.counters.started, read.counters.ran);
        (read.counters, read.version) = (counters, version);
        (read.counters.started, read.counters.ran) = (started, ran);
        read.last = read.last.or(last.filter(|last| *last != Outcome::Ran));
        read == self.record
    }
}

/// Microseconds of a time that is whole ones, as far as Lua can count with it.
pub(crate) fn micros(lasts: Duration) -> Option<i64> {
    let whole = lasts.subsec_nanos().is_multiple_of(1_000);
    i64::try_from(lasts.as_micros()).ok().filter(|us| whole && *us < 1 << 52)
}
