//! The policies of a job: catch-up, window, overlap, delivery, triggers.

use super::*;
use crate::backend::Occurrence;

/// Registered at 0, down until `back`.
#[track_caller]
fn outage(spec: JobSpec, back: f64, ran: &[f64], events: &[&str], next: f64) {
    OneJob::new(spec.clone()).at(0.0).at(back).expect(ran, events, next);
    let leased = spec.at_least_once(secs(30));
    OneJob::new(leased).at(0.0).at(back).expect(ran, events, next);
}

#[test]
fn latest_runs_one_occurrence_and_records_the_others_as_missed() {
    outage(minutely(), 59.999, &[], &[], 60.);
    outage(minutely(), 60., &[60.], &[], 120.);
    outage(minutely(), 130., &[120.], &["missed 60-60 1"], 180.);
    outage(minutely(), 605., &[600.], &["missed 60-540 9"], 660.);
}

#[test]
fn all_runs_the_last_missed_occurrences_in_order() {
    let all = |limit| minutely().catch_up(CatchUp::All { limit });
    outage(all(3), 59., &[], &[], 60.);
    outage(all(3), 60., &[60.], &[], 120.);
    outage(all(3), 185., &[60., 120., 180.], &[], 240.);
    outage(all(3), 605., &[480., 540., 600.], &["missed 60-420 7"], 660.);
    outage(all(1), 605., &[600.], &["missed 60-540 9"], 660.);
}

#[test]
fn none_runs_an_occurrence_on_time_and_no_other() {
    let none = minutely().catch_up(CatchUp::None);
    outage(none.clone(), 60., &[60.], &[], 120.);
    outage(none.clone(), 70., &[60.], &[], 120.);
    outage(none.clone(), 70.001, &[], &["missed 60-60 1"], 120.);
    outage(none, 605., &[600.], &["missed 60-540 9"], 660.);
}

#[test]
fn a_window_ends_exactly() {
    let window = minutely().window(secs(20));
    outage(window.clone(), 140., &[120.], &["missed 60-60 1"], 180.);
    outage(window, 140.001, &[], &["missed 60-120 2"], 180.);
    let all = minutely().catch_up(CatchUp::All { limit: 9 }).window(secs(65));
    outage(all.clone(), 245., &[180., 240.], &["missed 60-120 2"], 300.);
    outage(all, 245.001, &[240.], &["missed 60-180 3"], 300.);
}

#[test]
fn ten_years_of_seconds_are_missed_in_two_requests() {
    let ten_years = 10.0 * 365.25 * 86_400.0;
    for spec in [of(every(secs(1))), of(cron("* * * * * *").unwrap())] {
        let job = OneJob::new(spec.clone()).at(0.0).at(ten_years);
        assert_eq!(job.asked, 2);
        assert_eq!(job.ran, [ten_years]);
        let all = spec.catch_up(CatchUp::All { limit: 2 });
        assert_eq!(OneJob::new(all).at(0.0).at(ten_years).ran, [ten_years - 1.0, ten_years]);
    }
}

#[test]
fn a_closure_continues_from_now_when_counting_takes_too_long() {
    let closure = |period: i64| move |after: Time| Some(after + TimeDelta::seconds(period));
    let back = 86_400.0 * 365.0;
    for period in [1, 7, 61] {
        for policy in [CatchUp::Latest, CatchUp::All { limit: 5 }, CatchUp::None] {
            let window = secs(period as u64 + 10);
            let spec = of(closure(period)).catch_up(policy).window(window);
            let job = OneJob::new(spec).at(0.0).at(back);
            let (runs, asked) = (job.ran.clone(), job.asked);
            assert!((1..=5).contains(&runs.len()) && asked < 10, "{period} {policy:?} {runs:?}");
            assert!(runs.iter().all(|run| *run > back - 80.0 && *run <= back), "{runs:?}");
            let is_counted = period == 61;
            assert_eq!(job.events[0].ends_with(" ?"), !is_counted, "{:?}", job.events);
            let next = job.record.and_then(|record| record.cursor).unwrap();
            assert!(
                seconds(next.scheduled_at) > back
                    && seconds(next.scheduled_at) <= back + period as f64
            );
        }
    }
}

#[test]
fn a_closure_that_ends_is_run_to_its_end() {
    let ends = |after: Time| (after < at(30.0)).then(|| after + TimeDelta::seconds(10));
    OneJob::new(of(ends)).at(0.0).at(86_400.0).expect(&[30.], &["missed 10-20 2"], None);
}

