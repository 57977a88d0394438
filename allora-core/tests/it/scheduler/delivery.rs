//! At most once and at least once: crashes, pauses, leases, retries.

use crate::support::{Lab, Member, Over, Rates, at, ms, secs};
use allora_core::{
    Backend, BoxError, Event, JobSpec, Overlap, Retry, Run, Runtime, SchedulerBuilder,
    backend::{Batch, Outcome, TimeSource},
    every, job,
    runtime::SimNode,
};
use allora_memory::Memory;

/// Two nodes with one job; the one that runs it first.
fn two(lab: &Lab, add: impl Fn(JobSpec) -> JobSpec, every_secs: u64, takes: u64) -> [Member; 2] {
    [(); 2].map(|()| {
        lab.start(|seat, b| b.add("job", add(seat.job(every(secs(every_secs)), secs(takes)))))
    })
}

fn runner<'a>(lab: &Lab, members: &'a [Member]) -> &'a Member {
    let node = lab.log.of("job").last().unwrap().node.clone();
    members.iter().find(|member| member.handle.node() == node).unwrap()
}

#[test]
fn at_most_once_a_run_whose_node_crashed_is_lost_and_recorded() {
    let lab = Lab::new(1);
    let members = two(&lab, |job| job, 60, 20);
    lab.until(65.0);
    runner(&lab, &members).node.crash();
    lab.until(165.0);
    assert_eq!(lab.ran("job"), [60., 120.]);
    assert_eq!(lab.story("job"), ["lost 60", "succeeded 120"]);
    assert_eq!(lab.state("job").counters.lost, 1);
}

#[test]
fn at_least_once_a_run_whose_node_crashed_is_run_again_as_attempt_two() {
    let lab = Lab::new(2);
    let members = two(&lab, |job| job.at_least_once(secs(10)), 60, 5);
    lab.until(61.0);
    runner(&lab, &members).node.crash();
    lab.until(119.0);
    let runs = lab.log.of("job");
    assert_eq!(lab.ran("job"), [60., 60.]);
    assert_eq!([runs[0].attempt, runs[1].attempt], [1, 2]);
    assert!(runs[1].fence > runs[0].fence && runs[1].key == runs[0].key);
    assert!(runs[1].began <= at(71.0), "{}", runs[1].began);
    assert_eq!(lab.story("job"), ["expired 60", "succeeded 60"]);
}

#[test]
fn lost_and_expired_runs_are_reported_although_the_store_keeps_no_history() {
    for (lease, event) in [(None, "RunLost"), (Some(10), "RunExpired")] {
        let mut lab = Lab::new(3);
        lab.store = lab.store.clone().with_history(0);
        let delivered = |job: JobSpec| match lease {
            None => job,
            Some(lease) => job.at_least_once(secs(lease)),
        };
        let members = two(&lab, delivered, 60, 20);
        lab.until(65.0);
        runner(&lab, &members).node.crash();
        lab.until(165.0);
        let news = members.iter().flat_map(Member::news);
        assert_eq!(news.filter(|kind| kind == event).count(), 1, "{event}");
    }
}

#[test]
fn a_dead_nodes_occurrence_is_run_again_although_others_are_due_meanwhile() {
    let lab = Lab::new(3);
    let members = two(&lab, |job| job.at_least_once(secs(35)), 10, 1);
    lab.until(10.5);
    runner(&lab, &members).node.crash();
    lab.until(65.0);
    assert_eq!(lab.ran("job"), [10., 10., 40., 50., 60.]);
    assert_eq!(
        lab.story("job")[..4],
        ["expired 10", "succeeded 10", "missed 20-30 2", "succeeded 40"]
    );
}

#[test]
fn a_failed_run_is_tried_again_although_others_are_due_meanwhile() {
    let lab = Lab::new(4);
    lab.start(|seat, b| {
        let job = seat.work(every(secs(10)), ms(0), |run| match run.attempt() {
            1 if run.scheduled_at() == at(10.0) => Err("no".into()),
            _ => Ok(()),
        });
        b.add("job", job.at_least_once(secs(30)).retry(Retry::up_to(2, secs(25))))
    });
    lab.until(55.0);
    assert_eq!(lab.ran("job"), [10., 10., 30., 40., 50.]);
}

