//! Trigger, pause, resume, redefine, delete, add: while everything runs.

use crate::support::{Lab, Rates, at, ms, secs};
use allora_core::{
    Condition, Event, Overlap, Retry, Run, Runtime, Scheduler, Schedules, cron, every, job,
    stored::Gap,
};
use std::sync::{Arc, Mutex};

#[test]
fn a_trigger_runs_at_once_beside_the_schedule_and_moves_nothing() {
    let lab = Lab::new(1);
    let members = [(); 2].map(|()| {
        lab.start(|seat, b| {
            b.add("job", seat.job(every(secs(60)), ms(5)))
                .add("leased", seat.job(every(secs(60)), ms(5)).at_least_once(secs(10)))
        })
    });
    lab.until(30.0);
    for name in ["job", "leased"] {
        lab.sim.block_on(members[0].handle.trigger(name, "mine")).unwrap();
        lab.sim.block_on(members[0].handle.trigger(name, "yours")).unwrap();
    }
    lab.until(65.0);
    for name in ["job", "leased"] {
        assert_eq!(lab.ran(name), [30., 30., 60.]);
        let runs = lab.log.of(name);
        let mut ids: Vec<_> = runs.iter().map(|run| run.trigger.as_deref()).collect();
        ids.sort();
        assert_eq!(ids, [None, Some("mine"), Some("yours")]);
        assert!(runs[1].began <= at(30.1), "{}", runs[1].began);
    }
}

#[test]
fn a_trigger_is_seen_although_it_falls_into_another_request() {
    for seed in 0..40 {
        let lab = Lab::new(seed);
        let member = lab.start(|seat, b| {
            seat.rates(Rates { delay: 1_000, delay_ms: 300, ..Rates::default() });
            b.add("job", seat.job(every(secs(2)), ms(5))).poll_interval(secs(3_600))
        });
        lab.until(21.05 + 0.001 * seed as f64);
        lab.sim.block_on(member.handle.trigger("job", "mine")).unwrap();
        lab.until(32.0);
        assert!(lab.log.of("job").iter().any(|run| run.trigger.is_some()), "seed {seed}");
        let mut ran = lab.log.of("job");
        ran.retain(|run| run.trigger.is_none());
        assert_eq!(ran.len(), 15, "seed {seed}: {:?}", lab.story("job"));
    }
}

#[test]
fn a_paused_job_rests_and_catches_up_when_it_is_resumed() {
    let lab = Lab::new(2);
    let members =
        [(); 2].map(|()| lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0)))));
    lab.until(15.0);
    lab.sim.block_on(members[0].handle.pause("job", "for a while")).unwrap();
    lab.until(45.0);
    lab.sim.block_on(members[1].handle.resume("job", Gap::CatchUp)).unwrap();
    lab.until(55.0);
    assert_eq!(lab.ran("job"), [10., 40., 50.]);
    assert!(lab.log.of("job")[1].began <= at(45.1));
}

#[test]
fn a_job_can_be_added_while_the_scheduler_runs() {
    let lab = Lab::new(3);
    let seat = lab.seat(lab.sim.node());
    let job = seat.job(every(secs(10)), ms(0));
    let scheduler = seat.builder().build().unwrap();
    let member = seat.run(scheduler);
    lab.until(15.0);
    member.handle.add("job", job.clone()).unwrap();
    assert!(member.handle.add("job", job).is_err());
    lab.until(36.0);
    assert_eq!(lab.ran("job"), [25., 35.]);
}

#[test]
fn a_schedule_that_is_seldom_intended_is_reported_when_it_is_added() {
    let lab = Lab::new(5);
    let codes = Arc::new(Mutex::new(Vec::new()));
    let seen = codes.clone();
    let scheduler = Scheduler::builder(allora_memory::Memory::new())
        .runtime(lab.sim.node())
        .on_event(move |event| {
            if let Event::ScheduleWarning { name, warning } = event {
                seen.lock().unwrap().push(format!("{name} {}", warning.code));
            }
        })
        .job("often", cron("* 2 * * *").unwrap(), async |_: Run| {})
        .job("once", cron("0 2 * * *").unwrap(), async |_: Run| {})
        .build()
        .unwrap();
    let added = job(cron("0 0 13 * FRI").unwrap(), async |_: Run| {});
    scheduler.handle().add("friday", added).unwrap();
    assert_eq!(*codes.lock().unwrap(), ["often every-minute", "friday either-day"]);
}

