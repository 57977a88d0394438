//! Adding, changing and looking, by way of the store.

use super::{add, schedules};
use crate::support::{Lab, at, secs};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, CatchUp, ErrorKind, Run, Schedules, StoredSchedule,
    backend::{
        Applied, Batch, Count, Due, DueQuery, Flag, JobState, NextRun, Operation, Page, Queries,
        TimeSource,
    },
    stored::{Definition, Filter, Gap, MAX_BACKFILL, ScheduleState},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

/// The error of adding it, as its kind and its text.
fn refused(lab: &Lab, stored: StoredSchedule) -> (ErrorKind, String) {
    let error = lab.sim.block_on(schedules(lab).add(&stored)).unwrap_err();
    (error.kind(), error.to_string())
}

fn names(states: Vec<JobState>) -> Vec<String> {
    states.into_iter().map(|state| state.name).collect()
}

#[test]
fn what_is_added_says_when_it_runs_and_is_there() {
    let lab = Lab::new(1);
    let client = schedules(&lab);
    let new =
        StoredSchedule::new("s1", "user_task", "* * * * *").in_zone("Asia/Tokyo").delay(secs(30));
    let added = lab.sim.block_on(client.add(&new.clone().data(&[1, 2]))).unwrap();
    // The simulation begins on a match: the first occurrence is the first one at or after now.
    assert_eq!(added.next, Some(NextRun { scheduled_at: at(0.0), due_at: at(30.0) }));
    assert_eq!((&*added.kind, &added.data[..]), ("user_task", &b"[1,2]"[..]));
    let definition = Definition::parse("s1", &added.definition).unwrap();
    assert_eq!((definition.text(), definition.zone()), ("* * * * *", Some("Asia/Tokyo")));
    assert_eq!(refused(&lab, new).0, ErrorKind::AlreadyExists);
    assert!(lab.sim.block_on(client.exists("s1")).unwrap());
    assert!(!lab.sim.block_on(client.exists("s2")).unwrap());
    let later = StoredSchedule::new("s2", "t", "* * * * *").starting(at(0.001));
    assert_eq!(lab.sim.block_on(client.add(&later)).unwrap().next, Some(at(60.0).into()));
    let past = StoredSchedule::new("s3", "t", "* * * * *").starting(at(-600.0));
    assert_eq!(lab.sim.block_on(client.add(&past)).unwrap().next, Some(at(-600.0).into()));
}

#[test]
fn the_first_run_alone_is_when_it_was_said_to_be() {
    let lab = Lab::new(2);
    lab.start(|_, b| b.kind("t", async |_: Run| {}));
    let new = StoredSchedule::new("a", "t", "* * * * *").starting(at(60.0)).delay(secs(5));
    add(&lab, new.clone().first_run(at(90.0)));
    lab.until(89.0);
    assert_eq!(lab.state("a").counters.started, 0);
    lab.until(91.0);
    let state = lab.state("a");
    assert_eq!(state.counters.started, 1);
    assert_eq!(state.next, Some(NextRun { scheduled_at: at(120.0), due_at: at(125.0) }));
    let early = StoredSchedule::new("b", "t", "* * * * *").first_run(at(59.0));
    let (kind, text) = refused(&lab, early.schedule("@daily"));
    assert!(kind == ErrorKind::Invalid && text.contains("nothing runs before that"), "{text}");
}

#[test]
fn what_makes_no_sense_is_refused_and_nothing_is_stored() {
    let lab = Lab::new(3);
    let new = |schedule: &str| StoredSchedule::new("a", "t", schedule);
    for (stored, says) in [
        (new("* * * *"), "column"),
        (new("30 2 30 2 *"), "never"),
        (new("* * * * *").in_zone("Mars/X"), "Mars/X"),
        (new("@every 1h").in_zone("Europe/Rome"), "no wall clock"),
        (new("* * * * *; delay 1s"), "column"),
        (new("@at 2020-01-01T00:00:00Z"), "would never run"),
        (new("@daily").ending(at(1.0)).starting(at(2.0)), "ends before it starts"),
        (new("@daily").max_runs(0), "at least 1"),
        (new("@daily").at_least_once(secs(0)), "1 s to 24 h"),
        (new("@daily").data_bytes(vec![0; (1 << 20) + 1]), "1048576"),
        (new("@daily").data(&std::collections::HashMap::from([((1, 2), 3)])), "JSON"),
        (StoredSchedule::new("", "t", "@daily"), "empty"),
        (StoredSchedule::new("a", " t", "@daily"), "white space"),
    ] {
        let (kind, text) = refused(&lab, stored);
        assert!(kind == ErrorKind::Invalid && text.contains(says), "{text}");
    }
    assert!(lab.sim.block_on(schedules(&lab).list(Filter::default(), None, 9)).unwrap().is_empty());
}

