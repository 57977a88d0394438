//! Requests whose replies are lost hold up nothing but what they are about.

use crate::support::{Lab, Member, Which, at, ms, secs};
use allora_core::{
    Condition, Event, Overlap, Schedules, Time, at as once,
    backend::{Action, Operation},
    every,
};
use chrono::TimeDelta;
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// The number of runs of a job due since `from`, and the longest time by which one was late.
fn punctual(lab: &Lab, job: &str, from: f64) -> (usize, TimeDelta) {
    let runs: Vec<_> = lab.log.of(job).into_iter().filter(|run| run.at >= at(from)).collect();
    let late = runs.iter().map(|run| run.began - run.at).max().unwrap_or_default();
    (runs.len(), late)
}

fn began(lab: &Lab, job: &str) -> Vec<Time> {
    lab.log.of(job).into_iter().map(|run| run.began).collect()
}

fn is_hung(operation: &Operation<'_>) -> bool {
    operation.name.starts_with("hung")
}

fn is_end(operation: &Operation<'_>) -> bool {
    matches!(operation.action, Action::Complete { .. } | Action::Retry { .. })
}

fn is_hung_end(operation: &Operation<'_>) -> bool {
    is_hung(operation) && is_end(operation)
}

fn is_hung_key(operation: &Operation<'_>) -> bool {
    operation.name.starts_with("allora:key:hung")
}

#[test]
fn a_trigger_whose_node_dies_runs_again_when_its_lease_ends_whatever_is_due_then() {
    for stored in [false, true] {
        let lab = Lab::new(1);
        let start = || {
            lab.start(|seat, b| {
                let job = seat.handler(secs(3), |_| Ok(()));
                match stored {
                    true => b.kind("report", job),
                    false => {
                        let every = every(secs(10)).phase(Duration::ZERO);
                        b.add("job", allora_core::job(every, job).at_least_once(secs(30)))
                    }
                }
            })
        };
        let members = [start(), start()];
        if stored {
            lab.store("job", "report", "@every 10s; at-least-once 30s");
        }
        lab.until(24.0);
        lab.operate("job", Action::trigger("mine")).unwrap();
        lab.until(25.0);
        assert_eq!(lab.ran("job").last(), Some(&24.), "stored: {stored}");
        let runs = members.iter().find(|member| member.handle.running() > 0);
        runs.unwrap().node.crash();
        lab.until(301.0);
        let runs = lab.log.of("job");
        let again = runs.iter().find(|run| run.at == at(24.0) && run.attempt == 2);
        let again = again.unwrap_or_else(|| panic!("stored: {stored}: {:?}", lab.story("job")));
        assert!(again.began <= at(55.0), "stored: {stored}: {}", again.began);
        assert_eq!(lab.ran("job").last(), Some(&300.), "stored: {stored}");
        assert!(runs.iter().filter(|run| run.at > at(60.0)).count() >= 24, "stored: {stored}");
    }
}

/// Jobs with a key of their own and one without, on a node with this capacity.
fn keyed(lab: &Lab, capacity: usize) -> Member {
    lab.start(|seat, b| {
        let job = |takes| seat.job(every(secs(10)), ms(takes));
        let keyed = (0..capacity).map(|n| (format!("keyed{n}"), format!("g{n}")));
        keyed.fold(b.concurrency(capacity).add("plain", job(5)), |b, (name, key)| {
            b.add(name, job(5).mutex(key.as_str()))
        })
    })
}

