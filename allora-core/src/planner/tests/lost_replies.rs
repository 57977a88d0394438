//! Requests and replies that are lost: nothing runs twice, and nothing is forgotten.

use super::*;

#[test]
fn a_claim_whose_reply_was_lost_is_repeated_with_its_id() {
    for spec in [minutely(), minutely().at_least_once(secs(30))] {
        let job = OneJob::new(spec).at(0.0).lost_at(60.0);
        assert_eq!(job.record.as_ref().unwrap().counters.started, 1);
        job.at(61.0).expect(&[60.], &[], 120.);
    }
}

#[test]
fn a_repeated_claim_is_decided_again_and_returns_the_claimed_occurrence() {
    let long = minutely().at_least_once(secs(600)).max_runs(1);
    OneJob::new(long).at(0.0).lost_at(60.0).lost_at(121.0).at(185.0).expect(&[60.], &[], None);
    OneJob::new(minutely()).at(0.0).lost_at(60.0).at(185.0).expect(
        &[60., 180.],
        &["missed 120-120 1"],
        240.,
    );
}

#[test]
fn registrations_and_advances_whose_replies_were_lost_are_repeated() {
    let job = OneJob::new(minutely().window(secs(1))).lost_at(0.0).lost_at(1.0).at(2.0);
    job.lost_at(70.0).at(71.0).expect(&[], &[], 120.);
}

#[test]
fn a_read_whose_reply_was_lost_is_repeated() {
    let mut waits = OneJob::new(minutely().overlap(Overlap::Wait)).at(0.0).at(60.0);
    // Another node's run is believed to be in the way. The lost reply would show that it is not.
    let (id, _) = waits.planner.jobs.iter().next().unwrap();
    let Phase::Known(known) = &mut waits.planner.jobs.get_mut(id).unwrap().phase else {
        panic!("it is known");
    };
    known.add_lease(1, at(600.0));
    waits.lost_at(120.0).at(120.0).expect(&[60., 120.], &[], 180.);
}

#[test]
fn an_unresolved_claim_is_repeated_before_a_notification_is_handled() {
    let waits = minutely().overlap(Overlap::Wait);
    let mut job = OneJob::new(waits).at(0.0);
    let requests = job.tick(at(60.0), 10);
    requests.iter().for_each(|request| drop(job.reply_to(request, at(60.0))));
    job.planner.on_notification("job");
    job.lose(requests, at(60.0));
    job.at(61.0).expect(&[60.], &[], 120.);
}

#[test]
fn a_notification_does_not_discard_an_unresolved_claim() {
    for spec in [minutely(), minutely().at_least_once(secs(30))] {
        let mut job = OneJob::new(spec).at(0.0).lost_at(60.0);
        // The store is still down, and an earlier notification arrives.
        job.planner.on_notification("job");
        job.at(61.0).expect(&[60.], &[], 120.);
    }
}

#[test]
fn a_notification_is_handled_after_an_unresolved_claim_that_is_too_late() {
    let mut job = OneJob::new(minutely().window(secs(1))).at(0.0);
    // Lost on its way there, and then too late.
    let requests = job.tick(at(60.0), 10);
    job.lose(requests, at(60.0));
    job = job.operator(70.0, Action::trigger("mine"));
    job.planner.on_notification("job");
    job.at(71.0).at(71.0).expect(&[70.], &["missed 60-60 1"], 120.);
}

#[test]
fn a_notification_during_a_request_is_handled_after_its_reply() {
    let mut job = OneJob::new(minutely()).at(0.0);
    let mut requests = job.tick(at(60.0), 10);
    let answer = job.reply_to(&requests[0], at(60.0));
    job = job.operator(60.0, Action::trigger("mine"));
    job.answer(requests.remove(0), answer, at(60.0));
    job.at(60.0).expect(&[60., 60.], &[], 120.);
}

