//! The worlds: what happens in each, and how often.

use super::fleet::{Fleet, Member};
use crate::support::{Rates, ms, secs};
use allora_conformance::{
    faults::Speed,
    history::{
        Seen,
        liveness::{Policy, Stall},
    },
};
use allora_core::{JobSpec, Overlap, Schedule, Time, backend::Action, every, record::TOMBSTONE};
use chrono::TimeDelta;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

/// The mixture of one world. Happenings are shares of a hundred steps.
#[derive(Clone, Copy)]
pub(super) struct World {
    pub(super) name: &'static str,
    /// The number of seeds of the ordinary run.
    pub(super) seeds: u64,
    /// The services that share the namespace, and the nodes of each.
    services: usize,
    nodes: usize,
    concurrency: usize,
    /// The jobs in code of each service, and how many of ten run at least once.
    jobs: usize,
    leased: u64,
    lease: Duration,
    /// The stored schedules of each service, and their kinds.
    stored: usize,
    kinds: usize,
    every_node: bool,
    /// Seconds between occurrences, drawn for each job, and the longest run.
    periods: &'static [u64],
    takes: Duration,
    stop: u64,
    kill: u64,
    /// A node is killed while claims have no replies: between claim and run.
    kill_claiming: u64,
    redeploy: u64,
    rollback: u64,
    suspend: u64,
    freeze: u64,
    outage: u64,
    replace: u64,
    operate: u64,
    /// Many triggers of one job at once.
    backfill: u64,
    /// While every node sleeps, a job is deleted, and its tombstone is removed.
    forget: bool,
    /// A job whose definition is another text each time.
    fickle: bool,
    jump: u64,
    /// The store's clock is a year ahead for a minute.
    year_ahead: bool,
    /// The jobs whose first occurrence kills its process, or blocks it beyond its lease.
    poison: usize,
    unreadable: u64,
    /// The store does not reply to a node for a while.
    hang: u64,
    /// A missing node joins, and a sleeping one wakes, in one of so many steps.
    join: u64,
    wake: u64,
    /// The records of a service without nodes that are due all the time.
    strangers: usize,
    rates: Rates,
    /// The time of an operation, if the store is slow.
    slow: Option<Duration>,
    /// The thousandths of operations that are refused, and whose replies are lost.
    partial: (u64, u64),
    notifies: bool,
}

const NO_FAULTS: Rates = Rates {
    lose_request: 0,
    lose_reply: 0,
    refuse: 0,
    double: 0,
    linger: 0,
    delay: 0,
    delay_ms: 0,
};

/// Nothing happens.
const QUIET: World = World {
    name: "quiet",
    seeds: 5,
    services: 1,
    nodes: 3,
    concurrency: 1_000,
    jobs: 8,
    leased: 5,
    lease: secs(30),
    stored: 4,
    kinds: 2,
    every_node: true,
    periods: &[2, 10, 10, 30],
    takes: ms(800),
    stop: 0,
    kill: 0,
    kill_claiming: 0,
    redeploy: 0,
    rollback: 0,
    suspend: 0,
    freeze: 0,
    outage: 0,
    replace: 0,
    operate: 0,
    backfill: 0,
    forget: false,
    fickle: false,
    jump: 0,
    year_ahead: false,
    poison: 0,
    unreadable: 0,
    hang: 0,
    join: 4,
    wake: 3,
    strangers: 0,
    rates: NO_FAULTS,
    slow: None,
    partial: (0, 0),
    notifies: true,
};

