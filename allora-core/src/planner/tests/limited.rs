//! Handlers with a capacity of their own.

use super::*;
use crate::{
    backend::{JobState, NewSchedule},
    run::Payload,
    stored::Routed,
};

/// A planner whose handler of the kind "few" is limited, and that of "many" is not.
fn planner() -> Planner {
    let route = |state: &JobState| {
        let limited = (state.kind == "few").then_some(0);
        let payload =
            Payload { kind: state.kind.as_str().into(), data: Arc::from([]), handler: 0, limited };
        Routed::Here(of(every(secs(60))).carrying(payload))
    };
    Planner::new(PlannerConfig { route: Some(Arc::new(route)), ..config(1, secs(5)) })
}

/// A schedule that is due at this second.
fn due(name: &str, kind: &str, seconds: f64) -> JobState {
    let new = NewSchedule::new(kind, "@every 60s", Some(at(seconds).into()));
    let mut record = None;
    let operation = Operation::new(name, Action::Create(new));
    apply(&mut record, &operation, OpContext::new("n", at(0.0)), &mut HistoryBuffer::off())
        .unwrap();
    record.unwrap().state(name)
}

/// A tick with capacity for so many runs of the limited handler.
fn limited(planner: &mut Planner, now: f64, room: usize) -> Tick {
    let room = Room { all: 100, kinds: vec![KindRoom::new(100, 100 - room)] };
    let tick = Input::Tick { room, on_way: OnWay::default(), is_told: true };
    planner.handle(vec![tick], at(now)).tick
}

/// The names of the jobs that are claimed, with capacity for so many runs of the limited handler.
fn claims(planner: &mut Planner, now: f64, room: usize) -> Vec<String> {
    let tick = limited(planner, now, room);
    let names = tick.requests.iter().map(|request| {
        assert!(request.is_claim(), "{request:?}");
        request.name.to_string()
    });
    let mut names: Vec<String> = names.collect();
    names.sort();
    let lost: Vec<Request> = tick.requests;
    // Their replies bring other runs of the same jobs, later than this test.
    for request in lost {
        let name = request.name.clone();
        let state = due(&name, if name.starts_with('f') { "few" } else { "many" }, 9_000.0);
        let reply = Reply::State(Box::new(state));
        planner.replied(request, Answer::new(reply, at(now)), &mut Vec::new());
    }
    names
}

fn found(planner: &mut Planner, states: &[JobState]) {
    let number = planner.begin_search().number;
    for state in states {
        assert!(planner.found(state, number, at(9.0)));
    }
}

#[test]
fn what_is_due_beyond_a_limit_is_not_claimed_and_other_kinds_are() {
    let mut planner = planner();
    found(
        &mut planner,
        &[
            due("f3", "few", 10.3),
            due("f1", "few", 10.1),
            due("f2", "few", 10.2),
            due("m1", "many", 10.4),
            due("m2", "many", 10.5),
        ],
    );
    assert_eq!(claims(&mut planner, 11.0, 1), ["f1", "m1", "m2"]);
    assert!(planner.capacity.at_limit()[0], "it needs no search");
    assert_eq!(claims(&mut planner, 11.1, 0), [""; 0]);
    assert_eq!(claims(&mut planner, 12.0, 2), ["f2", "f3"], "in the order of their due times");
    assert_eq!(claims(&mut planner, 13.0, 2), [""; 0]);
    assert!(!planner.capacity.at_limit()[0], "none is put aside");
}

#[test]
fn capacity_that_a_job_does_not_use_goes_to_the_next_one() {
    let mut planner = planner();
    found(&mut planner, &[due("f1", "few", 10.1), due("f2", "few", 10.2)]);
    assert_eq!(claims(&mut planner, 11.0, 0), [""; 0]);
    // Another node has claimed it since.
    found_changed(&mut planner, "f1");
    assert_eq!(claims(&mut planner, 12.0, 1), ["f2"]);
}

fn found_changed(planner: &mut Planner, name: &str) {
    planner.on_notification(name);
    for request in limited(planner, 11.5, 0).requests {
        let reply = Reply::State(Box::new(due(name, "few", 9_000.0)));
        planner.replied(request, Answer::new(reply, at(11.5)), &mut Vec::new());
    }
}

#[test]
fn a_claim_without_a_reply_keeps_its_part_of_the_limit() {
    let mut planner = planner();
    found(&mut planner, &[due("f1", "few", 10.1), due("f2", "few", 10.2)]);
    let events = &mut Vec::new();
    let lost = limited(&mut planner, 11.0, 1).requests;
    assert_eq!(lost.len(), 1);
    planner.lost(lost, at(11.0), events);
    let repeated = limited(&mut planner, 12.0, 1).requests;
    assert_eq!(repeated.iter().map(|one| &*one.name).collect::<Vec<_>>(), ["f1"]);
    planner.lost(repeated, at(12.0), events);
    let others = limited(&mut planner, 13.0, 1).requests;
    assert!(others.iter().all(|one| &*one.name == "f1"), "{others:?}");
}
