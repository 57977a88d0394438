//! Three small plots: how much ran, how late it began, and how full the nodes were. A number comes first,
//! then its course.
//!
//! The first two are of the hours, over any range that is kept. The third needs the runs themselves, of the
//! last day.

use super::{
    counted, grouped,
    hours::{all, failures, height, parts, sum, told},
    need::gone,
    past::{Past, Range},
    timeline::{SPAN, begin},
};
use crate::{context::Context, overview::Overview, times::about, words::Word};
use allora_core::{HistoryEntry, NodeInfo, Time, stored::Hour};
use chrono::TimeDelta;
use std::time::Duration;

/// A plot, ready to be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plot {
    pub(crate) title: &'static str,
    pub(crate) number: String,
    pub(crate) rest: String,
    /// The part of `rest` that is bad news, if there is any.
    pub(crate) bad: String,
    /// The time that it shows, in words.
    pub(crate) range: String,
    pub(crate) width: usize,
    pub(crate) bars: Vec<Bar>,
}

/// A bar, of which another one may stand on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) x: usize,
    pub(crate) y: u64,
    pub(crate) height: u64,
    pub(crate) fill: &'static str,
    pub(crate) title: String,
}

/// The number of bars of half an hour.
const BARS: usize = 48;
const STEP: usize = 5;
/// The height of the highest bar.
const HIGH: u64 = 32;
/// A start that is later than this is drawn as one that needs a look.
const LATE: Duration = Duration::from_secs(60);

/// The plots of the past.
pub(crate) fn plots(past: &Past, overview: &Overview, context: &Context) -> [Plot; 3] {
    let mut bars = vec![Hour::new(past.range.from); past.range.bars];
    for hour in &past.hours {
        if let Some(bar) = past.range.bar(hour.from).and_then(|bar| bars.get_mut(bar)) {
            bar.merge(hour);
        }
    }
    let entries = &past.entries;
    let runs: Vec<Started> = entries.iter().filter_map(|run| Started::new(run, context)).collect();
    [
        throughput(&bars, past.range, context),
        late(&bars, past.range, context),
        active(&runs, overview, context),
    ]
}

/// The bars of a range in words: `the last 24 hours by hour`.
fn in_words(range: Range) -> String {
    match range.step {
        1 => format!("the last {} by hour", length(range)),
        step => format!("the last {} by {step} hours", length(range)),
    }
}

fn length(range: Range) -> String {
    if range.days == 1 { "24 hours".to_owned() } else { format!("{} days", range.days) }
}

/// The beginning of a bar, as its title has it.
fn since(bar: usize, range: Range, context: &Context) -> String {
    let at = range.at(bar);
    match range.days {
        1 => context.zone.minute(at),
        _ => context.moment(at).text,
    }
}

fn throughput(hours: &[Hour], range: Range, context: &Context) -> Plot {
    let most = hours.iter().map(all).max().unwrap_or(0);
    let mut bars = Vec::new();
    for (i, hour) in hours.iter().enumerate() {
        let title = format!("from {}: {}", since(i, range, context), told(hour));
        let mut y = HIGH;
        for (number, fill) in parts(hour) {
            let height = height(number, most, HIGH);
            y = y.saturating_sub(height);
            bars.push(Bar { x: i * STEP, y, height, fill, title: title.clone() });
        }
    }
    let all = sum(hours);
    let bad = [(failures(&all), "failed"), (all.missed, "missed")];
    let bad = bad.into_iter().filter(|(number, _)| *number > 0);
    let bad: Vec<String> = bad.map(|(number, word)| format!("{} {word}", many(number))).collect();
    Plot {
        title: "Runs",
        number: many(all.started),
        rest: format!("in {}", length(range)),
        bad: bad.join(", "),
        range: in_words(range),
        width: range.bars * STEP,
        bars: drawn(bars),
    }
}

fn many(number: u64) -> String {
    grouped(usize::try_from(number).unwrap_or(usize::MAX))
}

fn late(hours: &[Hour], range: Range, context: &Context) -> Plot {
    let percents = |hour: &Hour| {
        let of = |percent| hour.lateness.percentile(percent).unwrap_or_default();
        (of(50), of(99))
    };
    let worst = hours.iter().map(|hour| percents(hour).1).max().unwrap_or_default();
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let mut bars = Vec::new();
    for (i, hour) in hours.iter().enumerate() {
        let (half, most) = percents(hour);
        let from = since(i, range, context);
        let title =
            format!("from {from}: median {}, 99 of 100 at most {}", about(half), about(most));
        let most_is = if most > LATE { "f-warn" } else { "f-next" };
        for (late, fill) in [(most, most_is), (half, "f-run")] {
            let height = height(millis(late), millis(worst), HIGH);
            bars.push(Bar { x: i * STEP, y: HIGH - height, height, fill, title: title.clone() });
        }
    }
    let all = sum(hours).lateness;
    let number = |percent| all.percentile(percent).map_or_else(|| "–".to_owned(), about);
    Plot {
        title: "Late starts",
        number: number(99),
        rest: format!(
            "at most, for 99 of 100; the median {}, the worst {}",
            number(50),
            number(100)
        ),
        bad: String::new(),
        range: in_words(range),
        width: range.bars * STEP,
        bars: drawn(bars),
    }
}

/// A run of the last day.
struct Started<'a> {
    entry: &'a HistoryEntry,
    at: Time,
}

impl<'a> Started<'a> {
    fn new(entry: &'a HistoryEntry, context: &Context) -> Option<Self> {
        let at = entry.started_at.filter(|at| (begin(context.now)..=context.now).contains(at))?;
        Some(Self { entry, at })
    }
}