pub(super) const WORLDS: &[World] = &[
    QUIET,
    World { name: "operators", operate: 40, ..QUIET },
    World { name: "stops", stop: 6, join: 30, leased: 10, periods: &[10], ..QUIET },
    World { name: "stops_at_most_once", stop: 8, join: 12, leased: 0, ..QUIET },
    World {
        name: "stops_of_far_nodes",
        stop: 12,
        join: 3,
        periods: &[2, 5],
        rates: Rates { delay: 1_000, delay_ms: 200, ..NO_FAULTS },
        ..QUIET
    },
    World { name: "kills", kill: 6, join: 30, leased: 10, periods: &[10], ..QUIET },
    World { name: "kills_at_most_once", kill: 8, join: 12, leased: 0, ..QUIET },
    World { name: "rolling_restarts", redeploy: 6, leased: 10, periods: &[10], ..QUIET },
    World { name: "rollbacks", rollback: 6, stop: 6, join: 30, ..QUIET },
    World { name: "outages", outage: 20, takes: secs(4), ..QUIET },
    World { name: "hangs", hang: 20, kill: 3, ..QUIET },
    World {
        name: "slow_store",
        slow: Some(ms(20)),
        jobs: 40,
        stored: 0,
        kill: 3,
        leased: 0,
        every_node: false,
        periods: &[10, 30],
        ..QUIET
    },
    World {
        name: "slower_than_a_batch",
        slow: Some(ms(20)),
        jobs: 120,
        stored: 0,
        nodes: 2,
        periods: &[30],
        ..QUIET
    },
    World { name: "partial_answers", partial: (150, 50), takes: secs(3), ..QUIET },
    World { name: "services_at_rest", services: 3, nodes: 2, operate: 20, ..QUIET },
    World {
        name: "services",
        services: 3,
        nodes: 2,
        stop: 4,
        kill: 2,
        redeploy: 2,
        join: 12,
        ..QUIET
    },
    World {
        name: "strangers",
        seeds: 2,
        strangers: 1_100,
        slow: Some(Duration::ZERO),
        operate: 40,
        jobs: 2,
        nodes: 1,
        ..QUIET
    },
    World { name: "replaced_jobs", replace: 30, takes: secs(4), ..QUIET },
    World {
        name: "replaced_jobs_unnoticed",
        replace: 30,
        takes: secs(4),
        nodes: 1,
        notifies: false,
        ..QUIET
    },
    World { name: "full", nodes: 2, concurrency: 2, jobs: 10, takes: secs(3), stop: 3, ..QUIET },
    World {
        name: "full_and_unanswered",
        nodes: 2,
        concurrency: 2,
        jobs: 10,
        takes: secs(4),
        rates: Rates { lose_reply: 200, ..NO_FAULTS },
        ..QUIET
    },
    World {
        name: "lost_replies",
        takes: secs(2),
        rates: Rates { lose_reply: 200, lose_request: 50, ..NO_FAULTS },
        ..QUIET
    },
    World {
        name: "lost_replies_and_stops",
        takes: secs(2),
        stop: 8,
        rates: Rates { lose_reply: 200, lose_request: 50, ..NO_FAULTS },
        ..QUIET
    },
    World {
        name: "lost_replies_and_kills",
        takes: secs(4),
        kill: 8,
        leased: 0,
        lease: secs(15),
        periods: &[2, 3, 5],
        rates: Rates { lose_reply: 150, ..NO_FAULTS },
        ..QUIET
    },
    World { name: "suspends", suspend: 20, wake: 10, takes: secs(30), periods: &[20, 30], ..QUIET },
    World { name: "freezes", freeze: 15, wake: 6, takes: secs(4), ..QUIET },
    World { name: "backfills", backfill: 20, leased: 8, takes: secs(2), ..QUIET },
    World {
        name: "outages_of_one_node",
        nodes: 1,
        stored: 0,
        outage: 30,
        lease: secs(6),
        takes: secs(20),
        periods: &[10, 20],
        ..QUIET
    },
    World { name: "forgotten", seeds: 3, forget: true, notifies: false, ..QUIET },
    World { name: "fickle", fickle: true, stop: 3, join: 12, ..QUIET },
    World { name: "clock_jumps", jump: 8, every_node: false, ..QUIET },
    World { name: "a_year_ahead", seeds: 3, year_ahead: true, every_node: false, ..QUIET },
    World {
        name: "poison",
        poison: 4,
        lease: secs(10),
        join: 2,
        // Longer than a lease.
        wake: 12,
        ..QUIET
    },
    World {
        name: "kills_while_claiming",
        kill_claiming: 12,
        leased: 10,
        lease: secs(10),
        join: 2,
        periods: &[5, 10],
        ..QUIET
    },
    World { name: "unreadable", unreadable: 20, ..QUIET },
    World {
        name: "kinds",
        seeds: 3,
        kinds: 200,
        stored: 300,
        jobs: 2,
        periods: &[10, 60],
        ..QUIET
    },
    World {
        name: "thousands_of_kinds",
        seeds: 1,
        nodes: 2,
        kinds: 3_000,
        stored: 3_000,
        jobs: 2,
        stop: 3,
        periods: &[60, 120],
        ..QUIET
    },
];

