//! PostgreSQL, from 12.

use super::{Dialect, Fast, Flavour};
use crate::{
    driver::{Statement, Value},
    row::{Type, ms},
};
use allora_core::{
    Time,
    backend::{Act, Cursor, Deliver, End, Ended, Ending, Plan, Take},
    time::end_of_time,
};
use std::{fmt::Write, time::Duration};

pub(crate) struct PostgresFlavour;

impl Flavour for PostgresFlavour {
    fn column(&self, of: Type) -> &'static str {
        match of {
            Type::Int => "BIGINT NOT NULL",
            Type::IntOrNull => "BIGINT",
            // Text cannot hold U+0000, and compares by the database's collation.
            Type::Name | Type::Bytes => "BYTEA NOT NULL",
            Type::BytesOrNull => "BYTEA",
        }
    }

    fn table_options(&self) -> &'static str {
        // Room on each page for the new version of a row: a take then touches no index.
        " WITH (fillfactor = 70)"
    }

    fn placeholder(&self, sql: &mut String, i: usize) {
        let _ = write!(sql, "${i}");
    }

    fn clock(&self) -> &'static str {
        // Not `now()`: that is when the transaction began, before it waited for a lock.
        "(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT"
    }

    fn for_update(&self) -> &'static str {
        " FOR UPDATE"
    }

    fn or_replace(&self, key: &str, columns: &[&str]) -> String {
        let set: Vec<String> = columns.iter().map(|c| format!("{c} = excluded.{c}")).collect();
        format!(" ON CONFLICT ({key}) DO UPDATE SET {}", set.join(", "))
    }

    fn index_exists(&self, table: &str, index: &str) -> String {
        format!(
            "SELECT 1::BIGINT FROM pg_index WHERE indrelid = to_regclass('{table}') \
             AND indexrelid = to_regclass('{index}') AND indisvalid"
        )
    }

    fn table_exists(&self, table: &str) -> String {
        format!("SELECT 1::BIGINT WHERE to_regclass('{table}') IS NOT NULL")
    }

    fn lock(&self, prefix: &str) -> Option<String> {
        Some(format!("SELECT pg_advisory_xact_lock(hashtext('allora'), hashtext('{prefix}'))"))
    }

    fn unlock(&self, _: &str) -> Option<String> {
        None
    }

    fn pause(&self, ms: u64) -> Option<String> {
        Some(format!("SELECT pg_sleep({ms} / 1000.0)"))
    }

    fn notice_index_filter(&self) -> &'static str {
        " WHERE notice_at IS NOT NULL"
    }

    /// The expressions of a `SELECT … FOR UPDATE` are worked out before it waits for the lock;
    /// those that read from it as a subquery, after.
    fn locked(&self, dialect: &Dialect, names: &str) -> String {
        format!(
            "WITH j AS MATERIALIZED (SELECT * FROM {p}_job WHERE name IN ({names}) \
             ORDER BY name FOR UPDATE) SELECT {clock}, {columns}, d.data FROM j \
             LEFT JOIN {p}_data d ON d.name = j.name AND d.edition = j.data_edition",
            p = dialect.prefix,
            clock = self.clock(),
            columns = dialect.job_columns("j"),
        )
    }

    fn notify(&self, channel: &str, payload: &str) -> Option<Statement> {
        let args = vec![Value::bytes(channel), Value::bytes(payload)];
        let text = "SELECT pg_notify(convert_from($1, 'UTF8'), convert_from($2, 'UTF8'))::TEXT";
        Some(Statement::new(text, args, b""))
    }

    /// A compare-and-set of every row by its key. The conditions are those of `step` for a record
    /// with nothing but a cursor in it: no hold, nothing in `more` (triggers, further attempts, a
    /// pause), not a tombstone. Whatever else there is does not match, and goes the general path.
    ///
    /// The clock is read once, in `c`: `clock_timestamp()` is another in each column, and the fence
    /// that is answered must be that of the hold. That it is read before a row may have to be
    /// waited for takes nothing too early; only whether an occurrence is still fresh is asked
    /// after.
    fn takes(&self, dialect: &Dialect, fast: &Fast<'_>, plans: &[&Plan<'_>]) -> Option<Statement> {
        let takes: Vec<_> = plans.iter().filter_map(|plan| Simple::of(plan)).collect();
        let clock = format!("COALESCE($1::BIGINT, {})", self.clock());
        let until = format!("LEAST((c.now + t.lasts) / 1000, {})", ms(end_of_time()));
        let text = format!(
            "WITH c AS MATERIALIZED (SELECT {clock} AS now) UPDATE {p}_job j SET \
               cursor_at = CASE WHEN t.leased = 1 THEN j.cursor_at ELSE t.then_at END, \
               cursor_due = CASE WHEN t.leased = 1 THEN j.cursor_due ELSE t.then_due END, \
               last_started = t.expected, started = j.started + 1, \
               fence = GREATEST(j.fence + 1, c.now), \
               hold_fence = GREATEST(j.fence + 1, c.now), \
               holder = $2, claim = t.claim, hold_at = t.expected, hold_attempt = 1, \
               hold_until = {until}, hold_leased = t.leased, \
               notice_at = CASE WHEN j.kind = ''::BYTEA THEN NULL \
                 WHEN t.leased = 1 THEN {until} ELSE LEAST({until}, t.then_due) END \
             FROM c, unnest($3::BYTEA[], $4::BYTEA[], $5::BIGINT[], $6::BIGINT[], $7::BIGINT[], \
               $8::BIGINT[], $9::BIGINT[], $10::BIGINT[], $11::BIGINT[]) \
               AS t (name, claim, fence, expected, then_at, then_due, fresh, lasts, leased) \
             WHERE j.name = t.name AND j.fence = t.fence AND j.cursor_at = t.expected \
               AND j.hold_fence IS NULL AND j.more IS NULL AND j.gone_at IS NULL \
               AND (j.last_started IS NULL OR j.last_started < j.cursor_at) \
               AND GREATEST(j.cursor_due, t.expected) * 1000 <= c.now \
               AND (t.fresh IS NULL OR {clock} <= t.fresh) \
             RETURNING c.now, j.name, j.hold_at, j.fence, j.incarnation, j.hold_until",
            p = dialect.prefix,
        );
        let mut args = vec![Value::Int(fast.now), Value::bytes(fast.node)];
        args.push(Value::Blobs(takes.iter().map(|t| Some(t.name.as_bytes().to_vec())).collect()));
        args.push(Value::Blobs(takes.iter().map(|t| Some(t.claim.to_vec())).collect()));
        let mut numbers = |number: fn(&Simple<'_>) -> Option<i64>| {
            args.push(Value::Ints(takes.iter().map(number).collect()));
        };
        numbers(|t| Some(t.fence));
        numbers(|t| Some(t.expected));
        numbers(|t| t.then.map(|(at, _)| at));
        numbers(|t| t.then.map(|(_, due)| due));
        numbers(|t| t.fresh);
        numbers(|t| Some(t.lasts));
        numbers(|t| Some(t.leased.into()));
        (!takes.is_empty()).then(|| Statement::new(text, args, b"ibiiii"))
    }

    /// A compare-and-set of every row by its key and fence. The conditions are those of `settle`
    /// for a record whose only hold is that of the fence, with nothing in `more`. The clock is read
    /// once, as for takes: an extension that waited for its row is shorter by that, and its answer
    /// says so.
    fn endings(
        &self,
        dialect: &Dialect,
        fast: &Fast<'_>,
        endings: &[&Ending<'_>],
    ) -> Option<Statement> {
        let ends: Vec<_> = endings.iter().filter_map(|ending| SimpleEnd::of(ending)).collect();
        let clock = format!("COALESCE($1::BIGINT, {})", self.clock());
        // `t.lasts` tells an extension from a finish.
        let until = format!(
            "GREATEST(j.hold_until, LEAST((c.now + t.lasts) / 1000, {}))",
            ms(end_of_time())
        );
        let keep = |column: &str| {
            format!("{column} = CASE WHEN t.lasts IS NULL THEN NULL ELSE j.{column} END")
        };
        let moves = "t.lasts IS NULL AND t.moves = 1 AND j.cursor_at = j.hold_at";
        let text = format!(
            "WITH c AS MATERIALIZED (SELECT {clock} AS now) UPDATE {p}_job j SET {keep}, \
               hold_until = CASE WHEN t.lasts IS NULL THEN NULL ELSE {until} END, \
               ended_fence = CASE WHEN t.lasts IS NULL THEN t.fence ELSE j.ended_fence END, \
               ended_how = CASE WHEN t.lasts IS NULL THEN 0 ELSE j.ended_how END, \
               last_outcome = CASE WHEN t.lasts IS NULL THEN 'ran'::BYTEA ELSE j.last_outcome END, \
               last_error = CASE WHEN t.lasts IS NULL THEN NULL ELSE j.last_error END, \
               ran = j.ran + CASE WHEN t.lasts IS NULL THEN 1 ELSE 0 END, \
               cursor_at = CASE WHEN {moves} THEN t.then_at ELSE j.cursor_at END, \
               cursor_due = CASE WHEN {moves} THEN t.then_due ELSE j.cursor_due END, \
               notice_at = CASE WHEN j.kind = ''::BYTEA THEN NULL \
                 WHEN {moves} THEN CASE WHEN j.last_started < t.then_at THEN t.then_due END \
                 ELSE LEAST(CASE WHEN t.lasts IS NOT NULL THEN {until} END, \
                   CASE WHEN j.last_started IS NULL OR j.last_started < j.cursor_at \
                     THEN j.cursor_due END) END \
             FROM c, unnest($2::BYTEA[], $3::BIGINT[], $4::BIGINT[], $5::BIGINT[], $6::BIGINT[], \
               $7::BIGINT[]) AS t (name, fence, lasts, moves, then_at, then_due) \
             WHERE j.name = t.name AND j.hold_fence = t.fence \
               AND j.more IS NULL AND j.gone_at IS NULL \
               AND (t.then_at IS NULL OR t.then_at > j.hold_at) \
               AND (t.lasts IS NOT NULL OR t.moves = 1 OR j.cursor_at IS DISTINCT FROM j.hold_at) \
             RETURNING j.name, j.hold_until, CASE WHEN j.hold_until IS NULL \
               AND (j.last_started IS NULL OR j.last_started < j.cursor_at) \
               AND j.cursor_due * 1000 <= c.now THEN 1::BIGINT END",
            p = dialect.prefix,
            keep = ["holder", "claim", "hold_fence", "hold_at", "hold_attempt", "hold_leased"]
                .map(keep)
                .join(", "),
        );
        let mut args = vec![Value::Int(fast.now)];
        args.push(Value::Blobs(
            ends.iter().map(|end| Some(end.name.as_bytes().to_vec())).collect(),
        ));
        let mut numbers = |number: fn(&SimpleEnd<'_>) -> Option<i64>| {
            args.push(Value::Ints(ends.iter().map(number).collect()));
        };
        numbers(|end| Some(end.fence));
        numbers(|end| end.lasts);
        numbers(|end| Some(end.moves.into()));
        numbers(|end| end.then.map(|(at, _)| at));
        numbers(|end| end.then.map(|(_, due)| due));
        (!ends.is_empty()).then(|| Statement::new(text, args, b"bii"))
    }
}

