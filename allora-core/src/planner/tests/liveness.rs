//! A node checks again whatever it believes that keeps a job from running.

use super::*;

#[test]
fn a_deleted_job_stays_deleted_and_one_without_a_record_is_registered_again() {
    let mut job = OneJob::new(minutely()).at(0.0);
    job.apply(&Operation::new("job", Action::Delete), "operator", at(1.0)).unwrap();
    job.at(60.0).at(120.0).expect(&[], &["job-deleted"], None);
    let mut job = OneJob::new(minutely()).at(0.0);
    job.record = None;
    job.at(60.0).at(120.0).expect(&[120.], &["Reregistered"], 180.);
}

#[test]
fn a_rejected_claim_is_repeated_at_growing_intervals() {
    let mut job = OneJob::new(minutely()).at(0.0);
    let mut asked = 0;
    for ms in 0..10_000 {
        let now = at(60.0 + f64::from(ms) / 1_000.0);
        for request in job.tick(now, 10) {
            asked += 1;
            let truth = job.record.as_ref().unwrap().state("job");
            job.answer(request, Reply::State(Box::new(truth)), now);
        }
    }
    assert!((10..40).contains(&asked), "{asked} times in 10 s");
    job.at(80.0).expect(&[60.], &[], 120.);
}

#[test]
fn a_removed_job_leaves_nothing_and_its_claim_is_resolved() {
    let mut job = OneJob::new(minutely()).at(0.0).lost_at(60.0);
    assert!(job.planner.remove("job"));
    assert_eq!(job.planner.jobs.sizes()[3], 1, "its claim may have won");
    job.planner.add("job".into(), minutely()).unwrap();
    let job = job.at(61.0);
    assert_eq!(job.ran, [60.]);
    assert_eq!(job.planner.jobs.sizes()[3], 1);
    let mut job = job.at(120.0).expect(&[60., 120.], &[], 180.);
    job.planner.remove("job");
    assert_eq!(job.planner.jobs.sizes()[3], 0);
    for i in 0..10_000 {
        job.planner.add("job".into(), minutely()).unwrap();
        job = job.at(121.0 + f64::from(i));
        job.planner.remove("job");
    }
    assert_eq!(job.planner.jobs.sizes()[3], 0);
    assert!(job.planner.jobs.sizes()[2] < 2_000, "{}", job.planner.jobs.sizes()[2]);
}

#[test]
fn absent_is_deleted_if_the_store_has_removed_a_tombstone_as_new_as_it() {
    for (newer, event) in [(0, "job-deleted"), (-1, "Reregistered")] {
        let mut job = OneJob::new(minutely()).at(0.0);
        let fence = job.record.as_ref().unwrap().fence;
        job.planner.on_notification("job");
        let read = job.tick(at(10.0), 1).remove(0);
        let mut events = Vec::new();
        let answer = Answer::new(Reply::Absent, at(10.0)).min_fence(fence + newer);
        job.planner.replied(read, answer, &mut events);
        job.note(events);
        assert_eq!(job.events, [event]);
    }
}

#[test]
fn a_record_that_was_unreadable_for_a_second_is_read_again() {
    let mut job = OneJob::new(minutely()).at(0.0);
    job.planner.on_notification("job");
    for now in [10.0, 70.0] {
        let read = job.tick(at(now), 1).remove(0);
        let state = crate::backend::JobState::unreadable("job", "torn");
        job.answer(read, Reply::State(Box::new(state)), at(now));
        assert!(job.tick(at(now + 59.0), 1).is_empty(), "once a minute");
    }
    job.at(130.0).at(180.0).expect(
        &[120., 180.],
        &["record-unreadable", "record-unreadable over", "missed 60-60 1"],
        240.,
    );
}

/// The seconds, of so many, in which something is asked about a job.
fn asked_in(mut job: OneJob, seconds: std::ops::Range<u32>) -> (OneJob, Vec<u32>) {
    let mut asked = Vec::new();
    for now in seconds {
        let before = job.asked;
        job = job.at(f64::from(now));
        asked.extend((job.asked > before).then_some(now));
    }
    (job, asked)
}

#[test]
fn a_paused_job_is_checked_when_an_occurrence_is_held_back_then_at_growing_intervals() {
    let job = OneJob::new(minutely())
        .at(0.0)
        .operator(10.0, Action::Pause { note: "", until: None })
        .at(10.0);
    let (mut job, asked) = asked_in(job, 11..600);
    assert_eq!(asked, [60, 65, 70, 80, 100, 140, 200, 260, 320, 380, 440, 500, 560]);
    // It is resumed, and no notification comes.
    job.apply(&Operation::new("job", Action::Resume), "operator", at(600.0)).unwrap();
    job.at(620.0).expect(&[600.], &["missed 60-540 9"], 660.);
}

#[test]
fn a_job_whose_pause_has_an_end_runs_then() {
    let pause = Action::Pause { note: "", until: Some(at(130.0)) };
    let job = OneJob::new(minutely()).at(0.0).operator(10.0, pause).at(10.0);
    let (job, asked) = asked_in(job, 11..131);
    assert_eq!(asked, [60, 65, 70, 80, 100, 130], "it may be resumed before");
    job.expect(&[120.], &["missed 60-60 1"], 180.);
}

#[test]
fn a_belief_about_the_far_future_is_checked_after_half_the_lifetime_of_a_tombstone() {
    let half = (crate::record::TOMBSTONE / 2).as_secs_f64();
    for is_deleted in [false, true] {
        let mut job = OneJob::new(of(crate::at(at(100.0 * half)))).at(0.0);
        if is_deleted {
            job = job.operator(0.0, Action::Delete).at(0.0);
        }
        let before = job.asked;
        let job = job.at(half - 1.0);
        assert_eq!(job.asked, before, "deleted: {is_deleted}");
        let job = job.at(half + 1.0);
        assert_eq!(job.asked, before + 1, "deleted: {is_deleted}");
    }
}

#[test]
fn a_leased_job_is_checked_when_its_next_occurrence_is_due_then_at_growing_intervals() {
    let spec = minutely().at_least_once(secs(3_600));
    let mut other = OneJob::new(spec.clone()).held().at(0.0).at(60.0);
    let mut job = OneJob::found(spec.clone(), other.record.take());
    job.planner = Planner::new(config(1 << 64, secs(5)));
    job.planner.add("job".into(), spec).unwrap();
    job = job.at(61.0);
    let (mut job, asked) = asked_in(job, 62..600);
    assert_eq!(asked, [120, 125, 130, 140, 160, 200, 260, 320, 380, 440, 500, 560]);
    // The run ends, and no notification comes.
    other.record = job.record.take();
    other.end(at(600.0), Completion::Succeeded);
    job.record = other.record;
    job.at(620.0).expect(&[600.], &["missed 120-540 8"], 660.);
}
