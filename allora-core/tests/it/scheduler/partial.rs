//! A store that answers some requests and not others, or not quite alike: what it answers is enough.

use crate::support::{Lab, Member, Rates, Seat, ms, secs};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, Error, ErrorKind, Overlap, Result, Runtime, SchedulerBuilder, Schedules,
    StoredSchedule,
    backend::{Action, Applied, Batch, Operation},
    every,
    time::since,
};
use allora_memory::Memory;
use async_trait::async_trait;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The lateness of the runs whose names begin so, the shortest first.
fn lateness(lab: &Lab, prefix: &str) -> Vec<Duration> {
    let runs = lab.log.entries();
    let runs = runs.iter().filter(|run| run.name.starts_with(prefix));
    let mut late: Vec<Duration> = runs.map(|run| since(run.began, run.at)).collect();
    late.sort();
    late
}

fn p95(late: &[Duration]) -> Duration {
    late[late.len() * 95 / 100]
}

#[test]
fn two_clocks_that_answer_in_turn_delay_no_stored_schedule() {
    for step in [1, 2, 3] {
        let lab = Lab::new(1);
        let (clock, calls) = (lab.clock(), Arc::new(AtomicU64::new(0)));
        let store = Memory::new().with_clock(move || {
            // Two of the first, one of the second, and so on.
            let is_behind = calls.fetch_add(1, Relaxed) % (step + 1) == 0;
            clock.wall() - chrono::TimeDelta::milliseconds(i64::from(is_behind))
        });
        let client = Schedules::on(store.clone(), lab.clock()).unwrap();
        for i in 0..20 {
            let text = format!("{i}/20 * * * * *");
            let plain = StoredSchedule::new(format!("plain-{i}"), "k", &*text).at_most_once();
            let leased = StoredSchedule::new(format!("leased-{i}"), "k", &*text);
            for schedule in [plain, leased] {
                lab.sim.block_on(client.add(&schedule)).unwrap();
            }
        }
        let seat = lab.seat(lab.sim.node());
        let builder = seat.builder_on(store).kind("k", seat.handler(ms(5), |_| Ok(())));
        let _member = seat.run(builder.build().unwrap());
        lab.until(600.5);
        for prefix in ["leased-", "plain-"] {
            let late = lateness(&lab, prefix);
            assert!(late.len() >= 20 * 29, "{prefix}: {}", late.len());
            assert!(late.last() < Some(&ms(100)), "{prefix}: {:?}", late.last());
        }
    }
}

#[test]
fn a_search_that_hangs_stops_no_schedule_that_queries_claim() {
    for period in [10, 60] {
        let lab = Lab::new(2);
        for i in 0..20 {
            lab.store(&format!("s-{i}"), "k", &format!("@every {period}s; at-least-once 30s"));
        }
        let member = lab.start(|seat, b| b.kind("k", seat.handler(ms(5), |_| Ok(()))));
        lab.until(65.0);
        member.faults.deaf_to_searches.store(true, Relaxed);
        // One that is not known yet.
        lab.store("s-late", "k", &format!("@every {period}s; at-least-once 30s"));
        lab.until(665.5);
        let late = lateness(&lab, "s-");
        let expected = 665 / period * 20 + 600 / period;
        assert_eq!(late.len(), expected, "{period}");
        assert!(late.last() <= Some(&secs(2)), "{period}: {:?}", late.last());
        member.faults.deaf_to_searches.store(false, Relaxed);
        lab.until(1_000.5);
        let late = lateness(&lab, "s-");
        assert_eq!(late.len(), 1_000 / period * 20 + 935 / period, "{period}");
    }
}

/// A store that rejects these operations, or returns the record and does nothing.
#[derive(Debug)]
struct Refuses {
    rejects: bool,
    refused: Arc<AtomicU64>,
}

