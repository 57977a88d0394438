//! Small worlds of jobs that run after other jobs, each from a seed: in code and stored, after a success, a
//! failure or any end, many after one and one after the other, while machines crash, sleep and stop, the store
//! hangs, and requests and replies are lost. Afterwards each end has started each follower once.
//!
//! A failing seed is replayed by `ALLORA_SEED=… cargo test -p allora-core --test it one_seed_of_chains`.

use super::scenario::Dice;
use crate::support::{Lab, Member, Rates, Seat, ms, secs};
use allora_conformance::faults::{Hooks, Wrapped};
use allora_core::{
    Backend, BoxError, JobSpec, On, Overlap, Result, Retry, SchedulerBuilder, Schedules,
    StoredSchedule, Time,
    backend::{
        Action, Applied, Batch, FollowUp, HistoryEntry, Operation, Outcome, Reply, followed,
    },
    every,
    schedule::never,
};
use async_trait::async_trait;
use chrono::TimeDelta;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, atomic::Ordering::Relaxed},
    time::Duration,
};

/// Seeds of the ordinary run, and of the long one (`ALLORA_TEST_LONG=1`).
const FEW: u64 = 60;
const MANY: u64 = 5_000;

#[test]
fn each_end_starts_each_follower_once_whatever_happens() {
    let long = std::env::var_os("ALLORA_TEST_LONG").is_some();
    let seeds = if long { MANY } else { FEW };
    let mut seen = BTreeMap::new();
    for seed in 0..seeds {
        let played = play(seed, Defect::None);
        assert!(played.wrong.is_empty(), "seed {seed}: {:#?}", played.wrong);
        for (what, count) in played.seen {
            *seen.entry(what).or_insert(0) += u64::from(count > 0);
        }
    }
    let seldom: Vec<_> = seen.iter().filter(|(_, worlds)| **worlds * 10 < seeds).collect();
    assert!(seen.len() == 9 && seldom.is_empty(), "in fewer than a tenth of the worlds: {seen:?}");
}

#[test]
fn one_seed_of_chains() {
    let seed = std::env::var("ALLORA_SEED").ok();
    let seed = seed.map_or(0, |text| text.parse().expect("ALLORA_SEED is a number"));
    let played = play(seed, Defect::None);
    assert!(played.wrong.is_empty(), "{:#?}", played.wrong);
}

#[test]
fn a_store_that_loses_or_repeats_what_follows_an_end_is_found() {
    for defect in [Defect::ForgetsOldOutboxes, Defect::LosesAnEnd, Defect::ReceivesTwice] {
        let found = (0..FEW).find(|seed| !play(*seed, defect).wrong.is_empty());
        assert!(found.is_some(), "{defect:?} is not found");
    }
}

/// A defect that is planted between the nodes and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Defect {
    None,
    /// Notes that were not delivered within two seconds, because a node died or the store hung, are confirmed and
    /// forgotten.
    ForgetsOldOutboxes,
    /// Of ten ends, one puts nothing into the outbox.
    LosesAnEnd,
    /// A follow-up that is delivered again is received again.
    ReceivesTwice,
}

#[derive(Debug)]
struct Planted {
    known: Mutex<BTreeSet<(String, i64)>>,
    defect: Defect,
    clock: allora_core::runtime::SimNode,
}

impl Planted {
    /// The follow-up as this store receives it; `None`: it says that it has, and has not.
    fn received(&self, up: &FollowUp) -> Option<FollowUp> {
        use allora_core::Runtime as _;
        let is_old = self.clock.wall() - up.ended_at > TimeDelta::seconds(2);
        let mut up = up.clone();
        match self.defect {
            Defect::ForgetsOldOutboxes if is_old => return None,
            Defect::LosesAnEnd if up.ended_at.timestamp_subsec_millis() % 10 == 7 => return None,
            Defect::ReceivesTwice => {
                let mut known = self.known.lock().unwrap();
                if !known.insert((up.job.clone(), up.number)) {
                    (up.id, up.number) = (format!("{}+", up.id), up.number + 1);
                }
            }
            _ => {}
        }
        Some(up)
    }
}

