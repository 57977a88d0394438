//! Why a job does not run, and what became of its times: each answer on a real occurrence.

use super::{add, schedules};
use crate::support::{Lab, Member, at, ms, secs};
use allora_core::{
    CatchUp, ErrorKind, Overlap, ProgramReport, Retry, Schedules, StoredSchedule, Time, at as once,
    backend::{Action, HistoryLimits, Replan},
    every,
    runtime::Sim,
    schedule::Calendar,
    stored::{Gap, Why, WhyCode},
    time::end_of_time,
};
use allora_memory::Memory;
use chrono::TimeDelta;
use std::sync::atomic::Ordering::Relaxed;

fn why(lab: &Lab, name: &str, seconds: Option<f64>) -> Why {
    lab.sim.block_on(schedules(lab).why(name, seconds.map(at))).unwrap()
}

/// The codes of the answer, the main one first, after checking a part of its texts.
#[track_caller]
fn codes(lab: &Lab, name: &str, seconds: Option<f64>, says: &str) -> Vec<&'static str> {
    let why = why(lab, name, seconds);
    let text: Vec<String> = why.each().map(Why::to_string).collect();
    assert!(text.join("\n").contains(says), "{name}: {says}: {text:#?}");
    why.each().map(|one| one.code.word()).collect()
}

#[track_caller]
fn now(lab: &Lab, name: &str, says: &str) -> Vec<&'static str> {
    codes(lab, name, None, says)
}

#[track_caller]
fn then(lab: &Lab, name: &str, seconds: f64, says: &str) -> Vec<&'static str> {
    codes(lab, name, Some(seconds), says)
}

/// A node whose runs of the kind `t` take so long, and of the kind `bad` fail.
fn node(lab: &Lab, takes: u64) -> Member {
    lab.start(|seat, b| {
        b.kind("t", seat.handler(secs(takes), |_| Ok(())))
            .kind("bad", seat.handler(ms(0), |_| Err("boom".into())))
    })
}

fn minutely(name: &str, kind: &str) -> StoredSchedule {
    StoredSchedule::new(name, kind, "* * * * * UTC")
}

#[test]
fn runs_that_ended_are_told_with_their_ends() {
    let lab = Lab::new(1);
    node(&lab, 0);
    lab.until(30.0);
    add(&lab, minutely("good", "t"));
    add(&lab, minutely("failing", "bad").at_most_once());
    add(&lab, minutely("poison", "bad").retry(Retry::up_to(2, secs(1))).max_runs(1));
    add(&lab, minutely("patient", "bad").retry(Retry::up_to(3, secs(600))));
    lab.until(90.0);
    assert_eq!(then(&lab, "good", 60.0, "and succeeded"), ["succeeded"]);
    assert_eq!(now(&lab, "good", "scheduled at 2026-01-01T00:02:00Z"), ["scheduled"]);
    assert_eq!(then(&lab, "failing", 60.0, "failed: boom"), ["failed"]);
    assert_eq!(now(&lab, "failing", "its last run ended as failed"), ["scheduled", "failed"]);
    assert_eq!(then(&lab, "poison", 60.0, "its attempts are used up"), ["dead"]);
    assert_eq!(now(&lab, "poison", "1 dead letter"), ["dead", "ended"]);
    lab.until(121.0);
    assert_eq!(then(&lab, "poison", 120.0, "last occurrence was that of 2026"), ["ended"]);
    let says = "the next attempt is due at 2026-01-01T00:11:0";
    assert_eq!(then(&lab, "patient", 60.0, says), ["retry-waits"]);
    assert_eq!(now(&lab, "patient", "after 1 attempt at the occurrence"), ["retry-waits"]);
    // The ends of letters: a schedule without any.
    add(&lab, StoredSchedule::new("single", "t", "@at 2026-01-01T00:02:20Z"));
    lab.until(150.0);
    assert_eq!(now(&lab, "single", "no further occurrence"), ["ended"]);
}

