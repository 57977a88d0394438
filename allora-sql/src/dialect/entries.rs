//! The history entries of completions, where they are statements of their own, in one transaction with
//! the single statement.

use super::{
    Dialect, SimpleCompletion, names,
    single_statement::{End, NOW, of_t},
};
use crate::encoding::HISTORY;
use allora_core::backend::Outcome;

impl Dialect {
    /// Text that writes the entries of the runs that this transaction is about to complete. `states`
    /// are the rows `s` of the bound rows `t` beside the context `c`, and `with` stands before the
    /// `SELECT`. The entry of a run that was taken for lost is replaced.
    pub(super) fn ended_entries(&self, with: &str, states: &str) -> String {
        let word: String = Outcome::Succeeded.word().bytes().map(|b| format!("{b:02x}")).collect();
        let replaced: Vec<&str> = HISTORY[2..].iter().map(|(name, _)| *name).collect();
        format!(
            "INSERT INTO {p}_history ({names}) {with} \
             SELECT s.lease_fence, j.name, s.kind, s.lease_scheduled_at, NULL, NULL, 1, \
               s.lease_due_at, s.lease_attempt, s.lease_node, s.lease_started_at, \
               {NOW} {over} 1000, x'{word}', x'', NULL, t.output, NULL, 0 \
             FROM {states} JOIN {p}_job j ON j.id = s.id WHERE {condition}{or_replace}",
            p = self.prefix,
            names = names(HISTORY),
            over = self.flavour.whole_division(),
            condition = SimpleCompletion::condition(End::Completed, of_t),
            or_replace = self.flavour.or_replace("fence, name", &replaced),
        )
    }
}
