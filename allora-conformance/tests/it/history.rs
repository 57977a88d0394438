//! Histories with one defect planted in each, and what the checker says to them.

use allora_conformance::{
    environment::patiently,
    faults::{Log, RecordingBackend, wall},
    history::{
        Claims, Event, Invariant, Outcome, Violation, What, check, merge_store_history, read, write,
    },
};
use allora_core::{
    Backend, Time,
    backend::{
        self, Action, Batch, Claim, Completion, Cursor, HistoryEntry, Operation, Reply, TimeSource,
    },
    time::from_millis,
};
use allora_memory::Memory;
use futures::executor::block_on;
use std::{env, fs, time::Duration};

fn at(seconds: i64) -> i64 {
    seconds * 1_000
}

fn event(node: &str, seconds: i64, what: What) -> Event {
    Event { job: "job".into(), node: node.into(), at: at(seconds), what }
}

/// Every minute.
fn following(_: &str, instant: i64) -> Option<i64> {
    Some(instant - instant.rem_euclid(60_000) + 60_000)
}

fn claim(node: &str, now: i64, occurrence: i64, fence: i64, attempt: u32) -> Event {
    let until = Some(at(now + 30));
    event(node, now, What::Claim(Claims { occurrence: at(occurrence), fence, attempt, until }))
}

fn start(node: &str, now: i64, occurrence: i64, fence: i64) -> Event {
    event(node, now, What::Start { occurrence: at(occurrence), fence })
}

fn end(node: &str, now: i64, occurrence: i64, fence: i64, outcome: Outcome) -> Event {
    event(node, now, What::End { occurrence: at(occurrence), fence, outcome })
}

/// Taken, started, extended, ended; a retry; a dead node; missed instants.
fn sound() -> Vec<Event> {
    vec![
        claim("a", 60, 60, 1, 1),
        start("a", 61, 60, 1),
        event("a", 70, What::Extend { fence: 1, until: at(100) }),
        end("a", 80, 60, 1, Outcome::Succeeded),
        claim("b", 120, 120, 4, 1),
        start("b", 120, 120, 4),
        end("b", 121, 120, 4, Outcome::Retry),
        claim("a", 125, 120, 5, 2),
        start("a", 125, 120, 5),
        // Its node dies; the other one takes over when the lease is over.
        claim("b", 155, 120, 9, 3),
        start("b", 155, 120, 9),
        end("b", 156, 120, 9, Outcome::Failed),
        event("b", 300, What::Skip { first: at(180), last: at(240) }),
        claim("b", 300, 300, 11, 1),
        start("b", 300, 300, 11),
        end("b", 301, 300, 11, Outcome::Succeeded),
    ]
}

fn found(log: &[Event]) -> Vec<Violation> {
    check(log, &Invariant::new(&following).until(at(300)))
}

fn planted(change: impl FnOnce(&mut Vec<Event>)) -> Vec<Violation> {
    let mut log = sound();
    change(&mut log);
    let in_order = found(&log);
    log.reverse();
    assert_eq!(found(&log), in_order, "the order of the lines does not matter");
    in_order
}

fn job() -> String {
    "job".into()
}

#[test]
fn a_sound_history_has_nothing_against_it() {
    assert_eq!(found(&sound()), []);
    assert_eq!(found(&[]), []);
    let asked_again = planted(|log| log.push(claim("a", 60, 60, 1, 1)));
    assert_eq!(asked_again, [], "one take whose answer was given twice");
}

#[test]
fn two_nodes_at_one_fence_are_found() {
    let violations = planted(|log| log.push(claim("b", 60, 60, 1, 1)));
    assert_eq!(violations, [Violation::SharedFence { job: job(), fence: 1 }]);
}

#[test]
fn two_occurrences_at_one_fence_are_found() {
    let violations = planted(|log| log[13] = claim("b", 300, 300, 9, 1));
    assert!(
        violations.contains(&Violation::SharedFence { job: job(), fence: 9 }),
        "{violations:?}"
    );
}

#[test]
fn a_fence_that_does_not_grow_is_found() {
    // The failover forgot a fence: at 300 a smaller one than at 155 is given.
    let violations = planted(|log| {
        log[13] = claim("b", 300, 300, 8, 1);
        log[14] = start("b", 300, 300, 8);
        log[15] = end("b", 301, 300, 8, Outcome::Succeeded);
    });
    let shrank = Violation::FenceDidNotGrow { job: job(), before: 9, after: 8 };
    assert_eq!(violations, [shrank]);
}

