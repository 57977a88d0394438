//! The last and the next 24 hours of some jobs, and the starts of all of them, on one scale.

use super::{
    Linked, counted,
    hours::{Usual, median},
    short,
};
use crate::{context::Context, look::look, overview::Overview, times::took, words::OVERDUE};
use allora_core::{HistoryEntry, Schedule as _, Time, backend::JobState, stored::Definition};
use chrono::TimeDelta;
use std::{collections::HashSet, fmt::Write, time::Duration};

/// The plot, ready to be drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Timeline {
    pub(crate) height: i64,
    /// The lower end of the vertical lines.
    pub(crate) floor: i64,
    pub(crate) hours: Vec<Mark>,
    pub(crate) now: i64,
    /// Changes of the clocks.
    pub(crate) changes: Vec<Mark>,
    /// The starts of all jobs, by quarters of an hour.
    pub(crate) starts: Vec<Block>,
    /// The occurrences of all jobs to come, likewise, as the outline of a path.
    pub(crate) ahead: String,
    pub(crate) lanes: Vec<Lane>,
    /// The part of the past that the history read does not cover, in words; empty if it covers all.
    pub(crate) gap: String,
}

/// A vertical line with its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) x: i64,
    pub(crate) text: String,
}

/// The row of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) job: Linked,
    pub(crate) y: i64,
    /// The runs.
    pub(crate) blocks: Vec<Block>,
    /// The occurrences to come, as the outline of a path.
    pub(crate) coming: String,
    /// The lane in words.
    pub(crate) summary: String,
}

/// A run, or the starts of a quarter of an hour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) x: i64,
    pub(crate) y: i64,
    pub(crate) width: i64,
    pub(crate) height: i64,
    pub(crate) fill: &'static str,
    pub(crate) title: String,
    /// Empty for one that leads nowhere.
    pub(crate) link: String,
}

/// The width of the whole plot, and of the names at its left.
pub(crate) const WIDTH: i64 = 1232;
const LEFT: i64 = 190;
/// The upper end of the lanes, and the height of one.
const TOP: i64 = 66;
const LANE: i64 = 25;
/// The height of the row of all starts.
const STARTS: i64 = 32;

/// The time that is shown on each side of now.
pub(crate) const SPAN: TimeDelta = TimeDelta::hours(24);
const QUARTER: TimeDelta = TimeDelta::minutes(15);

/// The most jobs that have a lane.
pub(crate) const LANES: usize = 12;
/// The most future occurrences of one job that are worked out: one each minute. More often ones go on
/// at the same pace.
const COMING: usize = 1_440;
/// The most future occurrences of all jobs together that are worked out.
const MOST_AHEAD: usize = 20_000;
/// The height of a bar in a lane.
const BAR: i64 = 13;

/// The beginning of the part of the past that is shown.
pub(crate) fn begin(now: Time) -> Time {
    now - SPAN
}

/// The plot of these entries, the newest first, with a lane for each of these jobs of all, which usually
/// take that long. `is_whole`: the entries reach back to its beginning.
pub(crate) fn timeline(
    entries: &[HistoryEntry],
    is_whole: bool,
    overview: &Overview,
    (jobs, usual): (&[&JobState], &Usual),
    context: &Context,
) -> Timeline {
    let now = context.now;
    let lanes: Vec<Lane> = jobs
        .iter()
        .take(LANES)
        .enumerate()
        .map(|(i, job)| {
            let usual = usual.get(&job.name).and_then(median);
            lane(job, TOP + LANE * place(i), entries, usual, context)
        })
        .collect();
    let floor = TOP + LANE * place(lanes.len());
    let oldest = entries.last().map(|entry| entry.occurrence.scheduled_at);
    let gap = match oldest.filter(|_| !is_whole) {
        Some(oldest) => format!("The plot has no runs before {}.", context.moment(oldest).text),
        None => String::new(),
    };
    Timeline {
        height: floor + 18,
        floor,
        hours: hours(context),
        now: x(now, now),
        changes: changes(context),
        starts: starts(entries, now),
        ahead: ahead(overview.each(), now),
        lanes,
        gap,
    }
}

/// The place of a time on the scale, at its edges if it is outside.
fn x(at: Time, now: Time) -> i64 {
    let all = SPAN.num_seconds() * 2;
    let seconds = (at - begin(now)).num_seconds().clamp(0, all);
    LEFT + seconds * (WIDTH - LEFT) / all
}

