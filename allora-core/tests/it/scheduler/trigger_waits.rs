//! Callers that wait for the end of a trigger: on the node that runs it, on another one, in vain.

use crate::support::{Lab, Over, ms, secs};
use allora_core::{
    BoxError, ErrorKind, Result, Retry, Run, Schedules,
    backend::{Ended, HistoryQuery, Outcome, TriggerStatus},
    every,
};
use allora_memory::Memory;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3_600);

fn fails_once(run: &Run) -> std::result::Result<(), BoxError> {
    if run.attempt() == 1 { Err("no luck".into()) } else { Ok(()) }
}

#[test]
fn the_wait_ends_with_the_last_attempt_on_a_store_without_history() {
    let lab = Lab::new(1);
    let seat = lab.seat(lab.sim.node());
    let job = seat.work(every(HOUR), secs(2), fails_once).at_least_once(secs(30));
    let builder = seat.builder_on(Memory::new()).add("job", job.retry(Retry::up_to(3, secs(5))));
    let member = seat.run(builder.build().unwrap());
    lab.until(10.0);
    let wait = member.handle.trigger_and_wait("job", "a", secs(60));
    assert_eq!(lab.sim.block_on(wait).unwrap().outcome, Outcome::Succeeded);
    let waited = lab.now() - crate::support::at(10.0);
    assert!((9..10).contains(&waited.num_seconds()), "{waited}");
    assert_eq!(lab.log.of("job").len(), 2);
    let absent = member.handle.trigger_and_wait("none", "a", secs(60));
    assert_eq!(lab.sim.block_on(absent).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
fn the_end_of_a_run_on_another_node_is_found_in_the_history() {
    let lab = Lab::new(1);
    let asks = lab.start(|seat, b| b.add("local", seat.job(every(HOUR), ms(5))));
    lab.start(|seat, b| {
        let fails = |_: &Run| -> std::result::Result<(), BoxError> { Err("no luck".into()) };
        b.add("remote", seat.work(every(HOUR), secs(3), fails))
            .kind("mail", seat.handler(secs(3), |_| Ok(())))
    });
    lab.store("acme", "mail", "@every 1h");
    lab.until(10.0);
    let failed = Outcome::Failed("no luck".to_owned());
    // The entry of an earlier trigger is not taken for this one.
    for (runs, id) in (1..).zip(["a", "b"]) {
        let wait = asks.handle.trigger_and_wait("remote", id, secs(60));
        assert_eq!(lab.sim.block_on(wait).unwrap().outcome, failed);
        assert_eq!(lab.log.of("remote").len(), runs);
        assert!(
            lab.log
                .of("remote")
                .iter()
                .all(|run| run.ended.is_some_and(|(_, over)| over == Over::Failed))
        );
    }
    let schedules = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    let wait = schedules.trigger_and_wait("acme", "b", secs(60));
    assert_eq!(lab.sim.block_on(wait).unwrap().outcome, Outcome::Succeeded);
}

#[test]
fn the_value_of_the_last_attempt_is_in_the_end_of_the_wait_and_in_the_history() {
    let lab = Lab::new(1);
    let asks = lab.start(|_, b| b);
    let runs = lab.start(|seat, b| {
        let values = |run: &Run| -> std::result::Result<(), BoxError> {
            run.set_output("two lines\n");
            let wrong = [run.set_value(format!("[{}]", "1,".repeat(2_048))), run.set_value("{a}")];
            for error in wrong.map(Result::unwrap_err) {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            }
            run.set_value("[0]")?;
            run.set_value(format!("[{}]", run.attempt()))?;
            fails_once(run)
        };
        let job = seat.work(every(HOUR), secs(1), values).at_least_once(secs(30));
        b.add("job", job.retry(Retry::up_to(3, secs(5))))
    });
    lab.until(10.0);
    for (member, id) in [(&asks, "a"), (&runs, "b"), (&asks, "b")] {
        let end = lab.sim.block_on(member.handle.trigger_and_wait("job", id, secs(60))).unwrap();
        assert_eq!(
            (&end.outcome, end.value.as_deref()),
            (&Outcome::Succeeded, Some("[2]")),
            "{id}"
        );
        assert_eq!(end.output.as_deref(), Some("two lines\n"));
    }
    let kept: Vec<_> = lab.past("job").into_iter().map(|entry| entry.value.unwrap()).collect();
    assert_eq!(kept, ["[1]", "[2]", "[1]", "[2]"]);
}

#[test]
fn an_id_that_has_run_is_not_run_again_and_has_the_outcome_of_that_run() {
    let lab = Lab::new(1);
    let fails = |_: &Run| -> std::result::Result<(), BoxError> { Err("no luck".into()) };
    let member = lab.start(|seat, b| b.add("job", seat.work(every(HOUR), secs(3), fails)));
    lab.until(10.0);
    let failed = Outcome::Failed("no luck".to_owned());
    let schedules = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
    for _ in 0..2 {
        let wait = member.handle.trigger_and_wait("job", "order-7", secs(60));
        assert_eq!(lab.sim.block_on(wait).unwrap().outcome, failed);
        let wait = schedules.trigger_and_wait("job", "order-7", secs(60));
        assert_eq!(lab.sim.block_on(wait).unwrap().outcome, failed);
    }
    assert_eq!((lab.now() - crate::support::at(10.0)).num_seconds(), 3, "at once");
    let again = lab.sim.block_on(schedules.trigger("job", "order-7")).unwrap();
    assert_eq!(again.status, TriggerStatus::Ended);
    assert_eq!(lab.log.of("job").len(), 1);
    let wait = schedules.trigger_retention(Duration::ZERO);
    assert!(!lab.sim.block_on(wait.trigger("job", "order-7")).unwrap().is_new(), "remembered");
    lab.until(40.0 + 24.0 * 3_600.0);
    assert!(lab.sim.block_on(schedules_of(&lab).trigger("job", "order-7")).unwrap().is_new());
}

fn schedules_of(lab: &Lab) -> Schedules {
    Schedules::on(lab.store.clone(), lab.clock()).unwrap()
}

#[test]
fn the_end_of_an_id_that_has_run_is_unknown_without_a_history() {
    let lab = Lab::new(1);
    let seat = lab.seat(lab.sim.node());
    let builder = seat.builder_on(Memory::new()).add("job", seat.job(every(HOUR), secs(2)));
    let member = seat.run(builder.build().unwrap());
    lab.until(10.0);
    let first = member.handle.trigger_and_wait("job", "order-7", secs(60));
    assert_eq!(lab.sim.block_on(first).unwrap().outcome, Outcome::Succeeded);
    let again = member.handle.trigger_and_wait("job", "order-7", secs(60));
    let error = lab.sim.block_on(again).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    assert!(error.to_string().contains("use another id"), "{error}");
    assert_eq!(lab.log.of("job").len(), 1);
}

#[test]
fn a_node_remembers_the_ids_of_its_triggers_for_as_long_as_it_is_told() {
    let lab = Lab::new(1);
    let member = lab
        .start(|seat, b| b.trigger_retention(secs(60)).add("job", seat.job(every(HOUR), secs(2))));
    lab.until(10.0);
    let trigger = || lab.sim.block_on(member.handle.trigger("job", "order-7")).unwrap().status;
    assert_eq!((trigger(), trigger()), (TriggerStatus::New, TriggerStatus::Pending));
    lab.until(60.0);
    assert_eq!(trigger(), TriggerStatus::Ended);
    lab.until(80.0);
    assert_eq!(trigger(), TriggerStatus::New);
    let long = lab.seat(lab.sim.node()).builder_on(Memory::new()).trigger_retention(31 * 24 * HOUR);
    let error = long.build().unwrap_err();
    assert!(error.to_string().contains("`trigger_retention` is"), "{error}");
}

#[test]
fn a_wait_in_vain_ends_with_its_time_and_one_without_history_at_once() {
    let lab = Lab::new(1);
    let asks = lab.start(|seat, b| b.add("job", seat.job(every(HOUR), HOUR)));
    lab.until(10.0);
    let wait = asks.handle.trigger_and_wait("job", "a", secs(20));
    let error = lab.sim.block_on(wait).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("has not ended within 20s"), "{error}");
    assert_eq!((lab.now() - crate::support::at(10.0)).num_seconds(), 20);
    let schedules = Schedules::on(Memory::new(), lab.clock()).unwrap();
    let wait: Result<Ended> = lab.sim.block_on(schedules.trigger_and_wait("job", "a", secs(20)));
    let error = wait.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("keeps no history"), "{error}");
}

#[test]
fn a_job_that_is_not_registered_yet_is_paused_and_triggered_when_it_is() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| b.add("job", seat.job(every(secs(30)), ms(5))));
    // Nothing has run yet: the store has no record.
    assert!(lab.state_of("job").is_none());
    lab.sim.block_on(member.handle.pause("job", "first look")).unwrap();
    lab.sim.block_on(member.handle.trigger("job", "a")).unwrap();
    lab.until(100.0);
    assert_eq!(lab.log.of("job").len(), 1);
    let history = member.handle.history(HistoryQuery::new(5).name("job"));
    let entry = &lab.sim.block_on(history).unwrap()[0];
    assert_eq!(entry.duration(), Some(ms(5)));
    let absent = lab.sim.block_on(member.handle.pause("none", "")).unwrap_err();
    assert_eq!(absent.kind(), ErrorKind::NotFound);
}