#[test]
fn a_paused_node_is_fenced_when_it_wakes_and_its_run_is_cancelled() {
    let lab = Lab::new(5);
    let members = two(&lab, |job| job.at_least_once(secs(10)), 60, 40);
    lab.until(61.0);
    let paused = runner(&lab, &members).clone();
    paused.node.pause();
    lab.until(75.0);
    paused.node.resume();
    lab.until(119.0);
    let runs = lab.log.of("job");
    assert_eq!(runs.len(), 2);
    assert_eq!(runs[0].ended.unwrap().1, Over::Dropped);
    assert_eq!(runs[0].ended.unwrap().0, at(75.0));
    assert_eq!(runs[1].ended.unwrap().1, Over::Ran);
    assert!(paused.news().contains(&"LeaseLost".to_owned()), "{:?}", paused.news());
}

#[test]
fn long_runs_are_extended_and_never_doubled() {
    let lab = Lab::new(6);
    for _ in 0..3 {
        lab.start(|seat, b| {
            b.lost_after(secs(2))
                .add("leased", seat.job(every(secs(100)), secs(90)).at_least_once(secs(2)))
                .add("marked", seat.job(every(secs(100)), secs(90)))
        });
    }
    lab.until(950.0);
    for name in ["leased", "marked"] {
        assert_eq!(lab.ran(name), (1..=9).map(|n| 100.0 * f64::from(n)).collect::<Vec<_>>());
        assert_eq!(lab.state(name).counters.lost + lab.state(name).counters.expired, 0);
    }
}

#[test]
fn a_lease_is_extended_at_every_third_of_it() {
    let lab = Lab::new(7);
    let member = lab.start(|seat, b| {
        b.add("job", seat.job(every(secs(100)), secs(89)).at_least_once(secs(30)))
    });
    lab.until(199.0);
    // At 110, 120 … 180, and the finish.
    assert_eq!(member.faults.updates.load(std::sync::atomic::Ordering::Relaxed), 9);
}

#[test]
fn a_failed_extension_is_tried_again_at_once() {
    use std::sync::atomic::Ordering::Relaxed;
    let lab = Lab::new(8);
    let member = lab.start(|seat, b| {
        b.add("job", seat.job(every(secs(100)), secs(60)).at_least_once(secs(30)))
    });
    lab.until(109.0);
    member.faults.down.store(true, Relaxed);
    lab.until(125.0);
    member.faults.down.store(false, Relaxed);
    lab.until(199.0);
    assert_eq!(lab.story("job"), ["succeeded 100"]);
    assert!(!member.news().contains(&"LeaseRenewalFailed".to_owned()), "{:?}", member.news());
}

#[test]
fn without_a_confirmed_extension_the_run_is_cancelled_before_its_lease_ends() {
    use std::sync::atomic::Ordering::Relaxed;
    for (lease, deadline, deaf) in
        [(30, ms(1_000), false), (1, ms(1_000), true), (9, secs(60), true)]
    {
        let lab = Lab::new(9);
        let member = lab.start(|seat, b| {
            let job = seat.job(every(secs(100)), secs(60)).at_least_once(secs(lease));
            b.store_timeout(deadline).add("job", job)
        });
        lab.until(100.1);
        (if deaf { &member.faults.deaf } else { &member.faults.down }).store(true, Relaxed);
        lab.until(145.0);
        let (ended, how) = lab.log.of("job")[0].ended.unwrap();
        assert_eq!(how, Over::Dropped);
        // Extensions whose answers were lost do not count.
        assert!(ended <= at(100.1) + secs(lease), "lease {lease}: {ended}");
        assert!(member.news().contains(&"LeaseRenewalFailed".to_owned()), "{:?}", member.news());
    }
}

#[test]
fn retries_back_off_and_end_as_a_dead_letter() {
    let lab = Lab::new(10);
    lab.start(|seat, b| {
        let job = seat.work(every(secs(100)), ms(0), |_| Err("broken".into()));
        b.add("job", job.at_least_once(secs(30)).retry(Retry::up_to(4, secs(2))).max_runs(2))
    });
    lab.until(250.0);
    let began: Vec<_> =
        lab.log.of("job").iter().map(|run| (run.began - at(0.0)).num_seconds()).collect();
    assert_eq!(began, [100, 102, 106, 114, 200, 202, 206, 214]);
    let dead = lab.story("job").into_iter().filter(|entry| entry.starts_with("dead")).count();
    assert_eq!(dead, 2);
    assert_eq!(lab.state("job").counters.failed, 8);
}