/// A world that was played.
pub(super) struct Played {
    pub(super) stalls: Vec<Stall>,
    /// The faults at the end.
    pub(super) faults: Vec<String>,
    pub(super) runs: usize,
    pub(super) trace: u64,
}

/// Draws; its own, so that a world does not change when the library draws more.
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// The splitmix64 of Steele, Lea and Flood.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % n
    }

    pub(super) fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    pub(super) fn time_below(&mut self, most: Duration) -> Duration {
        ms(self.below(most.as_millis() as u64 + 1))
    }
}

/// A schedule with another text each time that it is asked for one.
#[derive(Debug, Default)]
struct Fickle(AtomicU64);

impl Schedule for Fickle {
    fn next_at(&self, after: Time) -> Option<Time> {
        Some(after + TimeDelta::seconds(10))
    }

    fn definition(&self) -> Option<String> {
        Some(format!("text {}", self.0.fetch_add(1, Relaxed)))
    }
}

/// The settings of a job in code.
#[derive(Clone)]
struct Plan {
    name: String,
    period: Duration,
    takes: Duration,
    leased: bool,
    overlap: Overlap,
}

struct Alive {
    member: Member,
    service: usize,
    /// The definition that its jobs have.
    generation: u64,
    asleep: bool,
    cut_off: bool,
}

struct Playing<'a> {
    world: &'a World,
    dice: Dice,
    fleet: Fleet,
    /// The jobs of each service.
    plans: Vec<Vec<Plan>>,
    generations: Vec<u64>,
    alive: Vec<Alive>,
    /// The nodes that were stopped.
    stopped: Vec<Member>,
    triggers: u64,
    lead: TimeDelta,
}

/// Plays a world from its seed to its end.
pub(super) fn play(world: &World, seed: u64) -> Played {
    let mut dice = Dice(seed);
    let mut fleet = Fleet::new(seed);
    fleet.set_notifies(world.notifies);
    let all = world.services * (world.jobs + world.stored);
    if let Some(slow) = world.slow {
        fleet.speed = Some(Speed::new(slow).per_request(ms(2)));
        // Each occurrence costs a claim, what others read of it, and a completion.
        fleet.slower_by = slow * (all * 3 * (1 + world.nodes)) as u32;
    }
    if world.unreadable > 0 {
        // A belief that keeps a due job from running is checked again every minute.
        fleet.slower_by += secs(60);
    }
    // The longest of a few requests one after the other.
    fleet.slower_by += 8 * ms(world.rates.delay_ms);
    fleet.shares.set(world.partial.0, world.partial.1);
    let plans = (0..world.services).map(|service| {
        (0..world.jobs).map(|n| Plan::drawn(world, &mut dice, &fleet, service, n)).collect()
    });
    let plans = plans.collect();
    let generations = vec![0; world.services];
    let (triggers, lead) = (0, TimeDelta::zero());
    let (alive, stopped) = (Vec::new(), Vec::new());
    let mut playing =
        Playing { world, dice, fleet, plans, generations, alive, stopped, triggers, lead };
    playing.begin();
    for step in 0..50 {
        if step == 15 && world.year_ahead {
            playing.year_ahead();
        }
        if step == 15 && world.forget {
            playing.forget();
        }
        let time = playing.dice.time_below(secs(5));
        playing.pass(time);
        playing.happen();
    }
    // Poison kills until it is given up: where it has left no node, another one starts.
    for _ in 0..if world.poison > 0 { 9 } else { 0 } {
        playing.calm();
        playing.pass(secs(20));
    }
    playing.calm();
    playing.pass(secs(60));
    let mut faults = playing.dead_letters();
    faults.extend(playing.returned());
    faults.extend(playing.reaped_by_itself());
    if world.year_ahead {
        playing.reset_what_waits();
        playing.pass(secs(60));
        faults.extend(playing.silent());
    }
    if playing.fleet.is_over() {
        faults.push("so much happened that the world was ended".to_owned());
    }
    let began = |seen: &Seen| matches!(seen, Seen::Began(_));
    let runs = playing.fleet.trace.observations();
    let runs = runs.iter().filter(|one| began(&one.seen)).count();
    let (stalls, trace) = (playing.fleet.stalls(), playing.fleet.sim.trace());
    faults.extend(playing.left());
    Played { stalls, faults, runs, trace }
}

