//! The cells of a record that a query has just claimed: the query returns only those that it does not
//! determine itself.

use crate::{
    driver::{Row, Type, Value},
    encoding::{JOB, RARE, STATE},
};
use std::sync::LazyLock;

/// The origin of a cell.
enum Origin {
    /// The reply has it.
    Sent,
    /// The node that has asked.
    Node,
    ClaimId,
    /// As the cell in this place.
    Like(usize),
    Number(i64),
    Null,
}

/// The origins of all cells of a record without its data, in their order.
///
/// They are those of a claim's assignments and of its condition: the record is live, and has no rare
/// parts but cold ones, which a due query does not read.
static ORIGINS: LazyLock<Vec<Origin>> = LazyLock::new(|| {
    let job = JOB.iter().map(|(name, _)| match *name {
        "deleted_at" => Origin::Null,
        _ => Origin::Sent,
    });
    let like = |name: &str| {
        let place = STATE[1..].iter().position(|(column, _)| *column == name);
        place.map_or(Origin::Null, |place| Origin::Like(JOB.len() + place))
    };
    let state = STATE[1..].iter().map(|(name, _)| match *name {
        "lease_node" => Origin::Node,
        "lease_claim_id" => Origin::ClaimId,
        "lease_fence" => like("fence"),
        "lease_until" => like("wake_at"),
        "lease_due_at" => like("cursor_due_at"),
        "last_started" | "lease_scheduled_at" => like("cursor_scheduled_at"),
        "lease_attempt" | "lease_on_expiry" => Origin::Number(1),
        "rare" => Origin::Number(0),
        // The record has that of the job table.
        "kind" => Origin::Null,
        _ => Origin::Sent,
    });
    let rare = RARE[1..].iter().map(|_| Origin::Null);
    job.chain(state).chain(rare).collect()
});

/// The columns of the job table, and those of the state table, that the reply has.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    expect(dead_code, reason = "MySQL reads claims back")
)]
pub(crate) fn sent() -> [Vec<(&'static str, Type)>; 2] {
    let is_sent = |(_, origin): &(_, &Origin)| matches!(origin, Origin::Sent);
    let (job, state) = ORIGINS.split_at(JOB.len());
    let of = |columns: &'static [(&'static str, Type)], origins| {
        let columns = columns.iter().zip::<&[Origin]>(origins);
        columns.filter(is_sent).map(|(column, _)| *column).collect()
    };
    [of(JOB, job), of(&STATE[1..], state)]
}

/// All cells of a row: the clock, those of the record, the data.
pub(crate) fn whole(row: Row, node: &str, claim_id: [u8; 16]) -> Row {
    let mut sent = row.into_iter();
    let mut cells = Vec::with_capacity(ORIGINS.len() + 2);
    cells.extend(sent.next());
    for origin in &*ORIGINS {
        let cell = match origin {
            Origin::Sent => sent.next().unwrap_or(Value::Int(None)),
            Origin::Node => Value::bytes(node),
            Origin::ClaimId => Value::bytes(claim_id),
            // The clock is before them.
            Origin::Like(place) => cells.get(place + 1).cloned().unwrap_or(Value::Int(None)),
            Origin::Number(number) => Value::int(*number),
            Origin::Null => Value::Int(None),
        };
        cells.push(cell);
    }
    cells.extend(sent);
    cells
}