/// A take of the cursor's occurrence itself.
struct Simple<'a> {
    name: &'a str,
    claim: [u8; 16],
    fence: i64,
    expected: i64,
    then: Option<(i64, i64)>,
    /// Microseconds.
    fresh: Option<i64>,
    /// Microseconds.
    lasts: i64,
    leased: bool,
}

impl<'a> Simple<'a> {
    fn of(plan: &Plan<'a>) -> Option<Self> {
        let Act::Take(take) = &plan.act else { return None };
        let Take { claim, fence, expected, start, passed, fresh_until, deliver, .. } = take;
        if start != expected || passed.is_some() || expected.trigger.is_some() {
            return None;
        }
        let (then, lasts, leased) = match *deliver {
            Deliver::AtMostOnce { then: Cursor::To(then), mark: Some(mark) } => {
                (then, mark.lasts, false)
            }
            Deliver::AtMostOnce { .. } => return None,
            Deliver::AtLeastOnce { lease } => (None, lease, true),
        };
        if then.is_some_and(|then| then.at <= expected.at) {
            return None;
        }
        let then = match then {
            None => None,
            Some(then) => Some((whole(then.at)?, whole(then.due_at)?)),
        };
        Some(Self {
            name: plan.name,
            claim: claim.to_be_bytes(),
            fence: *fence,
            expected: whole(expected.at)?,
            then,
            fresh: fresh_until.map(|until| until.timestamp_micros()),
            lasts: micros(lasts)?,
            leased,
        })
    }
}