#[async_trait]
impl Hooks for Planted {
    async fn reschedule(&self, store: &Arc<dyn Backend>, batch: Batch<'_>) -> Result<Applied> {
        let is_one = |one: &Operation<'_>| matches!(one.action, Action::FollowUp { .. });
        if self.defect == Defect::None || !batch.operations.iter().any(is_one) {
            return store.reschedule(batch).await;
        }
        let received: Vec<Option<FollowUp>> = batch
            .operations
            .iter()
            .map(|one| match &one.action {
                Action::FollowUp { follow_up, .. } => self.received(follow_up),
                _ => None,
            })
            .collect();
        let mut operations = Vec::new();
        for (one, up) in batch.operations.iter().zip(&received) {
            match (&one.action, up) {
                (Action::FollowUp { from, .. }, Some(follow_up)) => {
                    operations.push(Operation::new(one.name, Action::FollowUp { from, follow_up }));
                }
                (Action::FollowUp { .. }, None) => {}
                _ => operations.push(one.clone()),
            }
        }
        let mut applied = store.reschedule(Batch::new(batch.node, batch.time, &operations)).await?;
        let mut replies = std::mem::take(&mut applied.replies).into_iter();
        let all = batch.operations.iter().zip(&received).map(|(one, up)| match (is_one(one), up) {
            (true, None) => Ok(Reply::Accepted),
            _ => replies.next().unwrap(),
        });
        applied.replies = all.collect();
        Ok(applied)
    }
}

/// One of the world's jobs.
struct Plan {
    name: String,
    /// The job after which it runs; one without has a schedule.
    after: Option<(usize, On)>,
    is_stored: bool,
    period: Duration,
    takes: Duration,
    /// It runs at least once, with this lease.
    lease: Option<Duration>,
    attempts: u32,
    /// Of ten runs, so many fail.
    fails: u64,
}

impl Plan {
    fn drawn(n: usize, dice: &mut Dice) -> Self {
        let after = (n > 0 && dice.below(6) > 0).then(|| {
            // Often the same one, so that many follow it.
            let before = if dice.below(3) == 0 { 0 } else { dice.below(n as u64) as usize };
            (before, On::ALL[dice.below(3) as usize])
        });
        Self {
            name: format!("j{n}"),
            after,
            is_stored: dice.below(2) == 0,
            period: secs(4 + dice.below(9)),
            takes: ms(dice.below(4) * dice.below(900)),
            lease: (dice.below(3) > 0).then(|| secs(2 + dice.below(9))),
            attempts: 1 + dice.below(3) as u32,
            fails: [0, 3, 6][dice.below(3) as usize],
        }
    }

    fn end(&self) -> impl Fn(&allora_core::Run) -> Result<(), BoxError> + Clone + use<> {
        let fails = self.fails;
        move |run| match run.fence().unsigned_abs() % 10 < fails {
            true => Err("this run fails".into()),
            false => Ok(()),
        }
    }

    fn code(&self, seat: &Seat, plans: &[Plan]) -> JobSpec {
        let job = match self.after {
            None => seat.work(every(self.period), self.takes, self.end()).max_runs(RUNS),
            Some((before, on)) => {
                seat.work(never(), self.takes, self.end()).after(&plans[before].name, on)
            }
        };
        match self.lease {
            Some(lease) => job.at_least_once(lease).retry(Retry::up_to(self.attempts, secs(1))),
            None => job.overlap(Overlap::Wait),
        }
    }

