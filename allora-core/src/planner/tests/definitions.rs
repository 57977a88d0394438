//! Definitions that change, and schedules with faults.

use super::*;

#[test]
fn a_node_sets_its_definition_when_it_starts_unless_its_version_is_lower() {
    let every = |n: u64, version| of(every(secs(n))).version(version);
    let first = OneJob::new(every(60, 1)).at(0.0);
    let older = OneJob::found(every(10, 0), first.record.clone()).at(1.0);
    older.expect(&[], &["DefinitionAdopted"], 60.);
    let newer = OneJob::found(every(10, 1), first.record.clone()).at(1.0);
    let newer = newer.expect(&[], &["Redefined"], 11.);
    // The first one receives the new definition with the reply to its claim.
    let outdated = OneJob { record: newer.record.clone(), ..first };
    outdated.at(60.0).expect(&[51.], &["DefinitionAdopted", "missed 11-41 4"], 61.);
}

#[test]
fn a_read_does_not_make_a_node_set_its_definition_again() {
    let first = OneJob::new(minutely()).at(0.0);
    let second = OneJob::found(of(every(secs(10))), first.record.clone()).at(1.0);
    let outdated = OneJob { record: second.record, ..first };
    let outdated = outdated.operator(2.0, Action::Pause { note: "", until: None });
    outdated.at(2.0).expect(&[], &["DefinitionAdopted"], 11.);
}

#[test]
fn a_redefinition_keeps_a_pending_occurrence_of_both_definitions() {
    let cron = || of(cron("* * * * *").unwrap());
    let first = OneJob::new(cron().delay(secs(10))).at(1.0);
    let second = OneJob::found(cron().delay(secs(20)), first.record).at(65.0);
    second.at(80.0).expect(&[60.], &["Redefined"], 120.);
}

/// `next_at` answers as events.
struct Says(fn(Time) -> Option<Time>);

#[async_trait::async_trait]
impl Job for Says {
    fn next_at(&self, after: Time) -> Option<Time> {
        (self.0)(after)
    }
    async fn run(&self, _: Run) -> Result<(), BoxError> {
        Ok(())
    }
}

#[test]
fn a_job_with_a_faulty_schedule_is_not_run() {
    let bad: [fn(Time) -> Option<Time>; 4] = [
        |_| panic!("as planned"),
        Some,
        |after| Some(after - TimeDelta::seconds(1)),
        |after| Some(after + TimeDelta::microseconds(999)),
    ];
    for next_at in bad {
        OneJob::new(Says(next_at).into()).at(0.0).expect(&[], &["job-invalid"], None);
    }
    let late = |after: Time| Some(if after < at(60.0) { at(60.0) } else { after });
    OneJob::new(Says(late).into()).at(0.0).at(60.0).expect(&[], &["job-invalid"], 60.);
}

#[test]
fn the_end_of_time_is_never_reached() {
    OneJob::new(Says(|_| Some(Time::MAX_UTC)).into()).at(0.0).expect(&[], &[], None);
    OneJob::new(Says(|_| None).into()).at(0.0).expect(&[], &[], None);
}

/// The record of a run at least once that failed at 60 s, and is to be retried at 90 s.
fn failed_once(spec: JobSpec) -> Option<Record> {
    let mut job = OneJob::new(spec).held().at(0.0).at(60.0);
    let start = job.live.remove(0);
    let cause = RetryCause::Failed("no");
    let retry = Action::Retry { fence: start.claimed.fence, not_before: at(90.0), cause };
    job.update(&start, retry, at(60.0));
    job.record
}

/// The record of a run at least once whose node died: its lease has ended at 90 s.
fn killed_once(spec: JobSpec) -> Option<Record> {
    OneJob::new(spec).held().at(0.0).at(60.0).record
}

#[test]
fn at_most_once_code_starts_no_attempt_after_the_first() {
    let retried = || minutely().at_least_once(secs(30)).retry(Retry::up_to(3, secs(30)));
    for record in [failed_once(retried().version(1)), killed_once(retried().version(1))] {
        // The stored definition holds. A node with code for it may run the attempt.
        let older = OneJob::found(minutely(), record).at(95.0);
        let older = older.expect(&[], &["definition-conflict"], 60.);
        // No such node has come for a minute: the occurrence ends as a dead letter.
        let events = ["definition-conflict", "Redefined", "definition-conflict over", "GivenUp"];
        let older = older.at(149.0).at(155.0).expect(&[120.], &events, 180.);
        let record = older.record.unwrap();
        let [letter] = &record.dead[..] else { panic!("one dead letter: {record:?}") };
        assert_eq!((&letter.occurrence, letter.attempts), (&at(60.0).into(), 1));
        assert_eq!((record.retries.len(), record.leases.len()), (0, 0));
    }
}

#[test]
fn a_job_that_now_runs_at_most_once_gives_up_what_waits_for_another_attempt() {
    let retried = || minutely().at_least_once(secs(30)).retry(Retry::up_to(3, secs(30)));
    for record in [failed_once(retried()), killed_once(retried())] {
        let newer = OneJob::found(minutely(), record).at(61.0);
        let newer = newer.expect(&[], &["Redefined"], 120.).at(90.0);
        let newer = newer.expect(&[], &["Redefined", "GivenUp"], 120.);
        newer.at(120.0).expect(&[120.], &["Redefined", "GivenUp"], 180.);
    }
}

#[test]
fn at_most_once_code_runs_the_stored_definition_again_when_another_node_has_run_the_attempt() {
    let retried = minutely().at_least_once(secs(30)).retry(Retry::up_to(3, secs(30))).version(1);
    let older = OneJob::found(minutely(), failed_once(retried)).at(95.0);
    let record = older.record.as_ref().unwrap();
    let claim_id = 7;
    let claim = Claim::at_least_once(claim_id, record.fence, at(60.0).into(), secs(30));
    let mut older = older;
    let Ok(Reply::Claimed(claimed)) =
        older.apply(&Operation::claim("job", claim), "other", at(95.0))
    else {
        panic!("claimed")
    };
    let then = Cursor::To(Some(at(120.0).into()));
    let end = Operation::complete("job", claimed.fence, then, Completion::Succeeded);
    older.apply(&end, "other", at(96.0)).unwrap();
    older.planner.on_notification("job");
    let events = ["definition-conflict", "DefinitionAdopted", "definition-conflict over"];
    older.at(97.0).at(120.0).expect(&[120.], &events, 180.);
}

#[test]
fn a_node_without_capacity_leaves_a_definition_to_others() {
    let first = OneJob::new(of(every(secs(60))).version(1)).at(0.0);
    let mut other = first.record.unwrap();
    other.definition = "@code every other sunday".into();
    let mut full = OneJob::found(minutely(), Some(other));
    let busy = |full: &mut OneJob, time: f64| {
        for request in full.tick(at(time), 0) {
            let reply = full.reply_to(&request, at(time));
            full.answer(request, reply, at(time));
        }
    };
    (0..20).for_each(|i| busy(&mut full, 130.0 + f64::from(i)));
    let full = full.expect(&[], &["definition-conflict"], 60.);
    full.at(215.0).expect(
        &[180.],
        &["definition-conflict", "Redefined", "definition-conflict over", "missed 60-120 2"],
        240.,
    );
}