#[test]
fn a_lost_request_for_a_key_is_repeated_whatever_the_capacity() {
    for capacity in 1..=4 {
        for is_done in [false, true] {
            let lab = Lab::new(capacity as u64);
            let member = keyed(&lab, capacity);
            lab.until(19.9);
            let is_key: Which = |one| matches!(one.action, Action::ClaimKey(_));
            match is_done {
                true => member.faults.deaf_to_claims.store(true, Relaxed),
                false => *member.faults.hangs.lock().unwrap() = Some(is_key),
            }
            lab.until(20.9);
            member.faults.deaf_to_claims.store(false, Relaxed);
            *member.faults.hangs.lock().unwrap() = None;
            lab.until(605.0);
            let case = format!("{capacity}, done: {is_done}");
            for n in 0..capacity {
                let began = began(&lab, &format!("keyed{n}"));
                assert!(began[1] <= at(22.0), "{case}: {:?}", began.get(1));
                assert_eq!(began.len(), 60, "{case}");
            }
            assert_eq!(began(&lab, "plain").len(), 60, "{case}");
            assert!(!member.has("capacity-full"), "{case}");
            assert!(member.failing().is_empty(), "{case}");
        }
    }
}

#[test]
fn a_store_that_hangs_for_a_while_ends_no_node_whatever_its_capacity() {
    let sorts: [Which; 7] = [
        |_| true,
        |one| matches!(one.action, Action::Claim(_)),
        |one| matches!(one.action, Action::ClaimKey(_)),
        |one| matches!(one.action, Action::ReleaseKey { .. }),
        |one| matches!(one.action, Action::Read | Action::Register { .. }),
        |one| matches!(one.action, Action::Extend { .. }),
        is_end,
    ];
    for capacity in 1..=4 {
        for (sort, which) in sorts.into_iter().enumerate() {
            for rejects in [false, true] {
                let lab = Lab::new(sort as u64);
                let members: Vec<_> = (0..3).map(|_| keyed(&lab, capacity)).collect();
                lab.store("stored", "none", "@every 10s; at-least-once 30s");
                lab.until(19.99);
                for member in &members {
                    let faults = &member.faults;
                    let switch = if rejects { &faults.rejects } else { &faults.hangs };
                    *switch.lock().unwrap() = Some(which);
                }
                lab.until(25.0);
                for member in &members {
                    *member.faults.hangs.lock().unwrap() = None;
                    *member.faults.rejects.lock().unwrap() = None;
                }
                lab.until(205.0);
                let case = format!("capacity {capacity}, sort {sort}, rejected: {rejects}");
                for job in (0..capacity).map(|n| format!("keyed{n}")).chain(["plain".to_owned()]) {
                    let (runs, late) = punctual(&lab, &job, 100.0);
                    assert_eq!(runs, 11, "{case}: {job}: {:?}", lab.story(&job));
                    assert!(late < TimeDelta::seconds(2), "{case}: {job} was {late} late");
                }
                // No node is left out: each stops at once, with nothing unresolved.
                for member in &members {
                    assert!(member.failing().is_empty(), "{case}");
                    assert_eq!(member.handle.health().unresolved_claims, 0, "{case}");
                    member.handle.stop();
                }
                lab.until(206.0);
                for member in &members {
                    let stopped = member.stopped().map(|it| (it.unrecorded, it.unresolved));
                    assert_eq!(stopped, Some((0, 0)), "{case}");
                }
            }
        }
    }
}

#[test]
fn a_run_that_is_to_be_replaced_is_replaced_although_a_request_about_it_was_lost() {
    let lab = Lab::new(5);
    let member = lab.start(|seat, b| {
        let job = seat.job(every(secs(10)), secs(100)).overlap(Overlap::Replace);
        b.concurrency(1).lost_after(secs(10)).add("job", job)
    });
    lab.until(19.9);
    *member.faults.hangs.lock().unwrap() = Some(|one| matches!(one.action, Action::Replace { .. }));
    lab.until(22.0);
    *member.faults.hangs.lock().unwrap() = None;
    lab.until(29.0);
    assert_eq!(lab.ran("job"), [10., 20.]);
}