    fn stored(&self, plans: &[Plan]) -> StoredSchedule {
        let kind = format!("kind of {}", self.name);
        let job = match self.after {
            None => {
                let text = format!("@every {}s", self.period.as_secs());
                StoredSchedule::new(&self.name, kind, text).max_runs(RUNS)
            }
            Some((before, on)) => {
                StoredSchedule::new(&self.name, kind, "@never").after(&plans[before].name, on)
            }
        };
        match self.lease {
            Some(lease) => job.at_least_once(lease).retry(Retry::up_to(self.attempts, secs(1))),
            None => job.at_most_once().overlap(Overlap::Wait),
        }
    }
}

/// The occurrences of each job with a schedule.
const RUNS: u64 = 5;

struct World {
    lab: Lab,
    store: Arc<dyn Backend>,
    plans: Vec<Plan>,
    members: Vec<Member>,
}

struct Played {
    wrong: Vec<String>,
    seen: BTreeMap<&'static str, u64>,
}

fn play(seed: u64, defect: Defect) -> Played {
    let dice = &mut Dice::new(seed);
    let lab = Lab::new(seed);
    let plans: Vec<Plan> = (0..3 + dice.below(5) as usize).map(|n| Plan::drawn(n, dice)).collect();
    let planted = Planted { known: Mutex::default(), defect, clock: lab.clock() };
    let store = Arc::new(Wrapped::around(lab.store.clone(), planted));
    let mut rate = |most: u64| if dice.below(2) == 0 { 0 } else { dice.below(most) + 1 };
    let rates = Rates {
        lose_request: rate(100),
        lose_reply: rate(300),
        refuse: rate(100),
        double: rate(100),
        linger: rate(60),
        delay: rate(1_000),
        delay_ms: rate(900),
    };
    let mut world = World { lab, store, plans, members: Vec::new() };
    let client = Schedules::on(world.lab.store.clone(), world.lab.clock()).unwrap();
    // In any order: the job before need not exist.
    for plan in world.plans.iter().rev().filter(|plan| plan.is_stored) {
        world.lab.sim.block_on(client.add(&plan.stored(&world.plans))).unwrap();
    }
    let mut crashes = 0;
    world.join(rates);
    world.join(rates);
    for _ in 0..40 {
        world.lab.sim.run_for(ms(dice.below(4_000)));
        let n = dice.below(world.members.len() as u64) as usize;
        let Member { node, faults, handle, .. } = &world.members[n];
        match dice.below(24) {
            0 | 1 => {
                node.crash();
                crashes += 1;
                world.members.remove(n);
            }
            2 => node.pause(),
            3 => node.suspend(),
            4 => {
                faults.down.fetch_not(Relaxed);
            }
            5 => {
                faults.deaf.fetch_not(Relaxed);
            }
            6 => {
                handle.stop();
                world.members.remove(n);
            }
            7..=10 => node.resume(),
            _ => {}
        }
        if world.members.len() < 2 {
            world.join(rates);
        }
    }
    for Member { node, faults, .. } in &world.members {
        faults.set(Rates::default());
        faults.down.store(false, Relaxed);
        faults.deaf.store(false, Relaxed);
        node.resume();
    }
    world.join(Rates::default());
    world.lab.sim.run_for(secs(240));
    let mut seen = BTreeMap::from([("crashes", crashes)]);
    let wrong = world.audit(&mut seen);
    Played { wrong, seen }
}

impl World {
    fn join(&mut self, rates: Rates) {
        let seat = self.lab.seat(self.lab.sim.node());
        seat.rates(rates);
        let builder = seat.builder_on(self.store.clone()).grace(secs(3)).lost_after(secs(4));
        let add = |builder: SchedulerBuilder, plan: &Plan| match plan.is_stored {
            true => {
                builder.kind(format!("kind of {}", plan.name), seat.handler(plan.takes, plan.end()))
            }
            false => builder.add(plan.name.as_str(), plan.code(&seat, &self.plans)),
        };
        let builder = self.plans.iter().fold(builder, add);
        self.members.push(seat.run(builder.build().unwrap()));
    }