#[test]
fn ten_thousand_are_added_in_one_call_and_answered_by_position() {
    let lab = Lab::new(4);
    let mut all: Vec<StoredSchedule> =
        (0..10_000).map(|n| StoredSchedule::new(format!("job {n}"), "t", "@hourly")).collect();
    all[77] = StoredSchedule::new("job 77", "t", "nonsense");
    all[99] = StoredSchedule::new("job 98", "t", "@hourly");
    let added = lab.sim.block_on(schedules(&lab).add_all(&all)).unwrap();
    assert_eq!(added.len(), 10_000);
    for (n, added) in added.iter().enumerate() {
        match (n, added) {
            (77, Err(error)) => assert_eq!(error.kind(), ErrorKind::Invalid),
            (99, Err(error)) => assert_eq!(error.kind(), ErrorKind::AlreadyExists),
            (n, Ok(state)) => assert_eq!(state.name, format!("job {n}")),
            (n, Err(error)) => panic!("{n}: {error}"),
        }
    }
}

#[test]
fn lists_are_by_name_in_pages_or_by_due_time() {
    let lab = Lab::new(5);
    let client = schedules(&lab);
    for (name, kind, due) in
        [("c", "mail", 30.0), ("a", "mail", 10.0), ("b", "sms", 20.0), ("ab", "sms", 5.0)]
    {
        add(&lab, StoredSchedule::new(name, kind, allora_core::at(at(due))));
    }
    lab.sim.block_on(client.pause("b", "")).unwrap();
    let list = |filter, after, limit| {
        names(lab.sim.block_on(client.list(filter, after, limit)).unwrap()).join(" ")
    };
    let all = Filter::default();
    assert_eq!(list(all, None, 9), "a ab b c");
    assert_eq!((list(all, None, 2), list(all, Some("ab"), 2)), ("a ab".into(), "b c".into()));
    assert_eq!(list(all.prefix("a"), None, 9), "a ab");
    assert_eq!(list(all.kind("sms"), None, 9), "ab b");
    assert_eq!(list(all.state(ScheduleState::Paused), None, 9), "b");
    assert_eq!(list(all.state(ScheduleState::Waiting), None, 9), "a ab c");
    assert_eq!(list(all.state(ScheduleState::Broken), None, 9), "");
    let by_due = |limit| names(lab.sim.block_on(client.list_by_due(all, limit)).unwrap()).join(" ");
    assert_eq!((by_due(9), by_due(2)), ("ab a c b".into(), "ab a".into()));
}

/// A store that counts the records that it returns.
#[derive(Debug)]
struct CountingReads {
    read: Arc<AtomicU64>,
}

impl CountingReads {
    fn count(&self, records: usize) {
        self.read.fetch_add(records as u64, Relaxed);
    }
}

#[async_trait::async_trait]
impl Hooks for CountingReads {
    async fn find_due(
        &self,
        store: &dyn Queries,
        query: DueQuery<'_>,
        time: TimeSource,
    ) -> allora_core::Result<Due> {
        let due = store.find_due(query, time).await?;
        self.count(due.found.len());
        Ok(due)
    }
    async fn get(&self, store: &dyn Queries, name: &str) -> allora_core::Result<JobState> {
        self.count(1);
        store.get(name).await
    }
    async fn list(
        &self,
        store: &dyn Queries,
        page: Page<'_>,
    ) -> allora_core::Result<Vec<JobState>> {
        let page = store.list(page).await?;
        self.count(page.len());
        Ok(page)
    }
}