/// A lost claim lets the ends of runs go first once, not until their leases are over: a node may have
/// no other claim to which the store replies meanwhile.
#[test]
fn a_lost_claim_of_a_job_whose_end_hangs_is_repeated_within_seconds() {
    for refused in [false, true] {
        let lab = Lab::new(7);
        let member = lab.start(|seat, b| {
            let job = seat.job(every(secs(60)).phase(Duration::ZERO), ms(5));
            b.lost_after(secs(600)).add("job", job)
        });
        lab.until(59.0);
        *member.faults.hangs.lock().unwrap() = Some(is_end);
        lab.until(719.0);
        match refused {
            true => member.faults.down.store(true, Relaxed),
            false => *member.faults.hangs.lock().unwrap() = Some(|_| true),
        }
        lab.until(722.0);
        member.faults.down.store(false, Relaxed);
        *member.faults.hangs.lock().unwrap() = Some(is_end);
        lab.until(1_200.5);
        let (runs, late) = punctual(&lab, "job", 60.0);
        assert_eq!(runs, 20, "{refused}: {:?}", lab.story("job"));
        assert!(late <= TimeDelta::seconds(6), "{refused}: {late} late");
    }
}

/// The ten jobs, of which operations hang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hung {
    AtMostOnce,
    AtLeastOnce,
    Keyed,
    KeyedOnEveryNode,
}

/// Ten jobs on a node with ten places, of which `which` selects operations that hang for half an hour,
/// next to one that is healthy.
fn beside_ten_that_hang(which: Which, sort: Hung) -> (Lab, Member) {
    let lab = Lab::new(6);
    let member = lab.start(|seat, b| {
        let hung = |n: usize| {
            let job = |period| seat.job(every(secs(period)).phase(Duration::ZERO), ms(5));
            let leased = || job(60).at_least_once(secs(3_600));
            match sort {
                Hung::AtMostOnce => job(10),
                Hung::AtLeastOnce => leased(),
                Hung::Keyed => leased().mutex(format!("hung{n}")),
                Hung::KeyedOnEveryNode => leased().mutex(format!("hung{n}")).on_every_node(),
            }
        };
        let b = (0..10).fold(b.concurrency(10), |b, n| b.add(format!("hung{n}"), hung(n)));
        let healthy = seat.job(every(secs(10)).phase(Duration::ZERO), ms(5));
        b.add("healthy", healthy.at_least_once(secs(3_600)))
    });
    lab.until(55.0);
    *member.faults.hangs.lock().unwrap() = Some(which);
    lab.until(55.0 + 1_800.0);
    *member.faults.hangs.lock().unwrap() = None;
    (lab, member)
}

#[track_caller]
fn assert_healthy(lab: &Lab, what: &str) {
    let (runs, late) = punctual(lab, "healthy", 55.0);
    assert_eq!(runs, 180, "{what}: {:?}", lab.story("healthy"));
    assert!(late <= TimeDelta::seconds(2), "{what}: {late} late");
}

#[test]
fn what_hangs_leaves_half_of_the_capacity_to_other_jobs() {
    let cases: [(&str, Which, Hung); 6] = [
        ("claims", is_hung, Hung::AtLeastOnce),
        ("claims at most once", is_hung, Hung::AtMostOnce),
        ("ends", is_hung_end, Hung::AtLeastOnce),
        ("ends at most once", is_hung_end, Hung::AtMostOnce),
        ("keys", is_hung_key, Hung::Keyed),
        ("keys of jobs on every node", is_hung_key, Hung::KeyedOnEveryNode),
    ];
    let mut failed = Vec::new();
    for (what, which, sort) in cases {
        let checked = std::panic::catch_unwind(|| {
            let (lab, member) = beside_ten_that_hang(which, sort);
            assert_healthy(&lab, what);
            lab.until(2_005.0);
            let health = member.handle.health();
            assert_eq!(health.unresolved_claims, 0, "{what}");
            assert!(member.failing().is_empty(), "{what}: {:?}", member.failing());
            for n in 0..10 {
                let job = format!("hung{n}");
                let last = *lab.ran(&job).last().unwrap();
                assert!(last >= 1_860.0, "{what}: {job} ran last at {last}");
            }
        });
        failed.extend(checked.is_err().then_some(what));
    }
    assert!(failed.is_empty(), "{failed:?}");
}

