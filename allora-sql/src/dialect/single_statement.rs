//! Claims, completions and extensions of the commonest shape, many of them in one statement that
//! compares and sets every row by its key.
//!
//! The common part of the statement is here; how a table of bound values is joined to an `UPDATE`
//! is in the file of each database. The conditions are those of
//! [`apply`](allora_core::record::apply) for a record with nothing but a cursor, at most one lease,
//! and cold parts: no triggers, retries or pause, not a tombstone. Other records do not match, and
//! take the general path. Only the state table is read and written, apart from history and the flags
//! of schedules that end.
//!
//! The clock is read once, in `c`, because each reading in a row and column is another, and the
//! fence of the reply must be that of the lease. It is read before a row may have to be waited for:
//! no occurrence is claimed too early by that, and an extension is shorter by the wait, which its
//! reply says. Only `not_after` is compared with a clock that is read behind the lock.

use super::{
    Dialect, Flavour,
    arguments::{RequestContext, SimpleClaim, SimpleCompletion},
};
use crate::{
    driver::{Type, Value},
    encoding::{expiry_number, ms},
};
use allora_core::{
    Time,
    backend::{Action, Claim, ClaimDue, Completion, Cursor, OnExpiry, Operation},
    record::MAX_FENCE,
    time::end_of_time,
};
use std::time::Duration;