#[test]
fn an_active_run_and_what_waits_behind_it_are_told() {
    let lab = Lab::new(2);
    node(&lab, 1_000);
    add(&lab, StoredSchedule::new("once", "t", "@every 60s").at_most_once().overlap(Overlap::Skip));
    let skips = StoredSchedule::new("skips", "t", "@every 60s").at_most_once();
    add(&lab, skips.overlap(Overlap::Skip));
    add(&lab, StoredSchedule::new("least", "t", "@every 60s"));
    lab.until(70.0);
    let says = "its schedule continues when the run ends";
    assert_eq!(now(&lab, "least", says), ["running"], "a first attempt is no failure");
    assert_eq!(then(&lab, "least", 60.0, "runs since 2026-01-01T00:01:00"), ["running"]);
    lab.operate("once", Action::trigger("mine")).unwrap();
    lab.until(80.0);
    let says = "its trigger \"mine\" has been due since 2026-01-01T00:01:10Z and waits for the end of the \
                run of 2026-01-01T00:01:00Z";
    assert_eq!(now(&lab, "once", says), ["running", "waits-for-run"]);
    lab.until(200.0);
    let skipped = then(&lab, "skips", 120.0, "was skipped: the run of 2026-01-01T00:01:00Z");
    assert_eq!(skipped, ["skipped-overlap"]);
    assert_eq!(then(&lab, "least", 120.0, "waits for the end of the run of"), ["waits-for-run"]);
    assert_eq!(then(&lab, "least", 119.0, "not a scheduled time"), ["not-scheduled"]);
    lab.until(1_200.0);
    assert_eq!(then(&lab, "least", 120.0, "was still active until"), ["missed-behind-run"]);
}

#[test]
fn runs_whose_nodes_die_are_told_until_they_are_recovered_or_lost() {
    let lab = Lab::new(3);
    let members = [node(&lab, 20), node(&lab, 20)];
    lab.until(30.0);
    for stored in [minutely("least", "t"), minutely("once", "t").at_most_once()] {
        add(&lab, stored.max_runs(1));
    }
    lab.until(65.0);
    for member in &members {
        member.node.crash();
    }
    node(&lab, 20);
    lab.until(121.0);
    let lost = now(&lab, "once", "its last run was lost");
    assert_eq!(lost, ["lost", "ended"]);
    assert_eq!(then(&lab, "once", 60.0, "recorded as lost"), ["lost"]);
    lab.until(200.0);
    assert_eq!(then(&lab, "least", 60.0, "had ended without a result"), ["recovered"]);
}

#[test]
fn a_run_on_a_dead_node_waits_for_the_end_of_its_lease() {
    let lab = Lab::new(4);
    let dead = lab.start(|seat, b| {
        b.add("job", seat.job(every(secs(60)), secs(50)).at_least_once(secs(600)))
    });
    lab.until(65.0);
    dead.node.crash();
    lab.start(|seat, b| b.add("job", seat.job(every(secs(60)), secs(50)).at_least_once(secs(600))));
    lab.until(150.0);
    assert_eq!(now(&lab, "job", "then another node runs it again"), ["node-dead"]);
    assert_eq!(then(&lab, "job", 60.0, "dead or does not reach the store"), ["node-dead"]);
}

