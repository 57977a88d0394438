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
    let outdated = outdated.operator(2.0, Action::Pause { note: "" });
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
        OneJob::new(Says(next_at).into()).at(0.0).expect(&[], &["JobInvalid"], None);
    }
    let late = |after: Time| Some(if after < at(60.0) { at(60.0) } else { after });
    OneJob::new(Says(late).into()).at(0.0).at(60.0).expect(&[], &["JobInvalid"], 60.);
}

#[test]
fn the_end_of_time_is_never_reached() {
    OneJob::new(Says(|_| Some(Time::MAX_UTC)).into()).at(0.0).expect(&[], &[], None);
    OneJob::new(Says(|_| None).into()).at(0.0).expect(&[], &[], None);
}
