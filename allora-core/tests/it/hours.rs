//! The hours of a job: each entry is counted once, whatever interrupts the node that prunes.

use crate::{
    history::{apply, at, entries, prune, run, run_job},
    support::{self, Lab, ms, secs},
};
use allora_core::{
    Backend, Error, ErrorKind, HistoryEntry, HistoryQuery, Result, Schedules,
    backend::{
        Action, Claim, Completion, Cursor, DueQuery, Edit, HistoryTrim, Page, Queries, Sharing,
        TimeSource,
    },
    every,
    record::Record,
    runtime::Sim,
    store::{Commit, HistoryPruning, HistoryStore, Load, Outcome, RecordStore, Snapshot},
    stored::{Hour, Spread},
    time::from_millis,
};
use allora_memory::Memory;
use async_trait::async_trait;
use chrono::TimeDelta;
use futures::{FutureExt, executor::block_on};
use std::{
    fmt,
    future::Future,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Waker},
    time::Duration,
};

const DAY: i64 = 24 * 3_600;

/// The hours of the last 30 days, as they are read at this second.
fn hours(store: &Memory, name: &str, now: i64) -> Vec<Hour> {
    let sim = Sim::new(1);
    let store = store.clone().with_clock(move || at(now));
    let schedules = Schedules::on(store, sim.node()).unwrap();
    let until = at(now) + TimeDelta::hours(1);
    sim.block_on(schedules.hours(name, at(now - 31 * DAY), until)).unwrap()
}

/// All hours as one.
fn total(store: &Memory, name: &str, now: i64) -> Hour {
    let mut all = Hour::new(at(0));
    hours(store, name, now).iter().for_each(|hour| all.merge(hour));
    all
}

fn records(store: &Memory) -> Vec<String> {
    let page = Page::first(1_000).prefix("allora:hours:");
    block_on(Queries::list(store, page)).unwrap().into_iter().map(|state| state.name).collect()
}

#[test]
fn a_job_that_runs_each_second_has_every_hour_although_few_entries_are_kept() {
    let kept = Memory::new().with_history(100_000);
    let store = Memory::new().with_history(20);
    for second in (0..7_200).step_by(10) {
        run(&kept, second..second + 10);
        run(&store, second..second + 10);
        prune(&store, second + 10);
    }
    assert!(entries(&store) <= 20 && records(&store).len() == 1);
    let found = hours(&store, "job", 7_200);
    let starts: Vec<_> = found.iter().map(|hour| (hour.from, hour.started)).collect();
    assert_eq!(starts, [(at(0), 3_600), (at(3_600), 3_600)]);
    assert!(records(&kept).is_empty());
    assert_eq!(hours(&kept, "job", 7_200), found, "as from a history that has all entries");
}

