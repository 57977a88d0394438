//! Three small plots of the last day: how much ran, how late it began, and how full the nodes were. A number
//! comes first, then its course.

use super::{
    counted,
    entry::lateness,
    grouped,
    need::gone,
    timeline::{SPAN, begin},
};
use crate::{
    context::Context,
    overview::Overview,
    times::{span, took},
    words::Word,
};
use allora_core::{HistoryEntry, NodeInfo, Time};
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
    pub(crate) bars: Vec<Bar>,
}

/// A bar of half an hour, of which another one may stand on top.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) x: usize,
    pub(crate) y: u64,
    pub(crate) height: u64,
    pub(crate) fill: &'static str,
    pub(crate) title: String,
}

/// The number of bars.
const BARS: usize = 48;
const STEP: usize = 5;
/// The height of the highest bar.
const HIGH: u64 = 32;
/// A start that is later than this is drawn as one that needs a look.
const LATE: Duration = Duration::from_secs(60);

/// The plots of these runs, the first of which began within the last day.
pub(crate) fn plots(entries: &[HistoryEntry], overview: &Overview, context: &Context) -> [Plot; 3] {
    let runs: Vec<Started> = entries.iter().filter_map(|run| Started::new(run, context)).collect();
    [throughput(&runs, context), late(&runs, context), active(&runs, overview, context)]
}

/// A run of the last day.
struct Started<'a> {
    entry: &'a HistoryEntry,
    at: Time,
    /// The half hour in which it began.
    bar: usize,
}

impl<'a> Started<'a> {
    fn new(entry: &'a HistoryEntry, context: &Context) -> Option<Self> {
        let at = entry.started_at.filter(|at| (begin(context.now)..=context.now).contains(at))?;
        let bar = (at - begin(context.now)).num_seconds() / half_hour().num_seconds();
        Some(Self { entry, at, bar: usize::try_from(bar).ok()?.min(BARS - 1) })
    }
}

fn half_hour() -> TimeDelta {
    SPAN / 48
}

/// The beginning of a bar, as its title has it.
fn at(bar: usize, context: &Context) -> String {
    let bars = i32::try_from(bar).unwrap_or(0);
    context.zone.minute(begin(context.now) + half_hour() * bars)
}

fn throughput(runs: &[Started<'_>], context: &Context) -> Plot {
    let mut counts = [(0_u64, 0_u64); BARS];
    for run in runs {
        match run.entry.outcome.is_failure() {
            true => counts[run.bar].1 += 1,
            false => counts[run.bar].0 += 1,
        }
    }
    let hour = runs.iter().filter(|run| run.at > context.now - TimeDelta::hours(1)).count();
    let failed: u64 = counts.iter().map(|(_, bad)| bad).sum();
    let most = counts.iter().map(|(good, bad)| good + bad).max().unwrap_or(0);
    let mut bars = Vec::new();
    for (i, (good, bad)) in counts.into_iter().enumerate() {
        let title = format!("from {}: {} runs, {bad} failed", at(i, context), good + bad);
        let mut y = HIGH;
        for (number, fill) in [(good, "f-ok"), (bad, "f-bad")] {
            let height = height(number, most);
            y = y.saturating_sub(height);
            bars.push(Bar { x: i * STEP, y, height, fill, title: title.clone() });
        }
    }
    Plot {
        title: "Runs",
        number: grouped(hour),
        rest: format!("in the last hour, {} in a day", grouped(runs.len())),
        bad: if failed == 0 { String::new() } else { format!("{failed} failed") },
        bars: drawn(bars),
    }
}

fn late(runs: &[Started<'_>], context: &Context) -> Plot {
    let late = |run: &Started<'_>| lateness(run.entry).map(|late| (run.bar, late));
    let late: Vec<(usize, Duration)> = runs.iter().filter_map(late).collect();
    let mut all: Vec<Duration> = late.iter().map(|(_, late)| *late).collect();
    all.sort_unstable();
    let most_are_within = all.get((all.len() * 99).div_ceil(100).saturating_sub(1)).copied();
    let worst = all.last().copied().unwrap_or_default();
    let mut longest = [Duration::ZERO; BARS];
    for (bar, late) in late {
        longest[bar] = longest[bar].max(late);
    }
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    let bars = longest.into_iter().enumerate().map(|(i, late)| {
        let height = height(millis(late), millis(worst));
        let fill = if late > LATE { "f-warn" } else { "f-next" };
        let title = format!("from {}: {} late at most", at(i, context), took(late));
        Bar { x: i * STEP, y: HIGH - height, height, fill, title }
    });
    Plot {
        title: "Late starts",
        number: most_are_within.map_or_else(|| "–".to_owned(), took),
        rest: format!("at most, for 99 of 100; the worst {}", span_or_took(worst)),
        bad: String::new(),
        bars: drawn(bars.collect()),
    }
}

/// A minute and more needs no tenths.
fn span_or_took(late: Duration) -> String {
    if late < LATE { took(late) } else { span(late) }
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
        let height = height(*number, most);
        let title = format!("at {}: {number} active", at(i + 1, context));
        Bar { x: i * STEP, y: HIGH - height, height, fill: "f-run", title }
    });
    Plot {
        title: "Nodes",
        number: format!("{}/{}", started.len(), grouped(limit)),
        rest: format!("runs on {}", counted(live.len(), "live node")),
        bad: if gone == 0 { String::new() } else { format!("{gone} gone") },
        bars: drawn(bars.collect()),
    }
}