/// The claim that is sent at this time.
fn claim_at(job: &mut OneJob, time: f64) -> (Vec<Request>, Claim) {
    let requests = job.tick(at(time), 10);
    let Action::Claim(claim) = requests[0].operation().action else { panic!("{requests:?}") };
    (requests, claim)
}

#[test]
fn no_claim_is_carried_out_for_which_its_node_waits_no_more() {
    for spec in [minutely(), minutely().at_least_once(secs(30))] {
        for trigger in [false, true] {
            let mut job = OneJob::new(spec.clone()).at(0.0);
            if trigger {
                job = job.operator(50.0, Action::trigger("mine"));
                let requests = job.tick(at(50.0), 10);
                let reply = job.reply_to(&requests[0], at(50.0));
                requests.into_iter().for_each(|one| job.answer(one, reply.clone(), at(50.0)));
            }
            let due = if trigger { 50.0 } else { 60.0 };
            let (requests, claim) = claim_at(&mut job, due);
            job.lose(requests, at(due + 1.0));
            let late = Operation::claim("job", claim);
            let reply = job.apply(&late, "me", at(due + 1.001)).unwrap();
            assert!(matches!(reply, Reply::State(_)), "{reply:?}");
            job.at(due + 2.0).expect(&[due], &[], if trigger { 60. } else { 120. });
        }
    }
}

#[test]
fn a_wrong_estimate_of_the_stores_clock_refuses_one_claim_at_most() {
    let mut job = OneJob::new(minutely()).at(0.0);
    let (mut requests, _) = claim_at(&mut job, 60.0);
    let reply = job.reply_to(&requests[0], at(70.0));
    assert!(matches!(reply, Reply::State(_)), "{reply:?}");
    job.answer(requests.remove(0), reply, at(70.0));
    // Another server of the store, whose clock is right, has answered since.
    let (requests, _) = claim_at(&mut job, 60.1);
    let reply = job.reply_to(&requests[0], at(71.0));
    assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
}

#[test]
fn a_claim_that_was_carried_out_is_found_however_late_it_is_repeated() {
    let mut job = OneJob::new(minutely().at_least_once(secs(600))).at(0.0);
    let (requests, claim) = claim_at(&mut job, 60.0);
    let first = job.reply_to(&requests[0], at(60.5));
    let again = job.apply(&Operation::claim("job", claim), "me", at(300.0)).unwrap();
    assert_eq!(again, first);
}

/// The claim of its key that is sent at this time.
fn key_claim_at(job: &mut OneJob, time: f64) -> Request {
    let mut requests = job.tick(at(time), 10);
    assert!(matches!(requests[0].operation().action, Action::ClaimKey(_)), "{requests:?}");
    requests.remove(0)
}

#[test]
fn no_place_of_a_key_is_given_for_which_its_node_waits_no_more() {
    let mut job = OneJob::new(minutely().mutex("k")).at(0.0);
    let request = key_claim_at(&mut job, 60.0);
    let reply = job.reply_to(&request, at(61.5));
    assert_eq!(reply, Reply::Absent);
    job.lose(vec![request], at(61.0));
    job.at(62.0).expect(&[60.], &[], 120.);
}

#[test]
fn a_wrong_estimate_of_the_stores_clock_refuses_one_claim_of_a_key_at_most() {
    let mut job = OneJob::new(minutely().mutex("k")).at(0.0);
    let request = key_claim_at(&mut job, 60.0);
    let reply = job.reply_to(&request, at(70.0));
    job.answer(request, reply, at(70.0));
    // Another server of the store, whose clock is right, has answered since.
    let request = key_claim_at(&mut job, 60.1);
    let reply = job.reply_to(&request, at(71.0));
    assert!(matches!(reply, Reply::Claimed(_)), "{reply:?}");
    job.answer(request, reply, at(71.0));
    job.at(71.1).expect(&[60.], &[], 120.);
}