#[test]
fn the_range_is_of_the_hours_that_begin_in_it() {
    let store = Memory::new().with_history(20);
    run(&store, 3_500..7_300);
    prune(&store, 7_300);
    let sim = Sim::new(1);
    let now = at(7_300);
    let schedules = Schedules::on(store.with_clock(move || now), sim.node()).unwrap();
    let between = |from, until| {
        let hours = sim.block_on(schedules.hours("job", at(from), at(until))).unwrap();
        hours.into_iter().map(|hour| (hour.from, hour.started)).collect::<Vec<_>>()
    };
    assert_eq!(between(3_600, 7_200), [(at(3_600), 3_600)]);
    assert_eq!(between(7_199, 7_201), [(at(3_600), 3_600), (at(7_200), 100)]);
    assert_eq!(between(0, 3_600), [(at(0), 100)]);
    assert_eq!(between(7_200, 7_200), []);
    let bare = Schedules::on(Memory::new(), sim.node()).unwrap();
    let unsupported = sim.block_on(bare.hours("job", at(0), at(1))).unwrap_err();
    assert_eq!(unsupported.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_job_over_midnight_has_both_days() {
    let store = Memory::new().with_history(20);
    run(&store, DAY - 100..DAY + 100);
    prune(&store, DAY + 100);
    run(&store, DAY + 100..DAY + 150);
    prune(&store, DAY + 150);
    assert_eq!(records(&store).len(), 2);
    let starts = hours(&store, "job", DAY + 150).into_iter().map(|hour| (hour.from, hour.started));
    assert_eq!(starts.collect::<Vec<_>>(), [(at(DAY - 3_600), 100), (at(DAY), 150)]);
}

#[test]
fn two_nodes_that_prune_one_job_count_each_entry_once() {
    let one = Memory::new().with_history(20);
    let nodes = [one.clone().with_history(20), one.clone().with_history(50)];
    for second in 0..1_000 {
        let node = &nodes[second as usize % 2];
        run(node, second..second + 1);
        if second % 7 == 0 {
            nodes.iter().for_each(|node| prune(node, second + 1));
        }
    }
    assert_eq!(total(&one, "job", 1_000).succeeded, 1_000);
}

/// A store that yields at every request, and that something can happen to.
struct Shaky {
    store: Memory,
    is_slow: bool,
    /// Called once, before entries are read, and before counts are written.
    before_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    before_commit: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// No entry is removed.
    stops_removing: AtomicBool,
    /// The number of records and of entries that were read, and of requests for each.
    read: [AtomicUsize; 4],
}

impl fmt::Debug for Shaky {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shaky")
    }
}

impl Shaky {
    fn around(store: &Memory) -> Self {
        let (before_read, before_commit) = (Mutex::new(None), Mutex::new(None));
        let (stops_removing, read) = (AtomicBool::new(false), Default::default());
        let (store, is_slow) = (store.clone(), true);
        Self { store, is_slow, before_read, before_commit, stops_removing, read }
    }

    async fn answer_later(&self) {
        if self.is_slow {
            futures::pending!();
        }
    }

    /// Prunes for so many polls, and returns whether it has ended.
    fn prune(&self, seconds: i64, polls: usize) -> bool {
        let mut call = pin!(Backend::prune(self, TimeSource::Fixed(at(seconds))));
        let mut cx = Context::from_waker(Waker::noop());
        (0..polls).any(|_| call.as_mut().poll(&mut cx).is_ready())
    }
}

#[async_trait]
impl HistoryStore for Shaky {
    fn pruning(&self) -> &HistoryPruning {
        self.store.pruning()
    }

    async fn history_entries(&self, query: HistoryQuery<'_>) -> Result<Vec<HistoryEntry>> {
        self.answer_later().await;
        if let Some(call) = self.before_read.lock().unwrap().take() {
            call();
        }
        let entries = self.store.history_entries(query).await?;
        self.read[1].fetch_add(entries.len(), Relaxed);
        self.read[3].fetch_add(1, Relaxed);
        Ok(entries)
    }

    async fn trim_history(&self, name: &str, kept: HistoryTrim) -> Result {
        self.answer_later().await;
        match self.stops_removing.load(Relaxed) {
            true => Err(Error::new(ErrorKind::Unavailable, "it does not answer in time")),
            false => self.store.trim_history(name, kept).await,
        }
    }
}

#[async_trait]
impl RecordStore for Shaky {
    type Version = <Memory as RecordStore>::Version;

    async fn load(&self, load: Load<'_>) -> Result<Snapshot<Self::Version>> {
        self.answer_later().await;
        self.read[2].fetch_add(usize::from(!load.names.is_empty()), Relaxed);
        self.read[0].fetch_add(load.names.len(), Relaxed);
        self.store.load(load).await
    }

    async fn commit(
        &self,
        commit: Commit<'_, Self::Version>,
    ) -> Result<Vec<Result<Outcome<Self::Version>>>> {
        self.answer_later().await;
        if let Some(call) = self.before_commit.lock().unwrap().take() {
            call();
        }
        self.store.commit(commit).await
    }

    async fn scan(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<(String, std::result::Result<Record, String>)>> {
        self.store.scan(prefix, after, limit).await
    }

    fn history_store(&self) -> Option<&dyn HistoryStore> {
        Some(self)
    }
}

#[test]
fn the_count_that_another_node_was_ahead_of_is_made_again() {
    for is_first in [true, false] {
        let store = Memory::new().with_history(20);
        let other = store.clone().with_history(20);
        if !is_first {
            run(&store, 0..100);
            prune(&store, 100);
        }
        run(&store, 100..200);
        run(&other, 200..250);
        let slow = Shaky::around(&store);
        let ahead = Box::new(move || {
            run(&other, 250..300);
            let pruned = Backend::prune(&other, TimeSource::Fixed(at(300))).now_or_never();
            pruned.expect("memory answers at once").unwrap();
            // More than are kept, and nobody has counted them.
            run(&other, 300..350);
        });
        *slow.before_commit.lock().unwrap() = Some(ahead);
        assert!(slow.prune(350, 1_000));
        let first = if is_first { 100 } else { 0 };
        assert_eq!(total(&store, "job", 350).started, 350 - first);
        assert_eq!(entries(&store), 20);
    }
}

#[test]
fn a_node_that_stops_between_count_and_removal_has_counted_once() {
    let store = Memory::new().with_history(20);
    run(&store, 0..100);
    let stops = Shaky::around(&store);
    stops.stops_removing.store(true, Relaxed);
    for call in 0..3 {
        assert!(stops.prune(100, 1_000));
        assert_eq!((entries(&store), total(&store, "job", 100).started), (100, 100), "{call}");
    }
    let other = store.clone().with_history(20);
    run(&other, 100..110);
    prune(&other, 110);
    assert_eq!((entries(&store), total(&store, "job", 110).started), (20, 110));
}

#[test]
fn a_call_that_is_dropped_anywhere_has_counted_once() {
    for polls in 1..40 {
        let store = Memory::new().with_history(20);
        run_job(&store, "other", 0..40);
        // Over midnight: two records.
        run(&store, DAY - 50..DAY + 50);
        let slow = Shaky::around(&store);
        let has_ended = slow.prune(DAY + 50, polls);
        for _ in 0..2 {
            let all = ["job", "other"].map(|name| total(&store, name, DAY + 50).started);
            assert_eq!(all, [100, 40], "after {polls} polls");
            prune(&store, DAY + 50);
        }
        assert_eq!(entries(&store), 40);
        if has_ended {
            return;
        }
    }
    panic!("it has not ended");
}

#[test]
fn a_count_reads_only_what_is_new() {
    let store = Memory::new().with_history(100);
    run(&store, 0..500);
    prune(&store, 500);
    let busy = Shaky::around(&store);
    for second in (500..600).step_by(10) {
        run(&store, second..second + 10);
        assert!(busy.prune(second + 10, 1_000));
    }
    // Each time the ten new entries and one that was counted, the job and the days around now.
    assert_eq!(busy.read.map(AtomicUsize::into_inner), [10 * 4, 10 * 11, 10, 10]);
    assert_eq!(total(&store, "job", 600).started, 600);
}

#[test]
fn jobs_that_run_rarely_are_counted_once_an_hour_although_nothing_is_removed() {
    let store = Memory::new().with_history(1_000);
    let names: Vec<String> = (0..25).map(|n| format!("job {n:02}")).collect();
    let run_all = |second| names.iter().for_each(|name| run_job(&store, name, second..second + 5));
    run_all(0);
    prune(&store, 10);
    assert!(records(&store).is_empty(), "the first pass is an hour later");
    for (call, counted) in [(1, 10), (2, 20), (3, 25), (4, 25)] {
        prune(&store, 3_600 + 10 * call);
        assert_eq!(records(&store).len(), counted, "a few at each call");
    }
    run_job(&store, "job 03", 4_000..4_005);
    let busy = Shaky::around(&store);
    for now in [4_100, 7_100, 7_300, 7_400] {
        assert!(busy.prune(now, 1_000));
        assert_eq!(total(&store, "job 03", now).started, 10);
    }
    let [_, read, loads, _] = busy.read.map(AtomicUsize::into_inner);
    assert_eq!((read, loads), (10, 1), "a second pass, of the job with new entries");
    assert_eq!(entries(&store), 25 * 5 + 5);
}

#[test]
fn the_hours_of_many_jobs_are_read_in_one_batch() {
    let store = Memory::new().with_history(20);
    let names: Vec<String> = (0..30).map(|n| format!("job {n:02}")).collect();
    for name in &names {
        run_job(&store, name, 0..60);
    }
    prune(&store, 60);
    run_job(&store, &names[7], 60..61);
    let names: Vec<&str> = names.iter().map(String::as_str).chain(["nobody"]).collect();
    let sim = Sim::new(1);
    let same = store.clone().with_clock(move || at(61));
    let read = Arc::new(Shaky { is_slow: false, ..Shaky::around(&same) });
    let schedules = Schedules::on(read.clone(), sim.node()).unwrap();
    let hours = sim.block_on(schedules.hours_of(&names, at(0), at(3_600))).unwrap();
    let starts = |hours: &Vec<Hour>| hours.iter().map(|hour| hour.started).sum::<u64>();
    let mut expected = [60; 31];
    (expected[7], expected[30]) = (61, 0);
    assert_eq!(hours.iter().map(starts).collect::<Vec<_>>(), expected);
    let requests = [2, 3].map(|i| read.read[i].load(Relaxed));
    // The records, and the entries of the job that has run since and of the one that is not there.
    assert_eq!(requests, [1, 2]);
    assert_eq!(read.read[1].load(Relaxed), 21);
}

/// Claims the occurrence of this second beside other runs.
fn start(store: &Memory, second: i64) -> i64 {
    let state = apply(store, ("job", second), Action::Read).state().unwrap();
    let (then, lease) = (Cursor::To(Some(at(second + 1).into())), Duration::from_secs(DAY as u64));
    let (id, head) = (1 + second as u128, state.head.unwrap());
    let claim = Claim::at_most_once(id, state.fence, head, then, lease, Sharing::Shared);
    apply(store, ("job", second), Action::Claim(claim)).claimed().unwrap().fence
}

fn end(store: &Memory, second: i64, fence: i64) {
    let end = Action::Complete { fence, then: Cursor::Keep, completion: Completion::Succeeded };
    assert!(apply(store, ("job", second), end).is_accepted());
}

#[test]
fn a_run_that_outlasts_a_thousand_others_is_counted_when_it_ends() {
    let store = Memory::new().with_history(20);
    let first = Some(at(0).into());
    apply(&store, ("job", 0), Action::Register { definition: "d", version: 0, first });
    let slow = start(&store, 0);
    let run = |seconds: std::ops::Range<i64>| {
        for second in seconds {
            let fence = start(&store, second);
            end(&store, second, fence);
            if second % 10 == 0 {
                prune(&store, second);
            }
        }
    };
    run(1..1_001);
    assert_eq!(total(&store, "job", 1_001).started, 1_000, "it is still active");
    end(&store, 1_001, slow);
    for (from, until) in [(1_001, 1_001), (1_001, 1_020), (1_020, 1_040)] {
        run(from..until);
        let all = total(&store, "job", until);
        assert_eq!(all.started, until as u64, "at {until}");
        let longest = all.duration.percentile(100).unwrap();
        assert!(longest.abs_diff(secs(1_001)) <= secs(1_001) / 16, "{longest:?}");
    }
    let kept = block_on(store.history().unwrap().entries(HistoryQuery::new(100))).unwrap();
    assert!(kept.iter().all(|entry| entry.fence != slow), "its entry is gone");
}

/// They have no lease when the job is read, and their ends come in another order than their fences.
#[test]
fn runs_that_begin_while_entries_are_counted_are_counted_later() {
    for is_there in [true, false] {
        let store = Memory::new().with_history(20);
        let first = Some(at(0).into());
        let register = Action::Register { definition: "d", version: 0, first };
        apply(&store, ("job", 0), register);
        for second in 0..10 {
            let fence = start(&store, second);
            end(&store, second, fence);
        }
        if !is_there {
            apply(&store, ("job", 9), Action::Delete);
            prune(&store, 9 + 8 * DAY);
            run_job(&store, "other", 8 * DAY..8 * DAY + 10);
        }
        let now = if is_there { 10 } else { 8 * DAY + 10 };
        let (late, running) = (store.clone(), Arc::new(AtomicI64::new(0)));
        let slow = Shaky::around(&store);
        let fence = running.clone();
        *slow.before_read.lock().unwrap() = Some(Box::new(move || {
            if !is_there {
                let first = Some(at(now).into());
                let register = Action::Register { definition: "d", version: 0, first };
                apply(&late, ("job", now), register);
            }
            fence.store(start(&late, now), Relaxed);
            let second = start(&late, now + 1);
            end(&late, now + 1, second);
        }));
        store.pruning().appended(["job"; 2]);
        assert!(slow.prune(now, 1_000));
        assert_eq!(total(&store, "job", now + 1).started, 11);
        end(&store, now + 2, running.load(Relaxed));
        for _ in 0..2 {
            assert_eq!(total(&store, "job", now + 2).started, 12);
            prune(&store, now + 2);
        }
    }
}

#[test]
fn the_hours_of_a_deleted_job_stay_for_thirty_days() {
    let store = Memory::new().with_history(20);
    run(&store, 0..100);
    prune(&store, 100);
    apply(&store, ("job", 100), Action::Delete);
    for day in 1..40 {
        let now = day * DAY;
        run_job(&store, "other", now..now + 30);
        prune(&store, now + 30);
        let left = total(&store, "job", now + 30).started;
        let is_there = records(&store).iter().any(|record| record.ends_with(":job"));
        assert_eq!((left > 0, is_there), (day <= 30, day <= 30), "day {day}");
    }
    assert_eq!(records(&store).len(), 31);
}

#[test]
fn the_records_of_hours_are_no_jobs() {
    let store = Memory::new().with_history(20);
    let mut names: Vec<String> = (0..150).map(|n| format!("job {n:03}")).collect();
    names.extend(["a", "allora:a", "allora:hours", "allora:hours;", "allora:z"].map(str::to_owned));
    names.push("x".repeat(200));
    names.sort();
    for name in &names {
        run_job(&store, name, 0..30);
    }
    prune(&store, 30);
    assert_eq!(records(&store).len(), names.len());
    assert_eq!(total(&store, &"x".repeat(200), 30).started, 30);
    for limit in [1, 7, 100, 1_000] {
        let mut listed: Vec<String> = Vec::new();
        loop {
            let mut page = Page::first(limit);
            page.after = listed.last().map(|name| &**name);
            let states = block_on(Queries::list(&store, page)).unwrap();
            let is_last = states.len() < limit;
            listed.extend(states.into_iter().map(|state| state.name));
            if is_last {
                break;
            }
        }
        assert_eq!(listed, names, "pages of {limit}");
    }
    let query = DueQuery::new(&[""], at(DAY), 1_000);
    let due = block_on(Queries::find_due(&store, query, TimeSource::Fixed(at(DAY)))).unwrap();
    assert!(due.found.iter().all(|state| !allora_core::is_internal(&state.name)));
    let sim = Sim::new(1);
    let schedules = Schedules::on(store, sim.node()).unwrap();
    let taken = allora_core::StoredSchedule::new("allora:hours:a", "kind", "@daily");
    let refused = sim.block_on(schedules.add(&taken)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn what_a_later_build_has_counted_stays_as_it_is() {
    let store = Memory::new().with_history(20);
    let record = "allora:hours:20300101:job";
    let register = Action::Register { definition: "", version: 0, first: None };
    let generation = apply(&store, (record, 0), register).state().unwrap().generation;
    let later = b"2 something else";
    let mut edit = Edit::of(generation);
    edit.data = Some(later);
    apply(&store, (record, 0), Action::Modify(edit));
    run(&store, 0..100);
    prune(&store, 100);
    let state = apply(&store, (record, 100), Action::Read).state().unwrap();
    assert_eq!((state.data, entries(&store)), (later.to_vec(), 20));
    assert_eq!(total(&store, "job", 100).started, 20, "what the history has");
    // The next day is counted again.
    run(&store, DAY..DAY + 50);
    prune(&store, DAY + 50);
    assert_eq!(total(&store, "job", DAY + 50).started, 50);
}

/// The totals of what is counted and of all entries, a page at a time.
fn totals(store: &Memory, prefix: &str, now: i64, is_wanted: fn(&str) -> bool) -> Hour {
    let sim = Sim::new(1);
    let store = store.clone().with_clock(move || at(now));
    let schedules = Schedules::on(store.clone(), sim.node()).unwrap();
    let totals = schedules.hour_totals(prefix, at(now - 31 * DAY), is_wanted);
    let mut totals = sim.block_on(totals).unwrap();
    let mut below = None;
    loop {
        let mut query = HistoryQuery::new(7);
        query.before = below.as_ref();
        let page = block_on(store.history().unwrap().entries(query)).unwrap();
        let seen = |entry: &&HistoryEntry| entry.name.starts_with(prefix) && is_wanted(&entry.name);
        page.iter().filter(seen).for_each(|entry| totals.add(entry));
        let Some(last) = page.last() else { break };
        below = Some(last.cursor());
    }
    let mut all = Hour::new(at(0));
    totals.hours().for_each(|hour| all.merge(hour));
    all
}

#[test]
fn totals_have_each_entry_of_each_job_once_and_of_the_wanted_jobs_alone() {
    let store = Memory::new().with_history(20);
    let long = |end: &str| format!("acme/{}{end}", "x".repeat(194));
    let names = ["acme/a", "acme/b", "acmf", "beta", "b", &*long("1"), &*long("2")];
    for (from, until) in [(DAY - 100, DAY - 40), (DAY - 40, DAY + 20), (DAY + 20, DAY + 25)] {
        for name in names {
            run_job(&store, name, from..until);
        }
        // The last entries are not counted.
        if until < DAY + 25 {
            prune(&store, until);
        }
        let each = (until - DAY + 100) as u64;
        for (prefix, jobs) in [
            ("", 7),
            ("acm", 5),
            ("acme/", 4),
            ("acme/xx", 2),
            (&*long("1"), 1),
            ("b", 2),
            ("c", 0),
        ] {
            let found = totals(&store, prefix, until, |_| true);
            assert_eq!(found.started, jobs * each, "{prefix:?} at {until}");
        }
        let wanted = totals(&store, "", until, |name| name.ends_with('1') || name == "beta");
        assert_eq!(wanted.started, 2 * each);
    }
    assert_eq!(entries(&store), 7 * 25);
}

/// Nodes of the real scheduler that run, prune and die.
#[test]
fn every_start_of_a_fleet_is_in_its_hours() {
    let mut lab = Lab::new(1);
    lab.store = lab.store.clone().with_history(20);
    let start = |lab: &mut Lab| {
        // Each process counts what it has appended by itself.
        lab.store = lab.store.clone().with_history(20);
        lab.start(|seat, b| b.add("job", seat.job(every(secs(1)).phase(Duration::ZERO), ms(20))))
    };
    let members = [start(&mut lab), start(&mut lab)];
    lab.until(900.5);
    members[0].node.crash();
    start(&mut lab);
    lab.until(1_800.5);
    let schedules = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    let (from, until) = (support::at(0.0), support::at(1_800.0));
    let hours = lab.sim.block_on(schedules.hours("job", from, until)).unwrap();
    let [hour] = &hours[..] else { panic!("{hours:?}") };
    assert_eq!(hour.started, lab.state("job").counters.started);
    assert!(hour.started > 1_790 && lab.past("job").len() < 60);
    let usual = |spread: &Spread| spread.percentile(50).unwrap();
    assert!(usual(&hour.duration) >= ms(19) && usual(&hour.lateness) < ms(100), "{hour:?}");
    assert_eq!(from_millis(hour.from.timestamp_millis()), Some(hour.from));
}