impl Plan {
    fn drawn(world: &World, dice: &mut Dice, fleet: &Fleet, service: usize, n: usize) -> Self {
        let leased = dice.below(10) < world.leased;
        let period = world.periods[dice.below(world.periods.len() as u64) as usize];
        let takes = dice.time_below(world.takes);
        let overlaps = [Overlap::Allow, Overlap::Allow, Overlap::Wait, Overlap::Skip];
        let overlap = if leased { Overlap::Allow } else { overlaps[dice.below(4) as usize] };
        let plan =
            Self { name: format!("s{service}.{n}"), period: secs(period), takes, leased, overlap };
        let is_exclusive = overlap != Overlap::Allow;
        fleet.policy(&plan.name, Policy { is_exclusive });
        plan
    }

    fn spec(&self, job: JobSpec, world: &World, generation: u64) -> JobSpec {
        // Another definition: other settings, and every third time another schedule.
        let job = job.overlap(self.overlap).jitter(ms(generation));
        if self.leased { job.at_least_once(world.lease) } else { job }
    }
}

impl Plan {
    /// The period in this generation of the code.
    fn period_of(&self, generation: u64) -> Duration {
        if generation % 3 == 2 { self.period + secs(1) } else { self.period }
    }
}

fn poison_name(service: usize, n: usize) -> String {
    format!("s{service}.poison{n}")
}