/// The columns of a table of bound values; no name is one of the state table's.
pub(crate) type Columns = [(&'static str, Type)];

/// Rows to a statement: a whole batch of a scheduler.
pub(crate) const CHUNK: usize = 1 << 10;

/// Numbers from here on are not counted further by a statement: the overflow of one would be the error
/// of all. The general path has them.
const NEAR_END: i64 = 9_000_000_000_000_000_000;

/// A longer output is cut by the general path.
const LONGEST_OUTPUT: usize = 1_024;

/// An expression for the time that decides, from the row of [`Dialect::request_context`].
pub(super) const NOW: &str = "COALESCE(c.request_now, c.db_now)";

impl Dialect {
    /// A row with the node that asks, and the time: `request_now` if the request has it, `db_now` by
    /// the database.
    pub(super) fn request_context(
        &self,
        context: &RequestContext<'_>,
        args: &mut Vec<Value>,
    ) -> String {
        let columns = [
            ("request_now", Type::IntOrNull, Value::Int(context.now)),
            ("node", Type::Bytes, Value::bytes(context.node)),
            ("no_kind", Type::Bytes, Value::bytes("")),
            ("ok_outcome", Type::Bytes, Value::bytes("succeeded")),
        ];
        let mut text = format!("SELECT {} AS db_now", self.flavour.clock());
        self.bind_columns(&mut text, columns, args);
        text
    }

    /// The same row with the values of a query that claims, as [`of_head`] refers to them.
    pub(super) fn claim_context(
        &self,
        context: &RequestContext<'_>,
        query: &ClaimDue<'_>,
        args: &mut Vec<Value>,
    ) -> String {
        let not_after = query.not_after.map(|until| until.timestamp_micros());
        let columns = [
            ("by_claim", Type::Bytes, Value::bytes(query.claim_id.to_be_bytes())),
            ("not_after", Type::IntOrNull, Value::Int(not_after)),
        ];
        let mut text = self.request_context(context, args);
        self.bind_columns(&mut text, columns, args);
        text
    }

    fn bind_columns<const N: usize>(
        &self,
        text: &mut String,
        columns: [(&str, Type, Value); N],
        args: &mut Vec<Value>,
    ) {
        for (name, of, value) in columns {
            args.push(value);
            text.push_str(", ");
            self.flavour.typed_placeholder(text, args.len(), of);
            text.push_str(" AS ");
            text.push_str(name);
        }
    }

    /// The rows of a table of bound values, with rows of nothing up to a power of two, so that few
    /// different statements are prepared. `before` stands before each.
    #[cfg(any(feature = "sqlite", feature = "mysql"))]
    pub(super) fn values(
        &self,
        before: &str,
        columns: &Columns,
        rows: Vec<Vec<Value>>,
        args: &mut Vec<Value>,
    ) -> String {
        let len = rows.len().next_power_of_two();
        let nothing = || vec![Value::Int(None); columns.len()];
        let mut text = String::new();
        for row in rows.into_iter().chain(std::iter::repeat_with(nothing)).take(len) {
            text.push_str(if text.is_empty() { "" } else { ", " });
            text.push_str(before);
            for (i, (value, (_, of))) in row.into_iter().zip(columns).enumerate() {
                text.push_str(if i == 0 { "(" } else { ", " });
                args.push(value);
                self.flavour.typed_placeholder(&mut text, args.len(), *of);
            }
            text.push(')');
        }
        text
    }
}

impl SimpleClaim {
    pub(super) const COLUMNS: &'static Columns = &[
        ("of_id", Type::Int),
        ("by_claim", Type::Bytes),
        ("read_fence", Type::Int),
        ("expected", Type::Int),
        ("then_at", Type::IntOrNull),
        ("then_due", Type::IntOrNull),
        ("not_after", Type::IntOrNull),
        ("duration", Type::Int),
        ("on_expiry", Type::Int),
    ];

    pub(super) fn values(&self) -> Vec<Value> {
        vec![
            Value::int(self.id),
            Value::bytes(self.claim_id),
            Value::int(self.fence),
            Value::int(self.expected),
            Value::Int(self.then.map(|(at, _)| at)),
            Value::Int(self.then.map(|(_, due)| due)),
            Value::Int(self.not_after),
            Value::int(self.duration),
            Value::int(self.on_expiry),
        ]
    }

    /// The assignments; `row` is the expression for a column of the bound rows. A column from which
    /// another one is computed is set after that, so that it does not matter whether a database reads
    /// the old values or the new ones.
    ///
    /// The place in the due index stays, unless the job is wanted before it.
    pub(super) fn set(flavour: &dyn Flavour, row: impl Fn(&str) -> String) -> String {
        let [by_claim, read_fence, expected] = ["by_claim", "read_fence", "expected"].map(&row);
        let [then_at, then_due, on_expiry] = ["then_at", "then_due", "on_expiry"].map(&row);
        let until = until(flavour, &row("duration"));
        let fence = flavour.greatest(&format!("{read_fence} + 1"), NOW);
        let earlier = earlier(flavour, &until, &then_due);
        let wake = format!(
            "CASE WHEN s.kind = c.no_kind THEN NULL WHEN {on_expiry} = 1 THEN {until} \
               ELSE {earlier} END"
        );
        let over = flavour.whole_division();
        format!(
            "lease_due_at = s.cursor_due_at, lease_started_at = {NOW} {over} 1000, \
             index_at = CASE WHEN s.index_at <= {wake} THEN s.index_at ELSE {wake} END, \
             wake_at = {wake}, last_started = {expected}, started = s.started + 1, \
             lease_fence = {fence}, fence = {fence}, lease_node = c.node, \
             lease_claim_id = {by_claim}, lease_scheduled_at = {expected}, lease_attempt = 1, \
             lease_until = {until}, lease_on_expiry = {on_expiry}, \
             cursor_due_at = CASE WHEN {on_expiry} = 1 THEN s.cursor_due_at ELSE {then_due} END, \
             cursor_scheduled_at = \
               CASE WHEN {on_expiry} = 1 THEN s.cursor_scheduled_at ELSE {then_at} END, \
             version = s.version + 1"
        )
    }

    /// The condition under which they are made for the bound rows `t`.
    pub(super) fn condition(flavour: &dyn Flavour) -> String {
        let now_ms = format!("{NOW} {} 1000", flavour.whole_division());
        format!(
            "s.id = t.of_id AND s.fence = t.read_fence AND s.cursor_scheduled_at = t.expected \
             AND {}",
            has_open_head(flavour, &now_ms)
        )
    }

    /// The condition under which they are made for a head without a plan, at this time in
    /// milliseconds.
    pub(super) fn condition_of_head(flavour: &dyn Flavour, now_ms: &str) -> String {
        format!("s.due_lease IS NOT NULL AND {}", has_open_head(flavour, now_ms))
    }

    /// The condition that is checked behind the lock. It reads a column of the row, because one
    /// database would check it before it has the row otherwise.
    pub(super) fn in_time(flavour: &dyn Flavour, row: impl Fn(&str) -> String) -> String {
        let (clock, not_after) = (flavour.clock(), row("not_after"));
        format!(
            "({not_after} IS NULL \
               OR COALESCE(c.request_now, {clock} + 0 * s.version) <= {not_after})"
        )
    }

    /// The clock, and the claimed occurrence.
    pub(super) const SHAPE: &'static [u8] = b"iiiiii";

    /// The claim of an operation on the job with this key, if it has this shape.
    pub(crate) fn of(operation: &Operation<'_>, id: i64) -> Option<Self> {
        let Action::Claim(claim) = &operation.action else { return None };
        let Claim { claim_id, fence, expected, start, not_run, not_after, then, lease, .. } = claim;
        // The statement adds to the fence.
        if *fence > MAX_FENCE
            || start != expected
            || not_run.is_some()
            || expected.trigger.is_some()
        {
            return None;
        }
        let then = match (lease.on_expiry, *then) {
            (OnExpiry::Lost, Cursor::To(then)) => then,
            (OnExpiry::Retry, Cursor::Keep) => None,
            _ => return None,
        };
        if then.is_some_and(|then| then.scheduled_at <= expected.scheduled_at) {
            return None;
        }
        let then = match then {
            None => None,
            Some(then) => Some((whole(then.scheduled_at)?, whole(then.due_at)?)),
        };
        Some(Self {
            id,
            claim_id: claim_id.to_be_bytes(),
            fence: *fence,
            expected: whole(expected.scheduled_at)?,
            then,
            not_after: not_after.map(|until| until.timestamp_micros()),
            duration: micros(lease.duration)?,
            on_expiry: expiry_number(lease.on_expiry, lease.sharing),
        })
    }
}

/// The value of a column of [`SimpleClaim::COLUMNS`] where a query claims the head of a state `s`, within a
/// [context](Dialect::claim_context): the claim that [`due_claim`](allora_core::record::due_claim) computes.
pub(super) fn of_head(column: &str) -> String {
    let value = match column {
        "by_claim" | "not_after" => return format!("c.{column}"),
        "of_id" => "s.id",
        "read_fence" => "s.fence",
        "expected" => "s.cursor_scheduled_at",
        "duration" => "s.due_lease * 1000",
        "on_expiry" => "1",
        // The cursor stays.
        _ => "NULL",
    };
    value.to_owned()
}

/// A condition: true if a claim may start the cursor's occurrence of a state at this time in
/// milliseconds.
fn has_open_head(flavour: &dyn Flavour, now_ms: &str) -> String {
    let due = flavour.greatest("s.cursor_due_at", "s.cursor_scheduled_at");
    format!(
        "s.lease_fence IS NULL AND s.rare < 2 AND {} AND s.fence < {NEAR_END} \
         AND s.version < {NEAR_END} AND s.started < {NEAR_END} AND {due} <= {now_ms}",
        starts("s.cursor_scheduled_at")
    )
}

/// The end of the leases of a statement: their runs are completed, or they are extended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum End {
    Completed,
    Extended,
}