/// An error as `anyhow` makes it with a context: its own message is the outermost.
#[derive(Debug)]
struct Outer(std::io::Error);

impl std::fmt::Display for Outer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("outer")
    }
}

impl std::error::Error for Outer {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

#[test]
fn an_error_with_causes_is_whole_in_event_history_and_dead_letter() {
    let shown = |inner: &'static str| {
        let lab = Lab::new(11);
        let member = lab.start(|seat, b| {
            let fails = move || Err(Outer(std::io::Error::other(inner)).into());
            let job = seat.work(every(secs(100)), ms(0), move |_| fails());
            b.add("job", job.at_least_once(secs(30)).max_runs(1))
        });
        lab.until(1_000.0);
        let of = |outcome: &Outcome| match outcome {
            Outcome::Dead(error) => Some(error.to_string()),
            _ => None,
        };
        let events = member.events();
        let event = events.iter().find_map(|event| match event {
            Event::RunEnded { outcome, .. } => of(outcome),
            _ => None,
        });
        let history = lab.past("job").iter().find_map(|entry| of(&entry.outcome));
        let letter = lab.state("job").dead.first().map(|letter| letter.error.to_string());
        [event, history, letter].map(|text| text.expect("the error"))
    };
    assert_eq!(shown("inner"), ["outer: inner"; 3]);
    let long: &'static str = "ä".repeat(5_000).leak();
    for text in shown(long) {
        assert!(text.starts_with("outer: ää") && text.len() <= 1_024, "{} bytes", text.len());
    }
}

/// Found by a seed of the campaign: four attempts take 79 s, which is longer than the period.
#[test]
fn an_occurrence_that_is_tried_for_longer_than_the_period_does_not_hold_up_the_schedule() {
    let lab = Lab::new(13);
    for _ in 0..2 {
        lab.start(|seat, b| {
            let job = seat.job(every(secs(60)), secs(20)).timeout(secs(4));
            b.add("job", job.at_least_once(secs(30)).retry(Retry::up_to(4, secs(9))))
        });
    }
    lab.until(60.0 + 79.0 * 4.0 + 1.0);
    // When an occurrence is given up, the latest that passed meanwhile begins.
    let tried = |at: u32| {
        let retried = format!("retried {at}");
        [retried.clone(), retried.clone(), retried, format!("dead {at}")]
    };
    let mut story = [60, 120, 180, 240].map(tried).concat();
    story.extend(["missed 300-300 1".to_owned(), "running 360".to_owned()]);
    assert_eq!(lab.story("job"), story);
}

#[test]
fn a_run_is_dropped_at_its_timeout() {
    let lab = Lab::new(11);
    lab.start(|seat, b| {
        b.add("job", seat.job(every(secs(60)), secs(50)).timeout(secs(10))).add(
            "leased",
            seat.job(every(secs(60)), secs(50)).timeout(secs(10)).at_least_once(secs(5)),
        )
    });
    lab.until(119.0);
    for (name, word) in [("job", "failed 60"), ("leased", "dead 60")] {
        assert_eq!(lab.story(name), [word]);
        lab.assert_over(name, 0, at(70.0), Over::Dropped);
    }
}

#[test]
fn fences_grow_and_keys_are_the_same_for_every_attempt() {
    let lab = Lab::new(12);
    lab.start(|seat, b| {
        let job = seat.work(every(secs(10)), ms(0), |run| match run.attempt() {
            3 => Ok(()),
            _ => Err("not yet".into()),
        });
        b.add("job", job.at_least_once(secs(30)).retry(Retry::up_to(5, ms(100))))
    });
    lab.until(105.0);
    let runs = lab.log.of("job");
    assert_eq!(runs.len(), 30);
    assert!(runs.windows(2).all(|pair| pair[0].fence < pair[1].fence));
    let mut keys: Vec<_> = runs.iter().map(|run| &run.key).collect();
    keys.dedup();
    assert_eq!(keys.len(), 10);
}