#[test]
fn the_first_stored_schedules_by_due_time_are_read_without_the_others() {
    let lab = Lab::new(33);
    let new = |n: u32| {
        let kind = ["mail", "sms"][n as usize % 2];
        let due = allora_core::at(at(f64::from((n * 7) % 300) + 100.0));
        StoredSchedule::new(format!("job {n:03}"), kind, due)
    };
    for n in 0..300 {
        add(&lab, new(n));
    }
    let read = Arc::<AtomicU64>::default();
    let store = Wrapped::around(lab.store.clone(), CountingReads { read: read.clone() });
    let client = Schedules::on(store, lab.sim.node()).unwrap();
    let first = |filter: Filter<'_>, limit: usize| {
        read.store(0, Relaxed);
        let listed = lab.sim.block_on(client.list_by_due(filter, limit)).unwrap();
        (listed, read.load(Relaxed))
    };
    let (all, reads) = first(Filter::default(), usize::MAX);
    assert!(all.len() == 300 && reads >= 300);
    let stored = Filter::default().stored_only();
    let (listed, reads) = first(stored, 20);
    assert_eq!((&listed[..], reads), (&all[..20], 40), "each from the index and by its name");
    let (listed, reads) = first(stored.kind("sms"), 20);
    let sms: Vec<JobState> = all.iter().filter(|state| state.kind == "sms").cloned().collect();
    assert_eq!((&listed[..], reads), (&sms[..20], 40));
    lab.start(|seat, b| b.add("code", seat.job(allora_core::every(secs(105)), secs(1))));
    lab.until(1.0);
    let (listed, reads) = first(Filter::default(), 20);
    let expected: Vec<&str> = all.iter().take(19).map(|state| &*state.name).collect();
    let is_code = |state: &&JobState| state.name == "code";
    assert_eq!((listed.iter().filter(is_code).count(), reads), (1, 40), "it is found by its kind");
    assert!(expected.iter().all(|name| listed.iter().any(|state| state.name == *name)));
    // A schedule that is not in the index comes last, and is not left out.
    lab.sim.block_on(client.pause(&all[0].name, "")).unwrap();
    let (listed, _) = first(stored, 300);
    assert_eq!((listed.len(), &listed[299].name), (300, &all[0].name));
    let (listed, reads) = first(stored, 20);
    assert_eq!((&listed[..], reads), (&all[1..21], 40));
}

#[test]
fn by_state_owner_tag_or_kind_no_other_job_is_read() {
    let lab = Lab::new(35);
    let client = schedules(&lab);
    let new = |n: u32| StoredSchedule::new(format!("job {n:04}"), "mail", "@daily");
    let mut all: Vec<StoredSchedule> = (0..1_200).map(new).collect();
    for n in (0..1_200).step_by(2) {
        all[n] = all[n].clone().owner("sales");
    }
    all[700] = all[700].clone().tag("eu");
    all[701] = StoredSchedule::new("job 0701", "sms", "@daily").tag("eu");
    assert!(lab.sim.block_on(client.add_all(&all)).unwrap().iter().all(Result::is_ok));
    for name in ["job 0007", "job 0700"] {
        lab.sim.block_on(client.pause(name, "")).unwrap();
    }
    let read = Arc::<AtomicU64>::default();
    let store = Wrapped::around(lab.store.clone(), CountingReads { read: read.clone() });
    let client = Schedules::on(store, lab.sim.node()).unwrap();
    let list = |filter| names(lab.sim.block_on(client.list(filter, None, usize::MAX)).unwrap());
    let paused = Filter::default().state(ScheduleState::Paused);
    for (filter, found) in [
        (paused, &["job 0007", "job 0700"][..]),
        (paused.owner("sales"), &["job 0700"]),
        (paused.prefix("job 00"), &["job 0007"]),
        (Filter::default().tag("eu"), &["job 0700", "job 0701"]),
        (Filter::default().tag("eu").owner("sales"), &["job 0700"]),
        (Filter::default().tag("eu").kind("sms"), &["job 0701"]),
        (Filter::default().kind("sms"), &["job 0701"]),
        (Filter::default().state(ScheduleState::Running), &[]),
        (Filter::default().state(ScheduleState::Failing), &[]),
    ] {
        assert_eq!(list(filter), found, "{filter:?}");
    }
    let sales = list(Filter::default().owner("sales"));
    assert!(sales.len() == 600 && sales.is_sorted(), "more than a page");
    let by_due = client.list_by_due(Filter::default().tag("eu"), 1);
    assert_eq!(names(lab.sim.block_on(by_due).unwrap()), ["job 0701"], "the other one is paused");
    assert_eq!(read.load(Relaxed), 0, "of the list of all jobs, and of the due index");
    let counts = lab.sim.block_on(client.counts("job")).unwrap();
    for (flag, number) in [
        (Flag::Paused, 2),
        (Flag::Failing, 0),
        (Flag::Kind("sms"), 1),
        (Flag::Owner("sales"), 600),
        (Flag::Tag("eu"), 2),
    ] {
        assert_eq!(counts.of(flag), Some(Count::new(number, true)), "{flag:?}");
    }
    assert_eq!(counts.jobs(), Count::new(1_200, true));
}

