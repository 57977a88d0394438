//! Occurrences whose work is recorded as done by hand.

use super::{add, schedules};
use crate::support::{Lab, at, ms, secs};
use allora_core::{
    ErrorKind, HistoryQuery, Occurrence, Retry, Run, StoredSchedule,
    backend::{Author, NotRunReason, Outcome},
    stored::WhyCode,
};

#[test]
fn a_dead_letter_and_a_missed_occurrence_can_be_marked_as_succeeded() {
    let lab = Lab::new(1);
    let member = lab.start(|seat, b| b.kind("t", seat.handler(ms(0), |_| Err("no route".into()))));
    let job = StoredSchedule::new("job", "t", "* * * * *").starting(at(60.0)).retry(Retry::NEVER);
    add(&lab, job.window(secs(30)));
    lab.until(70.0);
    lab.sim.block_on(schedules(&lab).pause("job", "")).unwrap();
    lab.until(200.0);
    lab.sim.block_on(schedules(&lab).resume("job", allora_core::stored::Gap::CatchUp)).unwrap();
    lab.until(245.0);
    let dead = lab.state("job").dead;
    assert_eq!(dead.len(), 3);
    let client = schedules(&lab).by(Author::new("ann").via("console").note("sent by hand"));
    let mark = |occurrence: Occurrence| {
        lab.sim.block_on(client.mark_succeeded("job", &occurrence)).map_err(|error| error.kind())
    };
    let state = mark(at(60.0).into()).unwrap();
    assert_eq!((state.dead.len(), state.counters), (2, lab.state("job").counters));
    assert_eq!(state.counters.succeeded, 0, "no run has succeeded");
    mark(at(120.0).into()).unwrap();
    assert_eq!(mark(at(90.0).into()).unwrap_err(), ErrorKind::NotFound, "no such occurrence");
    assert_eq!(mark(at(300.0).into()).unwrap_err(), ErrorKind::Invalid, "it is to come");
    let query = HistoryQuery::new(10).name("job");
    let entries = lab.sim.block_on(schedules(&lab).history(query)).unwrap();
    let marks: Vec<_> = entries.iter().filter(|one| one.outcome == Outcome::Succeeded).collect();
    let times: Vec<_> = marks.iter().map(|one| one.occurrence.scheduled_at).collect();
    assert_eq!(times, [at(120.0), at(60.0)]);
    for mark in marks {
        assert_eq!(mark.output.as_deref(), Some("by ann (console): sent by hand"));
        assert_eq!((mark.reason, mark.attempt), (Some(NotRunReason::Operator), 0));
    }
    for second in [60.0, 120.0] {
        let why = lab.sim.block_on(client.why("job", Some(at(second)))).unwrap();
        assert_eq!(why.code, WhyCode::Succeeded, "{}", why.sentence);
        assert!(why.sentence.contains("was marked as succeeded"), "{}", why.sentence);
        assert!(why.sentence.contains("by ann (console): sent by hand"), "{}", why.sentence);
    }
    drop(member);
}

#[test]
fn a_mark_behind_thousands_of_newer_runs_is_found() {
    let lab = Lab::new(3);
    lab.start(|seat, b| {
        let fails = |run: &Run| match run.scheduled_at() == at(60.0) {
            true => Err("no route".into()),
            false => Ok(()),
        };
        b.kind("t", seat.handler(ms(0), fails))
    });
    let job = StoredSchedule::new("job", "t", "@every 1s").starting(at(60.0));
    add(&lab, job.retry(Retry::NEVER));
    lab.until(65.0);
    let client = schedules(&lab).by(Author::new("ann").note("sent by hand"));
    lab.sim.block_on(client.mark_succeeded("job", &at(60.0).into())).unwrap();
    lab.until(2_100.0);
    assert!(lab.past("job").len() > 2_010);
    let why = lab.sim.block_on(client.why("job", Some(at(60.0)))).unwrap();
    assert!(why.sentence.contains("was marked as succeeded"), "{}", why.sentence);
}

#[test]
fn what_an_operator_skips_has_the_note() {
    let lab = Lab::new(2);
    add(&lab, StoredSchedule::new("job", "t", "* * * * *").starting(at(60.0)));
    let client = schedules(&lab).by(Author::new("ann").note("the mail server moves"));
    lab.sim.block_on(client.skip_next("job", 2)).unwrap();
    let query = HistoryQuery::new(10).name("job");
    let entries = lab.sim.block_on(client.history(query)).unwrap();
    assert_eq!(entries[0].operator_note(), Some("by ann: the mail server moves"));
    assert_eq!(entries[0].outcome, Outcome::Skipped);
    let why = lab.sim.block_on(client.why("job", Some(at(120.0)))).unwrap();
    assert_eq!(why.code, WhyCode::SkippedOperator);
    assert!(why.sentence.contains("was skipped by an operator"), "{}", why.sentence);
    assert!(why.sentence.ends_with("by ann: the mail server moves"), "{}", why.sentence);
}