#[test]
fn overlapping_leases_are_found() {
    let violations = planted(|log| {
        log[9] = claim("b", 154, 120, 9, 3);
    });
    assert_eq!(violations, [Violation::LeasesOverlap { job: job(), held: 5, given: 9 }]);
    let extended = planted(|log| {
        log.push(event("a", 150, What::Extend { fence: 5, until: at(180) }));
    });
    assert_eq!(extended, [Violation::LeasesOverlap { job: job(), held: 5, given: 9 }]);
}

#[test]
fn an_end_before_the_answer_to_the_next_claim_is_no_overlap_without_a_clock() {
    let at_once = |answered: i64| {
        planted(|log| {
            log.insert(4, claim("b", 79, 120, 2, 1));
            log.push(event("b", answered, What::Answered { fence: 2 }));
            log.push(end("b", 85, 120, 2, Outcome::Retry));
        })
    };
    let overlap = Violation::LeasesOverlap { job: job(), held: 1, given: 2 };
    assert!(at_once(79).contains(&overlap), "{:?}", at_once(79));
    assert!(!at_once(81).contains(&overlap), "{:?}", at_once(81));
}

/// A claim by a node whose request was under way while another node ended its run: a store without
/// a clock decides on it by the time at which it was sent.
#[test]
fn a_claim_that_was_sent_before_the_other_run_ended_is_no_overlap() {
    let folder = env::temp_dir().join(format!("allora-overlap-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let store = Memory::new();
    let node = || RecordingBackend::new(store.clone(), Log::append(&folder.join("log")));
    let ask = |node: &RecordingBackend, id, fallback, action| {
        let operations = [Operation::new("job", action)];
        let batch = Batch::new(id, TimeSource::Store { fallback }, &operations);
        block_on(node.reschedule(batch)).unwrap().single().unwrap()
    };
    let (a, b) = (node(), node());
    let begun = from_millis(wall()).unwrap();
    let (first, lease) = (begun - chrono::TimeDelta::seconds(2), Duration::from_secs(30));
    let next = first + chrono::TimeDelta::seconds(1);
    let register =
        Action::Register { definition: "every 1s", version: 0, first: Some(first.into()) };
    let state = ask(&a, "a", begun, register).state().unwrap();
    let claim =
        |id, fence, at: Time| Action::Claim(Claim::at_least_once(id, fence, at.into(), lease));
    let Reply::Claimed(run) = ask(&a, "a", begun, claim(1, state.fence, first)) else { panic!() };
    // The other node assumes that the run was completed. Its request is slow.
    let sent = begun;
    patiently("a millisecond passes", || wall() > begun.timestamp_millis());
    let (fence, then) = (run.fence, Cursor::To(Some(next.into())));
    let complete = Action::Complete { fence, then, completion: Completion::Succeeded };
    assert_eq!(ask(&a, "a", begun, complete), Reply::Accepted);
    let granted = ask(&b, "b", sent, claim(2, run.fence, next));
    assert!(matches!(granted, Reply::Claimed(_)), "{granted:?}");
    let log = read(&*fs::read(folder.join("log")).unwrap()).unwrap();
    fs::remove_dir_all(folder).unwrap();
    let following = |_: &str, at| Some(at + 1_000);
    assert_eq!(check(&log, &Invariant::new(&following)), []);
}

#[test]
fn overlapping_runs_are_found_where_they_must_not_be() {
    let law = Invariant::new(&following).alone();
    let overlap = Violation::RunsOverlap { job: job(), first: 5, second: 9 };
    assert_eq!(check(&sound(), &law), [overlap], "the dead node's never ended");
    let mut log = sound();
    log.push(end("a", 130, 120, 5, Outcome::Released));
    assert_eq!(check(&log, &law), []);
}

#[test]
fn a_finished_occurrence_that_is_taken_again_is_found() {
    let violations = planted(|log| log.insert(4, claim("b", 89, 60, 3, 1)));
    let duplicate = Violation::Duplicate { job: job(), occurrence: at(60), fence: 3 };
    assert_eq!(violations, [duplicate]);
}

#[test]
fn a_second_attempt_is_found_where_there_must_be_one() {
    let law = Invariant::new(&following).at_most_once();
    let violations = check(&sound(), &law);
    let again = Violation::Duplicate { job: job(), occurrence: at(120), fence: 9 };
    assert!(violations.contains(&again), "{violations:?}");
    let short = &sound()[..4];
    assert_eq!(check(short, &law), []);
}

#[test]
fn a_start_too_many_is_found() {
    let violations = planted(|log| log.push(start("a", 62, 60, 1)));
    assert_eq!(violations, [Violation::StartedTwice { job: job(), fence: 1 }]);
}

#[test]
fn a_start_without_a_take_is_found() {
    let violations = planted(|log| log.push(start("a", 62, 60, 2)));
    assert_eq!(violations, [Violation::NotTaken { job: job(), fence: 2 }]);
    let other = planted(|log| log[1] = start("a", 61, 120, 1));
    assert_eq!(other, [Violation::NotTaken { job: job(), fence: 1 }], "of another occurrence");
}

#[test]
fn an_end_or_a_loss_without_a_take_is_found() {
    let violations = planted(|log| log.push(end("a", 62, 60, 2, Outcome::Retry)));
    assert_eq!(violations, [Violation::NotTaken { job: job(), fence: 2 }]);
    let lost = event("a", 400, What::Lost { occurrence: at(240), fence: 10 });
    let violations = planted(|log| log.push(lost));
    assert_eq!(violations, [Violation::NotTaken { job: job(), fence: 10 }]);
}

#[test]
fn a_stale_end_is_found() {
    let violations = planted(|log| {
        log[11] = end("a", 157, 120, 5, Outcome::Failed);
    });
    assert!(
        violations.contains(&Violation::StaleEnd { job: job(), fence: 5, current: 9 }),
        "{violations:?}"
    );
}

#[test]
fn two_finishes_are_found() {
    let violations = planted(|log| log.push(end("a", 150, 120, 5, Outcome::Succeeded)));
    let twice = Violation::FinishedTwice { job: job(), occurrence: at(120) };
    assert!(violations.contains(&twice), "{violations:?}");
}

#[test]
fn a_take_before_its_time_is_found() {
    let violations = planted(|log| {
        log[13] = claim("b", 299, 300, 11, 1);
    });
    assert_eq!(violations, [Violation::Early { job: job(), occurrence: at(300) }]);
}

#[test]
fn an_instant_that_is_none_is_found() {
    let violations = planted(|log| {
        log.insert(4, claim("a", 90, 90, 3, 1));
    });
    assert_eq!(violations, [Violation::NotScheduled { job: job(), occurrence: at(90) }]);
}

#[test]
fn a_gap_is_found_in_the_middle_and_at_the_end() {
    let middle = planted(|log| drop(log.remove(12)));
    assert_eq!(middle, [Violation::Gap { job: job(), occurrence: at(180) }]);
    let partly = planted(|log| {
        log[12] = event("b", 300, What::Skip { first: at(180), last: at(180) });
    });
    assert_eq!(partly, [Violation::Gap { job: job(), occurrence: at(240) }]);
    let end = planted(|log| log.truncate(13));
    assert_eq!(end, [Violation::Gap { job: job(), occurrence: at(300) }]);
}

#[test]
fn the_cursor_going_back_is_found() {
    let violations = planted(|log| log.push(claim("a", 330, 240, 12, 1)));
    let back = Violation::WentBack { job: job(), from: at(300), to: at(240) };
    assert_eq!(violations, [back]);
}

#[test]
fn jobs_are_judged_one_by_one() {
    let mut log = sound();
    let mut other = sound();
    other.iter_mut().for_each(|event| event.job = "other".into());
    log.extend(other);
    assert_eq!(found(&log), []);
}

#[test]
fn a_log_is_read_as_it_was_written_but_for_a_torn_line() {
    let mut text = Vec::new();
    for event in sound() {
        write(&mut text, &event).unwrap();
    }
    assert_eq!(read(&text[..]).unwrap(), sound());
    assert!(String::from_utf8_lossy(&text).starts_with(r#"{"job":"job","node":"a","at":60000,"#));
    text.extend(b"{\"job\":\"jo");
    assert_eq!(read(&text[..]).unwrap(), sound());
    text.push(b'\n');
    let error = read(&text[..]).unwrap_err().to_string();
    assert!(error.starts_with("line 17: "), "{error}");
}

#[test]
fn what_was_given_back_at_most_once_may_come_after_its_successor() {
    let log = [
        claim("a", 60, 60, 1, 1),
        end("a", 61, 60, 1, Outcome::Released),
        claim("a", 120, 120, 2, 1),
        end("a", 121, 120, 2, Outcome::Succeeded),
        claim("b", 122, 60, 3, 1),
    ];
    assert_eq!(check(&log, &Invariant::new(&following).at_most_once()), []);
}

/// Its node hung past its lease, and found that the run was too late to begin.
#[test]
fn what_was_recorded_as_lost_and_then_given_back_may_run() {
    let lost = event("store", 180, What::Lost { occurrence: at(60), fence: 1 });
    let log = [
        claim("a", 60, 60, 1, 1),
        lost.clone(),
        end("a", 181, 60, 1, Outcome::Released),
        claim("b", 182, 60, 3, 1),
        start("b", 182, 60, 3),
        end("b", 183, 60, 3, Outcome::Succeeded),
    ];
    let law = Invariant::new(&following).at_most_once();
    assert_eq!(check(&log, &law), []);
    let later = Event { at: at(184), ..lost };
    let found = check(&[&log[..1], &log[2..], &[later]].concat(), &law);
    let twice = Violation::FinishedTwice { job: job(), occurrence: at(60) };
    assert!(found.contains(&twice), "a loss after that is another end: {found:?}");
}

fn completed(log: &[Event]) -> Vec<Violation> {
    check(log, &Invariant::new(&following).until(at(300)).completed())
}

#[test]
fn what_was_taken_and_has_no_end_is_found() {
    assert_eq!(completed(&sound()), []);
    let unrecorded = |occurrence: i64, fence| {
        [Violation::Unsettled { job: job(), occurrence: at(occurrence), fence }]
    };
    let mut open = sound();
    open.truncate(open.len() - 1);
    assert_eq!(completed(&open), unrecorded(300, 11));
    assert_eq!(
        check(&open, &Invariant::new(&following).until(at(240)).completed()),
        [],
        "later ones may"
    );
    open.push(event("b", 400, What::Lost { occurrence: at(300), fence: 11 }));
    assert_eq!(completed(&open), []);
    let given_back = planted(|log| log.truncate(log.len() - 2));
    assert_eq!(given_back, [], "without the law nobody asks");
    let mut given_back = sound();
    given_back.truncate(given_back.len() - 2);
    given_back.push(end("b", 301, 300, 11, Outcome::Released));
    assert_eq!(completed(&given_back), unrecorded(300, 11));
    let taken_again = [
        claim("a", 302, 300, 12, 1),
        start("a", 302, 300, 12),
        end("a", 303, 300, 12, Outcome::Succeeded),
    ];
    assert_eq!(completed(&[given_back, taken_again.to_vec()].concat()), []);
}

#[test]
fn what_ended_well_and_was_not_started_is_found() {
    let mut log = sound();
    log.retain(|event| event.what != What::Start { occurrence: at(300), fence: 11 });
    assert_eq!(completed(&log), [Violation::NotStarted { job: job(), fence: 11 }]);
}

#[test]
fn what_nodes_could_not_write_down_the_store_tells() {
    let time = |seconds| from_millis(at(seconds)).unwrap();
    let past = |fence, seconds: i64, noted, outcome| {
        let mut entry = HistoryEntry::new("job", fence, time(seconds).into(), outcome);
        entry.node = "b".to_owned();
        (entry.started_at, entry.ended_at) = (Some(time(seconds)), Some(time(noted)));
        entry
    };
    // Its node died before it could write down what it had won.
    let fence = at(300) * 1_000;
    let lost = [past(fence, 300, 400, backend::Outcome::Lost)];
    let mut log = sound();
    log.retain(|event| event.at < at(300) || matches!(event.what, What::Skip { .. }));
    assert_eq!(found(&log), [Violation::Gap { job: job(), occurrence: at(300) }]);
    log.extend(merge_store_history(&log, "job", &lost));
    assert_eq!(completed(&log), []);
    // The run is taken and lost, not missed or skipped: a run that began and has no end shows.
    let begun = [past(fence, 300, 300, backend::Outcome::Running)];
    log.truncate(log.len() - 2);
    log.extend(merge_store_history(&log, "job", &begun));
    let unrecorded = Violation::Unsettled { job: job(), occurrence: at(300), fence };
    assert_eq!(completed(&log), [unrecorded]);
    // What was written down is not told again.
    let ended = [past(11, 300, 301, backend::Outcome::Succeeded)];
    assert_eq!(merge_store_history(&sound(), "job", &ended), []);
    let mut range = past(10, 180, 300, backend::Outcome::Missed);
    range.last = Some(time(240));
    let skipped = event("b", 300, What::Skip { first: at(180), last: at(240) });
    assert_eq!(merge_store_history(&sound(), "job", &[range]), [skipped]);
}