#[test]
fn a_running_schedule_is_listed_by_its_due_time_and_not_by_its_lease() {
    let lab = Lab::new(34);
    lab.start(|_, b| {
        b.kind("t", async |run: Run| {
            if run.name() == "long" {
                run.cancelled().await;
            }
        })
    });
    let every = |name: &str, schedule: &str| add(&lab, StoredSchedule::new(name, "t", schedule));
    every("long", "@every 1h");
    every("first", "@every 10m");
    every("second", "@every 20m");
    lab.until(3_605.0);
    assert_eq!(lab.state("long").leases.len(), 1, "its lease ends before the others are due");
    let client = schedules(&lab);
    let list = |filter| names(lab.sim.block_on(client.list_by_due(filter, 2)).unwrap());
    assert_eq!(list(Filter::default().stored_only()), list(Filter::default()));
}

#[test]
fn of_two_editors_the_second_fails() {
    let lab = Lab::new(6);
    let client = schedules(&lab);
    add(&lab, StoredSchedule::new("a", "t", "1 * * * *"));
    let read = |client: &Schedules| {
        StoredSchedule::of(&lab.sim.block_on(client.get("a")).unwrap()).unwrap()
    };
    let (one, two) = (read(&client), read(&client));
    let first = one.schedule("30 * * * *").catch_up(CatchUp::All { limit: 3 });
    lab.sim.block_on(client.modify(&first)).unwrap();
    let second = two.schedule("45 * * * *");
    let error = lab.sim.block_on(client.modify(&second)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AlreadyExists);
    let bad = read(&client).schedule("61 * * * *");
    let before = lab.state("a");
    assert_eq!(lab.sim.block_on(client.modify(&bad)).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(lab.state("a"), before, "and nothing is changed");
    assert_eq!(before.next, Some(at(1_800.0).into()), "it was planned anew");
    let unread = StoredSchedule::new("a", "t", "@daily");
    assert_eq!(lab.sim.block_on(client.modify(&unread)).unwrap_err().kind(), ErrorKind::Invalid);
    let same = lab.sim.block_on(client.modify(&read(&client))).unwrap();
    assert_eq!(same, before, "what is not changed stays as it is");
}

#[test]
fn an_edit_while_it_runs_moves_the_schedule_and_not_the_run() {
    let lab = Lab::new(7);
    lab.start(|seat, b| {
        let node = seat.node.clone();
        b.kind("t", async move |_: Run| {
            use allora_core::Runtime;
            node.sleep_until(node.now() + secs(20)).await;
        })
    });
    let client = schedules(&lab);
    add(&lab, StoredSchedule::new("a", "t", "0 * * * *").starting(at(3_600.0)));
    lab.until(3_605.0);
    let state = lab.state("a");
    assert_eq!(state.leases.len(), 1);
    let half = StoredSchedule::of(&state).unwrap().schedule("30 * * * *");
    let edited = lab.sim.block_on(client.modify(&half)).unwrap();
    assert_eq!(edited.next, Some(at(5_400.0).into()));
    lab.until(3_700.0);
    assert_eq!(lab.story("a"), ["succeeded 3600"]);
    assert_eq!(lab.state("a").next, Some(at(5_400.0).into()));
    // Another setting of the same schedule: nothing is missed by it.
    lab.until(5_405.0);
    let delayed = StoredSchedule::of(&lab.state("a")).unwrap().delay(secs(7));
    let edited = lab.sim.block_on(client.modify(&delayed)).unwrap();
    assert_eq!(edited.next, Some(NextRun { scheduled_at: at(9_000.0), due_at: at(9_007.0) }));
    lab.until(9_030.0);
    assert_eq!(lab.story("a"), ["succeeded 3600", "succeeded 5400", "succeeded 9000"]);
}

#[test]
fn an_edit_accounts_for_every_occurrence_that_has_come() {
    // No node runs it: 77 occurrences have come.
    let lab = Lab::new(8);
    let client = schedules(&lab);
    let edited = |change: fn(StoredSchedule) -> StoredSchedule| {
        let stored = StoredSchedule::of(&lab.state("a")).unwrap();
        lab.sim.block_on(client.modify(&change(stored))).unwrap()
    };
    add(&lab, StoredSchedule::new("a", "t", "* * * * *").starting(at(60.0)));
    lab.until(77.0 * 60.0 + 1.0);
    let state = edited(|stored| stored.catch_up(CatchUp::All { limit: 99 }));
    assert_eq!((state.next, state.counters.missed), (Some(at(60.0).into()), 0), "all can run");
    let state = edited(|stored| stored.schedule("30 12 * * *"));
    assert_eq!((state.next, state.counters.missed), (Some(at(4_620.0).into()), 76));
    let state = edited(|stored| stored.schedule("45 12 * * *").gap(Gap::Missed));
    assert_eq!((state.next, state.counters.missed), (Some(at(45_900.0).into()), 77));
    assert_eq!(lab.story("a"), ["missed 60-4560 76", "missed 4620-4620 1"]);
}

#[test]
fn an_edit_during_a_run_accounts_for_what_has_come_since() {
    let lab = Lab::new(9);
    lab.start(|seat, b| {
        let node = seat.node.clone();
        b.kind("t", async move |_: Run| {
            use allora_core::Runtime;
            node.sleep_until(node.now() + secs(605)).await;
        })
    });
    let client = schedules(&lab);
    add(&lab, StoredSchedule::new("a", "t", "* * * * *").starting(at(60.0)));
    lab.until(601.0);
    let other = StoredSchedule::of(&lab.state("a")).unwrap().schedule("30 12 * * *");
    let edited = lab.sim.block_on(client.modify(&other)).unwrap();
    assert_eq!((edited.next, edited.leases.len()), (Some(at(600.0).into()), 1));
    lab.until(2_000.0);
    assert_eq!(lab.story("a"), ["succeeded 60", "missed 120-540 8", "succeeded 600"]);
    assert_eq!(lab.state("a").next, Some(at(45_000.0).into()));
}

#[test]
fn an_interval_stays_on_its_grid_when_what_passed_in_a_pause_is_missed() {
    let lab = Lab::new(12);
    let client = schedules(&lab);
    add(&lab, StoredSchedule::new("a", "t", "@every 10s"));
    lab.sim.block_on(client.pause("a", "")).unwrap();
    lab.until(37.0);
    let resumed = lab.sim.block_on(client.resume("a", Gap::Missed)).unwrap();
    assert_eq!(resumed.next, Some(at(40.0).into()));
    assert_eq!(lab.story("a"), ["missed 10-30 3"]);
}

#[test]
fn what_passed_while_it_was_paused_is_missed_or_caught_up_with() {
    let lab = Lab::new(8);
    lab.start(|_, b| b.kind("t", async |_: Run| {}));
    let client = schedules(&lab);
    for name in ["caught up", "missed"] {
        add(&lab, StoredSchedule::new(name, "t", "* * * * *").starting(at(60.0)));
        lab.sim.block_on(client.pause(name, "for a while")).unwrap();
    }
    lab.until(300.0);
    assert_eq!(lab.state("missed").paused.unwrap().note, "for a while");
    lab.sim.block_on(client.resume("caught up", Gap::CatchUp)).unwrap();
    lab.sim.block_on(client.resume("missed", Gap::Missed)).unwrap();
    lab.until(361.0);
    assert_eq!(lab.story("caught up"), ["missed 60-240 4", "succeeded 300", "succeeded 360"]);
    assert_eq!(lab.story("missed"), ["missed 60-300 5", "succeeded 360"]);
}

#[test]
fn the_next_occurrences_are_left_out_once_and_the_one_that_runs_goes_on() {
    let lab = Lab::new(8);
    lab.start(|seat, b| {
        let node = seat.node.clone();
        b.kind("t", async move |_: Run| {
            use allora_core::Runtime;
            node.sleep_until(node.now() + secs(5)).await;
        })
    });
    let client = schedules(&lab);
    let skip = |name, n| lab.sim.block_on(client.skip_next(name, n));
    add(&lab, StoredSchedule::new("a", "t", "* * * * *").starting(at(60.0)));
    let skipped = skip("a", 2).unwrap().unwrap();
    assert_eq!((skipped.count, skipped.last), (Some(2), at(120.0)));
    lab.until(182.0);
    let behind = skip("a", 1).unwrap().unwrap();
    assert_eq!((behind.count, behind.last), (Some(1), at(240.0)));
    lab.until(310.0);
    let story = ["skipped 60-120 2", "succeeded 180", "skipped 240-240 1", "succeeded 300"];
    assert_eq!(lab.story("a"), story);
    assert_eq!(lab.state("a").counters.skipped, 3);

    add(&lab, StoredSchedule::new("ends", "t", "* * * * *").starting(at(360.0)).ending(at(420.0)));
    assert_eq!(skip("ends", 1_000).unwrap().unwrap().count, Some(2), "it has no further one");
    assert_eq!(skip("ends", 1).unwrap(), None);
    for n in [0, 1_001] {
        assert_eq!(skip("a", n).unwrap_err().kind(), ErrorKind::Invalid, "{n}");
    }
    assert_eq!(skip("none", 1).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn a_trigger_that_waits_is_cancelled_alone() {
    let lab = Lab::new(8);
    let client = schedules(&lab);
    add(&lab, StoredSchedule::new("a", "t", "30 12 * * *"));
    for id in ["one", "two"] {
        lab.sim.block_on(client.trigger("a", id)).unwrap();
    }
    let cancel = |id| lab.sim.block_on(client.cancel_trigger("a", id)).unwrap();
    assert_eq!((cancel("one"), cancel("one"), cancel("no such")), (1, 0, 0));
    lab.start(|_, b| b.kind("t", async |_: Run| {}));
    lab.until(60.0);
    assert_eq!(lab.story("a"), ["cancelled 0", "succeeded 0"]);
}

#[test]
fn a_backfill_runs_each_instant_once_and_is_bounded() {
    let lab = Lab::new(9);
    let client = schedules(&lab);
    add(&lab, StoredSchedule::new("a", "t", "0 * * * *"));
    let (from, until) = (at(-4.0 * 3_600.0), at(-3_600.0));
    for _ in 0..2 {
        let filled = lab.sim.block_on(client.backfill("a", from, until)).unwrap();
        assert_eq!(filled.len(), 3);
    }
    lab.start(|_, b| b.kind("t", async |_: Run| {}));
    lab.until(60.0);
    assert_eq!(
        lab.story("a"),
        ["succeeded 0", "succeeded -10800", "succeeded -7200", "succeeded -3600"],
        "the schedule does not wait for a backfill"
    );
    assert_eq!(lab.state("a").counters.started, 1, "they are not the schedule's");
    let error = lab.sim.block_on(client.backfill("a", from, at(3_600.0))).unwrap_err();
    assert!(error.to_string().contains("is in the future"), "{error}");
    let year = at(-366.0 * 86_400.0);
    let error = lab.sim.block_on(client.backfill("a", year, until)).unwrap_err();
    assert!(error.to_string().contains(&MAX_BACKFILL.to_string()), "{error}");
    assert_eq!(
        lab.state("a").head,
        lab.state("a").next.map(|next| next.scheduled_at.into()),
        "nothing was asked for"
    );
}

#[test]
fn the_next_occurrences_are_within_the_bounds() {
    let lab = Lab::new(10);
    let client = schedules(&lab);
    add(
        &lab,
        StoredSchedule::new("a", "t", "0 0 * * *")
            .in_zone("Asia/Tokyo")
            .delay(secs(60))
            .max_runs(2),
    );
    let next = lab.sim.block_on(client.next("a", 9)).unwrap();
    let hour = |n: f64| NextRun { scheduled_at: at(n * 3_600.0), due_at: at(n * 3_600.0 + 60.0) };
    assert_eq!(next, [hour(15.0), hour(39.0)]);
    assert_eq!(lab.sim.block_on(client.next("b", 9)).unwrap_err().kind(), ErrorKind::NotFound);
}

/// A store that counts its requests.
#[derive(Debug)]
struct Counting {
    requests: Arc<AtomicU64>,
    prunings: Arc<AtomicU64>,
}

#[async_trait::async_trait]
impl Hooks for Counting {
    async fn reschedule(
        &self,
        store: &Arc<dyn Backend>,
        batch: Batch<'_>,
    ) -> allora_core::Result<Applied> {
        self.requests.fetch_add(1, Relaxed);
        store.reschedule(batch).await
    }
    async fn prune(&self, store: &dyn Backend, time: TimeSource) -> allora_core::Result {
        if self.prunings.fetch_add(1, Relaxed) == 1 {
            // A deletion does not wait for it.
            return std::future::pending().await;
        }
        store.prune(time).await
    }
}

#[test]
fn a_program_without_a_scheduler_removes_old_tombstones_when_it_deletes() {
    let lab = Lab::new(32);
    let (requests, prunings) = (Arc::default(), Arc::<AtomicU64>::default());
    let counting = Counting { requests, prunings: prunings.clone() };
    let store = Wrapped::around(lab.store.clone(), counting);
    let client = Schedules::on(store, lab.sim.node()).unwrap();
    let change = async |name: &str| {
        client.add(&StoredSchedule::new(name, "t", "* * * * *")).await.unwrap();
        client.delete(name).await.unwrap();
    };
    for i in 1..=25_u64 {
        lab.sim.block_on(change("job"));
        assert_eq!(prunings.load(Relaxed), i.div_ceil(10));
    }
    // The highest fence of the tombstones that were removed.
    let removed = || {
        let read = [Operation::read("missing")];
        let batch = Batch::new("n", TimeSource::Fixed(lab.now()), &read);
        lab.sim.block_on(lab.store.reschedule(batch)).unwrap().min_fence
    };
    assert_eq!(removed(), 0, "they are young");
    lab.until(8.0 * 86_400.0);
    for _ in 0..10 {
        lab.sim.block_on(change("other"));
    }
    assert!(removed() > 0);
}

#[test]
fn the_stores_time_is_read_once_and_again_only_after_a_minute() {
    let lab = Lab::new(31);
    let counting = Counting { requests: Arc::default(), prunings: Arc::default() };
    let store = Wrapped::around(lab.store.clone(), counting);
    let client = Schedules::on(store.clone(), lab.sim.node()).unwrap();
    let requests = |name: &str| {
        let before = store.hooks().requests.load(Relaxed);
        let new = StoredSchedule::new(name, "t", "* * * * *");
        let added = lab.sim.block_on(client.add(&new)).unwrap();
        assert!(added.next.unwrap().scheduled_at >= lab.now(), "it begins in the future");
        store.hooks().requests.load(Relaxed) - before
    };
    assert_eq!(requests("first"), 2, "one for the time, one for the schedule");
    lab.until(59.0);
    assert_eq!(requests("soon"), 1);
    lab.until(150.0);
    assert_eq!(requests("late"), 2);
}
