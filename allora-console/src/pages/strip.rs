//! The strip of a job: its last occurrences and its next ones as bars, whose height is the duration.

use crate::{context::Context, look::look, times::took};
use allora_core::{HistoryEntry, Time};
use std::time::Duration;

/// The strip, ready to be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Strip {
    pub(crate) width: u32,
    pub(crate) bars: Vec<Bar>,
    /// The place of the present.
    pub(crate) now: u32,
    pub(crate) first: String,
    pub(crate) label: String,
}

/// One bar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) x: u32,
    pub(crate) y: u32,
    pub(crate) height: u32,
    pub(crate) fill: &'static str,
    pub(crate) title: String,
    pub(crate) link: String,
}

/// The most past bars.
pub(crate) const PAST: usize = 60;
/// The most future bars.
pub(crate) const COMING: usize = 8;

const STEP: u32 = 13;
/// The heights of the shortest run, and of the longest one.
const LOW: u32 = 6;
const HIGH: u32 = 26;
/// The line on which bars stand.
const GROUND: u32 = 30;

/// The strip of these entries, the newest first, and of the next times, which take as long as usual; `None`
/// if there is nothing to draw. Attempts that another one follows have no bar.
pub(crate) fn strip(
    entries: &[HistoryEntry],
    coming: &[Time],
    usual: Option<Duration>,
    context: &Context,
) -> Option<Strip> {
    let is_shown = |entry: &&HistoryEntry| entry.is_final() || entry.ended_at.is_none();
    let mut past: Vec<&HistoryEntry> = entries.iter().filter(is_shown).take(PAST).collect();
    past.reverse();
    let coming = &coming[..coming.len().min(COMING)];
    if past.is_empty() && coming.is_empty() {
        return None;
    }
    let longest = past.iter().filter_map(|entry| entry.duration()).max().or(usual);
    let longest = longest.unwrap_or_default();
    let mut bars = Vec::new();
    for (i, entry) in past.iter().enumerate() {
        let at = context.moment(entry.occurrence.scheduled_at);
        let word = entry.outcome.word();
        let length = entry.duration().map(|span| format!(", took {}", took(span)));
        let title = format!("{}: {word}{}", at.text, length.unwrap_or_default());
        let link = context.run(&entry.name, entry.fence);
        bars.push(bar(i, entry.duration(), longest, look(word).fill, title, link));
    }
    for (i, at) in coming.iter().enumerate() {
        let moment = context.moment(*at);
        let title = format!("{}, {}", moment.text, moment.distance);
        bars.push(bar(past.len() + i, usual, longest, "f-next", title, String::new()));
    }
    let place = |bars: usize| u32::try_from(bars).unwrap_or(u32::MAX) * STEP;
    let first = past.first().map(|entry| context.moment(entry.occurrence.scheduled_at).text);
    Some(Strip {
        width: place(past.len() + coming.len()),
        now: place(past.len()),
        first: first.unwrap_or_default(),
        label: format!("The last {} occurrences and the next {}", past.len(), coming.len()),
        bars,
    })
}

fn bar(
    index: usize,
    duration: Option<Duration>,
    longest: Duration,
    fill: &'static str,
    title: String,
    link: String,
) -> Bar {
    let share = match duration {
        Some(duration) if !longest.is_zero() => {
            duration.as_millis() * u128::from(HIGH - LOW) / longest.as_millis().max(1)
        }
        _ => u128::from((HIGH - LOW) / 3),
    };
    let height = LOW + u32::try_from(share).unwrap_or(HIGH).min(HIGH - LOW);
    let x = u32::try_from(index).unwrap_or(u32::MAX) * STEP + 1;
    Bar { x, y: GROUND - height, height, fill, title, link }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::Outcome;
    use chrono::TimeDelta;

    fn run(day: i64, seconds: i64, outcome: Outcome) -> HistoryEntry {
        let scheduled_at = at("2026-10-01T00:00:00Z") + TimeDelta::days(day);
        let mut run = HistoryEntry::new("job", day, scheduled_at.into(), outcome);
        run.started_at = Some(scheduled_at);
        run.ended_at = Some(scheduled_at + TimeDelta::seconds(seconds));
        run
    }

    #[test]
    fn the_oldest_is_on_the_left_and_the_longest_is_the_highest() {
        let entries = [
            run(3, 10, Outcome::Succeeded),
            run(2, 40, Outcome::Failed("refused".into())),
            run(2, 1, Outcome::Retried("refused".into())),
            run(1, 20, Outcome::Succeeded),
        ];
        let coming = [at("2026-10-27T00:00:00Z")];
        let strip = strip(&entries, &coming, Some(Duration::from_secs(20)), &Context::of_test());
        let strip = strip.unwrap();
        let drawn: Vec<_> = strip.bars.iter().map(|bar| (bar.x, bar.height, bar.fill)).collect();
        assert_eq!(
            drawn,
            [(1, 16, "f-ok"), (14, 26, "f-bad"), (27, 11, "f-ok"), (40, 16, "f-next")]
        );
        assert_eq!((strip.now, strip.width), (39, 52));
        assert_eq!(strip.bars[1].title, "Sat 3 Oct 02:00 CEST: failed, took 40.0 s");
        assert_eq!(strip.bars[1].link, "run?name=job&fence=2");
    }

    #[test]
    fn without_anything_there_is_no_strip() {
        assert_eq!(strip(&[], &[], None, &Context::of_test()), None);
    }
}