#[test]
fn a_grant_whose_answer_comes_after_its_lease_is_given_back_and_not_run() {
    let mut released = 0;
    for seed in 0..40 {
        let leased = seed % 2 == 0;
        let lab = Lab::new(seed);
        let member = lab.start(|seat, b| {
            let job = seat.job(every(secs(60)), ms(10));
            let job = if leased { job.at_least_once(secs(1)) } else { job };
            // A claim whose lease has ended counts as an attempt.
            b.store_timeout(secs(10)).lost_after(secs(1)).extra_attempts(20).add("job", job)
        });
        lab.until(59.0);
        let slow = Rates { delay: 1_000, delay_ms: 4_000, ..Rates::default() };
        member.faults.set(slow);
        lab.until(69.0);
        member.faults.set(Rates::default());
        lab.until(100.0);
        for run in lab.log.of("job") {
            // A fence is when it was won, in microseconds.
            let since = run.began.timestamp_micros() - run.fence;
            assert!(since < 900_000, "seed {seed}: begun {since} µs after it was won");
        }
        released += lab.story("job").iter().filter(|entry| *entry == "released 60").count();
        // At most once, the lease may have ended before the run could be released.
        let last = lab.story("job").pop().unwrap();
        assert!(last == "succeeded 60" || (!leased && last == "lost 60"), "seed {seed}: {last}");
    }
    assert!(released > 10, "{released}");
}

/// The node that runs the job does not reach the store for a while. The other node does in the
/// first half of the cases, and records the run as lost.
fn outage(
    outage: u64,
    both: bool,
    takes: u64,
    add: impl Fn(JobSpec) -> JobSpec,
) -> (Lab, Member, Vec<String>) {
    use std::sync::atomic::Ordering::Relaxed;
    let lab = Lab::new(14);
    let members = [(); 2].map(|()| {
        lab.start(|seat, b| {
            let job = add(seat.job(every(secs(1_000)), secs(takes)));
            b.lost_after(secs(10)).add("job", job)
        })
    });
    lab.until(1_001.0);
    let runner = runner(&lab, &members).clone();
    let cut = members.iter().filter(|member| both || member.handle.node() == runner.handle.node());
    for member in cut.clone() {
        member.faults.down.store(true, Relaxed);
    }
    lab.until(1_001.0 + outage as f64);
    for member in cut {
        member.faults.down.store(false, Relaxed);
    }
    lab.until(1_990.0);
    let story = lab.story("job");
    (lab, runner, story)
}

#[test]
fn a_run_beside_others_outlives_an_outage_of_the_store() {
    for (length, both) in
        [17, 60, 300].into_iter().flat_map(|length| [(length, false), (length, true)])
    {
        // It ends after the outage, or during it.
        for takes in [500, 12] {
            let (lab, runner, story) =
                outage(length, both, takes, |job| job.overlap(Overlap::Allow));
            let case = format!("{length} s, both {both}, {takes} s");
            assert_eq!(story, ["succeeded 1000"], "{case}");
            let counters = lab.state("job").counters;
            assert_eq!((counters.lost, counters.succeeded), (0, 1), "{case}");
            lab.assert_over("job", 0, at(1_000.0 + takes as f64), Over::Ran);
            let news = runner.news();
            let leases: Vec<&str> = news.iter().map(String::as_str).collect();
            let told = |event| leases.iter().filter(|other| **other == event).count();
            assert_eq!((told("LeaseRenewalFailed"), told("Recovered")), (1, 1), "{case}: {news:?}");
            assert_eq!(told("LeaseLost"), 0, "{case}");
        }
    }
}

#[test]
fn every_other_run_is_cancelled_before_its_lease_ends() {
    type Add = fn(JobSpec) -> JobSpec;
    let ways: [(Add, &str); 3] = [
        (|job| job.overlap(Overlap::Skip), "lost 1000"),
        (|job| job.overlap(Overlap::Wait), "lost 1000"),
        (|job| job.overlap(Overlap::Allow).mutex("key"), "failed 1000"),
    ];
    for (add, expected) in ways {
        let (lab, runner, story) = outage(60, false, 500, add);
        let (ended, how) = lab.log.of("job")[0].ended.unwrap();
        assert_eq!(how, Over::Dropped);
        assert!(ended <= at(1_011.0), "{ended}");
        assert_eq!(story, [expected]);
        assert!(!runner.news().contains(&"Recovered".to_owned()), "{:?}", runner.news());
    }
}

