//! Answers about one time of a job.

use super::{
    Facts, Why, WhyCode,
    entry::told,
    present::of_now,
    shown,
    times::{Times, period},
};
use crate::{backend::HistoryEntry, schedule::Schedule as _, time::Time};
use chrono::DateTime;

pub(super) fn of_time(facts: &Facts, at: Time) -> Why {
    let times = Times { facts, at };
    let entries = facts.entries();
    let exact =
        |entry: &&HistoryEntry| entry.occurrence.scheduled_at == at || entry.last == Some(at);
    // Of the schedule rather than of a trigger that was made at that instant.
    let of_schedule = |entry: &&HistoryEntry| exact(entry) && entry.occurrence.trigger.is_none();
    let found = entries.iter().find(of_schedule).or_else(|| entries.iter().find(exact));
    let within = entries.iter().find(|entry| {
        entry.occurrence.scheduled_at < at && entry.last.is_some_and(|last| at < last)
    });
    let is_scheduled = times.is_scheduled();
    if let Some(entry) = found {
        let mut why = told(facts, at, entry);
        why.also.extend(times.moved());
        return why;
    }
    if let Some(entry) = within {
        let why = told(facts, at, entry);
        if is_scheduled != Some(false) {
            return why;
        }
        let mut not = times.not_scheduled();
        not.also.push(range_around(entry, why.code));
        return not;
    }
    if is_scheduled == Some(false) {
        let mut why = times.not_scheduled();
        why.also.extend(times.before_job());
        return why;
    }
    if at > facts.now {
        return times.in_future();
    }
    let known = times.pending().or_else(|| times.after_end()).or_else(|| times.before_job());
    known.unwrap_or_else(|| times.unrecorded())
}

/// The occurrences around the time, of which the entry has this code.
fn range_around(entry: &HistoryEntry, code: WhyCode) -> Why {
    let (first, last) = (entry.occurrence.scheduled_at, entry.last);
    let until = last.map(shown).unwrap_or_default();
    let word = entry.outcome.word();
    let text = format!("the occurrences from {} to {until}, around it, were {word}", shown(first));
    Why::new(code, text).with("first", first).with_some("last", last)
}

