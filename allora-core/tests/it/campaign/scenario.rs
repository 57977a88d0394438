//! One world: drawn from its seed, played to its end.

use super::{books, shrink::Cut};
use crate::support::{Lab, Member, Rates, Seat, ms, secs};
use allora_core::{
    BoxError, CatchUp, Cron, Event, JobSpec, Overlap, Pattern, Retry, SchedulerBuilder, Schedules,
    StoredSchedule, backend::HistoryEntry, cron, every, runtime::Sim, stored::Definition,
};
use chrono::TimeDelta;
use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed, time::Duration};

/// The settings of the world's jobs. Every node has all of them.
pub(super) struct Plan {
    pub(super) name: String,
    /// It lives in the store, and nodes know its kind; otherwise it is in their code.
    pub(super) stored: bool,
    pub(super) when: When,
    pub(super) takes: Duration,
    pub(super) lease: Option<Duration>,
    pub(super) overlap: Overlap,
    pub(super) catch_up: CatchUp,
    pub(super) window: Option<Duration>,
    /// The number of attempts at an occurrence, and the first wait between them.
    pub(super) tries: (u32, Duration),
    pub(super) delay: Duration,
    pub(super) spread: Duration,
    pub(super) timeout: Option<Duration>,
    pub(super) max_runs: Option<u64>,
    /// Of ten runs, so many fail, and so many panic.
    pub(super) fails: u64,
    pub(super) panics: u64,
    pub(super) blocks: bool,
}

#[derive(Clone)]
pub(super) enum When {
    Every(Duration),
    Cron(Cron),
}

/// The events of a world.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Coverage {
    runs: u64,
    taken_over: u64,
    lost: u64,
    skipped: u64,
    missed: u64,
    retried: u64,
    triggered: u64,
    cancelled: u64,
    released: u64,
    lost_answers: u64,
    lease_lost: u64,
    crashes: u64,
    pauses: u64,
    redefined: u64,
    deleted: u64,
}

pub(super) struct Played {
    pub(super) trace: u64,
    pub(super) coverage: Coverage,
    /// The time that has passed in the world.
    pub(super) time: Duration,
}

/// Draws; its own, so that a world does not change when the library draws more.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The splitmix64 of Steele, Lea and Flood.
    fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.draw() % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }
}

/// The events that may happen in this world, and their rates. They are drawn first, so that each
/// seed has its own mixture.
struct Swarm {
    rates: Rates,
    crash: u64,
    pause: u64,
    suspend: u64,
    clock: u64,
    outage: u64,
    stop: u64,
    join: u64,
    operate: u64,
}

impl Swarm {
    /// Of a cut world, what is left out does not happen; the draws are the same.
    fn drawn(dice: &mut Dice, cut: &Cut) -> Self {
        let mut kinds = 0..;
        let mut rate = |most: u64| {
            let drawn = if dice.one_in(2) { 0 } else { dice.below(most) + 1 };
            if cut.leaves_out(kinds.next().unwrap_or_default()) { 0 } else { drawn }
        };
        Self {
            rates: Rates {
                lose_request: rate(100),
                lose_reply: rate(300),
                refuse: rate(100),
                double: rate(100),
                linger: rate(60),
                delay: rate(1_000),
                delay_ms: rate(900),
            },
            crash: rate(12),
            pause: rate(20),
            suspend: rate(10),
            clock: rate(20),
            outage: rate(20),
            stop: rate(12),
            join: 20 + rate(40),
            operate: rate(30),
        }
    }
}

/// Worlds of seeds from this one have a crowd of jobs, which share requests and claims.
pub(super) const CROWDED: u64 = 1 << 32;

/// The jobs of a crowd, besides those that every world has, and the number of the first: no name of a kind begins
/// as another one does.
const CROWD: u64 = 100;
const FIRST: u64 = 400;