/// The story of a job whose every run ends with its node, and the number of its runs.
fn killed(
    build: impl Fn(SchedulerBuilder) -> SchedulerBuilder,
    add: impl Fn(JobSpec) -> JobSpec,
) -> (Vec<String>, usize, usize, u64) {
    let lab = Lab::new(15);
    let members: Vec<Member> = (0..10)
        .map(|_| {
            lab.start(|seat, b| {
                let job = seat.job(every(secs(1_000)), secs(60)).at_least_once(secs(10));
                build(b).add("job", add(job))
            })
        })
        .collect();
    for attempt in 0..8 {
        lab.until(1_001.0 + 20.0 * f64::from(attempt));
        let runs = lab.log.of("job");
        if runs.len() == attempt as usize + 1 {
            let last = runs.last().unwrap();
            members.iter().find(|m| m.handle.node() == last.node).unwrap().node.crash();
        }
    }
    lab.until(1_500.0);
    let is_report = |event: &Event| matches!(event, Event::GivenUp { .. });
    let events = members.iter().flat_map(Member::events).filter(is_report).count();
    let dead = lab.state("job").dead.len() as u64;
    let (story, runs) = (lab.story("job"), lab.log.of("job").len());
    lab.until(2_100.0);
    assert_eq!(lab.ran("job").last(), Some(&2_000.0), "the schedule goes on");
    (story, runs, events, dead)
}

#[test]
fn an_occurrence_that_kills_its_process_ends_as_a_dead_letter() {
    let retried = |job: JobSpec| job.retry(Retry::up_to(2, secs(1)));
    for (runs, (story, ran, events, dead)) in [
        (4, killed(|b| b, |job| job)),
        (5, killed(|b| b, retried)),
        (2, killed(|b| b.extra_attempts(1), |job| job)),
        (1, killed(|b| b.extra_attempts(0), |job| job)),
    ] {
        let mut expected = vec!["expired 1000".to_owned(); runs];
        expected[runs - 1] = "dead 1000".to_owned();
        assert_eq!(story, expected);
        assert_eq!((ran, events, dead), (runs, 1, 1));
    }
}

/// The first request after an outage must not record as lost, or claim again, a run whose end only
/// waits for the store.
#[test]
fn after_an_outage_a_node_records_its_own_runs_before_it_reaps_and_claims() {
    use std::sync::atomic::Ordering::Relaxed;
    let (mut lost, mut again) = (0, 0);
    for length in 12..42 {
        let lab = Lab::new(length);
        let member = lab.start(|seat, b| {
            let job = || seat.job(every(secs(100)), secs(5));
            b.lost_after(secs(10))
                .add("once", job().overlap(Overlap::Skip))
                .add("leased", job().at_least_once(secs(10)))
        });
        lab.until(101.0);
        member.faults.down.store(true, Relaxed);
        lab.until(101.0 + 1.37 * length as f64);
        member.faults.down.store(false, Relaxed);
        lab.until(199.0);
        lost += lab.state("once").counters.lost;
        again += lab.state("leased").counters.expired;
    }
    assert_eq!((lost, again), (0, 0));
}

/// The end of a run after it has completed itself.
#[derive(Clone, Copy)]
enum After {
    Fails,
    Panics,
    /// It fails, and the completion was rolled back.
    RollsBack,
}

/// A run that completes itself, as in a transaction of its own, and does something else after that.
async fn complete_and(
    after: After,
    store: Memory,
    node: SimNode,
    run: Run,
) -> Result<(), BoxError> {
    let operations = [run.complete()];
    if !matches!(after, After::RollsBack) {
        let batch = Batch::new(run.node(), TimeSource::Fixed(node.wall()), &operations);
        store.reschedule(batch).await?;
    }
    match after {
        After::Fails | After::RollsBack => Err("the socket is closed".into()),
        After::Panics => panic!("the socket is closed"),
    }
}