/// A finish that went well, or an extension.
struct SimpleEnd<'a> {
    name: &'a str,
    fence: i64,
    /// Microseconds; of a finish, none.
    lasts: Option<i64>,
    moves: bool,
    then: Option<(i64, i64)>,
}

impl<'a> SimpleEnd<'a> {
    fn of(ending: &Ending<'a>) -> Option<Self> {
        let (lasts, moves, then) = match ending.end {
            End::Extend { lasts } => (Some(micros(lasts)?), false, None),
            End::Finish { then: Cursor::Keep, outcome: Ended::Ran } => (None, false, None),
            End::Finish { then: Cursor::To(None), outcome: Ended::Ran } => (None, true, None),
            End::Finish { then: Cursor::To(Some(then)), outcome: Ended::Ran } => {
                (None, true, Some((whole(then.at)?, whole(then.due_at)?)))
            }
            _ => return None,
        };
        Some(Self { name: ending.name, fence: ending.fence, lasts, moves, then })
    }
}

/// Milliseconds of an instant that is whole ones.
fn whole(at: Time) -> Option<i64> {
    at.timestamp_subsec_nanos().is_multiple_of(1_000_000).then(|| ms(at))
}

/// Microseconds of a time that is whole ones, as far as a sum with an instant can be computed.
fn micros(lasts: Duration) -> Option<i64> {
    let whole = lasts.subsec_nanos().is_multiple_of(1_000);
    i64::try_from(lasts.as_micros()).ok().filter(|us| whole && *us < i64::MAX / 2)
}
