//! The results that a run may request for itself, and middleware.

use super::{Seen, add, schedules};
use crate::support::{Lab, at, ms, secs};
use allora_core::{
    BoxError, ErrorKind, Next, Retry, Run, Runtime, StoredSchedule, backend::Outcome,
};

#[test]
fn what_failed_for_good_is_kept_and_run_again_as_the_same_occurrence() {
    let lab = Lab::new(1);
    let seen = Seen::default();
    let told = seen.clone();
    lab.start(|_, b| {
        b.kind("t", async move |run: Run| -> Result<(), BoxError> {
            told.tell(format!("{} {}", run.occurrence_key(), run.attempt()));
            if run.fence() > 0 && told.0.lock().unwrap().len() <= 3 {
                Err("no".into())
            } else {
                Ok(())
            }
        })
    });
    let retry = Retry::up_to(3, secs(1));
    add(&lab, StoredSchedule::new("a", "t", "@every 100s").retry(retry).max_runs(1));
    lab.until(110.0);
    let state = lab.state("a");
    let [letter] = &state.dead[..] else { panic!("{state:?}") };
    assert_eq!(
        (letter.attempts, &*letter.error, letter.occurrence.scheduled_at),
        (3, "no", at(100.0))
    );
    assert_eq!(lab.story("a"), ["retried 100", "retried 100", "dead 100"]);
    lab.sim.block_on(schedules(&lab).rerun("a", &letter.occurrence)).unwrap();
    lab.until(111.0);
    let keys = seen.take();
    assert_eq!(keys[0], keys[3], "the same key, and the first attempt again");
    let state = lab.state("a");
    assert_eq!((state.dead.len(), state.last), (0, Some(Outcome::Succeeded)));
    assert_eq!(lab.story("a")[3], "succeeded 100");
    let error = lab.sim.block_on(schedules(&lab).rerun("a", &letter.occurrence)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[test]
fn a_run_may_ask_to_be_tried_again_or_give_its_occurrence_back() {
    let lab = Lab::new(2);
    let seen = Seen::default();
    let told = seen.clone();
    lab.start(|seat, b| {
        let node = seat.node.clone();
        b.kind("t", async move |run: Run| {
            let second = (node.wall() - at(0.0)).num_seconds();
            told.tell(format!("{second} {}", run.attempt()));
            let before = told.0.lock().unwrap().len();
            match before {
                1 => run.retry(secs(30), "not now").unwrap(),
                2 => run.release().unwrap(),
                _ => {}
            }
        })
    });
    add(&lab, StoredSchedule::new("a", "t", "@every 100s").retry(Retry::NEVER).max_runs(1));
    lab.until(200.0);
    assert_eq!(seen.take(), ["100 1", "130 2", "130 2"]);
    assert_eq!(lab.story("a"), ["retried 100", "released 100", "succeeded 100"]);
}

#[test]
fn a_run_may_give_up_and_at_most_once_it_cannot_be_tried_again() {
    let lab = Lab::new(3);
    let seen = Seen::default();
    let told = seen.clone();
    lab.start(|_, b| {
        b.kind("t", async move |run: Run| -> Result<(), BoxError> {
            run.give_up();
            told.tell(format!("{:?}", run.retry(secs(1), "x").map_err(|error| error.kind())));
            told.tell(format!("{:?}", run.release().map_err(|error| error.kind())));
            run.give_up();
            Err("hopeless".into())
        })
    });
    add(&lab, StoredSchedule::new("leased", "t", "@at 2026-01-01T00:00:10Z"));
    lab.until(20.0);
    assert_eq!(seen.take(), ["Ok(())", "Ok(())"]);
    assert_eq!(lab.story("leased"), ["dead 10"]);
    add(&lab, StoredSchedule::new("marked", "t", "@at 2026-01-01T00:00:30Z").at_most_once());
    lab.until(40.0);
    assert_eq!(seen.take(), ["Err(Unsupported)", "Err(Unsupported)"]);
    assert_eq!(lab.story("marked"), ["failed 30"]);
    assert!(lab.state("marked").dead.is_empty());
}

#[test]
fn a_heartbeat_confirms_the_lease_or_tells_that_it_is_lost() {
    let lab = Lab::new(4);
    let seen = Seen::default();
    let told = seen.clone();
    lab.start(|seat, b| {
        let (node, faults) = (seat.node.clone(), seat.faults.clone());
        b.kind("t", async move |run: Run| {
            node.sleep_until(node.now() + secs(1)).await;
            let before = faults.updates.load(std::sync::atomic::Ordering::Relaxed);
            told.tell(format!("{:?}", run.heartbeat().await));
            let after = faults.updates.load(std::sync::atomic::Ordering::Relaxed);
            told.tell(format!("{}", after - before));
            node.sleep_until(node.now() + secs(2)).await;
            told.tell(format!("{:?}", run.heartbeat().await.map_err(|error| error.kind())));
        })
    });
    add(&lab, StoredSchedule::new("a", "t", "@at 2026-01-01T00:00:10Z"));
    lab.until(12.0);
    assert_eq!(seen.take(), ["Ok(())", "1"], "one request more than would have been");
    lab.sim.block_on(schedules(&lab).delete("a")).unwrap();
    lab.until(20.0);
    assert_eq!(seen.take(), ["Err(LeaseLost)"], "what was deleted learns it when it asks");
}

#[test]
fn hooks_go_around_every_run_and_may_veto_it() {
    let lab = Lab::new(5);
    let seen = Seen::default();
    let (outer, inner, told) = (seen.clone(), seen.clone(), seen.clone());
    lab.start(|_, b| {
        b.middleware(async move |run: Run, next: Next| {
            outer.tell("before");
            let ended = next.run(run).await;
            outer.tell(format!("after {:?}", ended.as_ref().map_err(ToString::to_string)));
            ended
        })
        .middleware(async move |run: Run, next: Next| {
            if run.name() == "vetoed" {
                inner.tell("veto");
                return Ok(());
            }
            next.run(run).await
        })
        .job("code", allora_core::at(at(5.0)), {
            let told = told.clone();
            async move |run: Run| told.run(&run)
        })
        .kind("t", async move |run: Run| -> Result<(), BoxError> {
            told.run(&run);
            Err("boom".into())
        })
    });
    add(&lab, StoredSchedule::new("vetoed", "t", "@at 2026-01-01T00:00:10Z"));
    add(&lab, StoredSchedule::new("failing", "t", "@at 2026-01-01T00:00:20Z").retry(Retry::NEVER));
    lab.until(30.0);
    assert_eq!(
        seen.take(),
        [
            "before",
            "code 5",
            "after Ok(())",
            "before",
            "veto",
            "after Ok(())",
            "before",
            "failing 20",
            "after Err(\"boom\")",
        ]
    );
    assert_eq!(lab.story("vetoed"), ["succeeded 10"]);
}

#[test]
fn a_run_that_takes_too_long_is_dropped_and_tried_again() {
    let lab = Lab::new(6);
    lab.start(|seat, b| {
        let node = seat.node.clone();
        b.kind("t", async move |run: Run| {
            let takes = if run.attempt() == 1 { secs(60) } else { ms(10) };
            node.sleep_until(node.now() + takes).await;
        })
    });
    let stored = StoredSchedule::new("a", "t", "@at 2026-01-01T00:00:10Z").timeout(secs(5));
    add(&lab, stored.retry(Retry::up_to(2, secs(3))));
    lab.until(30.0);
    assert_eq!(lab.story("a"), ["retried 10", "succeeded 10"]);
}
