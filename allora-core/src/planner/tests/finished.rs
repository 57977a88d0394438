//! Jobs whose schedules have ended have no place in the planner, and run again if they are triggered.

use super::*;
use crate::at as once;
use crate::backend::Replan;
use allora_schedule::stable_hash;
use std::collections::HashMap;

/// A job whose only run is over.
fn finished(spec: JobSpec) -> OneJob {
    let job = OneJob::new(spec).at(0.0).at(60.0).at(61.0);
    assert_eq!((job.planner.jobs.sizes()[3], &job.ran[..]), (0, &[60.0][..]));
    job
}

#[test]
fn a_job_whose_schedule_has_ended_has_no_place() {
    let only = || of(once(at(60.0)));
    for spec in [only(), only().at_least_once(secs(30)), minutely().max_runs(1), only().mutex("k")]
    {
        finished(spec).at(100_000.0).expect(&[60.], &[], None);
    }
}

#[test]
fn a_job_whose_schedule_has_ended_runs_when_it_is_triggered() {
    for spec in [of(once(at(60.0))), of(once(at(60.0))).at_least_once(secs(30))] {
        let job = finished(spec).operator(70.0, Action::trigger("by hand")).at(70.0).at(71.0);
        assert_eq!(job.planner.jobs.sizes()[3], 0);
        // Of a store without notifications, a search finds it.
        let mut job = job;
        let trigger = Action::trigger("by hand, too");
        job.apply(&Operation::new("job", trigger), "operator", at(80.0)).unwrap();
        let state = job.record.as_ref().unwrap().state("job");
        let search = job.planner.begin_search().number;
        assert!(job.planner.found(&state, search, at(80.0)));
        let job = job.at(80.0).at(81.0);
        assert_eq!(job.planner.jobs.sizes()[3], 0);
        job.expect(&[60., 70., 80.], &[], None);
    }
}

#[test]
fn a_job_whose_schedule_has_ended_is_one_of_the_nodes_jobs_until_it_is_removed() {
    let mut job = finished(of(once(at(60.0))));
    assert!(job.planner.add("job".into(), minutely()).is_err());
    let name = |name: &str| job.planner.watch.jobs() == stable_hash(&[name.as_bytes()]);
    assert!(name("job"));
    assert!(job.planner.remove("job"));
    assert!(!job.planner.remove("job"));
    assert_eq!(job.planner.watch.jobs(), 0);
    job.planner.add("job".into(), minutely()).unwrap();
    assert_eq!(job.at(62.0).at(130.0).ran.len(), 2);
}

#[test]
fn a_job_whose_schedule_has_ended_is_off_when_it_is_deleted() {
    let job = finished(of(once(at(60.0)))).operator(70.0, Action::Delete);
    job.at(70.0).at(71.0).expect(&[60.], &["job-deleted"], None);
}

#[test]
fn a_job_whose_definition_gets_another_schedule_runs_by_that() {
    let mut job = finished(of(once(at(60.0))));
    // As a node of another build does.
    let definition = "@at 2026-01-01T00:02:00Z";
    let generation = job.record.as_ref().unwrap().generation;
    let plan = Replan { expected: None, not_run: None, then: Some(at(120.0).into()) };
    let redefine = Action::Redefine { generation, definition, version: 9, plan };
    let reply = job.apply(&Operation::new("job", redefine), "other", at(70.0)).unwrap();
    let state = reply.state().unwrap();
    let search = job.planner.begin_search().number;
    assert!(job.planner.found(&state, search, at(120.0)));
    assert_eq!(job.at(120.0).at(121.0).ran, [60., 120.]);
}

/// Many one-off jobs cost memory while they wait, and of those that have run, their code is kept alone.
#[test]
fn of_many_jobs_that_have_run_no_place_is_kept() {
    let mut planner = Planner::new(config(1, secs(5)));
    let mut records: HashMap<Arc<str>, Option<Record>> = HashMap::new();
    planner.add("minutely".into(), minutely()).unwrap();
    for i in 0..25_000 {
        let spec = of(once(at(60.0 + f64::from(i % 100))));
        planner.add(format!("job {i}").into(), spec).unwrap();
    }
    assert!(planner.jobs.sizes()[0] > 25_000);
    let (mut ran, mut now) = (0, 0.0);
    while now < 200.0 {
        let tick = planner.ticked(at(now), 1_000, &mut Vec::new());
        if tick.requests.is_empty() {
            now += 1.0;
        }
        for request in tick.requests {
            let operation = request.operation();
            let record = records.entry(operation.name.into()).or_default();
            let context = OpContext::new("me", at(now));
            let mut apply = |operation: &Operation<'_>| {
                super::apply(record, operation, context, &mut HistoryBuffer::off()).unwrap()
            };
            let reply = apply(&operation);
            drop(operation);
            let answer = Answer::new(reply, at(now));
            let Some(start) = planner.replied(request, answer, &mut Vec::new()) else { continue };
            ran += 1;
            let (fence, then) = (start.claimed.fence, start.then);
            let completion = Completion::Succeeded;
            let reply =
                apply(&Operation::new(&start.name, Action::Complete { fence, then, completion }));
            let update = RunUpdate {
                slot: start.slot,
                name: start.name.clone(),
                fence,
                scheduled_at: start.claimed.occurrence.scheduled_at,
                completed: Some(then),
                window: None,
                reply,
            };
            planner.on_run_update(&update);
        }
    }
    assert_eq!((ran, planner.jobs.sizes()[3]), (25_003, 1));
    let [slots, names, wake_ups, _] = planner.jobs.sizes();
    assert!(slots < 5_000 && names < 10_000 && wake_ups < 2_000, "{slots} {names} {wake_ups}");
    assert_eq!(planner.jobs.in_code().count(), 25_001);
}