fn place(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// A line every three hours of the zone.
fn hours(context: &Context) -> Vec<Mark> {
    let (from, until) = (begin(context.now), context.now + SPAN);
    let quarters = std::iter::successors(first_quarter(from), |at| Some(*at + QUARTER));
    let mut hours = Vec::new();
    for at in quarters.take_while(|at| *at <= until) {
        let text = context.zone.minute(at);
        let hour = text.strip_suffix(":00").and_then(|hour| hour.parse::<u32>().ok());
        // One at the edge would be cut.
        let is_inside = x(at, context.now) < WIDTH - 16;
        if hour.is_some_and(|hour| hour % 3 == 0) && is_inside {
            hours.push(Mark { x: x(at, context.now), text });
        }
    }
    hours
}

/// The first whole quarter of an hour from this time on.
fn first_quarter(from: Time) -> Option<Time> {
    let step = QUARTER.num_seconds();
    let past = from.timestamp().rem_euclid(step);
    Time::from_timestamp(from.timestamp() + (step - past) % step, 0)
}

/// The changes of the zone's clocks within the plot.
fn changes(context: &Context) -> Vec<Mark> {
    let (from, until) = (begin(context.now), context.now + SPAN);
    let quarters = std::iter::successors(first_quarter(from), |at| Some(*at + QUARTER));
    let mut changes = Vec::new();
    for at in quarters.take_while(|at| *at <= until) {
        let by = context.zone.lead(at) - context.zone.lead(at - QUARTER);
        if by != 0 {
            let way = if by < 0 { "back" } else { "forward" };
            let text = format!("clocks {way} {} min, {}", by.abs() / 60, context.zone.name());
            changes.push(Mark { x: x(at, context.now), text });
        }
    }
    changes
}

/// The runs that began in each quarter of an hour, those that failed on top.
fn starts(entries: &[HistoryEntry], now: Time) -> Vec<Block> {
    let mut counts = vec![(0_i64, 0_i64); 96];
    let begin = begin(now);
    for entry in entries {
        let Some(started_at) = entry.started_at.filter(|at| (begin..now).contains(at)) else {
            continue;
        };
        let quarter = (started_at - begin).num_seconds() / QUARTER.num_seconds();
        if let Some(count) = usize::try_from(quarter).ok().and_then(|i| counts.get_mut(i)) {
            match entry.outcome.is_failure() {
                true => count.1 += 1,
                false => count.0 += 1,
            }
        }
    }
    let most = counts.iter().map(|(good, bad)| good + bad).max().unwrap_or(0).max(1);
    let mut blocks = Vec::new();
    for (i, (good, bad)) in counts.iter().enumerate() {
        let at = begin + QUARTER * i32::try_from(i).unwrap_or(0);
        let title = format!("{} runs, {bad} failed", good + bad);
        let mut y = TOP - 4;
        for (number, fill) in [(good, "f-ok"), (bad, "f-bad")] {
            if *number > 0 {
                let height = (number * (STARTS - 4) / most).max(3);
                y -= height;
                let (x, title, link) = (x(at, now), title.clone(), String::new());
                blocks.push(Block { x, y, width: 4, height, fill, title, link });
            }
        }
    }
    blocks
}

/// The occurrences to come of all jobs, by quarters of an hour: the outline of their bars. Empty where
/// there are too many jobs to look ahead for each of them on every page.
fn ahead<'a>(jobs: impl Iterator<Item = &'a JobState>, now: Time) -> String {
    let mut counts = vec![0_i64; 97];
    let (mut seen, mut total) = (HashSet::new(), 0);
    for job in jobs.filter(|job| seen.insert(&*job.name)) {
        let coming = coming(job, now);
        total += 1 + coming.len().min(COMING);
        if total > MOST_AHEAD {
            return String::new();
        }
        for at in coming {
            let quarter = (at - now).num_seconds() / QUARTER.num_seconds();
            if let Some(count) = usize::try_from(quarter).ok().and_then(|i| counts.get_mut(i)) {
                *count += 1;
            }
        }
    }
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let bars = (0..).zip(counts).filter(|(_, number)| *number > 0).map(|(i, number)| {
        let height = (number * (STARTS - 4) / most).max(3);
        (x(now + QUARTER * i, now) + 1, TOP - 4 - height, 4, height)
    });
    outline(bars)
}

/// Rectangles as one path: many of them need little room on the page.
fn outline(bars: impl Iterator<Item = (i64, i64, i64, i64)>) -> String {
    let mut path = String::new();
    for (x, y, width, height) in bars {
        _ = write!(path, "M{x} {y}h{width}v{height}h-{width}z");
    }
    path
}