/// The world of this seed, without what is cut from it.
pub(super) fn play(seed: u64, cut: &Cut) -> Played {
    let dice = &mut Dice::new(seed);
    let swarm = Swarm::drawn(dice, cut);
    // Half of the worlds begin shortly before the clocks change in Paris.
    let start = match dice.below(4) {
        0 => "2026-03-29T00:58:00Z",
        1 => "2026-10-24T23:57:00Z",
        _ => "2026-01-01T00:00:00Z",
    };
    let lab = Lab::starting(Sim::starting_at(seed, start.parse().unwrap()));
    let mut plans: Vec<Plan> = (0..1 + dice.below(4)).map(|n| Plan::drawn(n, dice)).collect();
    let mut slots = dice.pick(&[1, 2, 3, 100]);
    if seed >= CROWDED {
        plans.extend((FIRST..FIRST + CROWD).map(|n| Plan::drawn(n, dice)));
        // No run keeps the others from their places for long.
        plans.iter_mut().for_each(Plan::be_short);
        slots = 1_000;
    }
    plans.truncate(cut.jobs);
    let (members, seen, deleted) = Default::default();
    let mut world = World { lab, plans, members, swarm, seen, deleted };
    world.stock();
    world.join(dice, slots);
    world.join(dice, slots);
    for _ in 0..(60 + dice.below(100)).min(cut.steps) {
        world.lab.sim.run_for(ms(dice.below(8_000)));
        world.happen(dice, slots);
    }
    world.calm(slots);
    world.audit();
    let sim = &world.lab.sim;
    Played { trace: sim.trace(), coverage: world.seen, time: sim.elapsed() }
}

impl Plan {
    fn drawn(n: u64, dice: &mut Dice) -> Self {
        let at_least_once = dice.one_in(2);
        let lease = at_least_once.then(|| dice.pick(&[secs(1), secs(3), secs(10), secs(30)]));
        let long = dice.pick(&[ms(0), ms(300), secs(2), secs(5), secs(20)]);
        let when = match dice.below(6) {
            0 => When::Every(secs(1)),
            1 => When::Every(ms(3_700)),
            2 => When::Every(secs(60)),
            3 => When::Cron(cron("*/2 * * * * * Europe/Paris").unwrap()),
            4 => When::Cron(cron("1,2,30-59 2,3 * * * Europe/Paris").unwrap()),
            _ => When::Every(secs(10)),
        };
        let overlap = match at_least_once {
            true => Overlap::Allow,
            false => dice.pick(&[Overlap::Allow, Overlap::Skip, Overlap::Wait]),
        };
        let none = Duration::ZERO;
        Self {
            name: format!("job{n}"),
            stored: dice.one_in(2),
            when,
            takes: ms(dice.below(long.as_millis() as u64 + 1)),
            lease,
            overlap,
            catch_up: dice.pick(&[
                CatchUp::Latest,
                CatchUp::Latest,
                CatchUp::None,
                CatchUp::All { limit: 1 },
                CatchUp::All { limit: 7 },
                CatchUp::All { limit: 10_000 },
            ]),
            window: dice.pick(&[None, None, Some(secs(2)), Some(secs(60))]),
            tries: match at_least_once && dice.one_in(2) {
                true => (dice.below(4) as u32 + 1, dice.pick(&[ms(1), secs(1), secs(9)])),
                false => (1, secs(1)),
            },
            delay: dice.pick(&[none, none, secs(3)]),
            spread: dice.pick(&[none, none, secs(2), secs(15)]),
            timeout: dice.pick(&[None, None, Some(secs(4))]),
            max_runs: dice.pick(&[None, None, None, Some(5)]),
            fails: dice.pick(&[0, 0, 3]),
            panics: dice.pick(&[0, 0, 1]),
            blocks: dice.one_in(5),
        }
    }

    fn be_short(&mut self) {
        self.takes = self.takes.min(ms(300));
        self.blocks = false;
    }

    /// The longest time for which an occurrence is attempted if its runs fail: the attempts and the
    /// waits between.
    pub(super) fn longest(&self) -> Duration {
        let (attempts, first) = self.tries;
        // After twice as long each time.
        let waits = first * (2u32.pow(attempts - 1) - 1);
        attempts * self.timeout.map_or(self.takes, |timeout| timeout.min(self.takes)) + waits
    }

