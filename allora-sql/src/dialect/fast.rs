//! Takes and endings of the commonest shape, many of them in one statement that compares and sets
//! every row by its key.
//!
//! What the statement says is the same for every database, and is here; how a table of bound values
//! stands in an `UPDATE` is not. The conditions are those of `step` and `settle` for a record with
//! nothing in it but a cursor and at most one hold: nothing in `more` (triggers, further attempts, a
//! pause), not a tombstone. Whatever else there is does not match, and goes the general path.
//!
//! The clock is read once, in `c`: it is another in each row and column, and the fence that is
//! answered must be that of the hold. That it is read before a row may have to be waited for takes
//! nothing too early, and makes an extension shorter by the wait, which its answer says; only whether
//! an occurrence is still fresh is asked after.

use super::{Dialect, Flavour};
use crate::{
    driver::{Statement, Value},
    row::{Type, ms},
};
use allora_core::{
    Time,
    backend::{Act, Cursor, Deliver, End, Ended, Ending, Plan, Take},
    time::end_of_time,
};
use std::time::Duration;

/// How one database carries out such a statement.
pub(crate) enum Fast {
    /// It answers with the rows that it changed.
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        expect(dead_code, reason = "MySQL's returns nothing")
    )]
    Returning(Statement),
    /// It changes rows, and if it did another one reads them.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "the others return rows"))]
    ReadBack { write: Statement, read: Statement },
    /// It says how many rows it changed.
    #[cfg_attr(not(feature = "mysql"), expect(dead_code, reason = "the others return rows"))]
    Counted(Statement),
}

/// Who asks, and when.
pub(crate) struct Asker<'a> {
    pub(crate) node: &'a str,
    /// Microseconds; `None` is the database's clock.
    pub(crate) now: Option<i64>,
}

/// The columns of a table of bound values; none is called as one of the job's.
pub(crate) type Columns = [(&'static str, Type)];

/// Rows to a statement: a whole batch of a scheduler.
pub(crate) const CHUNK: usize = 1 << 10;

/// The one row of [`Dialect::asker`], as an expression for the instant that decides.
const NOW: &str = "COALESCE(c.given, c.ticked)";

/// The takes among these plans that are of the commonest shape, in the order in which every node
/// locks them.
pub(crate) fn takes<'a>(plans: &[Plan<'a>]) -> Vec<SimpleTake<'a>> {
    let mut takes: Vec<_> = plans.iter().filter_map(SimpleTake::of).collect();
    takes.sort_unstable_by_key(|take| take.name);
    takes
}

/// The endings among these that are of the commonest shape, in the order in which every node locks
/// them.
pub(crate) fn endings<'a>(endings: &[Ending<'a>]) -> Vec<SimpleEnd<'a>> {
    let mut ends: Vec<_> = endings.iter().filter_map(SimpleEnd::of).collect();
    ends.sort_unstable_by_key(|end| end.name);
    ends
}

impl Dialect {
    /// A row with who asks, and when: `given` if the request says it, `ticked` by the database.
    pub(super) fn asker(&self, asker: &Asker<'_>, args: &mut Vec<Value>) -> String {
        let mut text = "SELECT ".to_owned();
        let columns = [
            ("given", Type::IntOrNull, Value::Int(asker.now)),
            ("node", Type::Bytes, Value::bytes(asker.node)),
            ("no_kind", Type::Bytes, Value::bytes("")),
            ("went_well", Type::Bytes, Value::bytes("ran")),
        ];
        for (name, of, value) in columns {
            args.push(value);
            self.flavour.typed_placeholder(&mut text, args.len(), of);
            text.push_str(" AS ");
            text.push_str(name);
            text.push_str(", ");
        }
        text.push_str(self.flavour.clock());
        text + " AS ticked"
    }
}

/// A take of the cursor's occurrence itself, that leaves a hold.
pub(crate) struct SimpleTake<'a> {
    pub(crate) name: &'a str,
    pub(crate) claim: [u8; 16],
    fence: i64,
    expected: i64,
    then: Option<(i64, i64)>,
    /// Microseconds.
    fresh: Option<i64>,
    /// Microseconds.
    lasts: i64,
    leased: bool,
}

