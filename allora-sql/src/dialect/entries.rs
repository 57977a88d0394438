//! The history entries and flags of completions, where they are statements of their own, in one
//! transaction with the single statement.

use super::{
    Dialect, SimpleCompletion, names,
    single_statement::{End, NOW, of_t},
};
use crate::encoding::{ENDED, FLAG, HISTORY};
use allora_core::backend::Outcome;

impl Dialect {
    /// Text that writes the entries of the runs that this transaction is about to complete. `states`
    /// are the rows `s` of the bound rows `t` beside the context `c`, and `with` stands before the
    /// `SELECT`. The entry of a run that was taken for lost is replaced.
    pub(super) fn ended_entries(&self, with: &str, states: &str) -> String {
        let replaced: Vec<&str> = HISTORY[2..].iter().map(|(name, _)| *name).collect();
        format!(
            "INSERT INTO {p}_history ({names}) {with} \
             SELECT s.lease_fence, j.name, s.kind, s.lease_scheduled_at, NULL, NULL, 1, \
               s.lease_due_at, s.lease_attempt, s.lease_node, s.lease_started_at, \
               {NOW} {over} 1000, x'{word}', x'', NULL, t.output, NULL, 0 \
             FROM {states} CROSS JOIN {p}_job j ON j.id = s.id WHERE {condition}{or_replace}",
            p = self.prefix,
            names = names(HISTORY),
            word = hex(Outcome::Succeeded.word()),
            over = self.flavour.whole_division(),
            condition = SimpleCompletion::condition(End::Completed, of_t),
            or_replace = self.flavour.or_replace("fence, name", &replaced),
        )
    }

    /// Text that adds the flags of the schedules that this transaction is about to end, in the same way.
    pub(super) fn ended_flags(&self, with: &str, states: &str) -> String {
        format!(
            "INSERT INTO {p}_flag ({names}) {with} SELECT x'{word}', j.name \
             FROM {states} CROSS JOIN {p}_job j ON j.id = s.id \
             WHERE t.moves = 1 AND t.then_at IS NULL \
               AND s.cursor_scheduled_at = s.lease_scheduled_at AND {condition}{or_replace}",
            p = self.prefix,
            names = names(FLAG),
            word = hex(ENDED),
            condition = SimpleCompletion::condition(End::Completed, of_t),
            or_replace = self.flavour.or_replace("flag, name", &["name"]),
        )
    }
}

fn hex(word: &str) -> String {
    word.bytes().map(|byte| format!("{byte:02x}")).collect()
}