#[test]
fn what_unresolved_claims_win_beyond_the_capacity_is_released_and_runs_later() {
    let lab = Lab::new(7);
    let member = lab.start(|seat, b| {
        let hung = || seat.job(once(at(100.0)), secs(5)).at_least_once(secs(600));
        let b = (0..4).fold(b.concurrency(4), |b, n| b.add(format!("hung{n}"), hung()));
        let long = || seat.job(once(at(104.0)), secs(20));
        (0..2).fold(b, |b, n| b.add(format!("long{n}"), long()))
    });
    lab.until(99.9);
    member.faults.deaf_to_claims.store(true, Relaxed);
    lab.until(100.5);
    member.faults.deaf_to_claims.store(false, Relaxed);
    *member.faults.hangs.lock().unwrap() = Some(is_hung);
    lab.until(110.0);
    let mut most = member.handle.running();
    *member.faults.hangs.lock().unwrap() = None;
    for tenth in 1_100..1_400 {
        lab.until(f64::from(tenth) / 10.0);
        most = most.max(member.handle.running());
    }
    assert_eq!(most, 4);
    let released = |n| lab.story(&format!("hung{n}")).contains(&"released 100".to_owned());
    assert_eq!((0..4).filter(|n| released(*n)).count(), 2);
    for n in 0..4 {
        let story = lab.story(&format!("hung{n}"));
        assert_eq!(story.last().unwrap(), "succeeded 100", "{story:?}");
        assert_eq!(lab.log.of(&format!("hung{n}"))[0].attempt, 1);
    }
}

#[test]
fn an_occurrence_that_a_lost_claim_won_moves_the_schedule_by_itself_when_its_job_is_replaced() {
    let lab = Lab::new(8);
    let member = lab.start(|seat, b| {
        b.add(
            "job",
            seat.job(every(secs(60)).phase(Duration::ZERO), ms(5)).at_least_once(secs(600)),
        )
    });
    lab.until(299.9);
    member.faults.deaf_to_claims.store(true, Relaxed);
    lab.until(430.0);
    assert!(member.handle.remove("job"));
    let seat = lab.seat(member.node.clone());
    let job = seat.job(every(secs(60)).phase(Duration::ZERO), ms(5)).at_least_once(secs(600));
    member.handle.add("job", job).unwrap();
    lab.until(500.0);
    member.faults.deaf_to_claims.store(false, Relaxed);
    lab.until(601.0);
    assert_eq!(lab.ran("job"), [60., 120., 180., 240., 300., 480., 540., 600.]);
    assert!(lab.story("job").contains(&"missed 360-420 2".to_owned()), "{:?}", lab.story("job"));
    let missed = member.events().into_iter().find_map(|event| match event {
        Event::OccurrencesMissed { first, last, .. } => Some((first, last)),
        _ => None,
    });
    assert_eq!(missed, Some((at(360.0), at(420.0))));
}

#[test]
fn an_end_that_the_store_rejects_each_time_is_given_up_when_the_lease_has_ended() {
    for (n, policy) in ["allow", "skip", "wait", "replace", "leased", "keyed"].iter().enumerate() {
        for whole in [false, true] {
            let lab = Lab::new(n as u64);
            let member = lab.start(|seat, b| {
                let faults = &seat.faults;
                let switch = if whole { &faults.rejects_batches } else { &faults.rejects };
                *switch.lock().unwrap() = Some(|one| one.output == Some("poison"));
                let job = seat.work(every(secs(10)), ms(5), |run| {
                    if run.scheduled_at() == at(20.0) && run.attempt() == 1 {
                        run.set_output("poison");
                    }
                    Ok(())
                });
                let job = match *policy {
                    "allow" => job,
                    "skip" => job.overlap(Overlap::Skip),
                    "wait" => job.overlap(Overlap::Wait),
                    "replace" => job.overlap(Overlap::Replace),
                    "keyed" => job.overlap(Overlap::Skip).mutex("g"),
                    _ => job.at_least_once(secs(15)),
                };
                b.lost_after(secs(15)).add("job", job)
            });
            lab.until(601.0);
            let case = format!("{policy}, whole: {whole}");
            let (runs, late) = punctual(&lab, "job", 50.0);
            assert_eq!(runs, 56, "{case}: {:?}", lab.story("job"));
            assert!(late < TimeDelta::seconds(1), "{case}: {late} late");
            let is_over = |entry: &String| {
                ["lost 20", "expired 20", "cancelled 20"].contains(&entry.as_str())
            };
            assert!(lab.story("job").iter().any(is_over), "{case}: {:?}", lab.story("job"));
            let rejected = member.events().into_iter().map(|event| event.to_string());
            let rejected: Vec<_> =
                rejected.filter(|line| line.contains("was not recorded")).collect();
            assert_eq!(rejected.len(), 1, "{case}: {rejected:?}");
            assert!(rejected[0].contains("the disk of this row is broken"), "{}", rejected[0]);
            assert!(member.failing().is_empty(), "{case}");
            let lost = ["RunLost", "RunExpired"];
            let lost = member.news().iter().filter(|news| lost.contains(&news.as_str())).count();
            // Its cancellation was requested before its lease ended.
            let expected = usize::from(*policy != "replace");
            assert_eq!(lost, expected, "{case}: {:?}", member.news());
        }
    }
}