impl<'a> SimpleTake<'a> {
    pub(super) const COLUMNS: &'static Columns = &[
        ("of_name", Type::Name),
        ("by_claim", Type::Bytes),
        ("seen", Type::Int),
        ("expected", Type::Int),
        ("then_at", Type::IntOrNull),
        ("then_due", Type::IntOrNull),
        ("fresh", Type::IntOrNull),
        ("lasts", Type::Int),
        ("leased", Type::Int),
    ];

    pub(super) fn values(&self) -> Vec<Value> {
        vec![
            Value::bytes(self.name),
            Value::bytes(self.claim),
            Value::int(self.fence),
            Value::int(self.expected),
            Value::Int(self.then.map(|(at, _)| at)),
            Value::Int(self.then.map(|(_, due)| due)),
            Value::Int(self.fresh),
            Value::int(self.lasts),
            Value::int(self.leased.into()),
        ]
    }

    /// What the statement sets. A column that another one is worked out from is set after that: one
    /// database reads what it has just written.
    pub(super) fn set(say: &dyn Flavour) -> String {
        let until = until(say);
        let fence = say.greatest("j.fence + 1", NOW);
        let wake = earlier(say, &until, "t.then_due");
        format!(
            "notice_at = CASE WHEN j.kind = c.no_kind THEN NULL WHEN t.leased = 1 THEN {until} \
               ELSE {wake} END, \
             cursor_due = CASE WHEN t.leased = 1 THEN j.cursor_due ELSE t.then_due END, \
             cursor_at = CASE WHEN t.leased = 1 THEN j.cursor_at ELSE t.then_at END, \
             last_started = t.expected, started = j.started + 1, \
             hold_fence = {fence}, fence = {fence}, holder = c.node, claim = t.by_claim, \
             hold_at = t.expected, hold_attempt = 1, hold_until = {until}, hold_leased = t.leased"
        )
    }

    /// When the statement sets it.
    pub(super) fn condition(say: &dyn Flavour) -> String {
        let due = say.greatest("j.cursor_due", "t.expected");
        let clock = say.clock();
        format!(
            "j.name = t.of_name AND j.fence = t.seen AND j.cursor_at = t.expected \
             AND j.hold_fence IS NULL AND j.more IS NULL AND j.gone_at IS NULL \
             AND (j.last_started IS NULL OR j.last_started < j.cursor_at) \
             AND {due} * 1000 <= {NOW} \
             AND (t.fresh IS NULL OR COALESCE(c.given, {clock}) <= t.fresh)"
        )
    }

    /// The clock, and what was won.
    pub(super) const SHAPE: &'static [u8] = b"ibiiii";

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
pub(crate) struct SimpleEnd<'a> {
    pub(crate) name: &'a str,
    fence: i64,
    /// Microseconds; of a finish, none.
    lasts: Option<i64>,
    moves: bool,
    then: Option<(i64, i64)>,
}

impl<'a> SimpleEnd<'a> {
    pub(super) const COLUMNS: &'static Columns = &[
        ("of_name", Type::Name),
        ("seen", Type::Int),
        ("lasts", Type::IntOrNull),
        ("moves", Type::Int),
        ("then_at", Type::IntOrNull),
        ("then_due", Type::IntOrNull),
    ];

    pub(super) fn values(&self) -> Vec<Value> {
        vec![
            Value::bytes(self.name),
            Value::int(self.fence),
            Value::Int(self.lasts),
            Value::int(self.moves.into()),
            Value::Int(self.then.map(|(at, _)| at)),
            Value::Int(self.then.map(|(_, due)| due)),
        ]
    }

    pub(crate) fn is_finish(&self) -> bool {
        self.lasts.is_none()
    }

    /// What the statement sets, in the order in which takes do.
    pub(super) fn set(say: &dyn Flavour) -> String {
        let until = say.greatest("j.hold_until", &until(say));
        let moves = "t.lasts IS NULL AND t.moves = 1 AND j.cursor_at = j.hold_at";
        let extended = format!("CASE WHEN t.lasts IS NOT NULL THEN {until} END");
        let cursor = "CASE WHEN j.last_started IS NULL OR j.last_started < j.cursor_at \
                      THEN j.cursor_due END";
        let wake = earlier(say, &extended, cursor);
        let finish = |column: &str, ended: &str| {
            format!("{column} = CASE WHEN t.lasts IS NULL THEN {ended} ELSE j.{column} END")
        };
        let cleared = ["holder", "claim", "hold_fence", "hold_attempt", "hold_leased", "hold_at"];
        format!(
            "notice_at = CASE WHEN j.kind = c.no_kind THEN NULL \
               WHEN {moves} THEN CASE WHEN j.last_started < t.then_at THEN t.then_due END \
               ELSE {wake} END, \
             cursor_due = CASE WHEN {moves} THEN t.then_due ELSE j.cursor_due END, \
             cursor_at = CASE WHEN {moves} THEN t.then_at ELSE j.cursor_at END, \
             hold_until = {extended}, {}, {}, {}, {}, {}, {}",
            finish("ended_fence", "t.seen"),
            // A finish, as the column has it.
            finish("ended_how", "0"),
            finish("last_outcome", "c.went_well"),
            finish("last_error", "NULL"),
            finish("ran", "j.ran + 1"),
            cleared.map(|column| finish(column, "NULL")).join(", "),
        )
    }

    /// When the statement sets it.
    pub(super) const CONDITION: &'static str = "j.name = t.of_name AND j.hold_fence = t.seen AND j.more IS NULL AND j.gone_at IS NULL \
         AND (t.then_at IS NULL OR t.then_at > j.hold_at) \
         AND (t.lasts IS NOT NULL OR t.moves = 1 OR j.cursor_at IS NULL \
           OR j.cursor_at <> j.hold_at)";

    /// The name, the end of the hold if there still is one, 1 if the job is due again.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    pub(super) const SHAPE: &'static [u8] = b"bii";

    /// Of a row that was ended, on the database that tells those who wait, 1 if somebody may be waiting for that.
    #[cfg(feature = "postgres")]
    pub(super) fn is_waited_for() -> String {
        format!(
            "CASE WHEN j.hold_until IS NULL \
               AND (j.last_started IS NULL OR j.last_started < j.cursor_at) \
               AND j.cursor_due * 1000 <= {NOW} THEN CAST(1 AS BIGINT) END"
        )
    }

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

/// The end of a hold from now, in milliseconds.
fn until(say: &dyn Flavour) -> String {
    let over = say.whole_division();
    say.least(&format!("(({NOW} + t.lasts) {over} 1000)"), &ms(end_of_time()).to_string())
}

/// The lesser one, or the one that is there.
fn earlier(say: &dyn Flavour, one: &str, other: &str) -> String {
    let both = say.least(one, other);
    format!("COALESCE({both}, {one}, {other})")
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
