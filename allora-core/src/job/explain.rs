//! Explanations of a job's times: the next occurrences, each with its due time and the reasons.

use super::Settings;
use crate::time::Time;
use allora_schedule::{Note, Schedule, delay_after_end, jitter};

/// One future occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explained {
    /// The scheduled time.
    pub nominal: Time,
    /// The earliest time of a claim: the scheduled time, or the one to which it is
    /// [moved](crate::Schedule::moved), delay and jitter.
    pub due: Time,
    /// The reasons for a difference from the plain reading of the schedule; often empty.
    pub reasons: Vec<String>,
}

impl Settings {
    /// The next `n` occurrences of the job `name` with these settings after `after` (exclusive), each with
    /// its reasons. There are fewer if the schedule or the job's bounds end before. Of the settings,
    /// delay, jitter, bounds and `max_runs` (counted from `after`) count.
    ///
    /// ```
    /// use allora::{Settings, cron};
    /// use std::time::Duration;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let nightly = cron("30 2 * * * Europe/Rome")?;
    /// let mut settings = Settings::default();
    /// settings.delay = Duration::from_secs(60);
    /// let explained = settings.explain("invoices", &nightly, "2026-03-28T12:00:00Z".parse()?, 1);
    /// assert_eq!(explained[0].nominal.to_rfc3339(), "2026-03-29T01:00:00+00:00");
    /// assert_eq!(explained[0].due.to_rfc3339(), "2026-03-29T01:01:00+00:00");
    /// assert!(explained[0].reasons[0].contains("2026-03-29 02:30 does not exist in Europe/Rome"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn explain(
        &self,
        name: &str,
        schedule: &dyn Schedule,
        after: Time,
        n: usize,
    ) -> Vec<Explained> {
        let limit = self.max_runs.map_or(n, |runs| n.min(usize::try_from(runs).unwrap_or(n)));
        let until = self.end.unwrap_or(Time::MAX_UTC);
        // The others follow the ends of runs.
        let limit = delay_after_end(schedule).map_or(limit, |_| limit.min(1));
        let begin = self.begin(after, |at| schedule.next_at(at));
        let mut explained: Vec<Explained> = Vec::new();
        for instant in allora_schedule::explain(schedule, begin, until).take(limit) {
            let nominal = instant.scheduled_at;
            let moved = schedule.moved(nominal).unwrap_or(nominal);
            let Some(next) = self.next_moved(name, nominal, moved) else { break };
            let reasons = reasons(name, self, nominal, instant.notes);
            explained.push(Explained { nominal, due: next.due_at, reasons });
        }
        if let Some(first) = explained.first_mut().filter(|_| self.start > Some(after)) {
            first.reasons.push("the first since the job's start".into());
        }
        let last = explained.len();
        if let Some(occurrence) = explained.last_mut() {
            if self.max_runs == Some(last as u64) {
                occurrence.reasons.push(format!("the last of {last} runs"));
            } else if last < n
                && schedule.next_at(occurrence.nominal).is_none_or(|next| next > until)
            {
                occurrence.reasons.push("the last before the job's or the schedule's end".into());
            }
        }
        explained
    }
}

fn reasons(name: &str, settings: &Settings, nominal: Time, notes: Vec<Note>) -> Vec<String> {
    let mut reasons: Vec<String> = notes.into_iter().map(|note| note.message).collect();
    if !settings.delay.is_zero() {
        reasons.push(format!("delayed by {:?}", settings.delay));
    }
    let jitter = jitter(name, nominal, settings.jitter);
    if !jitter.is_zero() {
        reasons.push(format!("jitter of {jitter:?}, derived from the job's name"));
    }
    reasons
}