#[test]
fn runs_that_were_cut_off_say_by_what() {
    let lab = Lab::new(5);
    let member =
        lab.start(|seat, b| b.kind("t", seat.handler(secs(1_000), |_| Ok(()))).grace(secs(5)));
    for name in ["cancelled", "deleted", "stopped"] {
        add(&lab, StoredSchedule::new(name, "t", "@at 2026-01-01T00:01:00Z").at_most_once());
    }
    add(&lab, StoredSchedule::new("again", "t", "@at 2026-01-01T00:01:00Z"));
    add(&lab, minutely("replaced", "t").at_most_once().overlap(Overlap::Replace));
    lab.until(70.0);
    lab.sim.block_on(schedules(&lab).cancel("cancelled")).unwrap();
    lab.sim.block_on(schedules(&lab).delete("deleted")).unwrap();
    lab.until(150.0);
    assert_eq!(then(&lab, "cancelled", 60.0, "an operator cancelled it"), ["cancelled"]);
    assert_eq!(then(&lab, "deleted", 60.0, "because the job was deleted"), ["deleted"]);
    assert_eq!(now(&lab, "deleted", "\"deleted\" was deleted"), ["deleted"]);
    let says = "the occurrence of 2026-01-01T00:02:00Z replaced it";
    assert_eq!(then(&lab, "replaced", 60.0, says), ["replaced"]);
    member.handle.stop();
    lab.until(170.0);
    assert_eq!(then(&lab, "stopped", 60.0, "its node was stopped before it ended"), ["shutdown"]);
    let says = "was dropped before it ended; the next attempt is due at";
    assert_eq!(then(&lab, "again", 60.0, says), ["interrupted"]);
    let nothing = lab.sim.block_on(schedules(&lab).why("nothing", None)).unwrap_err();
    assert_eq!(nothing.kind(), ErrorKind::NotFound);
}

#[test]
fn a_time_during_a_pause_is_told_while_it_lasts_and_afterwards() {
    let lab = Lab::new(6);
    node(&lab, 0);
    add(&lab, minutely("job", "t"));
    add(&lab, minutely("kept", "t"));
    lab.until(70.0);
    for name in ["job", "kept"] {
        lab.sim.block_on(schedules(&lab).pause(name, "repairs")).unwrap();
    }
    lab.until(300.0);
    assert_eq!(now(&lab, "job", "since 2026-01-01T00:01:10Z: repairs"), ["paused"]);
    let says =
        "2026-01-01T00:03:00Z has not run yet: it has been paused since 2026-01-01T00:01:10Z";
    assert_eq!(then(&lab, "job", 180.0, says), ["paused"]);
    lab.until(310.0);
    lab.sim.block_on(schedules(&lab).resume("job", Gap::Missed)).unwrap();
    lab.sim.block_on(schedules(&lab).resume("kept", Gap::CatchUp)).unwrap();
    lab.until(330.0);
    assert_eq!(then(&lab, "job", 180.0, "when an operator resumed"), ["missed-change"]);
    assert_eq!(then(&lab, "kept", 180.0, "a pause, the store, or that none"), ["missed-catch-up"]);
    assert_eq!(then(&lab, "kept", 300.0, "and succeeded"), ["succeeded"]);
}

#[test]
fn an_outage_of_all_nodes_is_told_while_it_lasts_and_afterwards() {
    let lab = Lab::new(7);
    add(&lab, StoredSchedule::new("job", "t", "@every 60s"));
    add(&lab, StoredSchedule::new("strict", "t", "@every 60s").window(secs(10)));
    lab.until(200.0);
    let says = "has not run yet: no node is live on this store";
    assert_eq!(then(&lab, "job", 120.0, says), ["no-live-node"]);
    assert_eq!(now(&lab, "job", "no node is live on this store"), ["no-live-node"]);
    node(&lab, 0);
    lab.until(220.0);
    let says = "none of the known nodes was live at that time: the first one since started at \
                2026-01-01T00:03:20Z";
    assert_eq!(then(&lab, "job", 120.0, says), ["missed-catch-up", "no-live-node"]);
    assert_eq!(
        then(&lab, "strict", 120.0, "later than the window"),
        ["missed-window", "no-live-node"]
    );
    let says = "not a scheduled time of its schedule";
    assert_eq!(then(&lab, "job", 100.0, says), ["not-scheduled", "missed-catch-up"]);
    assert_eq!(then(&lab, "job", 180.0, "and succeeded"), ["succeeded"]);
}