#[test]
fn a_node_runs_a_job_by_the_definition_that_another_node_has_set() {
    let lab = Lab::new(4);
    let old = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0))));
    lab.until(15.0);
    let new = lab.start(|seat, b| b.add("job", seat.job(every(secs(7)), ms(0))));
    // A notification makes the outdated node read before it claims.
    lab.sim.block_on(old.handle.trigger("job", "now")).unwrap();
    lab.until(80.0);
    assert_eq!(new.news(), ["Ready", "Redefined"]);
    assert_eq!(old.news(), ["Ready", "DefinitionAdopted"]);
    let of = |node: &str| lab.log.of("job").iter().filter(|run| run.node == node).count();
    let (by_old, by_new) = (of(old.handle.node()), of(new.handle.node()));
    // One of the old definition, one trigger, and those of the new one: 22, 29 to 78.
    assert_eq!(by_old + by_new, 11, "{by_old} and {by_new}");
    new.handle.stop();
    lab.until(119.0);
    let after: Vec<_> = lab.ran("job").into_iter().filter(|at| *at > 80.0).collect();
    assert_eq!(after, [85., 92., 99., 106., 113.]);
    assert_eq!(of(old.handle.node()) - by_old, 5, "the old node continues alone");
}

#[test]
fn an_older_version_does_not_win_back() {
    let lab = Lab::new(5);
    let job = |period| move |seat: &crate::support::Seat| seat.job(every(secs(period)), ms(0));
    lab.start(|seat, b| b.add("job", job(7)(seat).version(2)));
    lab.until(1.0);
    let old = lab.start(|seat, b| b.add("job", job(10)(seat).version(1)));
    lab.until(30.0);
    assert_eq!(lab.ran("job"), [7., 14., 21., 28.]);
    assert_eq!(old.news(), ["Ready", "DefinitionAdopted"]);
}

#[test]
fn an_edit_without_version_is_older_than_one_with_a_version() {
    let lab = Lab::new(5);
    let job = |period| move |seat: &crate::support::Seat| seat.job(every(secs(period)), ms(0));
    let versioned = lab.start(|seat, b| b.add("job", job(7)(seat).version(2)));
    lab.until(1.0);
    versioned.handle.stop();
    let edited = lab.start(|seat, b| b.add("job", job(10)(seat)));
    lab.until(30.0);
    assert_eq!(edited.news(), ["Ready", "DefinitionAdopted"], "also when no other node is left");
    assert_eq!(lab.ran("job"), [7., 14., 21., 28.]);
    let again = lab.start(|seat, b| b.add("job", job(10)(seat).version(2)));
    lab.until(65.0);
    assert_eq!(again.news(), ["Ready", "Redefined"]);
    assert_eq!(lab.ran("job")[4..], [40., 50., 60.]);
}

#[test]
fn a_redefinition_keeps_count_of_the_runs() {
    let lab = Lab::new(6);
    let first = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0)).max_runs(2)));
    lab.until(25.0);
    first.handle.stop();
    lab.start(|seat, b| b.add("job", seat.job(every(secs(5)), ms(0)).max_runs(2)));
    lab.until(60.0);
    assert_eq!(lab.ran("job"), [10., 20.]);
}

#[test]
fn a_deleted_job_is_not_brought_back_by_a_poll_but_by_a_restart() {
    let lab = Lab::new(7);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), secs(4))));
    lab.until(11.0);
    lab.operate("job", allora_core::backend::Action::Delete).unwrap();
    lab.until(100.0);
    assert_eq!(lab.ran("job"), [10.]);
    assert!(member.news().contains(&"job-deleted".to_owned()), "{:?}", member.news());
    let old = lab.log.of("job")[0].clone();
    member.handle.stop();
    lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), secs(4))));
    lab.until(111.0);
    let new = lab.log.of("job")[1].clone();
    assert!(new.fence > old.fence && new.key != old.key && new.at == at(110.0));
}