    /// The end of its runs on this machine.
    fn end(
        &self,
        seat: &Seat,
    ) -> impl Fn(&allora_core::Run) -> Result<(), BoxError> + Clone + Send + Sync + 'static {
        let (fails, panics, blocks) = (self.fails, self.panics, self.blocks);
        let node = seat.node.clone();
        move |run: &allora_core::Run| {
            let lot = run.fence().unsigned_abs() % 10;
            if blocks && lot == 9 {
                // Nothing of this machine goes on: as if the executor's only thread were busy.
                node.pause();
            }
            if lot < panics {
                // Past the hook, which would fill the test's output.
                std::panic::resume_unwind(Box::new("this run panics"));
            }
            if lot < panics + fails { Err("this run fails".into()) } else { Ok(()) }
        }
    }

    /// The job, as the `generation`-th definition of it.
    fn entry(&self, seat: &Seat, generation: u64) -> JobSpec {
        let end = self.end(seat);
        let entry = match &self.when {
            When::Every(period) => seat.work(every(*period), self.takes, end),
            When::Cron(cron) => seat.work(cron.clone(), self.takes, end),
        };
        let retry = Retry::up_to(self.tries.0, self.tries.1);
        let mut entry = entry.catch_up(self.catch_up).overlap(self.overlap).retry(retry);
        entry = entry.delay(self.delay).jitter(self.spread + ms(generation)).version(generation);
        if let Some(lease) = self.lease {
            entry = entry.at_least_once(lease);
        }
        if let Some(window) = self.window {
            entry = entry.window(window);
        }
        if let Some(timeout) = self.timeout {
            entry = entry.timeout(timeout);
        }
        match self.max_runs {
            Some(runs) => entry.max_runs(runs),
            None => entry,
        }
    }

    /// The same for the store, which keeps everything that is said about a job.
    fn stored(&self, seat: &Seat, generation: u64) -> StoredSchedule {
        let text = self.entry(seat, generation).definition();
        let definition = Definition::parse(&self.name, &text).unwrap();
        let mut settings = definition.settings().clone();
        settings.timeout = self.timeout;
        StoredSchedule::new(&self.name, format!("kind of {}", self.name), definition.text())
            .with_settings(settings)
    }
}

pub(super) struct World {
    pub(super) lab: Lab,
    pub(super) plans: Vec<Plan>,
    pub(super) members: Vec<Alive>,
    swarm: Swarm,
    pub(super) seen: Coverage,
    /// The jobs that were deleted once: a name that comes back begins another life.
    deleted: BTreeSet<String>,
}

/// A member and when it goes on, if it rests.
pub(super) struct Alive {
    member: Member,
    alive: bool,
}

impl World {
    fn join(&mut self, dice: &mut Dice, slots: usize) {
        let generation = if dice.below(40) < self.seen.redefined { self.seen.redefined } else { 0 };
        self.join_as(generation, slots, self.swarm.rates);
        let member = &self.members.last().unwrap().member;
        if self.swarm.clock > 0 {
            member.node.set_skew(TimeDelta::seconds(dice.below(7_200) as i64 - 3_600));
            member.node.set_drift(dice.below(20_000) as i32 - 10_000);
        }
    }

    fn join_as(&mut self, generation: u64, slots: usize, rates: Rates) {
        let plans = &self.plans;
        let member = self.lab.start(|seat, b: SchedulerBuilder| {
            seat.rates(rates);
            let b = b.concurrency(slots).grace(secs(3)).lost_after(secs(4));
            plans.iter().enumerate().fold(b, |b, (n, plan)| {
                let (name, kind) = (plan.name.as_str(), format!("kind of {}", plan.name));
                if !plan.stored {
                    return b.add(name, plan.entry(seat, generation));
                }
                let pattern = if n % 2 == 0 { kind.into() } else { Pattern::prefix(kind) };
                b.kind(pattern, seat.handler(plan.takes, plan.end(seat)))
            })
        });
        self.members.push(Alive { member, alive: true });
    }