/// The row of a job.
fn lane(
    job: &JobState,
    y: i64,
    entries: &[HistoryEntry],
    usual: Option<Duration>,
    context: &Context,
) -> Lane {
    let now = context.now;
    let own = entries.iter().filter(|entry| entry.name == job.name);
    let active: Vec<HistoryEntry> = job.active_runs().collect();
    let is_shown = |entry: &&HistoryEntry| {
        let (from, until) = times(entry, now);
        let is_attempt = !entry.is_final() && entry.ended_at.is_some() && entry.attempt > 0;
        until >= begin(now) && from <= now && !is_attempt
    };
    let past: Vec<&HistoryEntry> = own.chain(&active).filter(is_shown).collect();
    let failed = past.iter().filter(|entry| entry.outcome.is_failure()).count();
    let mut blocks: Vec<Block> = past.iter().map(|entry| block(entry, y, context)).collect();
    blocks.extend(overdue(job, y, context));
    blocks.sort_by_key(|block| block.x);
    let coming = coming(job, now);
    let bars = coming.iter().map(|at| (x(*at, now), future_width(usual, *at, now)));
    let bars = joined(bars).into_iter().map(|(x, width)| (x, y, width, BAR));
    let next = coming.first().map(|at| context.moment(*at));
    let next = next.map(|at| format!("; {} to come, the next {}", coming.len(), at.text));
    let summary = format!("{}, {failed} failed{}", runs(past.len()), next.unwrap_or_default());
    Lane {
        job: Linked { text: short(&job.name, 26), link: context.job(&job.name) },
        y,
        coming: outline(bars),
        blocks: merged(blocks, &context.job(&job.name)),
        summary,
    }
}

/// The beginning and the end of an entry, which is its scheduled time if it did not run.
fn times(entry: &HistoryEntry, now: Time) -> (Time, Time) {
    let from = entry.started_at.unwrap_or(entry.occurrence.scheduled_at);
    let last = entry.last.filter(|_| entry.attempt == 0);
    (from, last.or(entry.ended_at).unwrap_or(now))
}

fn block(entry: &HistoryEntry, y: i64, context: &Context) -> Block {
    let now = context.now;
    let (from, until) = times(entry, now);
    let at = context.moment(entry.occurrence.scheduled_at);
    let word = entry.outcome.word();
    let length = entry.duration().map(|span| format!(", took {}", took(span)));
    Block {
        x: x(from, now),
        y,
        width: (x(until, now) - x(from, now)).max(4),
        height: BAR,
        fill: look(word).fill,
        title: format!("{}, {}: {word}{}", entry.name, at.text, length.unwrap_or_default()),
        link: context.run(&entry.name, entry.fence),
    }
}

/// The time for which a job is due already and nobody has claimed it.
fn overdue(job: &JobState, y: i64, context: &Context) -> Option<Block> {
    let now = context.now;
    let is_free = job.leases.is_empty() && job.paused.is_none();
    let due_at = job.due_at.filter(|due_at| is_free && *due_at + OVERDUE <= now)?;
    let due = context.moment(due_at);
    Some(Block {
        x: x(due_at, now),
        y,
        width: (x(now, now) - x(due_at, now)).max(4),
        height: BAR,
        fill: "f-miss",
        title: format!("{}, due since {}, {}", job.name, due.text, due.distance),
        link: context.job(&job.name),
    })
}

/// The bars with those that touch and look the same made one: nobody could tell them apart.
fn merged(bars: Vec<Block>, job: &str) -> Vec<Block> {
    let near = if bars.len() > 60 { 2 } else { 0 };
    let mut merged: Vec<(Block, usize)> = Vec::new();
    for bar in bars {
        match merged.last_mut() {
            Some((last, number))
                if last.fill == bar.fill && bar.x <= last.x + last.width + near =>
            {
                last.width = last.width.max(bar.x + bar.width - last.x);
                *number += 1;
            }
            _ => merged.push((bar, 1)),
        }
    }
    let told = |(mut bar, number): (Block, usize)| {
        if number > 1 {
            bar.title = format!("{}, the first: {}", runs(number), bar.title);
            job.clone_into(&mut bar.link);
        }
        bar
    };
    merged.into_iter().map(told).collect()
}

fn runs(number: usize) -> String {
    counted(number, "run")
}

/// Places and widths, in their order, with those that touch made one.
fn joined(bars: impl Iterator<Item = (i64, i64)>) -> Vec<(i64, i64)> {
    let mut joined: Vec<(i64, i64)> = Vec::new();
    for (x, width) in bars {
        match joined.last_mut() {
            Some((from, wide)) if x <= *from + *wide => *wide = (*wide).max(x + width - *from),
            _ => joined.push((x, width)),
        }
    }
    joined
}

