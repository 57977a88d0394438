//! The failed occurrences in a row: counted by the operation that ends a run, which pauses the job in
//! the same commit if its breaker says so.

use super::{HistoryBuffer, Record, bounded_to};
use crate::{
    backend::{Occurrence, Pause, StreakChange, StreakReport},
    job::failure_rules,
    time::{Time, whole_millis},
};

/// The longest part of an error in the note of a pause, in bytes.
const MAX_CAUSE: usize = 300;

impl Record {
    /// Counts an occurrence that has failed for good. Nothing is counted, and hardly anything read, if
    /// the definition has no rule for it.
    pub(super) fn count_failure(
        &mut self,
        name: &str,
        occurrence: &Occurrence,
        error: &str,
        now: Time,
        history: &mut HistoryBuffer,
    ) {
        let Some(rules) = failure_rules(&self.definition) else {
            self.streak = None;
            return;
        };
        let streak = self.streak.get_or_insert_default();
        let (change, pause) = rules.failed(streak, self.paused.is_none(), now);
        let failures = streak.failures;
        if let Some(until) = pause {
            let times =
                if failures == 1 { "1 occurrence" } else { &*format!("{failures} occurrences") };
            let cause = bounded_to(error, MAX_CAUSE);
            let note = format!("paused itself: {times} failed in a row, the last with: {cause}");
            self.paused = Some(Pause { since: whole_millis(now), until, note });
        }
        self.report(name, occurrence, change.map(|change| (failures, change)), history);
    }

    /// The reply to the end of a failed run was lost, and with it, perhaps, what people are to be told.
    pub(super) fn report_again(&self, name: &str, history: &mut HistoryBuffer) {
        let told = self.streak.as_ref().filter(|streak| streak.failures > 0);
        let Some((streak, at)) = told.and_then(|one| Some((one, one.alerted_at?))) else { return };
        let until = self.paused.as_ref().and_then(|pause| pause.until);
        let change = StreakChange::of(streak, self.paused.is_some(), until);
        let change = (streak.failures, change);
        self.report(name, &self.last_started.unwrap_or(at).into(), Some(change), history);
    }

    /// An occurrence has succeeded: nothing has failed in a row, and a pause of the job's own is over.
    pub(super) fn end_streak(
        &mut self,
        name: &str,
        occurrence: &Occurrence,
        history: &mut HistoryBuffer,
    ) {
        let Some(streak) = self.streak.take() else { return };
        if streak.has_paused {
            self.paused = None;
        }
        let over = streak.alerted_at.map(|_| (streak.failures, StreakChange::Over));
        self.report(name, occurrence, over, history);
    }

    /// A run that was counted as lost is alive.
    pub(super) fn uncount_failure(
        &mut self,
        name: &str,
        occurrence: &Occurrence,
        history: &mut HistoryBuffer,
    ) {
        match &mut self.streak {
            Some(streak) if streak.failures > 1 => streak.failures -= 1,
            _ => self.end_streak(name, occurrence, history),
        }
    }

    /// An operator has paused or resumed the job: the pause is no longer its own.
    pub(super) fn take_over_pause(&mut self, is_resumed: bool) {
        let Some(streak) = self.streak.as_mut().filter(|streak| streak.has_paused) else { return };
        streak.has_paused = false;
        if is_resumed {
            // It begins to count anew, or its next failure would pause it at once.
            streak.failures = 0;
        }
    }

    fn report(
        &self,
        name: &str,
        occurrence: &Occurrence,
        change: Option<(u32, StreakChange)>,
        history: &mut HistoryBuffer,
    ) {
        let report = |change| StreakReport::new(name, &self.kind, occurrence.scheduled_at, change);
        history.report(change.map(report));
    }
}