#[test]
fn an_outage_of_the_store_is_not_guessed() {
    let lab = Lab::new(8);
    let member = node(&lab, 0);
    add(&lab, minutely("job", "t"));
    lab.until(70.0);
    member.faults.down.store(true, Relaxed);
    lab.until(200.0);
    let says = "if one runs, it does not reach the store";
    assert_eq!(now(&lab, "job", says), ["no-live-node"]);
    member.faults.down.store(false, Relaxed);
    lab.until(230.0);
    let says = "what kept the nodes from it is not recorded";
    assert_eq!(then(&lab, "job", 120.0, says), ["missed-catch-up"]);
    assert_eq!(then(&lab, "job", 180.0, "and succeeded"), ["succeeded"]);
}

#[test]
fn a_node_that_stands_still_leaves_its_jobs_due_and_then_overdue() {
    let lab = Lab::new(9);
    let member =
        lab.start(|seat, b| b.kind("t", seat.handler(ms(0), |_| Ok(()))).heartbeat(secs(60)));
    add(&lab, minutely("job", "t"));
    lab.until(110.0);
    member.node.suspend();
    lab.until(130.0);
    assert_eq!(now(&lab, "job", "a node claims it any moment"), ["due"]);
    lab.until(200.0);
    assert_eq!(now(&lab, "job", "of those that can run it (n"), ["job-overdue"]);
    assert_eq!(then(&lab, "job", 120.0, "has not run yet"), ["job-overdue"]);
}

#[test]
fn what_no_live_node_runs_says_what_is_missing() {
    let lab = Lab::new(10);
    let before = lab.start(|seat, b| b.add("old", seat.job(every(secs(600)), ms(0))));
    add(&lab, minutely("fax", "fax"));
    lab.until(20.0);
    before.handle.stop();
    lab.until(30.0);
    let new = lab.start(|_, b| b);
    lab.until(100.0);
    assert_eq!(now(&lab, "fax", "no live node handles its kind \"fax\""), ["kind-unhandled"]);
    assert_eq!(now(&lab, "old", "it is orphaned"), ["jobs-orphaned"], "and it has no next time");
    new.handle.need_labels(["gpu"]).unwrap();
    lab.until(140.0);
    assert_eq!(now(&lab, "old", "need the label gpu"), ["label-unmatched"]);
    let mut report = ProgramReport::default();
    report.kept_jobs = vec!["old".to_owned()];
    report.conditions = vec!["crontab x:1: hour 24".to_owned()];
    new.handle.need_labels::<String>([]).unwrap();
    new.handle.report(report);
    lab.until(180.0);
    assert_eq!(now(&lab, "old", "crontab x:1: hour 24"), ["job-kept"]);
}

#[test]
fn a_definition_that_no_live_build_can_run_is_told() {
    let lab = Lab::new(11);
    lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0))));
    lab.until(25.0);
    lab.operate("job", Action::Pause { note: "", until: None }).unwrap();
    let seen = lab.state("job");
    let (generation, plan) = (seen.generation, Replan::new(seen.next, seen.next));
    let definition = "@code every other sunday";
    lab.operate("job", Action::Redefine { generation, definition, version: 0, plan }).unwrap();
    lab.until(200.0);
    assert_eq!(now(&lab, "job", "cannot run its definition"), ["definition-conflict", "paused"]);
}

#[test]
fn a_busy_key_and_a_full_node_are_told() {
    let lab = Lab::new(12);
    lab.start(|seat, b| {
        let job = |key: &'static str| seat.job(once(at(60.0)), secs(1_000)).mutex(key);
        b.concurrency(2)
            .add("holder", job("tapes"))
            .add("waiter", seat.job(once(at(65.0)), ms(0)).mutex("tapes"))
            .add("other", seat.job(once(at(62.0)), secs(1_000)))
            .add("crowded", seat.job(once(at(70.0)), ms(0)))
    });
    lab.until(120.0);
    let says = "waits for the concurrency key tapes, held by holder on n";
    assert_eq!(now(&lab, "waiter", says), ["key-busy"]);
    assert_eq!(then(&lab, "waiter", 65.0, "has not run yet: it has been due since"), ["key-busy"]);
    assert_eq!(now(&lab, "crowded", "with 2 of 2"), ["capacity-full"]);
}

