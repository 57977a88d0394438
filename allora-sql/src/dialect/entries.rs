//! The history entries of claims and completions, where they are statements of their own, in one
//! transaction with the single statement.

use super::{
    Dialect, Keys, SimpleCompletion, names,
    single_statement::{End, NOW, of_t},
};
use crate::{driver::Statement, encoding::HISTORY};
use allora_core::backend::Outcome;
use std::fmt::Write as _;

impl Dialect {
    /// Writes the entries of the runs that this transaction has begun: of the states `s` with these
    /// keys, and with these claims if not all of them were claimed.
    pub(super) fn begun_entries(&self, ids: &[i64], claim_ids: Option<&[&[u8]]>) -> Statement {
        let (mut is_begun, mut args) = self.flavour.is_any("s.id", Keys::Ids(ids), 1);
        if let Some(claim_ids) = claim_ids {
            let claims = Keys::Names(claim_ids);
            let (is_claim, more) = self.flavour.is_any("s.lease_claim_id", claims, args.len() + 1);
            let _ = write!(is_begun, " AND {is_claim} AND s.rare < 2");
            args.extend(more);
        }
        let states = format!("{}_state s", self.prefix);
        let text = self.entries("", &Outcome::Running, ["NULL", "NULL"], &states, &is_begun);
        Statement::new(text, args, b"")
    }

    /// Text that writes the entries of the runs that this transaction is about to complete. `states`
    /// are the rows `s` of the bound rows `t` beside the context `c`, and `with` stands before the
    /// `SELECT`.
    pub(super) fn ended_entries(&self, with: &str, states: &str) -> String {
        let ended_at = format!("{NOW} {} 1000", self.flavour.whole_division());
        let condition = SimpleCompletion::condition(End::Completed, of_t);
        self.entries(with, &Outcome::Succeeded, [&ended_at, "t.output"], states, &condition)
    }

    /// Text that writes the entries of the leases of these states `s`, with an outcome that has no
    /// error. A later entry of a run replaces the one before.
    fn entries(
        &self,
        with: &str,
        outcome: &Outcome,
        [ended_at, output]: [&str; 2],
        states: &str,
        condition: &str,
    ) -> String {
        let mut word = String::new();
        for byte in outcome.word().bytes() {
            let _ = write!(word, "{byte:02x}");
        }
        let replaced: Vec<&str> = HISTORY[2..].iter().map(|(name, _)| *name).collect();
        format!(
            "INSERT INTO {p}_history ({names}) {with} \
             SELECT s.lease_fence, j.name, s.kind, s.lease_scheduled_at, NULL, NULL, 1, \
               s.lease_due_at, s.lease_attempt, s.lease_node, s.lease_started_at, {ended_at}, \
               x'{word}', x'', NULL, {output} \
             FROM {states} JOIN {p}_job j ON j.id = s.id WHERE {condition}{or_replace}",
            p = self.prefix,
            names = names(HISTORY),
            or_replace = self.flavour.or_replace("fence, name", &replaced),
        )
    }
}