#[test]
fn a_key_whose_holder_died_while_the_clock_was_ahead_is_free_when_the_clock_is_right() {
    for began_ahead in [false, true] {
        let lab = Lab::new(10);
        let holder = lab.start(|seat, b| {
            let job = seat.job(every(secs(15)).phase(Duration::ZERO), secs(300));
            b.add("holder", job.at_least_once(secs(30)).mutex("g"))
        });
        lab.until(5.0);
        let waits = lab.start(|seat, b| {
            let job = seat.job(every(secs(10)).phase(Duration::ZERO), ms(5));
            b.add("waits", job.mutex("g"))
        });
        lab.until(if began_ahead { 12.0 } else { 16.0 });
        lab.clock().set_skew(TimeDelta::days(365));
        lab.until(32.0);
        assert!(holder.handle.running() > 0, "{began_ahead}");
        holder.node.crash();
        lab.until(36.0);
        lab.clock().set_skew(TimeDelta::zero());
        lab.until(40.0);
        let schedules = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        for job in ["holder", "waits"] {
            lab.sim.block_on(schedules.reset(job)).unwrap();
        }
        lab.until(200.0);
        let is_after = |began: &Time| at(40.0) < *began && *began < at(1_000.0);
        let after: Vec<_> = began(&lab, "waits").into_iter().filter(is_after).collect();
        assert!(after.first().is_some_and(|first| *first <= at(85.0)), "{began_ahead}: {after:?}");
        assert!(after.last().is_some_and(|last| *last >= at(190.0)), "{began_ahead}: {after:?}");
        assert!(!waits.has("key-busy"), "{began_ahead}");
    }
}