#[async_trait]
impl Hooks for Refuses {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let refused = |action: &Action<'_>| {
            let is_refused = matches!(action, Action::Advance(_) | Action::Replace { .. });
            self.refused.fetch_add(u64::from(is_refused), Relaxed);
            is_refused
        };
        let is_refused: Vec<bool> =
            batch.operations.iter().map(|one| refused(&one.action)).collect();
        let operations = batch.operations.iter().zip(&is_refused);
        let operations = operations.map(|(one, is_refused)| match is_refused {
            true => Operation::read(one.name),
            false => Operation::new(one.name, one.action.clone()),
        });
        let operations: Vec<Operation<'_>> = operations.collect();
        let batch = Batch::new(batch.node, batch.time, &operations);
        let mut applied = store.reschedule(batch).await?;
        for (reply, _) in applied
            .replies
            .iter_mut()
            .zip(is_refused)
            .filter(|(_, refused)| *refused && self.rejects)
        {
            *reply = Err(Error::new(ErrorKind::Other, "this role may not do that"));
        }
        Ok(applied)
    }
}

#[test]
fn an_operation_that_the_store_does_not_carry_out_is_repeated_once_in_a_while() {
    for (overlap, rejects) in [
        (Overlap::Skip, false),
        (Overlap::Skip, true),
        (Overlap::Replace, false),
        (Overlap::Replace, true),
    ] {
        let lab = Lab::new(3);
        let refused = Arc::new(AtomicU64::new(0));
        let refuses = Refuses { rejects, refused: refused.clone() };
        let store = Wrapped::around(lab.store.clone(), refuses);
        let seat = lab.seat(lab.sim.node());
        let job = seat.job(every(secs(10)), secs(600)).overlap(overlap);
        let builder = seat.builder_on(store).add("job", job);
        let _member = seat.run(builder.build().unwrap());
        lab.until(30.0);
        let before = refused.load(Relaxed);
        lab.until(130.0);
        let count = refused.load(Relaxed) - before;
        assert!((10..=150).contains(&count), "{overlap:?} {rejects}: {count} in 100 s");
    }
}

#[test]
fn a_full_node_registers_new_jobs_at_once() {
    let lab = Lab::new(4);
    let member = lab.start(|seat, b| {
        b.concurrency(1)
            .add("long", seat.job(allora_core::at(crate::support::at(10.0)), secs(600)))
            .add("waits", seat.job(every(secs(20)), ms(5)))
    });
    lab.until(30.0);
    let seat = lab.seat(lab.sim.node());
    member.handle.add("new", seat.job(every(secs(60)), ms(5))).unwrap();
    lab.until(31.5);
    assert!(lab.state_of("new").is_some_and(|state| state.next.is_some()));
    // The reply is known, too: the node has planned it.
    let next = member.handle.jobs().into_iter().find(|job| job.name == "new");
    assert!(next.unwrap().next.is_some());
}

#[test]
fn thousands_of_jobs_that_wait_for_one_key_cost_a_few_operations_a_second() {
    let lab = Lab::new(5);
    let member = lab.start(|seat, b| {
        (0..4_000).fold(b.concurrency(100), |b, i| {
            let job = seat.job(every(secs(3_600)).phase(secs(60)), secs(20));
            b.add(format!("job-{i}"), job.mutex("key"))
        })
    });
    lab.until(75.0);
    let before = member.faults.operations.load(Relaxed);
    lab.until(175.0);
    let operations = member.faults.operations.load(Relaxed) - before;
    assert!(operations <= 2_000, "{operations} operations in 100 s");
    // One after the other, in the order of their places, without a pause.
    let runs = lab.log.entries();
    assert_eq!(runs.len(), 6, "{}", runs.len());
    for pair in runs.windows(2) {
        let wait = since(pair[1].began, pair[0].ended.unwrap().0);
        assert!(wait <= ms(100), "{wait:?}");
    }
}

/// Jobs of each minute on one node: in code, in the store, and with a key.
fn each_minute(seat: &Seat, builder: SchedulerBuilder, count: usize) -> SchedulerBuilder {
    let minutely = || every(secs(60)).phase(Duration::ZERO);
    (0..count).fold(builder.kind("k", seat.handler(ms(5), |_| Ok(()))), |b, i| {
        b.add(format!("code-{i}"), seat.job(minutely().phase(secs(7 * i as u64)), ms(5)))
            .add(
                format!("leased-{i}"),
                seat.job(minutely().phase(secs(7 * i as u64 + 1)), ms(5)).at_least_once(secs(30)),
            )
            .add(
                format!("keyed-{i}"),
                seat.job(minutely().phase(secs(7 * i as u64 + 2)), ms(5)).mutex(format!("k{i}")),
            )
    })
}