#[test]
fn a_key_that_a_late_claim_was_given_before_is_released_if_it_is_not_wanted_any_more() {
    for later in [62.0, 80.0] {
        let mut job = OneJob::new(minutely().mutex("k")).at(0.0);
        let request = key_claim_at(&mut job, 60.0);
        job.reply_to(&request, at(60.9));
        job.lose(vec![request], at(61.0));
        job.planner.remove("job");
        // Even if its lease has ended.
        job = job.at(later);
        let key = job.mark.as_ref().expect("the record of the key");
        assert!(key.leases.is_empty(), "{later}: {key:?}");
    }
}

/// Loses things of an outage in any order: requests, replies, the ends of runs. `seed` selects
/// them.
fn lose_in_any_order(spec: JobSpec, seed: u64) {
    let mut random = seed;
    // SplitMix64.
    let mut draw = |sides: u64| {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    };
    let mut job = OneJob::new(spec).held().at(0.0);
    let mut time = 0.0;
    for _ in 0..12 {
        time += draw(70) as f64;
        match draw(6) {
            0 => job = job.at(time),
            1 | 2 => job = job.lost_at(time),
            3 => {
                let requests = job.tick(at(time), 10);
                job.lose(requests, at(time));
            }
            4 => job.planner.on_notification("job"),
            _ => {
                if !job.live.is_empty() {
                    job.end(at(time), Completion::Succeeded);
                }
            }
        }
    }
    job = job.at(time);
    while !job.live.is_empty() {
        job.end(at(time), Completion::Succeeded);
    }
    // Longer than leases last.
    let (begun, back) = (job.ran.len(), time + 200.0);
    job.holds = false;
    let job = job.at(back).at(back + 60.0);
    assert!(job.ran.len() > begun, "seed {seed}: {:?} {:?}", job.events, job.record);
}

#[test]
fn occurrences_run_whatever_was_lost_before() {
    for seed in 0..2_000 {
        lose_in_any_order(minutely(), seed);
        lose_in_any_order(minutely().overlap(Overlap::Wait), seed);
        lose_in_any_order(minutely().catch_up(CatchUp::All { limit: 1_000 }), seed);
        lose_in_any_order(minutely().at_least_once(secs(30)), seed);
    }
}

#[test]
fn a_lost_claim_is_repeated_before_an_earlier_run_is_recorded_as_lost() {
    let mut job = OneJob::new(minutely()).at(0.0).held().at(60.0);
    // The run of 60 belongs to another node; its lease ends between claim and repetition.
    let fence = job.live[0].claimed.fence;
    let start = job.live.remove(0);
    job.update(&start, Action::Extend { fence, duration: secs(32) }, at(89.0));
    job = job.lost_at(120.0).at(122.0).expect(&[60., 120.], &[], 180.);
    assert_eq!(job.record.unwrap().counters.lost, 1, "that of 60 only");
}

#[test]
fn a_lost_claim_comes_first_and_reserves_capacity() {
    let mut planner = Planner::new(config(1, secs(5)));
    let mut records: Vec<Option<Record>> = vec![None; 3];
    for name in ["0", "1", "2"] {
        planner.add(name.into(), minutely()).unwrap();
    }
    let mut answer = |planner: &mut Planner, requests: Vec<Request>, now: f64| -> usize {
        let mut starts = 0;
        for request in requests {
            let i: usize = request.name.parse().unwrap();
            let context = OpContext::new("me", at(now));
            let history = &mut HistoryBuffer::off();
            let reply = apply(&mut records[i], &request.operation(), context, history).unwrap();
            let answer = Answer::new(reply, at(now));
            starts += usize::from(planner.replied(request, answer, &mut Vec::new()).is_some());
        }
        starts
    };
    let events = &mut Vec::new();
    let registrations = planner.ticked(at(0.0), 2, events).requests;
    answer(&mut planner, registrations, 0.0);
    let lost = planner.ticked(at(60.0), 1, events).requests;
    assert_eq!(lost.len(), 1);
    planner.lost(lost, at(61.0), events);
    assert_eq!(planner.outbox.unresolved(), 1);
    // First alone, then what else there is capacity for, then alone again.
    let repeated = planner.ticked(at(61.0), 2, events).requests;
    assert_eq!(repeated.len(), 1);
    planner.lost(repeated, at(62.0), events);
    let others = planner.ticked(at(62.0), 2, events).requests;
    assert_eq!(others.len(), 1, "one place of two is reserved");
    assert_eq!(answer(&mut planner, others, 62.0), 1);
    let repeated = planner.ticked(at(62.0), 1, events).requests;
    assert_eq!(answer(&mut planner, repeated, 62.0), 1);
    assert_eq!(planner.outbox.unresolved(), 0);
}