#[test]
fn delay_and_jitter_change_due_at_only() {
    let late = minutely().delay(secs(5));
    outage(late.clone(), 64.999, &[], &[], 60.);
    outage(late.clone(), 65., &[60.], &[], 120.);
    outage(late.clone(), 184., &[120.], &["missed 60-60 1"], 180.);
    outage(late.window(secs(1)), 186.001, &[], &["missed 60-180 3"], 240.);
    outage(minutely().jitter(secs(20)), 80., &[60.], &[], 120.);
}

#[test]
fn an_interval_begins_at_its_start_if_that_is_ahead_or_has_just_passed() {
    for job in [minutely().starting(at(130.0)), of(every(secs(60)).starting(at(130.0)))] {
        OneJob::new(job.clone()).at(0.0).expect(&[], &[], 130.);
        OneJob::new(job.clone()).at(150.0).expect(&[130.], &[], 190.);
        OneJob::new(job).at(1_000.0).expect(&[], &[], 1_030.);
    }
}

#[test]
fn a_job_has_a_start_an_end_and_a_number_of_runs() {
    let bounded = of(cron("* * * * *").unwrap()).starting(at(120.0)).ending(at(240.0));
    OneJob::new(bounded.clone()).at(0.0).expect(&[], &[], 120.);
    OneJob::new(bounded.clone()).at(0.0).at(240.0).expect(&[240.], &["missed 120-180 2"], None);
    OneJob::new(bounded).at(240.0).expect(&[], &[], None);
    let twice = minutely().max_runs(2);
    let job = OneJob::new(twice.clone()).at(0.0).at(60.0).at(120.0).at(600.0);
    job.expect(&[60., 120.], &[], None);
    let leased = OneJob::new(twice.at_least_once(secs(30))).at(0.0).at(60.0).at(120.0).at(600.0);
    leased.expect(&[60., 120.], &[], None);
}

#[test]
fn overlap_allows_skips_or_waits() {
    let job = |policy| OneJob::new(minutely().overlap(policy)).held().at(0.0).at(60.0);
    job(Overlap::Allow).at(85.0).at(120.0).expect(&[60., 120.], &[], 180.);
    let alive = |policy| {
        let mut job = job(policy);
        job.extend(600, 85.0);
        job
    };
    alive(Overlap::Skip).at(120.0).expect(&[60.], &["skipped 120-120 1"], 180.);
    let mut waits = alive(Overlap::Wait).at(120.0).at(185.0).expect(&[60.], &[], 120.);
    waits.end(at(200.0), Completion::Succeeded);
    waits.at(200.0).expect(&[60., 180.], &["missed 120-120 1"], 240.);
}

#[test]
fn a_due_occurrence_replaces_the_active_run_and_starts_when_that_has_ended() {
    let replace = || OneJob::new(minutely().overlap(Overlap::Replace)).held().at(0.0).at(60.0);
    let mut job = replace();
    job.extend(600, 85.0);
    let mut job = job.at(119.0);
    assert_eq!(job.replaced(), None);
    // Without capacity, too: the run may be the one that the node waits for.
    for _ in 0..9 {
        for request in job.tick(at(120.0), 0) {
            let answer = job.reply_to(&request, at(120.0));
            job.answer(request, answer, at(120.0));
        }
    }
    assert_eq!(job.replaced(), Some(at(120.0)));
    let asked = job.asked;
    assert!(job.tick(at(121.0), 0).is_empty());
    let mut job = job.at(130.0);
    assert!(job.asked <= asked + 1, "the request is sent once");
    job.end(at(131.0), Completion::Cancelled);
    let job = job.at(131.0).expect(&[60., 120.], &[], 180.);
    assert_eq!(job.record.as_ref().unwrap().counters.cancelled, 1);
}

#[test]
fn the_run_of_a_silent_node_is_replaced_when_its_lease_has_ended() {
    let replace = minutely().overlap(Overlap::Replace);
    let mut dead = OneJob::new(replace.clone()).held().at(0.0).at(60.0);
    dead.extend(120, 61.0);
    let heir = OneJob::found(replace, dead.record).at(62.0).at(120.0).at(180.0);
    let heir = heir.expect(&[], &[], 120.).at(181.0);
    assert_eq!(heir.record.as_ref().unwrap().counters.cancelled, 1);
    heir.expect(&[180.], &["missed 120-120 1"], 240.);
}

#[test]
fn a_run_that_ends_by_itself_is_not_replaced() {
    let job = OneJob::new(minutely().overlap(Overlap::Replace)).at(0.0).at(60.0).at(120.0);
    assert_eq!(job.record.as_ref().unwrap().counters.cancelled, 0);
    job.expect(&[60., 120.], &[], 180.);
}

