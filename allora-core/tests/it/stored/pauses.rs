//! Pauses that end by themselves, on nodes and for clients.

use super::{add, schedules};
use crate::support::{Lab, at, ms, secs};
use allora_core::{
    CatchUp, ErrorKind, StoredSchedule, Time,
    backend::JobState,
    every,
    stored::{Bulk, DesiredState, Filter, Gap, ScheduleState},
};

fn pause_until(lab: &Lab, name: &str, until: f64) -> allora_core::Result<JobState> {
    lab.sim.block_on(schedules(lab).pause_until(name, at(until), "repairs"))
}

/// The names of the jobs that are shown as paused.
fn paused(lab: &Lab) -> Vec<String> {
    let filter = Filter::default().state(ScheduleState::Paused);
    let list = lab.sim.block_on(schedules(lab).list(filter, None, 100)).unwrap();
    list.into_iter().map(|state| state.name).collect()
}

/// The end of a pause in the record, in which it stays until that is written.
fn end(lab: &Lab, name: &str) -> Option<Time> {
    lab.state(name).paused.and_then(|pause| pause.until)
}

#[test]
fn a_pause_with_an_end_is_shown_while_it_lasts_and_ends_by_itself() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| {
        b.add("code", seat.job(every(secs(10)), ms(0))).kind("t", seat.handler(ms(0), |_| Ok(())))
    });
    add(&lab, StoredSchedule::new("rare", "t", "@every 1h"));
    add(&lab, StoredSchedule::new("stored", "t", "* * * * *").starting(at(60.0)));
    lab.until(15.0);
    for name in ["code", "rare", "stored"] {
        assert_eq!(pause_until(&lab, name, 130.0).unwrap().paused.unwrap().until, Some(at(130.0)));
    }
    let shown = || (member.handle.health().paused, member.handle.jobs()[0].is_paused);
    lab.until(129.0);
    assert_eq!(paused(&lab), ["code", "rare", "stored"]);
    assert_eq!(shown(), (1, true));
    lab.until(132.0);
    assert_eq!((paused(&lab), shown()), (vec![], (0, false)));
    assert_eq!(lab.story("code"), ["succeeded 10", "missed 20-120 11", "succeeded 130"]);
    assert_eq!(lab.story("stored"), ["missed 60-60 1", "succeeded 120"]);
    assert_eq!(end(&lab, "rare"), Some(at(130.0)), "nothing has written it");
    let seen = lab.sim.block_on(schedules(&lab).get("rare")).unwrap();
    assert_eq!((seen.paused, seen.due_at), (None, Some(at(3_600.0))));
    assert_eq!(pause_until(&lab, "rare", 200.0).unwrap().paused.unwrap().since, lab.now());
}

#[test]
fn what_passed_until_a_pause_has_ended_is_run_as_the_catch_up_policy_says() {
    let lab = Lab::new(2);
    lab.start(|seat, b| b.kind("t", seat.handler(ms(0), |_| Ok(()))));
    let minutely = |name: &str| StoredSchedule::new(name, "t", "* * * * *").starting(at(60.0));
    add(&lab, minutely("all").catch_up(CatchUp::All { limit: 10 }));
    add(&lab, minutely("late").window(secs(30)));
    for name in ["all", "late"] {
        pause_until(&lab, name, 230.0).unwrap();
    }
    lab.until(245.0);
    assert_eq!(lab.story("all")[..3], ["succeeded 60", "succeeded 120", "succeeded 180"]);
    assert_eq!(lab.story("late"), ["missed 60-180 3", "succeeded 240"]);
}

#[test]
fn a_pause_is_ended_before_its_end_and_cannot_end_in_the_past() {
    let lab = Lab::new(3);
    let member = lab.start(|seat, b| b.add("code", seat.job(every(secs(10)), ms(0))));
    lab.until(15.0);
    let past = pause_until(&lab, "code", 15.0).unwrap_err();
    assert_eq!(past.kind(), ErrorKind::Invalid);
    assert!(past.to_string().contains("give a later time"), "{past}");
    let handle = &member.handle;
    lab.sim.block_on(handle.pause_until("code", at(100.0), "")).unwrap();
    lab.until(32.0);
    lab.sim.block_on(handle.resume("code", Gap::CatchUp)).unwrap();
    lab.until(41.0);
    assert_eq!(
        lab.story("code"),
        ["succeeded 10", "missed 20-20 1", "succeeded 30", "succeeded 40"]
    );
}

#[test]
fn a_window_for_all_jobs_shortens_no_pause() {
    let lab = Lab::new(4);
    let client = schedules(&lab);
    for name in ["free", "long", "short", "stopped"] {
        add(&lab, StoredSchedule::new(name, "t", "@every 1h"));
    }
    pause_until(&lab, "long", 200.0).unwrap();
    pause_until(&lab, "short", 50.0).unwrap();
    lab.sim.block_on(client.pause("stopped", "")).unwrap();
    let window = Bulk::Pause { note: "window", until: Some(at(100.0)) };
    let report = lab.sim.block_on(client.bulk(Filter::default(), window)).unwrap();
    assert_eq!(report.changed, ["free", "short"]);
    let ends = ["free", "long", "short", "stopped"].map(|name| end(&lab, name));
    assert_eq!(ends, [Some(at(100.0)), Some(at(200.0)), Some(at(100.0)), None]);
    let all = Bulk::Pause { note: "", until: None };
    let report = lab.sim.block_on(client.bulk(Filter::default(), all)).unwrap();
    assert_eq!(report.changed, ["free", "long", "short"]);
    assert!(lab.sim.block_on(client.bulk_preview(Filter::default(), all)).unwrap().is_empty());
}

#[test]
fn a_schedule_that_is_declared_again_gets_back_its_pause_until_that_has_ended() {
    let lab = Lab::new(5);
    let client = schedules(&lab);
    let all = ["long", "short"].map(|name| StoredSchedule::new(name, "t", "@every 1h"));
    let sync = |declared| lab.sim.block_on(client.sync(declared)).unwrap().len();
    assert_eq!(sync(DesiredState::new(&all)), 2);
    pause_until(&lab, "long", 200.0).unwrap();
    pause_until(&lab, "short", 50.0).unwrap();
    let before = lab.state("long").paused;
    assert_eq!(sync(DesiredState::new(&[]).complete("")), 2);
    assert_eq!((end(&lab, "long"), end(&lab, "short")), (None, None), "orphans have no end");
    lab.until(60.0);
    assert_eq!(sync(DesiredState::new(&all).complete("")), 2);
    assert_eq!(lab.state("long").paused, before);
    assert_eq!(lab.state("short").paused, None);
}