#[test]
fn a_claim_that_nothing_resolves_is_abandoned_when_its_lease_would_have_ended() {
    let mut job = OneJob::new(minutely()).at(0.0);
    for now in [60.0, 61.0, 80.0, 89.0] {
        let requests = job.tick(at(now), 1);
        assert_eq!(requests.len(), 1);
        job.lose(requests, at(now));
    }
    assert_eq!((job.planner.outbox.unresolved(), job.events.len()), (1, 0));
    let requests = job.tick(at(91.0), 1);
    job.lose(requests, at(91.0));
    assert_eq!(job.planner.outbox.unresolved(), 0);
    job.at(92.0).expect(&[60.], &["ClaimAbandoned"], 120.);
}

#[test]
fn a_job_that_is_not_unresolved_keeps_its_conversation() {
    let mut job = OneJob::new(minutely()).at(0.0);
    assert_eq!(job.tick(at(60.0), 10).len(), 1, "a claim, which is on its way");
    let (id, _) = job.planner.jobs.iter().next().unwrap();
    job.planner.outbox.claim_lost(id);
    assert!(job.tick(at(60.0), 10).is_empty(), "there is nothing to repeat");
    job.planner.on_notification("job");
    assert!(job.tick(at(60.0), 10).is_empty(), "the claim is still on its way");
}

#[test]
fn unresolved_claims_are_handed_over_once() {
    let mut job = OneJob::new(minutely()).at(0.0).lost_at(60.0);
    // The name is free for another job, whose claim may be lost, too.
    job.planner.remove("job");
    job.planner.add("job".into(), minutely()).unwrap();
    let read = job.tick(at(61.0), 10);
    job.lose(read, at(61.0));
    let planner = std::mem::replace(&mut job.planner, Planner::new(config(1, secs(5))));
    let releases = planner.stop().releases;
    let names: Vec<_> = releases.iter().map(|release| &*release.name).collect();
    assert_eq!(names, ["job"]);
    let reply = job.apply(&releases[0].operation(), "me", at(62.0));
    assert!(matches!(reply, Ok(Reply::Claimed(_))), "{reply:?}");
}

/// A schedule with a definition of this number of bytes.
struct Long(usize);

impl Schedule for Long {
    fn next_at(&self, after: Time) -> Option<Time> {
        Some(after + TimeDelta::seconds(60))
    }

    fn definition(&self) -> Option<String> {
        Some("x".repeat(self.0))
    }
}

#[test]
fn one_request_has_at_most_a_mebibyte_or_one_operation() {
    for (definition, most) in [(100_000, 10), (2_000_000, 1), (0, 1_000)] {
        let mut planner = Planner::new(config(1, secs(5)));
        for n in 0..1_100.min(4 * most) {
            planner.add(n.to_string().into(), of(Long(definition))).unwrap();
        }
        let tick = planner.ticked(at(0.0), 10, &mut Vec::new());
        assert_eq!(tick.requests.len(), most, "{definition} bytes");
        let next = planner.ticked(at(0.0), 10, &mut Vec::new());
        assert_eq!(next.requests.len(), most.min(1_100 - most), "the rest is sent next");
    }
}