    /// The stored jobs are there, and as they should be.
    fn stock(&mut self) {
        let lab = &self.lab;
        let client = Schedules::on(lab.store.clone(), lab.clock()).unwrap();
        let seat = lab.seat(lab.clock());
        for plan in self.plans.iter().filter(|plan| plan.stored) {
            let stored = plan.stored(&seat, self.seen.redefined);
            let done = match lab.sim.block_on(client.get(&plan.name)) {
                Ok(state) => lab.sim.block_on(client.modify(&stored.read_at(state.generation))),
                Err(_) => lab.sim.block_on(client.add(&stored)),
            };
            done.unwrap();
        }
    }

    /// One thing of those that may happen here.
    fn happen(&mut self, dice: &mut Dice, slots: usize) {
        let alive: Vec<usize> =
            (0..self.members.len()).filter(|n| self.members[*n].alive).collect();
        for n in &alive {
            // Who was stopped by a blocking job or by us goes on sooner or later.
            if dice.one_in(3) {
                self.members[*n].member.node.resume();
            }
        }
        let Some(n) = alive.get(dice.below(alive.len().max(1) as u64) as usize).copied() else {
            return self.join(dice, slots);
        };
        let member = self.members[n].member.clone();
        let swarm = &self.swarm;
        let mut lot = dice.below(100);
        let mut falls = |share: u64| {
            let hit = lot < share;
            lot = if hit { u64::MAX } else { lot - share };
            hit
        };
        if falls(swarm.crash) {
            member.node.crash();
            self.members[n].alive = false;
            self.seen.crashes += 1;
        } else if falls(swarm.pause) {
            member.node.pause();
            self.seen.pauses += 1;
        } else if falls(swarm.suspend) {
            member.node.suspend();
            self.seen.pauses += 1;
        } else if falls(swarm.clock) {
            member.node.set_skew(TimeDelta::seconds(dice.below(7_200) as i64 - 3_600));
        } else if falls(swarm.outage) {
            member.faults.down.fetch_not(Relaxed);
            member.faults.deaf.store(dice.one_in(3), Relaxed);
        } else if falls(swarm.stop) {
            if dice.one_in(2) {
                member.handle.stop()
            } else {
                member.handle.stop_now()
            }
            self.members[n].alive = false;
        } else if falls(swarm.join / (1 + alive.len() as u64)) {
            self.join(dice, slots);
        } else if falls(swarm.operate) {
            self.operate(dice, slots);
        }
    }

    /// An operator, whose way to the store is sound.
    fn operate(&mut self, dice: &mut Dice, slots: usize) {
        use allora_core::backend::Action;
        let name = self.plans[dice.below(self.plans.len() as u64) as usize].name.clone();
        let lab = &self.lab;
        let id = format!("pulled{}", self.seen.triggered);
        let change = match dice.below(6) {
            0 | 1 => Action::trigger(&id),
            2 => {
                let end = lab.now() + TimeDelta::seconds(1 + dice.below(60) as i64);
                let until = (dice.below(2) == 0).then_some(end);
                Action::Pause { note: "", until }
            }
            3 => Action::Resume,
            4 => {
                self.seen.redefined += 1;
                self.stock();
                return self.join_as(self.seen.redefined, slots, self.swarm.rates);
            }
            _ => {
                if lab.operate(&name, Action::Delete).is_ok() {
                    self.seen.deleted += 1;
                    self.deleted.insert(name);
                }
                return;
            }
        };
        let pulled = matches!(change, Action::Trigger { .. });
        let changed = lab.operate(&name, change);
        self.seen.triggered += u64::from(pulled && changed.is_ok());
    }