#[test]
fn occurrences_that_policies_leave_out_say_by_which_rule() {
    let lab = Lab::new(13);
    node(&lab, 600);
    let key = || StoredSchedule::new("keyed", "bad", "@every 60s").at_most_once();
    add(
        &lab,
        StoredSchedule::new("holder", "t", "@at 2026-01-01T00:00:30Z").concurrency_key("k", 1),
    );
    add(&lab, key().concurrency_key("k", 1).max_key_wait(secs(100)));
    add(
        &lab,
        minutely("holiday", "bad")
            .at_most_once()
            .schedule("* * * * * UTC; blackout 2026-01-01T00:01:30Z/2026-01-01T00:03:30Z"),
    );
    lab.until(400.0);
    assert_eq!(then(&lab, "keyed", 60.0, "its concurrency key was busy"), ["skipped-key"]);
    assert_eq!(then(&lab, "holiday", 180.0, "was skipped: the calendar"), ["skipped-calendar"]);
    lab.operate("holder", Action::trigger("mine")).unwrap();
    let trigger = (lab.now() - at(0.0)).num_milliseconds() as f64 / 1_000.0;
    lab.until(410.0);
    lab.sim.block_on(schedules(&lab).cancel("holder")).unwrap();
    lab.until(420.0);
    assert_eq!(then(&lab, "holder", trigger, "by an operator"), ["skipped-operator"]);
}

#[test]
fn a_clock_that_was_ahead_is_told_instead_of_the_time_that_it_left() {
    let lab = Lab::new(14);
    lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0))));
    lab.until(25.0);
    lab.clock().set_skew(TimeDelta::days(1));
    lab.until(85.0);
    lab.clock().set_skew(TimeDelta::zero());
    lab.until(120.0);
    assert_eq!(now(&lab, "job", "`allora reset job` or `Schedules::reset`"), ["clock-was-ahead"]);
}

#[test]
fn times_without_an_entry_say_what_is_known() {
    let lab = Lab::new(15);
    node(&lab, 0);
    lab.until(50.0);
    add(&lab, minutely("job", "t"));
    lab.until(130.0);
    assert_eq!(then(&lab, "job", 0.0, "was created at 2026-01-01T00:00:50"), ["created-later"]);
    assert_eq!(then(&lab, "job", 600.0, "has not come yet"), ["in-future"]);
    assert_eq!(
        then(&lab, "job", 61.0, "the next one after it is 2026-01-01T00:02:00Z"),
        ["not-scheduled"]
    );
    let client = schedules(&lab);
    let read = lab.sim.block_on(client.get("job")).unwrap();
    let changed = StoredSchedule::of(&read).unwrap().schedule("*/2 * * * * UTC");
    lab.sim.block_on(client.modify(&changed)).unwrap();
    assert_eq!(then(&lab, "job", -3_600.0, "was created at"), ["created-later"]);
    // Without a history nothing is known.
    let bare = Memory::new().with_clock({
        let clock = lab.clock();
        move || allora_core::Runtime::wall(&clock)
    });
    let client = Schedules::on(bare, lab.clock()).unwrap();
    lab.sim.block_on(client.add(&minutely("job", "t"))).unwrap();
    let at_most = lab.sim.block_on(client.why("job", Some(at(60.0)))).unwrap();
    assert_eq!(at_most.code, WhyCode::CreatedLater, "{at_most}");
}