impl SimpleCompletion {
    #[cfg(any(feature = "sqlite", feature = "mysql"))]
    pub(super) const OUTPUT: (&'static str, Type) = ("output", Type::BytesOrNull);

    pub(super) const COLUMNS: &'static Columns = &[
        ("of_id", Type::Int),
        ("read_fence", Type::Int),
        ("duration", Type::IntOrNull),
        ("moves", Type::Int),
        ("then_at", Type::IntOrNull),
        ("then_due", Type::IntOrNull),
    ];

    pub(super) fn values(&self) -> Vec<Value> {
        vec![
            Value::int(self.id),
            Value::int(self.fence),
            Value::Int(self.duration),
            Value::int(self.moves.into()),
            Value::Int(self.then.map(|(at, _)| at)),
            Value::Int(self.then.map(|(_, due)| due)),
        ]
    }

    /// With the column of the output behind them.
    #[cfg(any(feature = "sqlite", feature = "mysql"))]
    pub(super) fn values_with_output(&self) -> Vec<Value> {
        [self.values(), vec![Value::Bytes(self.output.clone())]].concat()
    }

    /// `true` if the schedule ends with this run, unless it was changed meanwhile.
    pub(super) fn ends_schedule(&self) -> bool {
        self.moves && self.then.is_none()
    }

    pub(crate) fn end(&self) -> End {
        match self.duration {
            None => End::Completed,
            Some(_) => End::Extended,
        }
    }

