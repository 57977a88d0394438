//! Jobs in code and stored schedules share capacity and searches: who was due first starts first, and
//! records that a node has nothing to do with hide none of its own.

use crate::support::{Lab, Member, at, ms, secs};
use allora_core::{
    Backend, Schedules, at as once_at,
    backend::{Action, Batch, NewSchedule, OPERATOR, Operation, TimeSource},
    every, job,
    time::since,
};
use std::{sync::atomic::Ordering::Relaxed, time::Duration};

/// The number of runs of a job, and its largest lateness.
fn runs(lab: &Lab, name: &str) -> (usize, Duration) {
    let runs = lab.log.of(name);
    let late = runs.iter().map(|run| since(run.began, run.at)).max();
    (runs.len(), late.unwrap_or_default())
}

/// Some minutes of a node with four places and twenty jobs in code each second, which take so long.
/// Beside them are a job in code and a stored schedule of each minute.
#[track_caller]
fn assert_shares(
    minutes: usize,
    takes: Duration,
    definition: &str,
    claims_due: bool,
    late: Duration,
) {
    let lab = Lab::new(1);
    lab.store("stored", "k", definition);
    let member = lab.start(|seat, b| {
        seat.faults.has_no_due_claims.store(!claims_due, Relaxed);
        let b = b.concurrency(4).kind("k", seat.handler(ms(10), |_| Ok(())));
        let b = b.add("code", seat.job(every(secs(60)).phase(Duration::ZERO), ms(10)));
        (0..20).fold(b, |b, i| {
            b.add(format!("busy-{i}"), seat.job(every(secs(1)).phase(Duration::ZERO), takes))
        })
    });
    lab.until(60.0 * minutes as f64 - 1.0);
    let [code, stored] = ["code", "stored"].map(|name| runs(&lab, name));
    assert!(code.0.min(stored.0) >= minutes - 1, "{takes:?} {definition}: {code:?} {stored:?}");
    assert!(code.1 <= late && stored.1 <= late, "{takes:?} {definition}: {code:?} {stored:?}");
    assert!(stored.1 <= code.1 + ms(500), "{takes:?} {definition}: {code:?} {stored:?}");
    drop(member);
}

#[test]
fn stored_schedules_and_jobs_in_code_that_want_more_than_the_capacity_start_in_the_order_of_their_due_times()
 {
    let leased = "0 * * * * *; at-least-once 30s";
    assert_shares(15, ms(210), leased, true, ms(2_000));
    assert_shares(5, ms(210), leased, false, ms(2_000));
    assert_shares(5, ms(210), "0 * * * * *", true, ms(2_000));
    assert_shares(10, ms(900), leased, true, ms(6_000));
    assert_shares(10, ms(900), "0 * * * * *", true, ms(6_000));
}

#[test]
fn a_backlog_of_stored_schedules_and_one_of_jobs_in_code_are_worked_off_in_the_order_of_due_times()
{
    let lab = Lab::new(2);
    for i in 0..300 {
        let half = if i % 2 == 0 { "at-least-once 30s" } else { "window 1h" };
        lab.store(
            &format!("stored-{i}"),
            "k",
            &format!("@at 2026-01-01T00:00:{:02}Z; {half}", 10 + i % 40),
        );
    }
    let member = lab.start(|seat, b| {
        let b = b.concurrency(2).kind("k", seat.handler(ms(200), |_| Ok(())));
        (0..300).fold(b, |b, i| {
            let second = f64::from(10 + i % 40);
            b.add(format!("code-{i}"), seat.job(once_at(at(second)), ms(200)))
        })
    });
    lab.until(55.0);
    assert!(member.handle.health().capacity.used == 2);
    lab.until(90.0);
    let entries = lab.log.entries();
    assert_eq!(entries.len(), 600);
    // None starts before another that was due five seconds earlier.
    let mut latest = entries[0].at;
    for run in &entries {
        assert!(since(latest, run.at) <= secs(5), "{} of {} after {latest}", run.name, run.at);
        latest = latest.max(run.at);
    }
}

/// Schedules that this build cannot run, due from the start.
fn broken(lab: &Lab, count: usize, definition: &str) {
    for i in 0..count {
        let new = NewSchedule::new("k", definition, Some(at(1.0).into()));
        lab.operate(&format!("bad-{i:05}"), Action::Create(new)).unwrap();
    }
}

fn events_of(member: &Member, kind: &str) -> usize {
    member.news().iter().filter(|one| *one == kind).count()
}