    /// Everything heals; a node with the last definition takes over, and two minutes pass.
    fn calm(&mut self, slots: usize) {
        for Alive { member, .. } in &self.members {
            member.faults.set(Rates::default());
            member.faults.down.store(false, Relaxed);
            member.faults.deaf.store(false, Relaxed);
            member.node.resume();
        }
        self.stock();
        self.join_as(self.seen.redefined, slots.max(4), Rates::default());
        self.lab.sim.run_for(secs(1));
        for plan in &self.plans {
            let resume = allora_core::backend::Action::Resume;
            self.lab.operate(&plan.name, resume).unwrap();
        }
        // Blocked machines go on, again and again.
        for _ in 0..120 {
            self.lab.sim.run_for(secs(1));
            self.members.iter().for_each(|one| one.member.node.resume());
        }
    }

    fn audit(&mut self) {
        let now = self.lab.now();
        for plan in &self.plans {
            let name = &plan.name;
            let runs = self.lab.log.of(name);
            let past = self.lab.past(name);
            let state = self.lab.state(name);
            let told = Told { seed: self.lab.sim.seed(), runs: &runs, past: &past };
            // Code declares a version with each definition of a world; stored ones are edited.
            let redefined = state.version > 0 || (plan.stored && self.seen.redefined > 0);
            let has_one_life = !self.deleted.contains(name);
            books::audit(plan, &runs, &past, (&state, redefined, has_one_life), now);
            drop(told);
            self.seen.count(&past, runs.len());
        }
        for Alive { member, .. } in &self.members {
            assert_eq!(*member.faults.doubled.lock().unwrap(), None);
            self.seen.lost_answers += member.faults.lost_claims.load(Relaxed);
            let lost = |event: &&Event| matches!(event, Event::LeaseLost { .. });
            self.seen.lease_lost += member.events().iter().filter(lost).count() as u64;
        }
    }
}

/// Tells what happened to a job when its books do not balance.
struct Told<'a> {
    seed: u64,
    runs: &'a [crate::support::Entry],
    past: &'a [HistoryEntry],
}

impl Drop for Told<'_> {
    #[expect(clippy::print_stderr, reason = "a failing test says why")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let first = |len: usize| len.saturating_sub(200);
            eprintln!("seed {}, the last runs and the last entries of the history:", self.seed);
            self.runs[first(self.runs.len())..].iter().for_each(|run| eprintln!("{run:?}"));
            self.past[first(self.past.len())..].iter().for_each(|past| eprintln!("{past:?}"));
        }
    }
}

impl Coverage {
    fn count(&mut self, past: &[HistoryEntry], runs: usize) {
        self.runs += runs as u64;
        for entry in past {
            match entry.outcome.word() {
                "expired" => self.taken_over += 1,
                "lost" => self.lost += 1,
                "skipped" => self.skipped += 1,
                "missed" => self.missed += 1,
                "retried" => self.retried += 1,
                "cancelled" => self.cancelled += 1,
                "released" => self.released += 1,
                _ => {}
            }
        }
    }

    fn all(&self) -> [u64; 14] {
        [
            self.taken_over,
            self.lost,
            self.skipped,
            self.missed,
            self.retried,
            self.triggered,
            self.cancelled,
            self.released,
            self.lost_answers,
            self.lease_lost,
            self.crashes,
            self.pauses,
            self.redefined,
            self.deleted,
        ]
    }
}

/// In how many worlds each thing happened.
#[derive(Debug, Default)]
pub(super) struct Totals {
    runs: u64,
    worlds: [u64; 14],
}

impl Totals {
    pub(super) fn add(&mut self, world: &Coverage) {
        self.runs += world.runs;
        for (total, seen) in self.worlds.iter_mut().zip(world.all()) {
            *total += u64::from(seen > 0);
        }
    }

    /// The runs of jobs in all worlds.
    pub(super) fn runs(&self) -> u64 {
        self.runs
    }

    /// A campaign in which nothing happens proves nothing.
    pub(super) fn assert_goals(&self, seeds: u64) {
        assert!(self.runs > 100 * seeds, "{self:?}");
        let seldom = self.worlds.iter().any(|seen| seen * 100 < 5 * seeds);
        assert!(!seldom, "something happened in fewer than 5 of 100 worlds: {self:?}");
    }
}