fn half_hour() -> TimeDelta {
    SPAN / 48
}

/// The beginning of a half hour.
fn at(bar: usize, context: &Context) -> String {
    let bars = i32::try_from(bar).unwrap_or(0);
    context.zone.minute(begin(context.now) + half_hour() * bars)
}

fn active(runs: &[Started<'_>], overview: &Overview, context: &Context) -> Plot {
    let live: Vec<&NodeInfo> = overview.nodes.iter().filter(|node| node.is_live).collect();
    let limit: usize = live.iter().map(|node| node.concurrency).sum();
    let leases = overview.of(Word::Running).iter().flat_map(|job| &job.leases);
    let started: Vec<Time> = leases.map(|lease| lease.started_at).collect();
    let gone = gone(&overview.nodes).len();
    let counts: Vec<u64> = (1..=BARS)
        .map(|i| {
            let end = begin(context.now) + half_hour() * i32::try_from(i).unwrap_or(0);
            let is_active = |run: &&Started<'_>| {
                run.at < end && run.entry.ended_at.is_some_and(|ended| ended >= end)
            };
            let ended = runs.iter().filter(is_active).count();
            let others = started.iter().filter(|started| **started < end).count();
            (ended + others) as u64
        })
        .collect();
    let most = counts.iter().copied().max().unwrap_or(0);
    let bars = counts.iter().enumerate().map(|(i, number)| {
        let height = height(*number, most, HIGH);
        let title = format!("at {}: {number} active", at(i + 1, context));
        Bar { x: i * STEP, y: HIGH - height, height, fill: "f-run", title }
    });
    Plot {
        title: "Nodes",
        number: format!("{}/{}", started.len(), grouped(limit)),
        rest: format!("runs on {}", counted(live.len(), "live node")),
        bad: if gone == 0 { String::new() } else { format!("{gone} gone") },
        range: "the last 24 hours by half hours".to_owned(),
        width: BARS * STEP,
        bars: drawn(bars.collect()),
    }
}

fn drawn(bars: Vec<Bar>) -> Vec<Bar> {
    bars.into_iter().filter(|bar| bar.height > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::{Outcome, stored::HourTotals};

    fn run(minutes_ago: i64, late: i64, outcome: Outcome) -> HistoryEntry {
        let started = Context::of_test().now - TimeDelta::minutes(minutes_ago);
        let mut run = HistoryEntry::new("job", started.timestamp_micros(), started.into(), outcome);
        run.due_at = Some(started - TimeDelta::seconds(late));
        (run.started_at, run.ended_at) = (Some(started), Some(started + TimeDelta::minutes(45)));
        run
    }

    fn past(days: i32, entries: Vec<HistoryEntry>) -> Past {
        let range = Range::new(days, Context::of_test().now);
        let mut totals = HourTotals::new(range.from);
        entries.iter().for_each(|entry| totals.add(entry));
        let hours = totals.hours().cloned().collect();
        Past { entries, hours, ..Past::new(range) }
    }

    fn drawn(days: i32, entries: Vec<HistoryEntry>) -> [Plot; 3] {
        let context = Context::of_test();
        let overview = Overview::of_test(Vec::new(), context.now);
        plots(&past(days, entries), &overview, &context)
    }

    #[test]
    fn numbers_come_first_and_bars_are_in_their_hours() {
        let mut missed = run(600, 0, Outcome::Missed);
        (missed.count, missed.started_at, missed.attempt) = (Some(3), None, 0);
        // It is 03:12.
        let entries = vec![
            run(10, 1, Outcome::Succeeded),
            run(11, 90, Outcome::Failed("refused".into())),
            run(600, 2, Outcome::Succeeded),
            missed,
        ];
        let [runs, late, nodes] = drawn(1, entries.clone());
        assert_eq!((&*runs.number, &*runs.bad), ("3", "1 failed, 3 missed"));
        assert_eq!((&*runs.rest, &*runs.range), ("in 24 hours", "the last 24 hours by hour"));
        let bars: Vec<_> = runs.bars.iter().map(|bar| (bar.x, bar.y, bar.fill)).collect();
        assert_eq!(
            bars,
            [
                (13 * 5, 24, "f-ok"),
                (13 * 5, 0, "f-warn"),
                (23 * 5, 24, "f-ok"),
                (23 * 5, 16, "f-bad")
            ]
        );
        assert_eq!(runs.bars[0].title, "from 17:00: 1 run, 3 missed");
        assert_eq!((&*late.number, late.bars.last().unwrap().fill), ("86 s", "f-run"));
        assert_eq!(late.rest, "at most, for 99 of 100; the median 1.9 s, the worst 86 s");
        assert_eq!(nodes.number, "0/0");
        // A run of 45 minutes is active at the ends of one or two half hours.
        assert_eq!(nodes.bars.last().unwrap().title, "at 03:12: 2 active");
        // Of a month, all of that is in the last bar.
        let [runs, ..] = drawn(30, entries);
        assert_eq!((&*runs.number, &*runs.range), ("3", "the last 30 days by 12 hours"));
        assert_eq!((runs.width, runs.bars.last().unwrap().x), (300, 59 * 5));
    }

    #[test]
    fn without_a_run_there_are_no_bars() {
        let all = drawn(7, Vec::new());
        assert!(all.iter().all(|plot| plot.bars.is_empty()), "{all:?}");
        assert_eq!(all[1].number, "–");
    }
}