#[test]
fn a_trigger_waits_for_a_job_that_must_not_overlap() {
    let lab = Lab::new(8);
    let member = lab
        .start(|seat, b| b.add("job", seat.job(every(secs(60)), secs(10)).overlap(Overlap::Wait)));
    lab.until(62.0);
    lab.sim.block_on(member.handle.trigger("job", "later")).unwrap();
    lab.until(100.0);
    let runs = lab.log.of("job");
    assert_eq!(runs.len(), 2);
    assert!(runs[1].began >= at(70.0) && runs[1].began <= at(70.1), "{}", runs[1].began);
}

#[test]
fn the_store_decides_and_wrong_clocks_of_nodes_change_nothing() {
    let lab = Lab::new(9);
    let members =
        [(); 3].map(|()| lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0)))));
    for (n, member) in members.iter().enumerate() {
        let step = chrono::TimeDelta::minutes(10 * (n as i64 - 1));
        lab.until(31.0 * (n + 1) as f64);
        member.node.set_skew(step);
    }
    lab.until(200.5);
    assert_eq!(lab.ran("job"), (1..=20).map(|n| 10.0 * f64::from(n)).collect::<Vec<_>>());
    for run in lab.log.of("job") {
        assert!((run.began - run.at).num_milliseconds().abs() <= 10, "{run:?}");
    }
}

#[test]
fn a_clock_that_steps_back_does_not_stop_a_lone_node() {
    let lab = Lab::new(10);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(10)), ms(0))));
    lab.until(25.0);
    member.node.set_skew(chrono::TimeDelta::hours(-1));
    lab.until(55.0);
    assert_eq!(lab.ran("job"), [10., 20., 30., 40., 50.]);
    let clock_off = |event: &Event| matches!(event, Event::Began(Condition::ClockSkew { offset_ms, .. }) if *offset_ms < 0);
    assert!(member.events().iter().any(clock_off));
    assert!(member.node.wall() < at(0.0));
}

#[test]
fn a_job_whose_store_was_a_year_ahead_runs_again_after_a_reset() {
    for least_once in [false, true] {
        let lab = Lab::new(12);
        let member = lab.start(|seat, b| {
            let job = seat.job(every(secs(10)), ms(0));
            b.add("job", if least_once { job.at_least_once(secs(30)) } else { job })
        });
        lab.until(25.0);
        lab.clock().set_skew(chrono::TimeDelta::days(365));
        lab.until(85.0);
        lab.clock().set_skew(chrono::TimeDelta::zero());
        lab.until(200.0);
        let before = lab.log.of("job").len();
        let ahead = member.events().into_iter().find_map(|event| match event {
            Event::Began(Condition::ClockWasAhead { job, until, .. }) => {
                Some((job.to_string(), until))
            }
            _ => None,
        });
        assert!(ahead.is_some_and(|(name, until)| name == "job" && until > at(86_400.0)));
        let schedules = Schedules::on(lab.store.clone(), member.node.clone()).unwrap();
        let seen = lab.sim.block_on(schedules.get("job")).unwrap();
        assert!(seen.next.unwrap().scheduled_at > at(86_400.0), "it waits for a year");
        let reset = lab.sim.block_on(schedules.reset("job")).unwrap();
        assert!(reset.incarnation > seen.incarnation);
        lab.until(245.0);
        let ran: Vec<_> = lab.log.of("job")[before..].iter().map(|run| run.at).collect();
        assert_eq!(ran.len(), 4, "{ran:?}");
        assert!(ran.iter().all(|at| *at > lab.now() - chrono::TimeDelta::seconds(45)), "{ran:?}");
    }
}

#[test]
fn a_machine_that_slept_is_on_time_again_after_a_safety_poll() {
    let lab = Lab::new(11);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(60)), ms(0))));
    lab.until(30.0);
    member.node.suspend();
    lab.until(630.0);
    member.node.resume();
    lab.until(725.0);
    assert_eq!(lab.ran("job"), [600., 660., 720.]);
    assert!(lab.log.of("job")[0].began <= at(636.0));
}