#[test]
fn what_a_run_does_after_its_completion_is_told_by_one_event_and_changes_no_result() {
    for (case, after, is_retried) in [
        ("fails", After::Fails, true),
        ("panics", After::Panics, true),
        ("fails for good", After::Fails, false),
    ] {
        let lab = Lab::new(41);
        let member = lab.start(|seat, b| {
            let (store, node) = (lab.store.clone(), seat.node.clone());
            let spec = job(every(secs(60)), async move |run: Run| {
                complete_and(after, store, node, run).await
            });
            let spec = spec.at_least_once(secs(30));
            let retry = Retry::up_to(3, secs(5));
            b.add("job", if is_retried { spec.retry(retry) } else { spec })
        });
        lab.until(100.0);
        assert_eq!(lab.story("job"), ["succeeded 60"], "{case}");
        assert_eq!(member.news().iter().filter(|one| *one != "Ready").count(), 1, "{case}");
        let events = member.events();
        let what = events.iter().find_map(|event| match event {
            Event::AfterCompletion { what, .. } => Some(what.clone()),
            _ => None,
        });
        let what = what.unwrap_or_else(|| panic!("{case}: {events:?}"));
        assert!(what.contains("the socket is closed"), "{case}: {what}");
        let ended = events.iter().filter_map(|event| match event {
            Event::RunEnded { outcome, .. } => Some(outcome.word()),
            _ => None,
        });
        assert_eq!(ended.collect::<Vec<_>>(), ["succeeded"], "{case}");
    }
}

/// A job of each minute at least once with a lease of 9 s, whose run completes itself and works on for so
/// long.
fn works_on(lab: &Lab, seconds: u64) -> Member {
    lab.start(|seat, b| {
        let (store, node) = (lab.store.clone(), seat.node.clone());
        let work = async move |run: Run| -> Result<(), BoxError> {
            let operations = [run.complete()];
            let batch = Batch::new(run.node(), TimeSource::Fixed(node.wall()), &operations);
            store.reschedule(batch).await?;
            node.sleep_until(node.now() + secs(seconds)).await;
            Ok(())
        };
        b.add("job", job(every(secs(60)), work).at_least_once(secs(9)))
    })
}

#[test]
fn a_run_that_has_completed_itself_works_on_and_the_next_occurrence_waits_for_it() {
    let lab = Lab::new(43);
    let [one, other] = [0, 1].map(|_| works_on(&lab, 70));
    lab.until(129.0);
    assert_eq!(lab.story("job"), ["succeeded 60"]);
    assert!(lab.state("job").leases[0].completed);
    lab.until(135.0);
    assert_eq!(lab.story("job"), ["succeeded 60", "succeeded 120"]);
    lab.until(205.0);
    assert_eq!(lab.story("job"), ["succeeded 60", "succeeded 120", "succeeded 180"]);
    let events = [one.events(), other.events()].concat();
    let is_told =
        |event: &&Event| matches!(event, Event::AfterCompletion { .. } | Event::LeaseLost { .. });
    assert_eq!(events.iter().filter(is_told).count(), 0, "{events:?}");
    let counters = lab.state("job").counters;
    assert_eq!((counters.succeeded, counters.lost, counters.expired), (3, 0, 0));
}

#[test]
fn a_node_that_dies_after_a_completion_runs_nothing_twice_and_holds_nothing_up() {
    let lab = Lab::new(44);
    let first = works_on(&lab, 3_600);
    lab.until(100.0);
    let other = works_on(&lab, 1);
    first.node.crash();
    lab.until(119.0);
    // The lease is over: nothing is recorded as expired or lost, and nothing runs again.
    assert_eq!(lab.story("job"), ["succeeded 60"]);
    lab.until(125.0);
    assert_eq!(lab.story("job"), ["succeeded 60", "succeeded 120"]);
    let state = lab.state("job");
    assert_eq!((state.counters.lost, state.counters.expired, state.leases.len()), (0, 0, 0));
    drop(other);
}

#[test]
fn a_completion_that_was_rolled_back_changes_nothing() {
    let lab = Lab::new(42);
    let member = lab.start(|seat, b| {
        let (store, node) = (lab.store.clone(), seat.node.clone());
        let spec = job(every(secs(60)), async move |run: Run| {
            complete_and(After::RollsBack, store, node, run).await
        });
        b.add("job", spec.at_least_once(secs(30)).retry(Retry::up_to(2, secs(5))))
    });
    lab.until(100.0);
    assert_eq!(lab.story("job"), ["retried 60", "dead 60"]);
    let ended = member.events().into_iter().filter_map(|event| match event {
        Event::RunEnded { outcome, .. } => Some(outcome.word()),
        _ => None,
    });
    assert_eq!(ended.collect::<Vec<_>>(), ["retried", "dead"]);
}