/// The height of a bar: at least 2 of something, 0 of nothing.
fn height(number: u64, most: u64) -> u64 {
    match number {
        0 => 0,
        number => (number.saturating_mul(HIGH) / most.max(1)).max(2),
    }
}

fn drawn(bars: Vec<Bar>) -> Vec<Bar> {
    bars.into_iter().filter(|bar| bar.height > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::Outcome;

    fn run(minutes_ago: i64, late: i64, outcome: Outcome) -> HistoryEntry {
        let started = Context::of_test().now - TimeDelta::minutes(minutes_ago);
        let mut run = HistoryEntry::new("job", minutes_ago, started.into(), outcome);
        run.due_at = Some(started - TimeDelta::seconds(late));
        (run.started_at, run.ended_at) = (Some(started), Some(started + TimeDelta::minutes(45)));
        run
    }

    #[test]
    fn numbers_come_first_and_bars_are_in_their_half_hours() {
        let entries = [
            run(10, 1, Outcome::Succeeded),
            run(15, 90, Outcome::Failed("refused".into())),
            run(600, 2, Outcome::Succeeded),
        ];
        let context = Context::of_test();
        let overview = Overview::of_test(Vec::new(), context.now);
        let [runs, late, nodes] = plots(&entries, &overview, &context);
        assert_eq!((&*runs.number, &*runs.bad), ("2", "1 failed"));
        assert_eq!(runs.rest, "in the last hour, 3 in a day");
        let drawn: Vec<_> = runs.bars.iter().map(|bar| (bar.x, bar.y, bar.fill)).collect();
        assert_eq!(drawn, [(28 * 5, 16, "f-ok"), (47 * 5, 16, "f-ok"), (47 * 5, 0, "f-bad")]);
        assert_eq!(late.rest, "at most, for 99 of 100; the worst 1 min 30 s");
        assert_eq!(late.bars.last().unwrap().fill, "f-warn");
        assert_eq!(nodes.number, "0/0");
        // One run of 45 minutes is active at the ends of one or two half hours.
        assert_eq!(nodes.bars.last().unwrap().title, "at 03:12: 2 active");
    }

    #[test]
    fn without_a_run_there_are_no_bars() {
        let context = Context::of_test();
        let overview = Overview::of_test(Vec::new(), at("2026-10-26T02:00:00Z"));
        let all = plots(&[], &overview, &context);
        assert!(all.iter().all(|plot| plot.bars.is_empty()), "{all:?}");
        assert_eq!(all[1].number, "–");
    }
}