/// The width of a run to come, which is expected to take its usual time.
fn future_width(usual: Option<Duration>, at: Time, now: Time) -> i64 {
    let span = usual.and_then(|usual| TimeDelta::from_std(usual).ok()).unwrap_or_default();
    (x(at + span, now) - x(at, now)).max(4)
}

/// The times at which a job is due in the next day, from the next one in its record on: a period has its
/// own phase.
fn coming(job: &JobState, now: Time) -> Vec<Time> {
    let Some(next) = job.next else { return Vec::new() };
    let mut coming = vec![next.due_at];
    if let Ok(definition) = Definition::parse(&job.name, &job.definition) {
        let mut settings = definition.settings().clone();
        let until = now + SPAN;
        settings.end = Some(settings.end.map_or(until, |end| end.min(until)));
        // An overdue job may have been so for a year: what passed is not to come.
        let passed = definition.schedule().latest_at(next.scheduled_at, now);
        let after = passed.unwrap_or(next.scheduled_at);
        let further = settings.explain(&job.name, definition.schedule(), after, COMING);
        coming.extend(further.into_iter().map(|explained| explained.due));
        if let [first, .., last] = coming[..]
            && coming.len() > COMING
        {
            let step = (last - first) / i32::try_from(COMING).unwrap_or(i32::MAX);
            // Shorter periods are drawn as one occurrence a second.
            let step = step.max(TimeDelta::seconds(1));
            let later = std::iter::successors(Some(last + step), |at| Some(*at + step));
            coming.extend(later.take_while(|at| *at < until));
        }
    }
    let is_held = |at: Time| job.paused.as_ref().is_some_and(|pause| pause.lasts(at));
    coming.retain(|at| (now..now + SPAN).contains(at) && !is_held(*at));
    coming
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::{Outcome, stored::Spread};

    fn run(started: &str, ended: &str, outcome: Outcome) -> HistoryEntry {
        let mut run = HistoryEntry::new("nightly", 7, at(started).into(), outcome);
        (run.started_at, run.ended_at) = (Some(at(started)), Some(at(ended)));
        run
    }

    #[test]
    fn runs_are_left_of_now_and_occurrences_to_come_right_of_it() {
        let context = Context::of_test();
        let mut job = JobState::empty("nightly");
        job.definition = "0 */6 * * *".into();
        job.next = Some(at("2026-10-26T06:00:00Z").into());
        let entries = [run("2026-10-25T17:12:07Z", "2026-10-25T20:12:07Z", Outcome::Succeeded)];
        let overview = Overview::of_test(vec![job.clone()], context.now);
        let mut took = Spread::default();
        took.add(Duration::from_secs(3 * 3_600));
        let usual = Usual::from([("nightly".to_owned(), took)]);
        let timeline = timeline(&entries, true, &overview, (&[&job], &usual), &context);
        let [lane] = &timeline.lanes[..] else { panic!("{timeline:?}") };
        let [block] = &lane.blocks[..] else { panic!("{lane:?}") };
        assert_eq!((block.x, block.width), (515, 1042 / 16));
        assert_eq!((block.fill, &*block.link), ("f-ok", "run?name=nightly&fence=7"));
        // The usual run takes three hours.
        assert!(lane.coming.starts_with("M793 66h6"), "{}", lane.coming);
        for path in [&lane.coming, &timeline.ahead] {
            assert_eq!(path.matches('M').count(), 4, "{path}");
        }
        let next = "1 run, 0 failed; 4 to come, the next Mon 26 Oct 07:00 CET";
        assert_eq!(lane.summary, next);
    }

    #[test]
    fn a_job_that_runs_often_is_one_bar_to_the_end_of_the_plot() {
        let context = Context::of_test();
        let mut job = JobState::empty("poll");
        job.definition = "@every 7s".into();
        job.next = Some((context.now + TimeDelta::seconds(3)).into());
        let coming = coming(&job, context.now);
        assert_eq!(coming.len(), (86_400_usize - 3).div_ceil(7));
        let lane = lane(&job, 66, &[], None, &context);
        assert_eq!(lane.coming.matches('M').count(), 1, "{}", lane.coming);
        let ahead = ahead([&job].into_iter(), context.now);
        assert_eq!(ahead.matches('M').count(), 96, "{ahead}");
    }

    #[test]
    fn runs_that_touch_are_one_bar_as_long_as_they_ended_alike() {
        let bar = |x: i64, fill: &'static str| {
            let (title, link) = (format!("at {x}"), String::new());
            Block { x, y: 0, width: 4, height: BAR, fill, title, link }
        };
        let bars = [bar(0, "f-ok"), bar(3, "f-ok"), bar(6, "f-bad"), bar(20, "f-bad")];
        let drawn = merged(bars.to_vec(), "job");
        let drawn: Vec<_> = drawn.iter().map(|bar| (bar.x, bar.width, &*bar.title)).collect();
        assert_eq!(drawn, [(0, 7, "2 runs, the first: at 0"), (6, 4, "at 6"), (20, 4, "at 20")]);
    }

    #[test]
    fn a_change_of_the_clocks_is_marked_in_the_zone_of_the_page() {
        let night = Context { now: at("2026-10-25T06:00:00Z"), ..Context::of_test() };
        let nothing = (&[][..], &Usual::new());
        let timeline = timeline(&[], true, &Overview::default(), nothing, &night);
        let [change] = &timeline.changes[..] else { panic!("{timeline:?}") };
        assert_eq!(change.text, "clocks back 60 min, Europe/Rome");
        assert!(change.x < timeline.now);
        assert!(timeline.hours.iter().all(|hour| hour.text.ends_with(":00")));
    }

    /// The days on which clocks change, each with a time of it, the beginning of the new time, its text, and the
    /// minutes that the day has.
    const DAYS: [(&str, &str, &str, i64); 4] = [
        ("2026-03-29T10:00:00Z", "2026-03-29T01:00:00Z", "forward 60 min, Europe/Rome", 23 * 60),
        ("2026-10-25T11:00:00Z", "2026-10-25T01:00:00Z", "back 60 min, Europe/Rome", 25 * 60),
        (
            "2026-10-04T01:00:00Z",
            "2026-10-03T15:30:00Z",
            "forward 30 min, Australia/Lord_Howe",
            1_410,
        ),
        ("2026-04-05T01:00:00Z", "2026-04-04T15:00:00Z", "back 30 min, Australia/Lord_Howe", 1_470),
    ];

    #[test]
    fn a_day_on_which_the_clocks_change_is_as_wide_as_it_is_long() {
        for (now, begins, text, minutes) in DAYS {
            let (_, zone) = text.rsplit_once(' ').unwrap();
            let zone = crate::times::Zone::named(zone).unwrap();
            let context = Context { now: at(now), zone, ..Context::of_test() };
            let timeline =
                timeline(&[], true, &Overview::default(), (&[], &Usual::new()), &context);
            let [change] = &timeline.changes[..] else { panic!("{text}: {timeline:?}") };
            assert_eq!(change.text, format!("clocks {text}"));
            assert_eq!(change.x, x(at(begins), at(now)), "{text}");
            let midnights = timeline.hours.iter().filter(|hour| hour.text == "00:00");
            let [begin, end] = midnights.map(|hour| hour.x).collect::<Vec<_>>()[..] else {
                panic!("{text}: {timeline:?}")
            };
            let width = minutes * (WIDTH - LEFT) / (2 * 24 * 60);
            assert!((end - begin - width).abs() <= 1, "{text}: {} for {width}", end - begin);
            assert!((begin..end).contains(&change.x), "{text}");
        }
    }

    #[test]
    fn failures_are_on_top_of_the_starts_of_their_quarter() {
        let entries = [
            run("2026-10-26T02:00:00Z", "2026-10-26T02:00:01Z", Outcome::Succeeded),
            run("2026-10-26T02:00:00Z", "2026-10-26T02:00:01Z", Outcome::Failed("refused".into())),
        ];
        let blocks = starts(&entries, Context::of_test().now);
        let [good, bad] = &blocks[..] else { panic!("{blocks:?}") };
        assert_eq!((good.fill, bad.fill, good.x), ("f-ok", "f-bad", bad.x));
        assert_eq!(bad.y + bad.height, good.y);
        assert_eq!(good.title, "2 runs, 1 failed");
    }

    #[test]
    fn a_plot_that_lacks_its_beginning_says_so() {
        let entries = [run("2026-10-26T01:00:00Z", "2026-10-26T01:00:01Z", Outcome::Succeeded)];
        let nothing = (&[][..], &Usual::new());
        let context = Context::of_test();
        let timeline = timeline(&entries, false, &Overview::default(), nothing, &context);
        assert_eq!(timeline.gap, "The plot has no runs before Mon 26 Oct 02:00 CET.");
    }
}