#[test]
fn a_job_that_is_taken_away_ends_its_run_and_goes_on_where_it_is_added_again() {
    let lab = Lab::new(9);
    let mut again = None;
    let member = lab.start(|seat, b| {
        again = Some(seat.job(every(secs(10)), secs(4)));
        b.add("job", seat.job(every(secs(10)), secs(4)))
    });
    lab.until(11.0);
    assert!(member.handle.remove("job"));
    assert!(!member.handle.remove("job"));
    lab.until(35.0);
    assert_eq!(lab.story("job"), ["succeeded 10"]);
    member.handle.add("job", again.unwrap()).unwrap();
    lab.until(45.0);
    assert_eq!(
        lab.story("job"),
        ["succeeded 10", "missed 20-20 1", "succeeded 30", "succeeded 40"]
    );
}

#[test]
fn a_job_is_taken_away_and_added_again_whatever_is_on_its_way_to_the_store() {
    for seed in 0..60 {
        let lab = Lab::new(seed);
        let mut entry = None;
        let member = lab.start(|seat, b| {
            let lossy = Rates { delay: 1_000, delay_ms: 400, lose_reply: 100, ..Rates::default() };
            seat.rates(lossy);
            entry = Some(seat.job(every(secs(2)), ms(5)).overlap(Overlap::Wait));
            b.add("job", entry.clone().unwrap())
        });
        for turn in 1..30 {
            lab.until(f64::from(turn) * (1.0 + 0.01 * seed as f64));
            member.handle.remove("job");
            member.handle.add("job", entry.clone().unwrap()).unwrap();
        }
        lab.until(160.0);
        // It runs once an instant, and goes on to the end.
        let ran = lab.ran("job");
        assert!(ran.windows(2).all(|pair| pair[0] < pair[1]), "seed {seed}: {ran:?}");
        assert!(ran.last() > Some(&150.0), "seed {seed}: {:?}", lab.story("job"));
    }
}

#[test]
fn a_pause_holds_the_retries_of_a_trigger_until_the_job_is_resumed() {
    let lab = Lab::new(9);
    let member = lab.start(|seat, b| {
        let spec = seat.work(every(secs(600)), secs(1), |_| Err("no such host".into()));
        let spec = spec.at_least_once(secs(30));
        b.add("job", spec.retry(Retry::up_to(20, secs(10)).at_most_every(secs(10))))
    });
    lab.until(5.0);
    lab.sim.block_on(member.handle.trigger("job", "mine")).unwrap();
    lab.until(20.0);
    lab.sim.block_on(member.handle.pause("job", "why")).unwrap();
    assert_eq!(lab.ran("job"), [5., 5.]);
    lab.until(100.0);
    assert_eq!(lab.ran("job"), [5., 5.]);
    lab.sim.block_on(member.handle.trigger("job", "by hand")).unwrap();
    lab.until(200.0);
    assert_eq!(lab.ran("job"), [5., 5., 100.]);
    lab.sim.block_on(member.handle.resume("job", Gap::CatchUp)).unwrap();
    lab.until(202.0);
    assert_eq!(lab.ran("job")[..4], [5., 5., 100., 5.]);
}

#[test]
fn settings_that_are_seldom_intended_are_reported_when_a_job_is_added() {
    let lab = Lab::new(61);
    let member = lab.start(|seat, b| {
        let job = || seat.job(every(secs(60)), ms(5));
        b.add("plain", job().jitter(secs(60)).mutex("a").mutex("a"))
            .add("keys", job().mutex("a").mutex("b"))
            .add("retry", job().at_least_once(secs(30)).retry(Retry::up_to(3, secs(7_200))))
            .add("jitter", job().jitter(secs(61)))
    });
    lab.until(1.0);
    let events = member.events();
    let codes: Vec<String> = events
        .iter()
        .filter_map(|event| match event {
            Event::ScheduleWarning { name, warning } => Some(format!("{name} {}", warning.code)),
            _ => None,
        })
        .collect();
    assert_eq!(codes, ["keys replaced-key", "retry retry-wait", "jitter long-jitter"]);
}
