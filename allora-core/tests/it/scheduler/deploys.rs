//! Nodes with different builds at the same time: another definition stops no job.

use crate::support::{Lab, Member, Seat, at, ms, secs};
use allora_core::{
    BoxError, CatchUp, Condition, Event, Job, JobSpec, Run, Schedules, Time,
    backend::{Action, Replan},
    cron,
    stored::ahead_until,
};
use futures::future::BoxFuture;
use std::time::Duration;

/// A job every ten seconds.
fn old(seat: &Seat) -> JobSpec {
    seat.job(cron("*/10 * * * * *").unwrap(), ms(10)).at_least_once(secs(30))
}

type Change = (&'static str, fn(&Seat) -> JobSpec);

/// The definitions of a new build. All of them have the occurrences of the old one.
fn changed() -> [Change; 6] {
    fn with(seat: &Seat, text: &str) -> JobSpec {
        seat.job(cron(text).unwrap(), ms(10)).at_least_once(secs(30))
    }
    [
        ("text", |seat| with(seat, "*/5 * * * * *")),
        ("zone", |seat| with(seat, "*/10 * * * * * Asia/Tokyo")),
        ("delivery", |seat| seat.job(cron("*/10 * * * * *").unwrap(), ms(10))),
        ("setting", |seat| old(seat).catch_up(CatchUp::All { limit: 9 })),
        ("version", |seat| old(seat).jitter(ms(5)).version(7)),
        ("lease", |seat| seat.job(cron("*/10 * * * * *").unwrap(), ms(10)).at_least_once(secs(9))),
    ]
}

/// Asserts that each occurrence of the old definition ran once.
fn assert_whole(lab: &Lab, what: &str, until: u32) {
    let ran = lab.ran("job");
    for at in (10..until).step_by(10).map(f64::from) {
        let runs = ran.iter().filter(|run| **run == at).count();
        assert_eq!(runs, 1, "{what}: the occurrence of {at} ran {runs} times: {ran:?}");
    }
    let latest = lab.log.of("job").iter().map(|run| run.began - run.at).max().unwrap();
    assert!(latest < chrono::TimeDelta::seconds(2), "{what}: {latest} late");
    assert_eq!(lab.state("job").counters.missed, 0, "{what}");
}

/// Three nodes with the old build, and one with the new one that leaves again.
fn leaves(leave: fn(&Member)) {
    for (seed, (what, new)) in changed().into_iter().enumerate() {
        let lab = Lab::new(seed as u64);
        let _nodes = [(); 3].map(|()| lab.start(|seat, b| b.add("job", old(seat))));
        lab.until(32.0);
        let tried = lab.start(|seat, b| b.add("job", new(seat)));
        lab.until(47.0);
        leave(&tried);
        lab.until(125.0);
        assert_whole(&lab, what, 120);
        // The old build again.
        let again = lab.start(|seat, b| b.add("job", old(seat)));
        lab.until(155.0);
        assert_whole(&lab, what, 150);
        let is_older = what == "version";
        assert_eq!(again.news().contains(&"Redefined".to_owned()), !is_older, "{what}");
    }
}

#[test]
fn a_new_build_that_dies_silences_no_job() {
    leaves(|member| member.node.crash());
}

#[test]
fn a_new_build_that_is_rolled_back_silences_no_job() {
    leaves(|member| member.handle.stop());
}

#[test]
fn an_occurrence_that_came_between_two_builds_runs() {
    let changed: [fn(&Seat) -> JobSpec; 3] = [
        |seat| seat.job(cron("0 0 * * *").unwrap(), ms(10)).catch_up(CatchUp::All { limit: 3 }),
        |seat| seat.job(cron("0 12 * * *").unwrap(), ms(10)),
        |seat| seat.job(cron("0 0 * * * Asia/Tokyo").unwrap(), ms(10)).at_least_once(secs(30)),
    ];
    let day = 86_400.0;
    for (seed, new) in changed.into_iter().enumerate() {
        let lab = Lab::new(seed as u64);
        lab.until(day - 3_600.0);
        let before =
            lab.start(|seat, b| b.add("job", seat.job(cron("0 0 * * *").unwrap(), ms(10))));
        lab.until(day - 60.0);
        before.handle.stop();
        lab.until(day + 60.0);
        lab.start(|seat, b| b.add("job", new(seat)));
        lab.until(day + 120.0);
        assert_eq!(lab.ran("job"), [day], "midnight runs, under definition {seed}");
    }
}

/// A definition of a newer build, with a setting that this build does not know.
fn define(lab: &Lab, definition: &str, version: u64) {
    let seen = lab.state("job");
    let plan = Replan::new(seen.next, seen.next);
    let generation = seen.generation;
    lab.operate("job", Action::Redefine { generation, definition, version, plan }).unwrap();
}

#[test]
fn a_definition_that_no_live_node_can_read_is_replaced_after_a_while() {
    let lab = Lab::new(3);
    let nodes = [(); 3].map(|()| lab.start(|seat, b| b.add("job", old(seat))));
    lab.until(25.0);
    define(&lab, "*/10 * * * * * UTC; at-least-once 30000ms; sparkle 3", 9);
    lab.until(160.0);
    let ran = lab.ran("job");
    let (before, after): (Vec<f64>, Vec<f64>) = ran.iter().partition(|at| **at < 25.0);
    assert_eq!(before, [10., 20.]);
    assert!(after[0] <= 150.0, "{after:?}");
    let news: Vec<String> = nodes.iter().flat_map(Member::news).collect();
    let count = |what: &str| news.iter().filter(|one| *one == what).count();
    assert_eq!((count("definition-conflict"), count("Redefined")), (3, 1), "{news:?}");
    let was_abandoned =
        |event: &Event| matches!(event, Event::Redefined { was_abandoned: true, .. });
    assert!(nodes.iter().any(|node| node.events().iter().any(was_abandoned)));
    // The record keeps the version, so that a node with that build sets its definition again.
    assert_eq!(lab.state("job").version, 9);
    let new = lab.start(|seat, b| b.add("job", old(seat).jitter(ms(3)).version(9)));
    lab.until(200.0);
    assert!(new.news().contains(&"Redefined".to_owned()), "{:?}", new.news());
    assert!(lab.ran("job").contains(&190.0));
}

#[test]
fn a_definition_that_waits_for_its_node_is_not_replaced_while_paused() {
    let lab = Lab::new(4);
    let node = lab.start(|seat, b| b.add("job", old(seat)));
    lab.until(25.0);
    define(&lab, "@code every other sunday", 0);
    lab.operate("job", Action::Pause { note: "", until: None }).unwrap();
    lab.until(400.0);
    assert_eq!(lab.ran("job"), [10., 20.]);
    assert_eq!(node.news(), ["Ready", "definition-conflict"]);
}

/// A schedule of the user's own, whose text looks like a cron expression.
struct Holidays;

#[async_trait::async_trait]
impl Job for Holidays {
    fn next_at(&self, after: Time) -> Option<Time> {
        Some(after + Duration::from_secs(3_600))
    }
    async fn run(&self, _: Run) -> Result<(), BoxError> {
        Ok(())
    }
    fn definition(&self) -> Option<String> {
        Some("*/10 * * * * *".to_owned())
    }
}

#[test]
fn the_text_of_a_user_defined_schedule_is_never_parsed() {
    let lab = Lab::new(5);
    let mine = lab.start(|_, b| b.add("job", JobSpec::from(Holidays)));
    lab.until(1.0);
    assert_eq!(lab.state("job").definition, "@code */10 * * * * *");
    let same = lab.start(|_, b| b.add("job", JobSpec::from(Holidays)));
    lab.until(2.0);
    assert_eq!((mine.news(), same.news()), (vec!["Ready".to_owned()], vec!["Ready".to_owned()]));
    // Another build has a plain schedule: it sets its own, and the others run that.
    let plain = lab.start(|seat, b| b.add("job", old(seat)));
    lab.until(35.0);
    assert_eq!(plain.news(), ["Ready", "Redefined"]);
    assert_eq!(lab.state("job").next, Some(at(40.0).into()));
}

/// A schedule of the user's own with the times of a cron expression.
struct OfOurOwn {
    work: Box<dyn Fn(Run) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>,
}

#[async_trait::async_trait]
impl Job for OfOurOwn {
    fn next_at(&self, after: Time) -> Option<Time> {
        Time::from_timestamp((after.timestamp() / 300 + 1) * 300, 0)
    }
    async fn run(&self, run: Run) -> Result<(), BoxError> {
        (self.work)(run).await
    }
    fn definition(&self) -> Option<String> {
        Some("0 */5 * * * *".to_owned())
    }
}

/// Its nodes alone know its times, so they set them after a reset: a live one, and one that starts
/// later.
#[test]
fn a_job_with_a_schedule_of_its_own_runs_again_after_a_reset() {
    for (seed, is_live) in [(30, true), (31, false)] {
        let lab = Lab::new(seed);
        let start = || {
            lab.start(|seat, b| {
                let handler = seat.handler(ms(10), |_| Ok(()));
                let work = Box::new(move |run: Run| (handler.clone())(run));
                b.add("job", JobSpec::from(OfOurOwn { work }))
            })
        };
        let member = start();
        lab.until(310.0);
        lab.clock().set_skew(chrono::TimeDelta::days(365));
        lab.until(615.0);
        lab.clock().set_skew(chrono::TimeDelta::zero());
        lab.until(1_000.0);
        assert!(lab.state("job").next.unwrap().scheduled_at > at(86_400.0), "it waits for a year");
        let ahead = || ahead_until(&lab.state("job"), lab.now());
        assert!(ahead() > Some(at(86_400.0)), "{:?}", ahead());
        if !is_live {
            member.handle.stop();
            lab.until(1_010.0);
        }
        let schedules = Schedules::on(lab.store.clone(), member.node.clone()).unwrap();
        let before = lab.log.of("job").len();
        lab.sim.block_on(schedules.reset("job")).unwrap();
        let member = if is_live { member } else { start() };
        lab.until(2_000.0);
        let ran: Vec<_> = lab.log.of("job")[before..].iter().map(|run| run.at).collect();
        assert_eq!(ahead(), None);
        assert_eq!(ran, [at(1_200.0), at(1_500.0), at(1_800.0)], "{is_live}");
        assert!(!member.news().contains(&"Redefined".to_owned()), "{:?}", member.news());
        assert_eq!(lab.state("job").definition, "@code 0 */5 * * * *");
    }
}

/// A node is killed, or stopped.
const LEAVES: [fn(&Member); 2] = [|member| member.node.crash(), |member| member.handle.stop()];

/// The definitions that the old build cannot run are replaced when a due occurrence has waited for a
/// minute, at whatever time the new build leaves.
#[test]
fn an_unknown_word_and_a_schedule_of_its_own_in_a_new_build_miss_nothing_and_start_nothing_twice() {
    let old = |seat: &Seat| {
        let schedule = cron("0 */5 * * * *").unwrap();
        seat.job(schedule, ms(10)).at_least_once(secs(30))
    };
    for (seed, leave) in (0..16).zip(LEAVES.into_iter().cycle()) {
        let lab = Lab::new(seed);
        let nodes = [(); 3].map(|()| lab.start(|seat, b| b.add("job", old(seat))));
        lab.until(310.0);
        let with_a_word = seed % 4 < 2;
        let tried = lab.start(|seat, b| {
            if with_a_word {
                return b;
            }
            let handler = seat.handler(ms(10), |_| Ok(()));
            let work = Box::new(move |run: Run| (handler.clone())(run));
            b.add("job", JobSpec::from(OfOurOwn { work }).at_least_once(secs(30)))
        });
        lab.until(315.0);
        if with_a_word {
            define(&lab, "0 */5 * * * * UTC; at-least-once 30000ms; sparkle 3", 0);
        }
        lab.until(320.0 + 53.0 * seed as f64);
        leave(&tried);
        lab.until(2_950.0);
        let case = format!("seed {seed}");
        let ran = lab.ran("job");
        assert_eq!(ran, (1..=9).map(|n| 300.0 * f64::from(n)).collect::<Vec<_>>(), "{case}");
        let late = lab.log.of("job").iter().map(|run| run.began - run.at).max().unwrap();
        assert!(late < chrono::TimeDelta::seconds(125), "{case}: {late} late");
        assert_eq!(lab.state("job").counters.missed, 0, "{case}");
        let events: Vec<Event> = nodes.iter().flat_map(Member::events).collect();
        let count = |is: fn(&Event) -> bool| events.iter().filter(|event| is(event)).count();
        let replaced = count(|one| matches!(one, Event::Redefined { was_abandoned: true, .. }));
        assert_eq!(replaced, 1, "{case}");
        assert_eq!(
            count(|one| matches!(one, Event::Began(Condition::DefinitionConflict { .. }))),
            3,
            "{case}"
        );
    }
}

/// A new build on one of four nodes, for a while without the capacity to run its job.
#[test]
fn a_new_build_is_not_rolled_back_by_the_nodes_of_the_old_one() {
    for (seed, heartbeat) in [(0, 15), (1, 1), (2, 300)] {
        let lab = Lab::new(seed);
        let _old = [(); 3]
            .map(|()| lab.start(|seat, b| b.heartbeat(secs(heartbeat)).add("job", old(seat))));
        lab.until(700.0);
        let canary = lab.start(|seat, b| {
            let fill = seat.job(cron("20 12 * * * *").unwrap(), secs(260)).on_every_node();
            let handler = seat.handler(ms(10), |_| Ok(()));
            let work = Box::new(move |run: Run| (handler.clone())(run));
            let new = JobSpec::from(OfOurOwn { work }).at_least_once(secs(30));
            b.heartbeat(secs(heartbeat)).concurrency(1).add("fill", fill).add("job", new)
        });
        lab.until(1_210.0);
        let definition = lab.state("job").definition;
        assert!(definition.starts_with("@code"), "heartbeat {heartbeat} s: {definition}");
        // It is busy from 740 to 1000; its schedule is every five minutes.
        let runs = lab.log.of("job");
        let after: Vec<_> = runs.iter().filter(|run| run.at > at(705.0)).collect();
        let node = canary.handle.node().to_owned();
        assert!(after.len() >= 2 && after.iter().all(|run| run.node == node), "{after:?}");
        let free = after.iter().map(|run| run.began - run.at.max(at(1_000.0))).max().unwrap();
        assert!(free < chrono::TimeDelta::seconds(2), "heartbeat {heartbeat} s: {free} late");
        // When it has gone, an old one sets its own definition again.
        canary.node.crash();
        lab.until(4_800.0);
        let definition = lab.state("job").definition;
        assert!(!definition.starts_with("@code"), "heartbeat {heartbeat} s: {definition}");
    }
}