#[test]
fn a_definition_or_a_history_of_later_says_so() {
    let store = |limits: Option<HistoryLimits>, lab: &Lab| {
        let clock = lab.clock();
        let store = Memory::new().with_clock(move || allora_core::Runtime::wall(&clock));
        limits.map_or(store.clone(), |limits| store.with_history(limits))
    };
    for (limits, code) in [(None, "no-history"), (Some(HistoryLimits::from(3)), "before-history")] {
        let lab = Lab::new(16);
        let store = store(limits, &lab);
        let seat = lab.seat(lab.sim.node());
        let handler = seat.handler(ms(0), |_| Ok(()));
        let scheduler = seat.builder_on(store.clone()).kind("t", handler).build().unwrap();
        seat.run(scheduler);
        let client = Schedules::on(store, lab.clock()).unwrap();
        lab.sim.block_on(client.add(&minutely("job", "t"))).unwrap();
        lab.until(20_000.0);
        let why = lab.sim.block_on(client.why("job", Some(at(60.0)))).unwrap();
        assert_eq!(why.code.word(), code, "{why}");
        let read = lab.sim.block_on(client.get("job")).unwrap();
        let changed = StoredSchedule::of(&read).unwrap().schedule("*/2 * * * * UTC");
        lab.sim.block_on(client.modify(&changed)).unwrap();
        let why = lab.sim.block_on(client.why("job", Some(at(120.0)))).unwrap();
        assert_eq!(why.code, WhyCode::ChangedLater, "{why}");
    }
}

#[test]
fn nights_on_which_the_clocks_change_are_told() {
    let night = |from: &str, until: &str, asked: &[(&str, &[&str])]| {
        let lab = Lab::starting(Sim::starting_at(17, from.parse().unwrap()));
        node(&lab, 0);
        add(&lab, StoredSchedule::new("nightly", "t", "30 2 * * * Europe/Rome"));
        lab.sim.run_until(until.parse().unwrap());
        for (time, codes) in asked {
            let at = time.parse().unwrap();
            let why = lab.sim.block_on(schedules(&lab).why("nightly", Some(at))).unwrap();
            let said: Vec<&str> = why.each().map(|one| one.code.word()).collect();
            assert_eq!(said, *codes, "{time}: {why}");
        }
    };
    let autumn: &[(&str, &[&str])] = &[
        ("2026-10-25T00:30:00Z", &["succeeded"]),
        ("2026-10-25T01:30:00Z", &["dropped-by-clock-change"]),
    ];
    night("2026-10-25T00:00:00Z", "2026-10-25T02:00:00Z", autumn);
    let spring: &[(&str, &[&str])] =
        &[("2026-03-29T01:00:00Z", &["succeeded", "moved-by-clock-change"])];
    night("2026-03-29T00:30:00Z", "2026-03-29T01:30:00Z", spring);
}

#[test]
fn a_calendar_that_is_missing_keeps_a_schedule_from_running() {
    let lab = Lab::new(18);
    node(&lab, 0);
    let client = schedules(&lab);
    let holidays = Calendar::parse("2026-05-01").unwrap();
    lab.sim.block_on(client.upsert_calendar("free", &holidays)).unwrap();
    add(&lab, StoredSchedule::new("job", "t", "* * * * *; except calendar:free"));
    lab.sim.block_on(client.delete("allora:calendar:free")).unwrap();
    lab.until(20.0);
    assert_eq!(now(&lab, "job", "\"free\" is not in the store"), ["job-invalid"]);
}

#[test]
fn few_entries_of_a_long_history_are_read() {
    let lab = Lab::new(19);
    node(&lab, 0);
    add(&lab, StoredSchedule::new("job", "t", "@every 1s").catch_up(CatchUp::None));
    lab.until(4_000.0);
    assert_eq!(then(&lab, "job", 5.0, "and succeeded"), ["succeeded"]);
    assert_eq!(then(&lab, "job", 3_999.0, "and succeeded"), ["succeeded"]);
}

#[test]
fn a_time_outside_of_the_calendar_is_refused_and_its_ends_are_answered() {
    let lab = Lab::new(1);
    add(&lab, StoredSchedule::new("every", "t", "@every 870000h"));
    let ask = |at| lab.sim.block_on(schedules(&lab).why("every", Some(at)));
    for wrong in [Time::MIN_UTC, Time::MAX_UTC] {
        assert_eq!(ask(wrong).unwrap_err().kind(), ErrorKind::Invalid);
    }
    for right in [Time::UNIX_EPOCH, end_of_time()] {
        ask(right).unwrap();
    }
}
