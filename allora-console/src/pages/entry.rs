//! A row of the history: one attempt, or one range of occurrences that did not run.

use super::{Linked, short};
use crate::{
    context::Context,
    look::{Look, look},
    times::{Moment, took},
    words::short_nodes,
};
use allora_core::{HistoryEntry, Outcome, backend::NotRunReason, time::since};
use std::time::Duration;

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    pub(crate) job: Linked,
    /// The page of this entry.
    pub(crate) link: String,
    pub(crate) scheduled: Moment,
    /// The end of a range, with the number of its occurrences.
    pub(crate) range: Option<String>,
    /// The time from the moment at which it was due to its start; `–` for a range.
    pub(crate) late: String,
    pub(crate) took: String,
    pub(crate) attempt: String,
    pub(crate) node: String,
    pub(crate) look: Look,
    /// The error, the reason or the output, cut to one line.
    pub(crate) text: String,
    /// Another attempt followed.
    pub(crate) is_followed: bool,
}

/// The longest text in a row, in characters.
const TEXT: usize = 120;

const NONE: &str = "–";

/// The row of an entry.
pub(crate) fn row(entry: &HistoryEntry, context: &Context) -> Row {
    let dash = || NONE.to_owned();
    let is_range = entry.attempt == 0;
    Row {
        job: Linked { text: entry.name.clone(), link: context.job(&entry.name) },
        link: context.run(&entry.name, entry.fence),
        scheduled: context.moment(entry.occurrence.scheduled_at),
        range: is_range.then(|| range(entry, context)).flatten(),
        late: lateness(entry).map_or_else(dash, took),
        took: entry.duration().map_or_else(dash, took),
        attempt: if is_range { dash() } else { entry.attempt.to_string() },
        node: if entry.node.is_empty() { dash() } else { short_nodes(&entry.node) },
        look: look(entry.outcome.word()),
        text: short(&text(entry, context), TEXT),
        is_followed: !is_range && !entry.is_final() && entry.ended_at.is_some(),
    }
}

/// The time from the moment at which a run was due to its start.
pub(crate) fn lateness(entry: &HistoryEntry) -> Option<Duration> {
    Some(since(entry.started_at?, entry.due_at?))
}

/// The last time of a range, and how many there are.
fn range(entry: &HistoryEntry, context: &Context) -> Option<String> {
    let last = context.moment(entry.last.filter(|last| *last != entry.occurrence.scheduled_at)?);
    Some(match entry.count {
        Some(count) => format!("to {}, {count} times", last.text),
        None => format!("to {}, more times than were counted", last.text),
    })
}

/// The error, the reason, or the output if the reader may see it.
pub(crate) fn text(entry: &HistoryEntry, context: &Context) -> String {
    let error = entry.outcome.error();
    if !error.is_empty() {
        return context.visible(error).to_owned();
    }
    if let Some(reason) = reason_in_words(entry, context) {
        return reason;
    }
    match &entry.output {
        Some(output) if context.sees_data => output.clone(),
        _ => String::new(),
    }
}

/// The reason why an occurrence did not run, or not to its end, with the note of the operator who decided it.
pub(crate) fn reason_in_words(entry: &HistoryEntry, context: &Context) -> Option<String> {
    let reason = entry.reason?;
    let words = match reason {
        NotRunReason::CatchUp => "not run in time, and the catch-up policy leaves it out",
        NotRunReason::Window => "later than the window allows",
        NotRunReason::Overlap => "the run before it was still active",
        NotRunReason::ConcurrencyKey => "the concurrency key was busy for too long",
        NotRunReason::Calendar => "a calendar excludes it",
        NotRunReason::Operator => match entry.outcome {
            Outcome::Skipped => "an operator left it out",
            Outcome::Succeeded => "an operator marked it as succeeded",
            _ => "an operator cancelled it",
        },
        NotRunReason::Deleted => "the job was deleted",
        NotRunReason::Shutdown => "its node was stopped before it had ended",
        NotRunReason::Replaced { by } => {
            return Some(format!("replaced by the occurrence of {}", context.moment(by).text));
        }
        _ => reason.word(),
    };
    Some(match entry.operator_note() {
        Some(note) => format!("{words}, {note}"),
        None => words.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;

    fn entry(outcome: Outcome) -> HistoryEntry {
        let scheduled_at = at("2026-10-25T00:00:00Z");
        let mut entry = HistoryEntry::new("invoices", 7, scheduled_at.into(), outcome);
        entry.due_at = Some(scheduled_at);
        entry.node = "web-2".into();
        entry
    }

    #[test]
    fn a_run_has_its_lateness_its_duration_and_its_error() {
        let mut entry = entry(Outcome::Retried("connect: connection refused".into()));
        entry.attempt = 4;
        entry.started_at = Some(at("2026-10-25T00:00:12Z"));
        entry.ended_at = Some(at("2026-10-25T00:00:42Z"));
        let row = row(&entry, &Context::of_test());
        assert_eq!(row.scheduled.text, "Sun 25 Oct 02:00 CEST");
        assert_eq!((&*row.late, &*row.took, &*row.attempt), ("12.0 s", "30.0 s", "4"));
        assert_eq!((row.look.word, &*row.text), ("retried", "connect: connection refused"));
        assert!(row.is_followed);
        assert_eq!((row.range, &*row.link), (None, "run?name=invoices&fence=7"));
    }

    #[test]
    fn a_range_is_one_row_with_its_end_and_its_reason() {
        let mut entry = entry(Outcome::Missed);
        (entry.attempt, entry.count, entry.due_at) = (0, Some(2), None);
        entry.last = Some(at("2026-10-26T01:00:00Z"));
        entry.reason = Some(NotRunReason::CatchUp);
        let row = row(&entry, &Context::of_test());
        assert_eq!(row.range.as_deref(), Some("to Mon 26 Oct 02:00 CET, 2 times"));
        assert_eq!((&*row.late, &*row.attempt, row.look.word), ("–", "–", "missed"));
        assert!(row.text.contains("catch-up policy") && !row.is_followed);
    }

    #[test]
    fn what_an_operator_left_out_or_marked_has_the_note() {
        for (outcome, says) in [
            (Outcome::Skipped, "an operator left it out, by ann: the mail server moves"),
            (
                Outcome::Succeeded,
                "an operator marked it as succeeded, by ann: the mail server moves",
            ),
        ] {
            let mut entry = entry(outcome);
            (entry.attempt, entry.reason) = (0, Some(NotRunReason::Operator));
            entry.output = Some("by ann: the mail server moves".into());
            assert_eq!(row(&entry, &Context::of_test()).text, says);
        }
    }

    #[test]
    fn output_is_for_those_who_may_see_it() {
        let mut entry = entry(Outcome::Succeeded);
        entry.output = Some("1,204 invoices\nto acme".into());
        let may = Context::of_test();
        assert_eq!(row(&entry, &may).text, "1,204 invoices to acme");
        assert_eq!(row(&entry, &Context { sees_data: false, ..may }).text, "");
    }
}