    /// The assignments, in the order of those of claims; `version` is the next one, and `row` the
    /// expression for a column of the bound rows. A run that `stays` remains readable in the columns of
    /// the lease: without a fence they mean nothing, and the next claim sets all of them.
    pub(super) fn set(
        flavour: &dyn Flavour,
        end: End,
        stays: bool,
        version: &str,
        row: impl Fn(&str) -> String,
    ) -> String {
        let cursor =
            format!("CASE WHEN {} THEN s.cursor_due_at END", starts("s.cursor_scheduled_at"));
        if end == End::Extended {
            let until = until(flavour, &row("duration"));
            let until = flavour.greatest("s.lease_until", &until);
            let wake = format!(
                "CASE WHEN s.kind = c.no_kind THEN NULL WHEN s.lease_on_expiry = 1 THEN {until} \
                   ELSE {} END",
                earlier(flavour, &until, &cursor),
            );
            return format!(
                "index_at = {wake}, wake_at = {wake}, lease_until = {until}, version = {version}"
            );
        }
        let [then_at, then_due] = ["then_at", "then_due"].map(&row);
        let moves =
            format!("{} = 1 AND s.cursor_scheduled_at = s.lease_scheduled_at", row("moves"));
        let wake = format!(
            "CASE WHEN s.kind = c.no_kind THEN NULL \
               WHEN {moves} THEN CASE WHEN {} THEN {then_due} END ELSE {cursor} END",
            starts(&then_at),
        );
        let run = match stays {
            true => "",
            false => {
                "lease_node = NULL, lease_attempt = NULL, lease_due_at = NULL, \
                 lease_started_at = NULL, lease_scheduled_at = NULL, "
            }
        };
        // The number is that of a completion.
        format!(
            "index_at = {wake}, wake_at = {wake}, \
             cursor_due_at = CASE WHEN {moves} THEN {then_due} ELSE s.cursor_due_at END, \
             cursor_scheduled_at = \
               CASE WHEN {moves} THEN {then_at} ELSE s.cursor_scheduled_at END, \
             lease_until = NULL, ended_fence = s.lease_fence, ended_how = 0, \
             last_outcome = c.ok_outcome, last_error = NULL, succeeded = s.succeeded + 1, \
             lease_claim_id = NULL, lease_fence = NULL, lease_on_expiry = NULL, \
             {run}version = {version}"
        )
    }

    /// The condition under which they are made, beside the key.
    pub(super) fn condition(end: End, row: impl Fn(&str) -> String) -> String {
        let held = format!(
            "s.lease_fence = {} AND s.version < {NEAR_END} AND s.rare < 2",
            row("read_fence")
        );
        if end == End::Extended {
            return held;
        }
        let then_at = row("then_at");
        // The general path has what removes a flag: the end of a failure.
        format!(
            "{held} AND s.succeeded < {NEAR_END} \
             AND (s.last_outcome IS NULL OR s.last_outcome = c.ok_outcome) \
             AND s.cursor_scheduled_at IS NOT NULL \
             AND ({then_at} IS NULL OR {then_at} > s.lease_scheduled_at) \
             AND ({moves} = 1 OR s.cursor_scheduled_at <> s.lease_scheduled_at)",
            moves = row("moves"),
        )
    }

    /// The clock, the key, the end of the lease if it still lasts, 1 if the job is due again.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) const SHAPE: &'static [u8] = b"iiii";

    /// Of a row that was changed, on the database that has notifications: 1 if the run has ended and
    /// the job is due, so that another run may wait for this one's end.
    #[cfg(feature = "postgres")]
    pub(super) fn is_due() -> String {
        format!(
            "CASE WHEN s.lease_until IS NULL AND {} AND s.cursor_due_at <= {NOW} / 1000 \
             THEN CAST(1 AS BIGINT) END",
            starts("s.cursor_scheduled_at")
        )
    }

    /// The completion or extension of an operation on the job with this key, if it has this shape.
    pub(crate) fn of(operation: &Operation<'_>, id: i64) -> Option<Self> {
        let (fence, duration, moves, then) = match operation.action {
            Action::Extend { fence, duration } => (fence, Some(micros(duration)?), false, None),
            Action::Complete { fence, then, completion: Completion::Succeeded } => match then {
                Cursor::AfterEnd => return None,
                Cursor::Keep => (fence, None, false, None),
                Cursor::To(None) => (fence, None, true, None),
                Cursor::To(Some(then)) => {
                    let then = (whole(then.scheduled_at)?, whole(then.due_at)?);
                    (fence, None, true, Some(then))
                }
            },
            _ => return None,
        };
        if operation.checkpoint.is_some() || operation.works_on {
            return None;
        }
        Some(Self {
            id,
            fence,
            duration,
            moves,
            then,
            output: operation.output.map(|output| output.as_bytes().to_vec()),
        })
    }
}