impl Times<'_> {
    fn not_scheduled(&self) -> Why {
        let at = shown(self.at);
        let next = self.schedule().and_then(|schedule| match period(schedule) {
            Some(_) => {
                self.facts.state.next.map(|next| next.scheduled_at).filter(|next| *next > self.at)
            }
            None => schedule.next_at(self.at),
        });
        let then = match next {
            Some(next) => format!("; the next one after it is {}", shown(next)),
            None if self.schedule().is_some_and(|one| period(one).is_none()) => {
                "; it has no later one".to_owned()
            }
            None => String::new(),
        };
        let why = if let Some(rule) = self.excluded() {
            Why::new(WhyCode::SkippedCalendar, format!("{rule}{then}")).with("rule", rule)
        } else if let Some((true, what)) = self.dropped() {
            Why::new(WhyCode::DroppedByClockChange, format!("{what}{then}")).with("change", what)
        } else {
            let text = format!("{at} is not a scheduled time of its schedule{then}");
            let mut why = Why::new(WhyCode::NotScheduled, text)
                .remedy(format!("`allora next {}` lists its times", self.facts.name()));
            why.also.extend(
                self.dropped().map(|(_, what)| Why::new(WhyCode::DroppedByClockChange, what)),
            );
            why
        };
        why.with_some("next", next)
    }

    fn in_future(&self) -> Why {
        let text = format!("{} has not come yet", shown(self.at));
        let mut why = Why::new(WhyCode::InFuture, text).with("now", self.facts.now);
        why.also.extend(self.moved().filter(|why| why.code == WhyCode::MovedByCalendar));
        let now = of_now(self.facts);
        // The present obstacles, unless they end before it comes.
        let is_in_the_way = !matches!(
            now.code,
            WhyCode::Running | WhyCode::Scheduled | WhyCode::Due | WhyCode::WaitsForRun
        );
        if is_in_the_way && !self.facts.is_gone {
            why.also.push(Why { also: Vec::new(), ..now });
        }
        why
    }

    /// An occurrence that has come, and that no node has claimed yet.
    fn pending(&self) -> Option<Why> {
        let state = &self.facts.state;
        let cursor = state.next.filter(|next| next.scheduled_at <= self.at);
        if self.facts.is_gone || (cursor.is_none() && state.unreadable.is_none()) {
            return None;
        }
        let now = of_now(self.facts);
        let now = match now.code {
            WhyCode::Running => behind(self.facts).unwrap_or(now),
            _ => now,
        };
        let sentence = format!("{} has not run yet: {}", shown(self.at), now.sentence);
        Some(Why { sentence, ..now })
    }

    /// The schedule had ended before, by the number of its runs.
    fn after_end(&self) -> Option<Why> {
        let state = &self.facts.state;
        let last = state.last_started.filter(|last| state.next.is_none() && *last < self.at)?;
        let text = format!(
            "{} did not run: the schedule has ended, and its last occurrence was that of {}",
            shown(self.at),
            shown(last)
        );
        Some(Why::new(WhyCode::Ended, text).with("last", last))
    }

    /// The time is earlier than the job, or its present definition.
    fn before_job(&self) -> Option<Why> {
        let state = &self.facts.state;
        let later =
            |micros: i64| DateTime::from_timestamp_micros(micros).filter(|one| *one > self.at);
        let at = shown(self.at);
        if let Some(created) = later(state.incarnation) {
            let text = format!("the job was created at {}, after {at}", shown(created));
            return Some(Why::new(WhyCode::CreatedLater, text).with("created", created));
        }
        let changed = later(state.generation)?;
        let text = format!(
            "the job's definition was changed at {}, after {at}, and the history has no entry for that \
             time: the schedule of then may not have had it",
            shown(changed)
        );
        Some(Why::new(WhyCode::ChangedLater, text).with("changed", changed))
    }

    /// The history does not have the time.
    fn unrecorded(&self) -> Why {
        let at = shown(self.at);
        match &self.facts.past {
            None => Why::new(
                WhyCode::NoHistory,
                format!("this store keeps no history, so it is not known what became of {at}"),
            )
            .remedy("turn the history on where the store is opened; `allora run` keeps one"),
            Some(past) if past.lacks_successes => {
                let text = format!(
                    "the history here has no successes, and nothing for {at}: either its run succeeded, or \
                     the limits of the history have removed what became of it"
                );
                Why::new(WhyCode::NoEntry, text).remedy(
                    "keep successes: give the store `HistoryLimits::default()` where it is opened",
                )
            }
            Some(past) => match past.begins {
                Some(begins) if begins > self.at => {
                    let text = format!("its history begins at {}, after {at}", shown(begins));
                    let why = Why::new(WhyCode::BeforeHistory, text).with("begins", begins);
                    why.remedy(
                        "keep more with the limits of the history: `--history` and \
                         `--history-age` of `allora run`",
                    )
                }
                _ => {
                    let text = match past.entries.is_empty() {
                        true => {
                            format!("the history has no entry of this job, and so none for {at}")
                        }
                        false => format!(
                            "the history has older entries, and none for {at}: its limits have removed \
                             it, or the job was moved past it without a record"
                        ),
                    };
                    Why::new(WhyCode::NoEntry, text)
                }
            },
        }
    }
}

/// The occurrence that waits behind the active run.
fn behind(facts: &Facts) -> Option<Why> {
    let run = facts.state.leases.first()?;
    let text = format!(
        "it waits for the end of the run of {} on {}, which began at {}",
        shown(run.occurrence.scheduled_at),
        run.node,
        shown(run.started_at)
    );
    let why = Why::new(WhyCode::WaitsForRun, text)
        .with("running", run.occurrence.scheduled_at)
        .with("node", run.node.as_str());
    Some(why.remedy(format!("wait, or end the run with `allora cancel {}`", facts.name())))
}