impl Playing<'_> {
    fn begin(&mut self) {
        let world = self.world;
        for service in 0..world.services {
            for n in 0..world.stored {
                let period = world.periods[n % world.periods.len()];
                let kind = format!("s{service}.k{}", n % world.kinds);
                let name = format!("s{service}.stored{n}");
                // At least once they are claimed by queries.
                let delivery = if n % 2 == 0 { "" } else { "; at-least-once 15s" };
                self.fleet.store(&name, &kind, &format!("@every {period}s{delivery}"));
            }
            for _ in 0..world.nodes {
                self.join(service);
            }
        }
        for n in 0..world.strangers {
            self.fleet.stranger(&format!("stranger{n}"));
        }
    }

    fn join(&mut self, service: usize) {
        let (world, generation) = (self.world, self.generations[service]);
        let plans = self.plans[service].clone();
        let kinds: Vec<_> = (0..world.kinds).map(|n| format!("s{service}.k{n}")).collect();
        let takes = world.takes / 2;
        let member = self.fleet.start(|seat| {
            seat.rates(world.rates);
            seat.concurrency(world.concurrency);
            seat.set(|b| b.grace(secs(5)).lost_after(world.lease));
            for plan in &plans {
                let job = seat.job(every(plan.period_of(generation)), plan.takes);
                seat.add(&plan.name, plan.spec(job, world, generation));
            }
            for n in 0..world.poison {
                let job = seat.poison(every(secs(30)));
                seat.add(&poison_name(service, n), job.at_least_once(world.lease));
            }
            if world.stored > 0 {
                seat.kinds(&format!("s{service}.k"), &kinds, takes);
            }
            if world.fickle {
                let job = seat.job(Fickle::default(), ms(0));
                seat.add(&format!("s{service}.fickle"), job);
            }
            if world.every_node {
                seat.add_every_node(&format!("s{service}.here"));
            }
        });
        let (asleep, cut_off) = (false, world.hang > 0 && self.dice.below(2) == 0);
        if cut_off {
            member.set_deaf(true);
        }
        self.alive.push(Alive { member, service, generation, asleep, cut_off });
    }

    /// One thing of those that may happen here.
    fn happen(&mut self) {
        let world = *self.world;
        for n in 0..self.alive.len() {
            if self.dice.below(world.wake) == 0 {
                self.wake(n);
            }
        }
        for service in 0..world.services {
            let here = self.alive.iter().filter(|one| one.service == service).count();
            if here == 0 || (here < world.nodes && self.dice.below(world.join) == 0) {
                self.join(service);
            }
        }
        let n = self.dice.below(self.alive.len() as u64) as usize;
        let mut lot = self.dice.below(100);
        let mut falls = |share: u64| {
            let hit = lot < share;
            lot = if hit { u64::MAX } else { lot - share };
            hit
        };
        if falls(world.stop) {
            self.stop(n);
        } else if falls(world.kill) {
            self.alive.swap_remove(n).member.crash();
        } else if falls(world.kill_claiming) {
            self.alive[n].member.faults.deaf_to_claims.store(true, Relaxed);
            let time = self.dice.time_below(ms(1_500));
            self.pass(time);
            self.alive.swap_remove(n).member.crash();
        } else if falls(world.redeploy) {
            self.redeploy(n);
        } else if falls(world.rollback) {
            self.rollback(n);
        } else if falls(world.suspend) {
            self.sleep(n, Member::suspend);
        } else if falls(world.freeze) {
            self.sleep(n, Member::pause);
        } else if falls(world.outage) {
            let Alive { member, cut_off, .. } = &mut self.alive[n];
            *cut_off = !*cut_off;
            member.set_down(*cut_off);
        } else if falls(world.hang) {
            let Alive { member, cut_off, .. } = &mut self.alive[n];
            *cut_off = !*cut_off;
            member.set_deaf(*cut_off);
        } else if falls(world.replace) {
            self.replace(n);
        } else if falls(world.operate) {
            self.operate();
        } else if falls(world.backfill) {
            self.backfill();
        } else if falls(world.jump) {
            // Back by no more than forward before: a due time is not waited for twice.
            let ahead = self.dice.below(40) as i64;
            self.lead += TimeDelta::seconds(ahead);
            self.fleet.set_clock(self.lead);
        } else if falls(world.unreadable) {
            self.damage();
        }
    }

    /// Lets time pass. A node with a poisonous run is killed, or blocked.
    fn pass(&mut self, time: Duration) {
        if self.world.poison == 0 {
            return self.fleet.run_for(time);
        }
        const PART: Duration = ms(200);
        let until = self.fleet.sim.elapsed() + time;
        while self.fleet.sim.elapsed() < until && !self.fleet.is_over() {
            self.fleet.run_for(PART.min(until - self.fleet.sim.elapsed()));
            for node in self.fleet.poisoned() {
                let found = self.alive.iter().position(|one| one.member.node.id() == node);
                match (found, self.dice.below(2)) {
                    (Some(n), 0) => self.sleep(n, Member::pause),
                    (Some(n), _) => self.alive.swap_remove(n).member.crash(),
                    (None, _) => {}
                }
            }
        }
    }

    /// Every node sleeps while a job is deleted, and until its tombstone is removed.
    fn forget(&mut self) {
        for n in 0..self.alive.len() {
            self.sleep(n, Member::suspend);
        }
        self.fleet.delete(&self.plans[0][0].name);
        self.fleet.run_for(TOMBSTONE + secs(60));
        self.fleet.prune();
        for n in 0..self.alive.len() {
            self.wake(n);
        }
    }

    /// A deleted job that has come back.
    fn returned(&self) -> Option<String> {
        let name = &self.plans[0][0].name;
        let is_back = self.world.forget && self.fleet.find(name).is_some();
        is_back.then(|| format!("{name} was deleted and is back"))
    }

    /// The jobs of which a run was recorded as lost or expired, where only one node runs them and
    /// never ends: it has recorded its own runs.
    fn reaped_by_itself(&self) -> BTreeSet<String> {
        let is_alone = self.world.nodes == 1 && self.world.outage > 0;
        let seen = self.fleet.trace.observations().into_iter().filter(|_| is_alone);
        let reaped = seen.filter_map(|one| match one.seen {
            Seen::Record { job, state: Some(state) }
                if state.counters.lost + state.counters.expired > 0 =>
            {
                Some(format!("a run of {job} was given up by its own node"))
            }
            _ => None,
        });
        reaped.collect()
    }

    /// The store's clock is a year ahead for a minute.
    fn year_ahead(&mut self) {
        let lead = self.lead;
        self.fleet.set_clock(lead + TimeDelta::days(365));
        self.pass(secs(60));
        self.fleet.set_clock(lead);
    }

    /// Resets the jobs that some node reports as waiting for the time of a clock that was ahead.
    fn reset_what_waits(&mut self) {
        let mut names = BTreeSet::new();
        for one in &self.alive {
            let health = one.member.handle.health();
            let waits = health.with("clock-was-ahead").chain(health.with("key-left"));
            names.extend(waits.filter_map(|one| one.condition.job().map(str::to_owned)));
        }
        names.iter().for_each(|name| self.fleet.reset(name));
    }

    /// The jobs and schedules without a run for longer than their period, with a bound.
    fn silent(&self) -> Vec<String> {
        let longest = self.world.periods.iter().copied().max().unwrap_or_default();
        let since = self.fleet.trace.now() - TimeDelta::seconds(longest as i64 + 15);
        let seen = self.fleet.trace.observations();
        let ran = |seen: &Seen| match seen {
            Seen::Began(run) => Some(run.job.clone()),
            _ => None,
        };
        let ran: BTreeSet<_> =
            seen.iter().filter(|one| one.at >= since).filter_map(|one| ran(&one.seen)).collect();
        let silent = self.names().into_iter().filter(|name| !ran.contains(name.as_str()));
        silent.map(|name| format!("{name} did not run at the end")).collect()
    }

    /// Only poison is given up, after four runs, and what comes after it runs.
    fn dead_letters(&self) -> Vec<String> {
        let mut faults = Vec::new();
        // A run beside a poisonous one ends with the same process, and uses an attempt, too. So does
        // a run that is longer than its lease, at each outage.
        let uses_attempts = self.world.poison > 0 || self.world.takes > self.world.lease;
        let innocent = if uses_attempts { Vec::new() } else { self.names() };
        for name in innocent {
            let dead = self.fleet.find(&name).map_or(0, |state| state.dead.len());
            if dead > 0 {
                faults.push(format!("{name} has {dead} dead letters"));
            }
        }
        let all = (0..self.world.services)
            .flat_map(|service| (0..self.world.poison).map(move |n| poison_name(service, n)));
        for name in all {
            let (state, runs) = (self.fleet.state(&name), self.fleet.poisonous_runs(&name));
            let goes_on = state.counters.succeeded > 0;
            if state.dead.len() != 1 || runs != 4 || !goes_on {
                let dead = state.dead.len();
                faults
                    .push(format!("{name}: {runs} runs, {dead} dead letters, goes on: {goes_on}"));
            }
        }
        faults
    }

    /// The remains of the nodes when all are stopped. A slow store may not record every end in time.
    fn left(&mut self) -> Vec<String> {
        let Rates { delay, delay_ms, .. } = self.world.rates;
        let is_calm = self.world.rates == Rates { delay, delay_ms, ..NO_FAULTS };
        let is_calm = is_calm && self.world.partial == (0, 0);
        let mut members = if is_calm { std::mem::take(&mut self.stopped) } else { Vec::new() };
        let last = self.alive.drain(..).map(|one| one.member);
        members.extend(last.inspect(Member::stop));
        self.fleet.run_for(secs(30));
        let is_slow = self.world.slow.is_some() || self.fleet.is_over();
        let members = members.iter().filter(|_| !is_slow);
        members.flat_map(|member| self.fleet.left(member)).collect()
    }

    /// The jobs in code and the stored schedules.
    fn names(&self) -> Vec<String> {
        let code = self.plans.iter().flatten().map(|plan| plan.name.clone());
        let stored = (0..self.world.services).flat_map(|service| {
            (0..self.world.stored).map(move |n| format!("s{service}.stored{n}"))
        });
        code.chain(stored).collect()
    }

    fn stop(&mut self, n: usize) {
        self.wake(n);
        let member = self.alive.swap_remove(n).member;
        member.stop();
        self.stopped.push(member);
    }

    fn sleep(&mut self, n: usize, how: impl FnOnce(&Member)) {
        if !self.alive[n].asleep {
            self.alive[n].asleep = true;
            how(&self.alive[n].member);
        }
    }

    fn wake(&mut self, n: usize) {
        if std::mem::take(&mut self.alive[n].asleep) {
            self.alive[n].member.resume();
        }
    }

    /// Every node of a service is replaced, one after the other, now and then by one with other
    /// definitions.
    fn redeploy(&mut self, n: usize) {
        let service = self.alive[n].service;
        self.generations[service] += u64::from(self.dice.below(4) == 0);
        let here = |one: &Alive| one.service == service;
        let old: Vec<_> = self.alive.extract_if(.., |one| here(one)).collect();
        for old in old {
            if old.asleep {
                old.member.resume();
            }
            self.join(service);
            let time = self.dice.time_below(secs(20));
            self.pass(time);
            old.member.stop();
            self.fleet.run_for(secs(22));
        }
    }

    /// A new version is tried on one node, which is stopped again while the others stay.
    fn rollback(&mut self, n: usize) {
        let service = self.alive[n].service;
        self.generations[service] += 1;
        self.join(service);
        self.fleet.run_for(secs(5));
        let tried = self.alive.len() - 1;
        self.stop(tried);
        self.generations[service] -= 1;
        self.join(service);
    }

    /// A job is removed from a node and added again, as the daemon does when a crontab changes.
    fn replace(&mut self, n: usize) {
        let Alive { member, service, generation, .. } = &self.alive[n];
        if self.dice.below(4) == 0 && self.world.every_node {
            let name = format!("s{service}.here");
            member.remove(&name);
            // Occurrences may come due meanwhile.
            let time = self.dice.time_below(secs(15));
            self.fleet.run_for(time);
            member.add_every_node(&self.fleet, &name);
            return;
        }
        let plans = &self.plans[*service];
        let plan = plans[self.dice.below(plans.len() as u64) as usize].clone();
        member.remove(&plan.name);
        let time = self.dice.time_below(ms(1_500));
        self.fleet.run_for(time);
        let job = self.fleet.job(&member.node, every(plan.period_of(*generation)), plan.takes);
        member.add(&plan.name, plan.spec(job, self.world, *generation));
    }

    /// An operator, whose way to the store is sound.
    fn operate(&mut self) {
        let service = self.dice.below(self.world.services as u64);
        let all = (self.world.jobs + self.world.stored) as u64;
        let n = self.dice.below(all);
        let name = match n.checked_sub(self.world.jobs as u64) {
            None => format!("s{service}.{n}"),
            Some(n) => format!("s{service}.stored{n}"),
        };
        self.triggers += 1;
        let id = format!("pulled{}", self.triggers);
        let action = match self.dice.below(4) {
            0 | 1 => Action::trigger(&id),
            2 => {
                let end = self.fleet.now() + TimeDelta::seconds(1 + self.dice.below(20) as i64);
                let until = (self.dice.below(2) == 0).then_some(end);
                Action::Pause { note: "", until }
            }
            _ => Action::Resume,
        };
        // A job that is not registered yet cannot be changed.
        drop(self.fleet.operate(&name, action));
    }

    /// An operator triggers a job many times.
    fn backfill(&mut self) {
        let plans = &self.plans[0];
        let name = plans[self.dice.below(plans.len() as u64) as usize].name.clone();
        for _ in 0..30 {
            self.triggers += 1;
            self.fleet.trigger(&name, &format!("backfill{}", self.triggers));
        }
    }

    /// The record of a job cannot be read for a while.
    fn damage(&mut self) {
        self.fleet.set_unreadable(None);
        if self.dice.below(2) == 0 {
            let plans = &self.plans[0];
            let name = &plans[self.dice.below(plans.len() as u64) as usize].name;
            self.fleet.set_unreadable(Some(name));
        }
    }

    /// Everything heals.
    fn calm(&mut self) {
        for n in 0..self.alive.len() {
            self.wake(n);
            let alive = &mut self.alive[n];
            alive.member.faults.set(NO_FAULTS);
            if std::mem::take(&mut alive.cut_off) {
                alive.member.set_down(false);
                alive.member.set_deaf(false);
            }
        }
        self.fleet.shares.set(0, 0);
        self.fleet.set_unreadable(None);
        for service in 0..self.world.services {
            if !self.alive.iter().any(|one| one.service == service) {
                self.join(service);
            }
        }
    }
}