fn half_answering(lab: &Lab, lost: u64, count: usize) -> Member {
    for i in 0..count {
        lab.store(&format!("stored-{i}"), "k", &format!("{} * * * * *; at-least-once 30s", 5 + i));
    }
    let member = lab.start(|seat, b| each_minute(seat, b, count));
    lab.until(30.0);
    member.faults.set(Rates { lose_request: lost / 2, lose_reply: lost / 2, ..Rates::default() });
    member
}

#[test]
fn a_store_that_answers_half_of_its_requests_delays_a_run_by_its_lost_requests() {
    let mut all = Vec::new();
    for seed in 10..14 {
        let lab = Lab::new(seed);
        let _member = half_answering(&lab, 500, 2);
        lab.until(1_230.0);
        for prefix in ["code-", "leased-", "stored-", "keyed-"] {
            let late = lateness(&lab, prefix);
            assert!(late.len() >= 39, "{seed} {prefix}: {}", late.len());
            all.push((prefix, late));
        }
    }
    for prefix in ["code-", "leased-", "stored-", "keyed-"] {
        let of = all.iter().filter(|(one, _)| *one == prefix);
        let mut late: Vec<Duration> = of.flat_map(|(_, late)| late.clone()).collect();
        late.sort();
        // A keyed job needs a request for its key, and then one for itself; a stored schedule a search,
        // which has a second before it is due, and then a query.
        let most = match prefix {
            "keyed-" => secs(13),
            "stored-" => secs(7),
            _ => secs(6),
        };
        assert!(p95(&late) <= most, "{prefix}: {:?}", p95(&late));
    }
}

#[test]
fn nothing_is_missed_by_a_store_that_answers_three_of_ten_requests() {
    for seed in 20..23 {
        let lab = Lab::new(seed);
        let _member = half_answering(&lab, 700, 1);
        lab.until(1_260.0);
        for name in ["code-0", "leased-0", "stored-0", "keyed-0"] {
            let (late, counters) = (lateness(&lab, name), lab.state(name).counters);
            assert_eq!(counters.missed, 0, "{seed} {name}");
            assert!(late.len() >= 20, "{seed} {name}: {}", late.len());
        }
    }
}

#[test]
fn what_is_resumed_in_a_store_without_notifications_starts_within_two_seconds() {
    for poll in [5, 3_600] {
        let lab = Lab::new(30);
        for name in ["leased", "plain"] {
            let more = if name == "leased" { "; at-least-once 30s" } else { "" };
            lab.store(name, "k", &format!("@every 60s{more}"));
        }
        let _member = lab.start(|seat, b| {
            seat.faults.is_silent.store(true, Relaxed);
            b.poll_interval(secs(poll))
                .kind("k", seat.handler(ms(5), |_| Ok(())))
                .add("code", seat.job(every(secs(60)), ms(5)))
        });
        let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        let names = ["leased", "plain", "code"];
        for round in 0..20 {
            // Each time at another distance from the polls.
            let begin = 30.0 + 137.3 * f64::from(round);
            lab.until(begin);
            for name in names {
                lab.sim.block_on(client.pause(name, "x")).unwrap();
            }
            lab.until(begin + 70.0 + 0.3 * f64::from(round));
            let before = lab.log.entries().len();
            let resumed = lab.now();
            for name in names {
                lab.sim.block_on(client.resume(name, allora_core::stored::Gap::CatchUp)).unwrap();
            }
            lab.until(begin + 73.0 + 0.3 * f64::from(round));
            let runs = lab.log.entries();
            for name in names {
                let first = runs[before..].iter().find(|run| run.name == name);
                let late = first.map(|run| since(run.began, resumed));
                let is_soon = late.is_some_and(|late| late <= secs(2));
                assert!(is_soon, "{poll} s, round {round}: {name} {late:?}, {:?}", lab.state(name));
            }
        }
    }
}