#[test]
fn more_schedules_than_are_remembered_that_this_build_cannot_run_hide_no_later_one() {
    let (word, calendar) = ("* * * * *; frobnicate 3", "* * * * *; except calendar:none");
    let leased = "*/10 * * * * *; at-least-once 30s";
    for (seed, definition, good, runs_of_good) in
        [(3, word, leased, 6), (4, calendar, "*/10 * * * * *", 4)]
    {
        let lab = Lab::new(seed);
        broken(&lab, 11_500, definition);
        let member = lab.start(|seat, b| b.kind("k", seat.handler(ms(5), |_| Ok(()))));
        lab.until(5.0);
        lab.store("good", "k", good);
        lab.until(5.0 + 10.0 * f64::from(runs_of_good));
        let (count, late) = runs(&lab, "good");
        assert_eq!(count, runs_of_good as usize, "{definition}, {good}");
        assert!(late <= secs(2), "{definition}, {good}: {late:?}");
        assert!(events_of(&member, "job-invalid") <= 100);
        assert_eq!(events_of(&member, "schedules-invalid"), 1);
        assert_eq!(events_of(&member, "job-invalid over"), 0);
        let health = member.handle.health();
        let number = ": 11500 stored schedules cannot be run by this node, such as \"bad-";
        assert!(health.to_string().contains(number), "{health}");
        // They are repaired, and nothing is left of the report.
        let names: Vec<String> = (0..11_500).map(|i| format!("bad-{i:05}")).collect();
        for names in names.chunks(1_000) {
            let deletes = names.iter().map(|name| Operation::new(name, Action::Delete));
            let deletes: Vec<Operation<'_>> = deletes.collect();
            let batch = Batch::new(OPERATOR, TimeSource::Fixed(lab.now()), &deletes);
            lab.sim.block_on(lab.store.reschedule(batch)).unwrap();
        }
        lab.until(100.0 + 10.0 * f64::from(runs_of_good));
        assert_eq!(events_of(&member, "schedules-invalid over"), 1);
        assert!(!member.handle.health().to_string().contains("cannot be run"));
        assert_eq!(events_of(&member, "job-invalid over"), events_of(&member, "job-invalid"));
    }
}

/// Twenty own stored schedules beside so many due jobs in code of another service that is down, each of
/// which has a waiting trigger. Nobody notifies.
fn beside_a_dead_service(lab: &Lab, foreign: usize, definition: &str) -> Member {
    let other = lab.start(|_, b| {
        (0..foreign).fold(b.poll_interval(secs(3_600)), |b, i| {
            b.add(
                format!("foreign-{i:05}"),
                job(every(secs(86_400)), async |_: allora_core::Run| {}),
            )
        })
    });
    lab.until(20.0);
    other.node.crash();
    let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    for i in 0..foreign {
        lab.sim.block_on(client.trigger(&format!("foreign-{i:05}"), "by hand")).unwrap();
    }
    let member = lab.start(|seat, b| {
        seat.faults.is_silent.store(true, Relaxed);
        b.kind("k", seat.handler(ms(5), |_| Ok(())))
            .add("own", seat.job(every(secs(86_400)), ms(5)))
    });
    for i in 0..20 {
        lab.store(&format!("s-{i}"), "k", definition);
    }
    member
}

#[test]
fn the_due_jobs_of_another_service_that_is_down_delay_no_stored_schedule() {
    for (seed, foreign) in [(5, 12_000), (6, 30_000)] {
        for definition in ["*/10 * * * * *; at-least-once 30s", "*/10 * * * * *"] {
            let lab = Lab::new(seed);
            let member = beside_a_dead_service(&lab, foreign, definition);
            lab.until(40.5);
            let before = lab.log.entries().len();
            let calls = member.faults.calls();
            lab.until(230.5);
            let entries = lab.log.entries();
            let late = entries[before..].iter().map(|run| since(run.began, run.at)).max();
            assert_eq!(entries.len() - before, 20 * 19, "{foreign} {definition}");
            assert!(late <= Some(secs(2)), "{foreign} {definition}: {late:?}");
            // Each second a search for stored schedules, two pages of jobs in code, and a few claims.
            let calls = member.faults.calls() - calls;
            assert!(calls <= 700, "{foreign} {definition}: {calls} calls in 190 s");
        }
    }
}

#[test]
fn a_trigger_of_an_own_job_is_found_behind_those_of_another_service_that_is_down() {
    let lab = Lab::new(7);
    let _member = beside_a_dead_service(&lab, 12_000, "*/10 * * * * *");
    lab.until(100.3);
    let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    lab.sim.block_on(client.trigger("own", "x")).unwrap();
    lab.until(120.0);
    let run = lab.log.of("own").pop().expect("it runs");
    assert!(since(run.began, at(100.3)) <= secs(5), "{}", run.began);
}