#[test]
fn a_key_whose_holder_died_while_the_clock_was_ahead_is_a_condition_until_a_reset_of_the_job_frees_it()
 {
    for (began_ahead, is_reset) in [(false, true), (true, true), (false, false)] {
        let case = format!("began ahead: {began_ahead}, reset: {is_reset}");
        let lab = Lab::new(13);
        let holder = lab.start(|seat, b| {
            let job = seat.job(every(secs(15)).phase(Duration::ZERO), secs(300));
            b.add("holder", job.at_least_once(secs(60)).mutex("g"))
        });
        lab.until(5.0);
        let waits = lab.start(|seat, b| {
            let job = |takes| seat.job(every(secs(10)).phase(Duration::ZERO), ms(takes)).mutex("g");
            b.add("waits", job(5)).add("waits, too", job(5))
        });
        lab.until(if began_ahead { 12.0 } else { 16.0 });
        lab.clock().set_skew(TimeDelta::days(365));
        lab.until(50.0);
        holder.node.crash();
        lab.clock().set_skew(TimeDelta::zero());
        let schedules = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        lab.until(51.0);
        for job in ["waits", "waits, too"] {
            lab.sim.block_on(schedules.reset(job)).unwrap();
        }
        let problem =
            || waits.handle.health().with("key-left").next().map(|one| one.condition.clone());
        // A live holder would have extended its lease by then.
        lab.until(65.0);
        assert_eq!(problem(), None, "{case}");
        lab.until(100.0);
        let Some(Condition::KeyLeft { job, key, until, .. }) = problem() else { panic!("{case}") };
        assert_eq!((&*job, &*key), ("holder", "g"));
        assert!((at(110.0)..at(125.0)).contains(&until), "{case}: {until}");
        let is_held =
            |event: &Event| matches!(event, Event::Began(one) if one.code() == "key-left");
        let events = waits.events();
        let held: Vec<_> = events.iter().filter(|event| is_held(event)).collect();
        assert_eq!(held.len(), 1, "{case}: {events:?}");
        assert!(held[0].remedy().unwrap().contains("allora reset JOB"));
        if is_reset {
            lab.sim.block_on(schedules.reset("holder")).unwrap();
            assert!(lab.state("allora:key:g").leases.is_empty(), "{case}");
        }
        lab.until(if is_reset { 103.0 } else { 130.0 });
        assert_eq!(problem(), None, "{case}");
        let news = waits.news();
        let number = |of: &str| news.iter().filter(|news| *news == of).count();
        assert_eq!((number("key-left"), number("key-left over")), (1, 1), "{case}: {news:?}");
        for job in ["waits", "waits, too"] {
            let began = began(&lab, job);
            assert!(
                began.iter().any(|one| (at(100.0)..at(130.0)).contains(one)),
                "{case}: {began:?}"
            );
        }
    }
}

#[test]
fn a_live_holder_keeps_its_key_when_a_clock_that_was_ahead_is_set_back() {
    let lab = Lab::new(11);
    lab.start(|seat, b| {
        let job = seat.job(every(secs(15)).phase(Duration::ZERO), secs(300));
        b.add("holder", job.at_least_once(secs(90)).mutex("g"))
    });
    lab.until(5.0);
    lab.start(|seat, b| {
        let job = seat.job(every(secs(10)).phase(Duration::ZERO), ms(5));
        b.add("waits", job.mutex("g"))
    });
    lab.until(12.0);
    lab.clock().set_skew(TimeDelta::days(365));
    lab.until(60.0);
    assert_eq!(lab.log.of("holder").len(), 1);
    lab.clock().set_skew(TimeDelta::zero());
    lab.until(61.0);
    let schedules = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    lab.sim.block_on(schedules.reset("waits")).unwrap();
    lab.until(290.0);
    let holder = lab.log.of("holder").remove(0);
    assert!(holder.ended.is_none(), "{:?}", holder.ended);
    let waits = began(&lab, "waits");
    assert!(waits.iter().all(|began| *began < at(61.0) || at(1_000.0) < *began), "{waits:?}");
}

#[test]
fn a_key_whose_record_cannot_be_read_is_a_condition_of_its_jobs() {
    let lab = Lab::new(12);
    let clock = lab.clock();
    let store = crate::support::Switched::new(move || allora_core::Runtime::wall(&clock));
    let seat = lab.seat(lab.sim.node());
    let job = seat.job(every(secs(10)), ms(0)).mutex("g");
    let scheduler = seat.builder_on(store.clone()).add("job", job).build().unwrap();
    *store.switches().unreadable.lock().unwrap() = Some("allora:key:g".to_owned());
    let member = seat.run(scheduler);
    lab.until(200.0);
    assert!(lab.ran("job").is_empty());
    assert_eq!(member.news(), ["Ready", "key-unreadable"]);
    let line = member.events()[1].to_string();
    assert!(line.contains("the record of its concurrency key"), "{line}");
    assert!(member.has("key-unreadable"));
    *store.switches().unreadable.lock().unwrap() = None;
    lab.until(251.0);
    assert!(lab.ran("job").len() >= 5, "{:?}", lab.ran("job"));
    let news = member.news();
    assert_eq!(news.iter().filter(|news| *news == "key-unreadable over").count(), 1, "{news:?}");
    assert!(!member.has("key-unreadable"));
}