/// True if the end of a run writes no other history entry than that of the run, with its output as it
/// is and without a value.
pub(crate) fn ends_with_one_entry(operation: &Operation<'_>) -> bool {
    let is_kept_whole = |output: &str| output.len() <= LONGEST_OUTPUT;
    let is_plain = operation.excluded.is_none() && operation.value.is_none();
    is_plain && operation.output.is_none_or(is_kept_whole)
}

/// The column of this name of the bound rows `t`.
pub(super) fn of_t(column: &str) -> String {
    format!("t.{column}")
}

/// A condition: true if an occurrence of the schedule at this time was not started yet.
fn starts(scheduled_at: &str) -> String {
    format!("(s.last_started IS NULL OR s.last_started < {scheduled_at})")
}

/// The end of a lease of this many microseconds from now, in milliseconds.
fn until(flavour: &dyn Flavour, duration: &str) -> String {
    let over = flavour.whole_division();
    flavour.least(&format!("(({NOW} + {duration}) {over} 1000)"), &ms(end_of_time()).to_string())
}

/// The lesser one, or the one that is not NULL.
fn earlier(flavour: &dyn Flavour, one: &str, other: &str) -> String {
    let both = flavour.least(one, other);
    format!("COALESCE({both}, {one}, {other})")
}

/// The milliseconds of a time that has whole ones.
fn whole(at: Time) -> Option<i64> {
    at.timestamp_subsec_nanos().is_multiple_of(1_000_000).then(|| ms(at))
}

/// The microseconds of a duration that has whole ones, as far as a sum with a time can be computed.
fn micros(duration: Duration) -> Option<i64> {
    let whole = duration.subsec_nanos().is_multiple_of(1_000);
    i64::try_from(duration.as_micros()).ok().filter(|us| whole && *us < i64::MAX / 2)
}

#[cfg(all(test, feature = "mysql"))]
mod tests {
    use super::*;
    use crate::dialect::mysql::MySqlFlavour;

    /// The columns and the expressions of assignments.
    fn assignments(set: &str) -> Vec<(String, String)> {
        let mut depth = 0;
        let mut parts = vec![String::new()];
        for c in set.chars() {
            depth += match c {
                '(' => 1,
                ')' => -1,
                _ => 0,
            };
            match c {
                ',' if depth == 0 => parts.push(String::new()),
                _ => parts.last_mut().expect("one part").push(c),
            }
        }
        let pair = |part: String| {
            let (column, expression) = part.split_once('=').expect("an assignment");
            (column.trim().to_owned(), expression.to_owned())
        };
        parts.into_iter().map(pair).collect()
    }

    fn reads(expression: &str, column: &str) -> bool {
        let mut words = expression.split(|c: char| !c.is_ascii_alphanumeric() && !"._".contains(c));
        words.any(|word| word == format!("s.{column}"))
    }

    /// MariaDB computes the assignments of several tables from the old row, and those of one table from
    /// left to right; the manual promises neither.
    #[test]
    fn no_assignment_reads_a_column_that_was_assigned_before_it() {
        let flavour = &MySqlFlavour;
        let completed =
            SimpleCompletion::set(flavour, End::Completed, false, "s.version + 1", of_t);
        let claims = [SimpleClaim::set(flavour, of_t), SimpleClaim::set(flavour, of_head)];
        for set in claims.into_iter().chain([completed]) {
            let all = assignments(&set);
            assert!(all.len() >= 15, "{all:?}");
            for (i, (_, expression)) in all.iter().enumerate() {
                for (before, _) in &all[..i] {
                    assert!(!reads(expression, before), "{before} is read by {expression}");
                }
            }
        }
    }

    #[test]
    fn the_fence_of_a_claim_is_computed_from_no_column() {
        let all = assignments(&SimpleClaim::set(&MySqlFlavour, of_t));
        for (_, expression) in all.iter().filter(|(column, _)| column.ends_with("fence")) {
            assert!(!expression.contains("s."), "{expression}");
        }
    }
}