#[test]
fn a_trigger_replaces_no_run_and_delays_no_replacement() {
    let mut job = OneJob::new(minutely().overlap(Overlap::Replace)).held().at(0.0).at(60.0);
    job.extend(600, 61.0);
    let trigger = Action::trigger("x");
    let job = job.operator(70.0, trigger).at(70.0).at(100.0);
    assert_eq!(job.replaced(), None);
    let mut job = job.at(120.0).at(126.0);
    assert_eq!(job.replaced(), Some(at(120.0)));
    job.end(at(126.0), Completion::Cancelled);
    let job = job.at(126.0);
    assert_eq!(job.ran.len(), 2, "{:?}", job.ran);
}

#[test]
fn a_run_whose_lease_ended_is_recorded_as_lost_and_blocks_no_other_run() {
    let job = OneJob::new(minutely().overlap(Overlap::Wait)).held().at(0.0).at(60.0).at(120.0);
    assert_eq!(job.record.as_ref().unwrap().counters.lost, 1);
    job.expect(&[60., 120.], &[], 180.);
}

#[test]
fn an_expired_run_is_run_again_before_later_occurrences() {
    let spec = minutely().at_least_once(secs(30));
    let dead = OneJob::new(spec.clone()).held().at(0.0).at(60.0);
    let heir = OneJob::found(spec, dead.record).at(61.0).at(89.0).expect(&[], &[], 60.);
    let heir = heir.at(400.0).expect(&[60., 360.], &["missed 120-300 4"], 420.);
    assert_eq!(heir.record.unwrap().counters.started, 2);
}

#[test]
fn a_failed_run_is_retried_when_it_is_due() {
    let spec = minutely().at_least_once(secs(30)).retry(Retry::up_to(3, secs(100)));
    let mut job = OneJob::new(spec).held().at(0.0).at(60.0);
    let start = job.live.remove(0);
    let fence = start.claimed.fence;
    let retry = Action::Retry { fence, not_before: at(160.0), cause: RetryCause::Failed("no") };
    job.update(&start, retry, at(60.0));
    let job = job.at(61.0).at(130.0).expect(&[60.], &[], 60.);
    assert_eq!(job.at(160.0).expect(&[60., 60.], &[], 60.).live[0].claimed.attempt, 2);
}

#[test]
fn a_released_occurrence_runs_before_later_ones() {
    let all = minutely().catch_up(CatchUp::All { limit: 10 });
    let mut job = OneJob::new(all).held().at(0.0);
    let mut requests = job.tick(at(200.0), 10);
    let answer = job.reply_to(&requests[0], at(200.0));
    job.answer(requests.remove(0), answer, at(200.0));
    let start = job.live.remove(0);
    job.update(&start, Action::Release { fence: start.claimed.fence }, at(201.0));
    job.at(201.0).expect(&[60., 60., 120., 180.], &[], 240.);
}

#[test]
fn a_trigger_runs_beside_the_schedule_also_when_paused() {
    let job = OneJob::new(minutely())
        .at(0.0)
        .operator(5.0, Action::Pause { note: "", until: None })
        .at(6.0);
    let job = job.at(70.0).operator(75.5, Action::trigger("mine"));
    let job = job.at(76.0).expect(&[75.5], &[], 60.);
    job.operator(130.0, Action::Resume).at(130.0).expect(&[75.5, 120.], &["missed 60-60 1"], 180.);
}

#[test]
fn when_a_pause_ends_by_itself_the_catch_up_policy_decides_about_what_passed() {
    let runs = |spec: JobSpec| {
        let pause = Action::Pause { note: "", until: Some(at(190.0)) };
        OneJob::new(spec).at(0.0).operator(5.0, pause).at(60.0).at(189.0).at(190.0)
    };
    runs(minutely()).expect(&[180.], &["missed 60-120 2"], 240.);
    let all = minutely().catch_up(CatchUp::All { limit: 10 });
    runs(all).expect(&[60., 120., 180.], &[], 240.);
    runs(minutely().window(secs(4))).expect(&[], &["missed 60-180 3"], 240.);
}

/// The trigger is found by the search, which is no part of this.
#[test]
fn a_trigger_that_outlasts_a_pause_does_not_keep_the_schedule_waiting() {
    let pause = Action::Pause { note: "", until: Some(at(100.0)) };
    let job = OneJob::new(minutely()).at(0.0).operator(5.0, pause).at(6.0);
    let job = job.operator(70.0, Action::trigger("mine")).at(120.5);
    job.expect(&[120.], &["missed 60-60 1"], 180.);
}