    /// The errors that are found in the end.
    fn audit(&self, seen: &mut BTreeMap<&'static str, u64>) -> Vec<String> {
        let mut wrong = Vec::new();
        let pasts: Vec<_> = self.plans.iter().map(|plan| self.lab.past(&plan.name)).collect();
        let mut saw = |what, is_seen: bool| *seen.entry(what).or_insert(0) += u64::from(is_seen);
        for (plan, past) in self.plans.iter().zip(&pasts) {
            let name = &plan.name;
            let Some(state) = self.lab.state_of(name) else {
                wrong.push(format!("{name} is gone"));
                continue;
            };
            let outbox = state.chain.map_or(0, |chain| chain.outbox.len());
            if (&state.head, state.leases.len(), outbox) != (&None, 0, 0) {
                let head = &state.head;
                wrong.push(format!("{name} is not settled: {head:?}, {:?}", state.leases));
            }
            let ended = past.iter().filter(|entry| entry.is_final());
            let mut of_code: BTreeMap<_, u32> = BTreeMap::new();
            for run in self.lab.log.of(name) {
                *of_code.entry((run.at, run.trigger)).or_default() += 1;
            }
            for entry in ended {
                let key = (entry.occurrence.scheduled_at, entry.occurrence.trigger.clone());
                let ran = of_code.get(&key).copied().unwrap_or(0);
                let is_right = match (&entry.outcome, plan.lease) {
                    (Outcome::Succeeded | Outcome::Failed(_), None) => ran == 1,
                    (Outcome::Succeeded, Some(_)) => ran >= 1,
                    _ => plan.lease.is_some() || ran <= 1,
                };
                if !is_right {
                    wrong.push(format!("{name} ran {ran} times: {entry:?}"));
                }
                saw("lost", entry.outcome == Outcome::Lost);
                saw("dead letters", matches!(entry.outcome, Outcome::Dead(_)));
            }
            saw("taken over", past.iter().any(|entry| entry.outcome == Outcome::Expired));
            let Some((before, on)) = plan.after else { continue };
            let (expected, started) = (ends(&pasts[before], on), follow_ups(past, &mut wrong));
            if expected != started {
                let before = &self.plans[before].name;
                wrong.push(format!("{before} {on:?}: {expected:?}, {name}: {started:?}"));
            }
            let is_started = !started.is_empty();
            saw("after a success", is_started && on == On::Success);
            saw("after a failure", is_started && on == On::Failure);
            saw("stored after code", is_started && plan.is_stored && !self.plans[before].is_stored);
            saw("code after stored", is_started && !plan.is_stored && self.plans[before].is_stored);
            saw("third in a chain", is_started && self.plans[before].after.is_some());
        }
        wrong
    }
}

/// The times at which a job has ended so.
fn ends(past: &[HistoryEntry], on: On) -> Vec<Time> {
    let ends = past.iter().filter(|entry| on.is(&entry.outcome));
    let mut ends: Vec<Time> = ends.filter_map(|entry| entry.ended_at).collect();
    ends.sort();
    ends
}

/// The times of the ends that a job was started after, one for each of its occurrences.
fn follow_ups(past: &[HistoryEntry], wrong: &mut Vec<String>) -> Vec<Time> {
    let mut occurrences = BTreeMap::new();
    for entry in past {
        let id = entry.occurrence.trigger.as_deref();
        if id.and_then(followed).is_none() {
            wrong.push(format!("nothing has started {entry:?}"));
        }
        *occurrences.entry(&entry.occurrence).or_insert(0) += u32::from(entry.is_final());
    }
    for (occurrence, ended) in &occurrences {
        if *ended != 1 {
            wrong.push(format!("{occurrence:?} has ended {ended} times"));
        }
    }
    let mut times: Vec<Time> = occurrences.keys().map(|one| one.scheduled_at).collect();
    times.sort();
    times
}
