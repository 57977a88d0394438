//! Runs that save checkpoints, and go on elsewhere when their node stops or dies.

use crate::support::{Lab, Member, ms, secs};
use allora_core::{
    BoxError, ErrorKind, JobSpec, Result, Retry, Run, Runtime, backend::Outcome, every, job,
    runtime::SimNode,
};
use futures::{
    future::{Either, join, select},
    pin_mut,
};
use std::sync::{Arc, Mutex};

const PARTS: usize = 4;

/// The parts that were done, with the attempt.
type Done = Arc<Mutex<Vec<(usize, u32)>>>;

/// An import of some parts, each of which takes 10 s. When its node stops, it goes on elsewhere.
fn import(clock: SimNode, done: Done) -> JobSpec {
    let work = async move |run: Run| -> std::result::Result<(), BoxError> {
        let first = match run.last_checkpoint() {
            Some(left) => std::str::from_utf8(left)?.parse()?,
            None => 0,
        };
        for part in first..PARTS {
            let (work, stopping) = (clock.sleep_until(clock.now() + secs(10)), run.stopping());
            pin_mut!(stopping);
            if let Either::Right(_) = select(work, stopping).await {
                return Ok(run.release()?);
            }
            done.lock().unwrap().push((part, run.attempt()));
            run.checkpoint((part + 1).to_string()).await?;
        }
        Ok(())
    };
    job(every(secs(3_600)).phase(secs(10)), work).at_least_once(secs(6))
}

/// Two nodes; the first has the run. Returns what was done after this happened to it at that time.
fn after(seconds: f64, happens: fn(&Member)) -> (Lab, Vec<(usize, u32)>) {
    let (lab, done) = (Lab::new(3), Done::default());
    let start = || lab.start(|seat, b| b.add("import", import(seat.node.clone(), done.clone())));
    let first = start();
    lab.until(seconds);
    happens(&first);
    start();
    lab.until(120.0);
    let done = done.lock().unwrap().clone();
    (lab, done)
}

#[test]
fn a_node_is_killed_at_each_step_and_the_next_one_goes_on_from_the_last_checkpoint() {
    for step in 0..2 * PARTS {
        // Right after a checkpoint, and in the middle of a part.
        let part = step / 2;
        let seconds = 10.1 + 5.0 * step as f64;
        let (lab, done) = after(seconds, |first| first.node.crash());
        let attempts = (0..PARTS).map(|done| (done, 1 + u32::from(done >= part)));
        assert_eq!(done, attempts.collect::<Vec<_>>(), "killed after {seconds} s");
        assert_eq!(lab.state("import").counters.succeeded, 1);
    }
}

#[test]
fn a_stopping_node_hands_its_run_over_at_once_and_no_attempt_is_counted() {
    for step in 0..2 * PARTS {
        let (lab, done) = after(10.1 + 5.0 * step as f64, |first| first.handle.stop());
        assert_eq!(done, (0..PARTS).map(|part| (part, 1)).collect::<Vec<_>>());
        let past = lab.past("import");
        let [released, succeeded] = &past[..] else { panic!("{past:?}") };
        assert_eq!(
            (&released.outcome, &succeeded.outcome),
            (&Outcome::Released, &Outcome::Succeeded)
        );
        let gap = succeeded.started_at.unwrap() - released.ended_at.unwrap();
        assert!(gap < chrono::TimeDelta::seconds(2), "{gap}");
    }
}

/// The job of a run that makes these two calls at once, and its results.
fn twice(values: [Vec<u8>; 2]) -> (JobSpec, Arc<Mutex<Vec<Result>>>) {
    let results = Arc::new(Mutex::new(Vec::new()));
    let filled = results.clone();
    let work = async move |run: Run| {
        let [one, other] = values.clone();
        let both = join(run.checkpoint(one), run.checkpoint(other)).await;
        if run.attempt() == 1 {
            filled.lock().unwrap().extend([both.0, both.1]);
            panic!("another attempt");
        }
        assert_eq!(run.last_checkpoint(), Some(&values[1][..]));
    };
    (job(every(secs(3_600)).phase(secs(10)), work), results)
}

#[test]
fn of_two_checkpoints_at_once_the_later_one_is_kept_and_both_calls_wait_for_the_store() {
    let lab = Lab::new(1);
    let (spec, results) = twice([vec![1], vec![2; 64 << 10]]);
    lab.start(|_, b| b.add("job", spec.at_least_once(secs(30)).retry(Retry::up_to(3, ms(500)))));
    lab.until(20.0);
    assert!(results.lock().unwrap().iter().all(Result::is_ok));
    assert_eq!(lab.story("job"), ["retried 10", "succeeded 10"]);
}

#[test]
fn what_cannot_be_kept_is_an_error() {
    let lab = Lab::new(1);
    let (once, of_once) = twice([vec![1], vec![2]]);
    let (long, of_long) = twice([vec![1; (64 << 10) + 1], vec![2]]);
    lab.start(|_, b| b.add("once", once).add("long", long.at_least_once(secs(30))));
    lab.until(20.0);
    let kinds = |results: &Mutex<Vec<Result>>| {
        let results = std::mem::take(&mut *results.lock().unwrap());
        results.into_iter().map(|one| one.err().map(|error| error.kind())).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&of_once), [Some(ErrorKind::Unsupported); 2]);
    assert_eq!(kinds(&of_long), [Some(ErrorKind::Invalid), None]);
}

#[test]
fn a_run_on_every_node_has_checkpoints_too() {
    let (lab, done) = (Lab::new(3), Done::default());
    lab.start(|_, b| {
        let fails = Arc::new(Mutex::new(true));
        let done = done.clone();
        let work = async move |run: Run| -> std::result::Result<(), BoxError> {
            done.lock()
                .unwrap()
                .push((run.last_checkpoint().map_or(0, <[u8]>::len), run.attempt()));
            run.checkpoint(vec![0; 3]).await?;
            match std::mem::replace(&mut *fails.lock().unwrap(), false) {
                true => Err("once".into()),
                false => Ok(()),
            }
        };
        let spec = job(every(secs(3_600)).phase(secs(10)), work).at_least_once(secs(30));
        b.add("here", spec.retry(Retry::up_to(3, ms(500))).on_every_node())
    });
    lab.until(20.0);
    assert_eq!(*done.lock().unwrap(), [(0, 1), (3, 2)]);
}

#[test]
fn a_run_that_is_released_for_a_while_runs_again_then_and_no_attempt_counts() {
    let lab = Lab::new(1);
    let found = Arc::new(Mutex::new(Vec::new()));
    let (clock, seen) = (lab.clock(), found.clone());
    let work = async move |run: Run| -> Result {
        let second = (clock.wall() - run.scheduled_at()).num_seconds();
        seen.lock().unwrap().push((second, run.attempt()));
        match second < 60 {
            true => run.release_after(secs(30)),
            false => Ok(()),
        }
    };
    let spec = job(every(secs(3_600)).phase(secs(10)), work);
    lab.start(|_, b| b.add("job", spec.at_least_once(secs(20))));
    lab.until(200.0);
    assert_eq!(*found.lock().unwrap(), [(0, 1), (30, 1), (60, 1)]);
    assert_eq!(lab.state("job").counters.succeeded, 1);
}