#[test]
fn without_capacity_nothing_is_claimed() {
    let mut job = OneJob::new(minutely()).at(0.0);
    assert!(job.tick(at(60.0), 0).is_empty());
    job.at(61.0).expect(&[60.], &[], 120.);
}

#[test]
fn triggers_and_schedule_take_turns() {
    let waits = minutely().overlap(Overlap::Wait);
    let mut job = OneJob::new(waits).held().at(0.0);
    for id in ["a", "b", "c"] {
        let (scheduled_at, retention) = (Some(at(1.0)), Duration::ZERO);
        job = job.operator(30.0, Action::Trigger { id, scheduled_at, retention, data: None });
    }
    for now in [60.0, 75.0, 90.0, 105.0, 120.0] {
        job = job.at(now);
        job.end(at(now + 14.0), Completion::Succeeded);
    }
    job.expect(&[60., 1., 1., 1., 120.], &[], 180.);
}

/// A closure with this period in seconds, and the number of its calls.
fn counted(period: i64) -> (JobSpec, Arc<AtomicU64>) {
    let calls = Arc::new(AtomicU64::new(0));
    let counter = calls.clone();
    let next_at = move |after: Time| {
        counter.fetch_add(1, Relaxed);
        Some(after + TimeDelta::seconds(period))
    };
    (of(next_at), calls)
}

#[test]
fn a_closure_is_called_at_most_three_times_for_each_missed_occurrence() {
    let missed = 11_520_u32;
    for (limit, least_once) in [(100, false), (100, true), (20_000, false)] {
        let (spec, calls) = counted(60);
        let spec = spec.catch_up(CatchUp::All { limit });
        let spec = if least_once { spec.at_least_once(secs(30)) } else { spec };
        let job = OneJob::new(spec).at(0.0);
        calls.store(0, Relaxed);
        let job = job.at(f64::from(missed) * 60.0);
        let ran = limit.min(missed);
        assert_eq!(job.ran.len(), ran as usize);
        let record = job.record.unwrap();
        assert_eq!(record.counters.missed, u64::from(missed - ran));
        let calls = calls.load(Relaxed);
        assert!(calls <= 3 * u64::from(missed), "{calls} calls, limit {limit}");
    }
}

#[test]
fn a_long_count_delays_no_other_job() {
    let (long, calls) = counted(1);
    let (short, _) = counted(100_000);
    let mut planner = Planner::new(config(1, secs(5)));
    planner.add("long".into(), long.catch_up(CatchUp::All { limit: 9 })).unwrap();
    planner.add("short".into(), short).unwrap();
    let mut records = [None, None];
    let mut claims = Vec::new();
    let events = &mut Vec::new();
    for now in [at(0.0), at(2_000_000.0)] {
        let mut ticks = 0;
        while let Some(tick) = Some(planner.ticked(now, 10, events))
            && (!tick.requests.is_empty() || tick.wake_at == Some(now))
        {
            ticks += 1;
            assert!(calls.swap(0, Relaxed) <= 1_010, "in one tick");
            for request in tick.requests {
                let is_claim = request.is_claim();
                let (name, operation) = (request.name.clone(), request.operation());
                let record = &mut records[usize::from(&*name == "short")];
                let context = OpContext::new("me", now);
                let reply = apply(record, &operation, context, &mut HistoryBuffer::off()).unwrap();
                planner.replied(request, Answer::new(reply, now), events);
                claims.extend(is_claim.then_some((name.to_string(), ticks)));
            }
            if claims.len() == 3 {
                break;
            }
        }
    }
    assert_eq!(claims[0], ("short".to_owned(), 1));
    assert_eq!(claims[1].0, "long");
    assert!((1_000..1_010).contains(&claims[1].1), "a million calls: {claims:?}");
    let missed = records[0].as_ref().unwrap().counters.missed;
    assert_eq!(missed, 0, "a number that is not known is not added");
}

#[test]
fn the_end_of_a_triggers_run_moves_no_cursor() {
    let spec = minutely().at_least_once(secs(30));
    let end_of = |trigger: Option<&str>| {
        let occurrence = Occurrence { scheduled_at: at(60.0), trigger: trigger.map(Into::into) };
        completion_of("job", &spec, &occurrence, 1).unwrap()
    };
    assert_eq!(end_of(Some("by hand")), Cursor::Keep);
    assert_eq!(end_of(None), Cursor::To(Some(at(120.0).into())));
}
