//! Worlds of which everything is drawn from the seed: fleet, settings, jobs, keys, and what goes wrong.
//!
//! After a while everything heals. Nothing may be late by more than the bound while one node could act;
//! every instant is accounted for; nothing runs twice; then everything goes on, on a node that is left
//! alone, without a restart; and no condition outlives its cause.

use super::{
    accounts::unaccounted,
    fleet::{Fleet, Member, Seat},
    requests::{Failure, Fate, KINDS, shard},
    world::{Dice, Played},
};
use crate::support::{ms, secs};
use allora_conformance::{
    faults::Speed,
    history::{
        Seen,
        liveness::{Kind, Policy},
    },
};
use allora_core::{
    JobSpec, Overlap, Schedule, Time,
    backend::{Action, NewSchedule, Operation},
    every,
    schedule::Calendar,
};
use chrono::TimeDelta;
use std::{collections::BTreeSet, env, sync::atomic::Ordering::Relaxed, time::Duration};

/// The bound of a start on an idle node that loses no request, with a second for the measurement.
const BOUND: Duration = secs(3);

/// The time that a start takes more for each request without a reply: the time limit, and the longest
/// wait before the next one.
const LOSS: Duration = ms(1_800);

/// The time after everything has healed: two looks of everything that looks once a minute.
const CALM: Duration = secs(140);

/// The things that may go wrong. The first one of each world is the seed's, the others are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Trouble {
    /// Requests of some kinds fail.
    Requests,
    /// Jobs are triggered, once or often, and the nodes that run them are killed.
    Backfills,
    /// Several nodes are killed at once.
    Deaths,
    /// A node starts and dies, again and again.
    CrashLoop,
    /// Some nodes are full.
    Full,
    /// One node has another build.
    Canary,
    /// The registry has nodes that do not exist.
    Lies,
    /// Jobs want more than the capacity.
    Overload,
    /// Nodes are frozen or suspended.
    Frozen,
    /// The store's clock is ahead, goes back, or is two clocks.
    Clock,
    /// Jobs are removed and added again.
    Replaced,
    /// More than ten thousand due records that no node here runs.
    Strangers,
    /// Claims of keys are lost, on nodes with few places.
    LostKeys,
    /// The operations on a third of the records hang.
    Shard,
    /// A claim is carried out without a reply, the next ones are not, and its job is replaced
    /// meanwhile.
    Reclaimed,
    /// Thousands of due jobs in code of another service.
    OtherService,
    /// The store rejects the end of one run of each node, to the end of the world.
    Rejected,
    /// The store's clock cannot be read, and some claims are lost.
    NoClock,
}

use Trouble::*;

const TROUBLES: [Trouble; 12] = [
    Requests, Backfills, Deaths, CrashLoop, Full, Canary, Lies, Overload, Frozen, Clock, Replaced,
    Strangers,
];

/// The first troubles of some later seeds, which the ordinary run plays as well.
const LATER: [Trouble; 6] = [LostKeys, Shard, Reclaimed, OtherService, Rejected, NoClock];

/// The first of the later seeds.
pub(super) const LATER_FROM: u64 = 24;

/// The settings of a world.
#[derive(Debug)]
struct Scene {
    troubles: BTreeSet<Trouble>,
    nodes: usize,
    concurrency: usize,
    poll: Duration,
    heartbeat: Duration,
    notifies: bool,
    claims_due: bool,
    lasts: Duration,
    /// The load of the jobs that want too much, in per cent of the capacity.
    load: u32,
    /// The store's clock steps by so much.
    step: TimeDelta,
    /// One node is left alone in the end.
    alone: bool,
}

/// The settings of a job.
#[derive(Clone, Debug)]
struct Plan {
    name: String,
    period: Duration,
    takes: Duration,
    lease: Option<Duration>,
    key: Option<(&'static str, u32)>,
    is_exclusive: bool,
    /// Its definition does not tell its times.
    is_opaque: bool,
    /// It is stored, and uses a calendar.
    stored: Option<bool>,
}

/// A schedule whose definition does not tell its times.
#[derive(Debug)]
struct Opaque(Duration, u64);

impl Schedule for Opaque {
    fn next_at(&self, after: Time) -> Option<Time> {
        every(self.0).next_at(after)
    }

    fn definition(&self) -> Option<String> {
        Some(format!("build {}", self.1))
    }
}

struct Alive {
    member: Member,
    is_asleep: bool,
}

struct Playing {
    dice: Dice,
    scene: Scene,
    plans: Vec<Plan>,
    fleet: Fleet,
    alive: Vec<Alive>,
    /// The end of the trouble.
    until: Time,
    triggers: u64,
    /// The jobs whose definition has changed.
    redefined: bool,
    /// The world is printed.
    is_shown: bool,
}

impl Scene {
    fn drawn(dice: &mut Dice, seed: u64) -> Self {
        let later = seed.checked_sub(LATER_FROM).filter(|n| n % 24 < 12);
        let later = later.map(|n| LATER[(n % 6) as usize]);
        let first = later.unwrap_or(TROUBLES[(seed % 12) as usize]);
        let is_crowd = [Strangers, OtherService].contains(&first);
        let mut troubles: BTreeSet<_> = [first].into();
        // Those of the later seeds are special enough.
        let others = if later.is_some() { &[Backfills, Deaths][..] } else { &TROUBLES[..11] };
        for trouble in others {
            if !is_crowd && dice.below(5) == 0 {
                troubles.insert(*trouble);
            }
        }
        if troubles.contains(&Clock) {
            // A day of occurrences of each second is much to walk.
            troubles.remove(&Overload);
        }
        if troubles.contains(&Replaced) {
            troubles.insert(Requests);
        }
        if troubles.contains(&Canary) {
            // A node that does not exist counts as one that may run a new definition, for longer than
            // a world lasts.
            troubles.remove(if first == Lies { &Canary } else { &Lies });
        }
        let is_canary = troubles.contains(&Canary);
        let nodes = dice.pick(&[1, 2, 2, 3, 3, 3, 4, 5, 8, 12]);
        let concurrency = dice.pick(&[1, 1, 2, 3, 4, 4, 10, 1_000]);
        let polls = [ms(100), secs(1), secs(5), secs(5), secs(5), secs(20), secs(60), secs(3_600)];
        let steps = [-40, -1, 20, 40, 86_400, 86_400];
        Self {
            nodes: match first {
                Deaths | CrashLoop | Full | Canary | Lies => nodes.max(4),
                Backfills | Clock => nodes.max(2),
                Strangers | OtherService => 1,
                Reclaimed => 1,
                Rejected => nodes.min(2),
                _ => nodes,
            },
            concurrency: match troubles.contains(&Full) || troubles.contains(&Overload) {
                _ if first == LostKeys => concurrency.min(2),
                _ if first == Shard => concurrency.clamp(2, 4),
                true => concurrency.min(4),
                false => concurrency,
            },
            poll: if is_crowd { secs(5) } else { dice.pick(&polls) },
            heartbeat: match dice.pick(&[secs(15), secs(15), secs(60), secs(300)]) {
                _ if is_canary => secs(15),
                heartbeat => heartbeat,
            },
            notifies: !is_crowd && dice.below(5) > 0,
            claims_due: first == OtherService || dice.below(4) > 0,
            lasts: if is_crowd { secs(40) } else { secs(60 + dice.below(60)) },
            load: dice.pick(&[105, 105, 450]),
            step: TimeDelta::seconds(dice.pick(&steps)),
            alone: dice.below(3) > 0,
            troubles,
        }
    }

    fn has(&self, trouble: Trouble) -> bool {
        self.troubles.contains(&trouble)
    }

    /// `true` if the store does not carry out, or not answer, what a node needs to keep a lease.
    fn has_failures(&self) -> bool {
        let failures = [Requests, LostKeys, Shard, Reclaimed, Rejected, NoClock];
        failures.iter().any(|one| self.has(*one))
    }
}

impl Plan {
    fn drawn(dice: &mut Dice, scene: &Scene, n: u64, stored: bool) -> Self {
        let periods = [secs(2), secs(5), secs(10), secs(10), secs(20), secs(60)];
        let takes = [ms(0), ms(50), ms(300), secs(1), secs(3)];
        let leases = [secs(5), secs(10), secs(30), secs(30), secs(3_600)];
        let period = dice.pick(&periods);
        // All jobs together use less than half of the capacity of one node.
        let most = period * scene.concurrency.min(100) as u32 / 30;
        let is_leased = dice.below(5) < 3;
        let is_exclusive = !is_leased && !stored && dice.below(3) == 0;
        Self {
            name: format!("{}{n}", if stored { "stored" } else { "job" }),
            period,
            takes: dice.pick(&takes).min(most),
            lease: is_leased.then(|| dice.pick(&leases)),
            key: (dice.below(3) == 0).then(|| dice.pick(&[("a", 1), ("a", 1), ("b", 2)])),
            is_exclusive,
            // An operator cannot reset a job whose times only its code knows.
            is_opaque: !stored && !scene.has(Clock) && dice.below(4) == 0,
            stored: stored.then(|| dice.below(3) == 0),
        }
    }

    fn spec(&self, seat: &Seat<'_>, generation: u64) -> JobSpec {
        let job = match self.is_opaque {
            true => seat.job(Opaque(self.period, generation), self.takes),
            false => seat.job(every(self.period), self.takes).jitter(ms(generation)),
        };
        self.with_settings(job)
    }

    fn with_settings(&self, job: JobSpec) -> JobSpec {
        let job = if self.is_exclusive { job.overlap(Overlap::Skip) } else { job };
        let job = self.lease.map_or(job.clone(), |lease| job.at_least_once(lease));
        match self.key {
            Some((key, limit)) => job.concurrency_key(key, limit),
            None => job,
        }
    }

    fn text(&self) -> String {
        let mut text = format!("@every {}s", self.period.as_secs());
        if self.stored == Some(true) {
            text.push_str("; except calendar:days");
        }
        if let Some(lease) = self.lease {
            text.push_str(&format!("; at-least-once {}s", lease.as_secs()));
        }
        if let Some((key, limit)) = self.key {
            text.push_str(&format!("; concurrency-key {key}:{limit}"));
        }
        text
    }
}

/// Plays the world of a seed to its end.
pub(super) fn play(seed: u64) -> Played {
    let mut dice = Dice(seed);
    let scene = Scene::drawn(&mut dice, seed);
    let mut fleet = Fleet::new(seed);
    fleet.set_notifies(scene.notifies);
    fleet.bound = Some((BOUND, LOSS));
    // A store that needs no time would be asked without an end.
    fleet.speed = Some(Speed::new(Duration::ZERO).per_request(ms(1)).connections(1_000));
    let code = 4 + dice.below(8);
    let stored = if scene.has(OtherService) { 20 } else { 1 + dice.below(4) };
    let mut plans: Vec<_> = (0..code).map(|n| Plan::drawn(&mut dice, &scene, n, false)).collect();
    plans.extend((0..stored).map(|n| Plan::drawn(&mut dice, &scene, n, true)));
    if scene.has(Clock) || scene.has(LostKeys) || dice.below(3) == 0 {
        let keyed = &mut plans[0];
        (keyed.key, keyed.period) = (Some(("a", 1)), secs(5));
        keyed.takes = ms(500);
    }
    if scene.has(OtherService) {
        // Many at the same second, so no claim waits for another and each search matters.
        for plan in plans.iter_mut().filter(|plan| plan.stored.is_some()) {
            (plan.period, plan.takes, plan.key) = (secs(10), ms(5), None);
        }
    }
    if scene.has(Reclaimed) || scene.has(Rejected) {
        let wronged = &mut plans[0];
        (wronged.key, wronged.period, wronged.is_opaque) = (None, secs(5), false);
        let leases = [Some(secs(30)), if scene.has(Rejected) { None } else { Some(secs(3_600)) }];
        (wronged.lease, wronged.is_exclusive) = (dice.pick(&leases), false);
    }
    for plan in &plans {
        fleet.policy(&plan.name, Policy { is_exclusive: plan.is_exclusive });
        if let Some((key, limit)) = plan.key {
            fleet.key(&plan.name, key, limit as usize);
        }
    }
    let until = fleet.now() + TimeDelta::seconds(15) + TimeDelta::from_std(scene.lasts).unwrap();
    let (alive, triggers) = (Vec::new(), 0);
    let (redefined, is_shown) = (false, env::var_os("ALLORA_SHOW").is_some());
    let mut playing =
        Playing { dice, scene, plans, fleet, alive, until, triggers, redefined, is_shown };
    playing.show(|| format!("{:?}\n{:#?}", playing.scene, playing.plans));
    playing.begin();
    playing.trouble();
    playing.calm();
    let is_crowd = playing.scene.has(Strangers) || playing.scene.has(OtherService);
    playing.fleet.run_for(if is_crowd { CALM / 4 } else { CALM });
    let mut faults = playing.conditions();
    if playing.scene.alone {
        playing.leave_one();
    }
    if playing.fleet.is_over() {
        faults.insert(0, "so much happened that the world was ended".to_owned());
    }
    faults.extend(playing.silent());
    faults.extend(playing.unaccounted());
    faults.extend(playing.chatter());
    let seen = playing.fleet.trace.observations();
    let runs = seen.iter().filter(|one| matches!(one.seen, Seen::Began(_))).count();
    let mut stalls = playing.fleet.stalls();
    stalls.retain(|stall| playing.is_due_to_nodes(stall.kind));
    Played { stalls, faults, runs, trace: playing.fleet.sim.trace() }
}

impl Playing {
    fn begin(&mut self) {
        let days = Calendar::parse("blackout 2040-01-01T00:00:00Z/2040-01-02T00:00:00Z").unwrap();
        self.fleet.sim.block_on(self.fleet.client().upsert_calendar("days", &days)).unwrap();
        for plan in self.plans.iter().filter(|plan| plan.stored.is_some()) {
            self.fleet.store(&plan.name, "kind", &plan.text());
        }
        for _ in 0..self.scene.nodes {
            self.join(0);
        }
        self.fleet.run_for(secs(15));
    }

    /// A node joins, with this build.
    fn join(&mut self, generation: u64) {
        let Self { scene, plans, until, .. } = self;
        let capacity = (scene.concurrency * scene.nodes) as u32;
        let member = self.fleet.start(|seat| {
            seat.concurrency(scene.concurrency);
            seat.faults.has_no_due_claims.store(!scene.claims_due, Relaxed);
            let (poll, heartbeat) = (scene.poll, scene.heartbeat);
            seat.set(|b| b.poll_interval(poll).heartbeat(heartbeat).grace(secs(5)));
            for plan in plans.iter().filter(|plan| plan.stored.is_none()) {
                seat.add(&plan.name, plan.spec(seat, generation));
            }
            seat.kinds("kind", &["kind".to_owned()], plans.last().unwrap().takes);
            if scene.has(Full) {
                let hog = seat.job(every(secs(100_000)), secs(30));
                seat.add("hog", hog);
            }
            if scene.has(Overload) {
                let takes = ms(50) * capacity * scene.load / 100;
                for n in 0..20 {
                    let job = seat.job(every(secs(1)), takes).ending(*until);
                    seat.add(&format!("load{n}"), job);
                }
            }
        });
        self.alive.push(Alive { member, is_asleep: false });
    }

    fn trouble(&mut self) {
        let at_once =
            [Lies, Strangers, Clock, CrashLoop, Canary, Shard, OtherService, Rejected, NoClock];
        for trouble in at_once {
            if self.scene.has(trouble) {
                self.once(trouble);
            }
        }
        let canary = (self.scene.has(Canary)).then(|| self.alive.last().unwrap().member.id());
        while self.fleet.trace.now() < self.until && !self.fleet.is_over() {
            for n in 0..self.alive.len() {
                if self.dice.below(4) == 0 {
                    self.wake(n);
                }
            }
            let alone = self.scene.troubles.len() == 1 && self.scene.has(Strangers);
            if alone {
                let plan = self.dice.pick(&self.plans);
                self.trigger(&plan.name);
            }
            if self.alive.is_empty()
                || self.alive.len() < self.scene.nodes && self.dice.below(5) == 0
            {
                self.join(0);
            }
            let troubles: Vec<_> = self.scene.troubles.iter().copied().collect();
            let trouble = self.dice.pick(&troubles);
            self.now_and_then(trouble);
            let time = self.dice.time_below(secs(8));
            self.fleet.run_for(time);
        }
        if self.scene.has(Clock) {
            self.fleet.set_second_clock(0);
            self.fleet.set_clock(TimeDelta::zero());
        }
        // The new build is given up.
        if let Some(n) = self.alive.iter().position(|one| Some(one.member.id()) == canary) {
            self.wake(n);
            self.alive.swap_remove(n).member.stop();
        }
    }

    /// Trouble that begins at once.
    fn once(&mut self, trouble: Trouble) {
        match trouble {
            Lies => self.lie(),
            Strangers => {
                let kind = self.dice.below(3);
                self.strangers(10_500, kind);
            }
            OtherService => {
                // More pages than a node reads within the bound.
                self.strangers(40_000, 2);
            }
            Shard => {
                let shard = Some((3, self.dice.below(3)));
                let hung = Failure { shard, ..Failure::of("every operation", Fate::Hung) };
                self.fail(hung, None);
            }
            Rejected => {
                let job = self.plans[0].name.as_str();
                self.alive.iter().for_each(|one| one.member.failures.reject_end(job));
            }
            NoClock => {
                self.fail(Failure::of("clock", Fate::Hung), None);
                let some = Failure { share: 300, ..Failure::of("Claim", Fate::Hung) };
                self.fail(some, None);
            }
            CrashLoop => {
                for _ in 0..25 {
                    self.join(0);
                    self.fleet.run_for(ms(700));
                    self.alive.pop().unwrap().member.crash();
                }
            }
            Canary => {
                self.redefined = true;
                self.join(1);
            }
            Clock => {
                self.fleet.set_second_clock(self.dice.pick(&[0, 0, 1, 1_000]));
                self.fleet.set_clock(self.scene.step);
                let is_long = self.scene.step > TimeDelta::hours(1);
                let time = self.dice.time_below(secs(if is_long { 20 } else { 60 }));
                // The holder of a key dies meanwhile.
                for _ in 0..20 {
                    self.fleet.run_for(time / 20);
                    let leases = self.fleet.find("allora:key:a").map(|key| key.leases);
                    let leases = leases.unwrap_or_default();
                    let now = self.fleet.now();
                    let holds = |one: &Alive| {
                        let mut held = leases.iter().filter(|lease| lease.until > now);
                        held.any(|lease| lease.node == *one.member.id())
                    };
                    if let Some(n) = self.alive.iter().position(holds)
                        && self.alive.len() > 1
                        && self.dice.below(2) == 0
                    {
                        self.crash(n);
                    }
                }
                self.fleet.set_clock(TimeDelta::zero());
            }
            _ => {}
        }
    }

    fn now_and_then(&mut self, trouble: Trouble) {
        let n = self.dice.below(self.alive.len() as u64) as usize;
        match trouble {
            Requests => self.fail_requests(n),
            Backfills => self.backfill(),
            Deaths => {
                let all = self.alive.len() as u64;
                let most = if all > 1 { 1 + self.dice.below(all - 1) } else { all };
                for _ in 0..most {
                    self.crash(0);
                }
            }
            Full => {
                // Every node but one or more, unless some are full.
                let head = self.fleet.find("hog").and_then(|state| state.head);
                let others = self.alive.len().saturating_sub(1) as u64;
                if head.is_none_or(|head| head.trigger.is_none()) && others > 0 {
                    let runs = self.scene.concurrency as u64 * (1 + self.dice.below(others));
                    (0..runs.min(60)).for_each(|_| self.trigger("hog"));
                }
            }
            Frozen => {
                let suspends = self.dice.below(2) == 0;
                let Alive { member, is_asleep } = &mut self.alive[n];
                if !std::mem::replace(is_asleep, true) {
                    if suspends { member.suspend() } else { member.pause() }
                }
            }
            Replaced => self.replace(n),
            LostKeys => {
                let fate = self.dice.pick(&[Fate::Hung, Fate::Unanswered]);
                self.fail(Failure { left: Some(1), ..Failure::of("ClaimKey", fate) }, None);
            }
            Reclaimed => self.reclaim(n),
            Canary | Lies | Overload | CrashLoop | Clock | Strangers => {}
            Shard | OtherService | Rejected | NoClock => {}
        }
    }

    fn crash(&mut self, n: usize) {
        self.show(|| format!("{} is killed", self.alive[n].member.id()));
        self.alive.swap_remove(n).member.crash();
    }

    fn wake(&mut self, n: usize) {
        if std::mem::take(&mut self.alive[n].is_asleep) {
            self.alive[n].member.resume();
        }
    }

    /// Requests of some kinds fail, on one node or on all.
    fn fail_requests(&mut self, n: usize) {
        if self.dice.below(3) == 0 {
            self.alive.iter().for_each(|one| one.member.failures.end());
        }
        let often = ["Claim", "Claim", "ClaimKey", "ClaimKey", "Complete", "find_due", "claim_due"];
        let kind = match self.dice.below(2) {
            0 => self.dice.pick(&often),
            _ => self.dice.pick(KINDS),
        };
        let fates = [Fate::Hung, Fate::NotDone, Fate::Unanswered, Fate::Refused];
        let (share, left) = match self.dice.below(4) {
            0 => (1_000, Some(1)),
            1 => (500, None),
            2 => (300, None),
            _ => (1_000, None),
        };
        let mut shard = (self.dice.below(2) == 0).then(|| (3, self.dice.below(3)));
        if self.scene.concurrency == 1 && left.is_none() {
            // A claim without a reply has all the capacity of such a node.
            shard = None;
        }
        let (fate, is_alone) = (self.dice.pick(&fates), self.dice.below(2) == 0);
        let one = self.dice.below(2) == 0;
        self.fail(Failure { kind, fate, share, left, shard, is_alone }, one.then_some(n));
    }

    /// Requests fail on one node, or on all.
    fn fail(&self, failure: Failure, on: Option<usize>) {
        self.show(|| format!("{failure:?} on {on:?}"));
        for (i, Alive { member, .. }) in self.alive.iter().enumerate() {
            if on.is_none_or(|n| n == i) {
                member.failures.add(failure.clone());
            }
        }
    }

    /// Prints what happens, if the world is shown.
    #[expect(clippy::print_stdout, reason = "asked for by a variable")]
    fn show(&self, what: impl FnOnce() -> String) {
        if self.is_shown {
            println!("{} {}", self.fleet.trace.now().format("%T%.3f"), what());
        }
    }

    /// A job is triggered, once or often, and its node may be killed.
    fn backfill(&mut self) {
        let plans = self.plans.iter().filter(|plan| plan.stored.is_none() || self.scene.notifies);
        let plans: Vec<_> = plans.cloned().collect();
        let plan = self.dice.pick(&plans);
        for _ in 0..self.dice.pick(&[1, 1, 3, 12]) {
            self.trigger(&plan.name);
        }
        let time = self.dice.time_below(plan.takes);
        self.fleet.run_for(ms(20) + time);
        let leases = self.fleet.find(&plan.name).map_or_else(Vec::new, |state| state.leases);
        let runs = |one: &Alive| leases.iter().any(|lease| lease.node == *one.member.id());
        if let Some(n) = self.alive.iter().position(runs)
            && self.alive.len() > 1
            && self.dice.below(3) > 0
        {
            self.crash(n);
        }
    }

    fn trigger(&mut self, name: &str) {
        self.triggers += 1;
        self.show(|| format!("trigger of {name}"));
        self.fleet.trigger(name, &format!("t{}", self.triggers));
    }

    /// A job is removed from a node, and added again.
    fn replace(&mut self, n: usize) {
        let plans: Vec<_> =
            self.plans.iter().filter(|plan| plan.stored.is_none()).cloned().collect();
        let plan = self.dice.pick(&plans);
        let member = self.alive[n].member.clone();
        // Another build has other definitions.
        if self.scene.has(Canary) {
            return;
        }
        if self.dice.below(2) == 0 {
            // A claim is carried out, and the following ones are not, for a while.
            let first = Failure { left: Some(1), ..Failure::of("Claim", Fate::Unanswered) };
            self.fail(first, Some(n));
            self.fail(Failure::of("Claim", Fate::Hung), Some(n));
            let time = self.dice.time_below(4 * plan.period.min(secs(20)));
            self.fleet.run_for(time);
        }
        self.replace_on(&member, &plan);
        if self.dice.below(2) == 0 {
            member.failures.end();
        }
    }

    fn replace_on(&mut self, member: &Member, plan: &Plan) {
        member.remove(&plan.name);
        let time = self.dice.time_below(ms(1_500));
        self.fleet.run_for(time);
        let job = match plan.is_opaque {
            true => self.fleet.job(&member.node, Opaque(plan.period, 0), plan.takes),
            false => self.fleet.job(&member.node, every(plan.period), plan.takes),
        };
        member.add(&plan.name, plan.with_settings(job));
    }

    /// A claim of the first job is carried out without a reply, and repetitions of it hang while the
    /// next occurrences come due. They are answered when the job was removed and added again.
    fn reclaim(&mut self, n: usize) {
        let (plan, member) = (self.plans[0].clone(), self.alive[n].member.clone());
        // So many that it has one for itself.
        let of = 100_003;
        let claims = |fate| Failure {
            shard: Some((of, shard(&plan.name, of))),
            ..Failure::of("Claim", fate)
        };
        self.fail(Failure { left: Some(1), ..claims(Fate::Unanswered) }, Some(n));
        self.fail(claims(Fate::Hung), Some(n));
        let time = self.dice.time_below(2 * plan.period);
        self.fleet.run_for(2 * plan.period + time);
        self.replace_on(&member, &plan);
        member.failures.end();
    }

    /// Records of nodes that do not exist, with a heartbeat of a year.
    fn lie(&mut self) {
        let id = self.alive[0].member.id();
        let text = self.fleet.state(&format!("allora:node:{id}")).definition;
        let (before, after) = text.split_once("heartbeat=").unwrap();
        let after = after.split_once(' ').map_or("", |(_, after)| after);
        let definition = format!("{before}heartbeat=31536000000 {after}");
        for n in 0..25 {
            let name = format!("allora:node:ghost{n}");
            let definition = definition.as_str();
            let action = Action::Register { definition, version: 0, first: None };
            self.fleet.operate(&name, action).unwrap();
        }
    }

    /// Due records that no node here runs, more than fit in any page.
    fn strangers(&self, number: usize, kind: u64) {
        let names: Vec<_> = (0..number).map(|n| format!("stranger{n}")).collect();
        let due = self.fleet.now() - TimeDelta::seconds(2);
        let definition = match kind {
            0 => "@every 1h; at-least-once 30s; sparkle 3",
            1 => "@every 1h; at-least-once 30s; except calendar:none",
            _ => "every 1h",
        };
        let operations = names.iter().flat_map(|name| {
            if kind < 2 {
                let new = NewSchedule::new("kind", definition, Some(due.into()));
                return vec![Operation::new(name, Action::Create(new))];
            }
            let register = Action::Register { definition, version: 0, first: None };
            vec![Operation::new(name, register), Operation::new(name, Action::trigger("pulled"))]
        });
        let operations: Vec<_> = operations.collect();
        self.fleet.store_many(&operations);
    }

    /// Everything heals.
    fn calm(&mut self) {
        for n in 0..self.alive.len() {
            self.wake(n);
            self.alive[n].member.failures.end();
        }
        // What was triggered many times goes on for a while.
        for _ in 0..10 {
            let hog = self.fleet.find("hog").and_then(|state| state.head);
            if hog.is_some_and(|head| head.trigger.is_some()) {
                self.fleet.run_for(secs(20));
            }
        }
        while self.alive.len() < self.scene.nodes.min(2) {
            self.join(0);
        }
        if self.scene.has(Clock) {
            // The jobs wait for the time of the clock that was ahead, unless an operator says
            // otherwise.
            self.fleet.run_for(secs(130));
            let mut names = BTreeSet::new();
            for one in &self.alive {
                let health = one.member.handle.health();
                let waits = health.with("clock-was-ahead").chain(health.with("key-left"));
                names.extend(waits.filter_map(|one| one.condition.job().map(str::to_owned)));
            }
            // A node that starts later reports only their number.
            let far = self.fleet.now() + TimeDelta::hours(2);
            let waits = |plan: &&Plan| {
                let due_at = self.fleet.find(&plan.name).and_then(|state| state.due_at);
                due_at.is_some_and(|at| at > far)
            };
            names.extend(self.plans.iter().filter(waits).map(|plan| plan.name.clone()));
            names.iter().for_each(|name| self.fleet.reset(name));
        }
    }

    /// All nodes but one are stopped.
    fn leave_one(&mut self) {
        let n = self.dice.below(self.alive.len() as u64) as usize;
        let left = self.alive.swap_remove(n);
        self.alive.drain(..).for_each(|one| one.member.stop());
        self.alive.push(left);
        self.fleet.run_for(secs(40));
    }

    /// The conditions of the nodes, of which none has a cause any more.
    fn conditions(&self) -> Vec<String> {
        let all = self.alive.iter().flat_map(|one| one.member.conditions());
        // Strangers stay as they are, and so does a key that the run of a dead node holds by its lease.
        let is_held = |line: &str| {
            let key = line.split_once(" waits for the key ");
            key.is_some_and(|(_, key)| self.holds_rightly(&format!("allora:key:{key}")))
        };
        // The store has the definition of a build that was given up, until the others start again.
        let is_other_build = |line: &str| self.redefined && line.contains("definition-conflict");
        all.filter(|line| !line.contains("stranger") && !is_held(line) && !is_other_build(line))
            .collect()
    }

    /// `true` if a lease in this record is live, and not of a time that only a wrong clock had.
    fn holds_rightly(&self, name: &str) -> bool {
        let now = self.fleet.trace.now();
        let longest = now + TimeDelta::hours(1);
        let leases = self.fleet.find(name).map_or_else(Vec::new, |state| state.leases);
        leases.iter().any(|lease| (now..=longest).contains(&lease.until))
    }

    /// The jobs without a run for two periods, unless the run of a dead node has a lease.
    fn silent(&self) -> Vec<String> {
        let seen = self.fleet.trace.observations();
        let now = self.fleet.trace.now();
        let is_silent = |plan: &&Plan| {
            let since = now - TimeDelta::from_std(2 * plan.period + secs(10)).unwrap();
            let ran = seen
                .iter()
                .rev()
                .take_while(|one| one.at >= since)
                .any(|one| matches!(&one.seen, Seen::Began(run) if *run.job == *plan.name));
            let key = plan.key.map(|(key, _)| format!("allora:key:{key}"));
            !ran && !self.holds_rightly(&plan.name)
                && !key.is_some_and(|key| self.holds_rightly(&key))
        };
        let silent = self.plans.iter().filter(is_silent);
        silent.map(|plan| format!("{} does not run any more", plan.name)).collect()
    }

    /// The instants of the schedules that nothing accounts for.
    fn unaccounted(&self) -> Vec<String> {
        if self.scene.has(Clock) || self.redefined {
            return Vec::new();
        }
        let lines = self.plans.iter().flat_map(|plan| {
            let past = self.fleet.past(&plan.name);
            unaccounted(plan.period, &past, self.fleet.find(&plan.name).as_ref())
                .into_iter()
                .map(|line| format!("{}: {line}", plan.name))
        });
        lines.collect()
    }

    /// The nodes that say the same thing thousands of times.
    fn chatter(&self) -> Vec<String> {
        let number = |one: &Alive| {
            one.member
                .events
                .lock()
                .unwrap()
                .iter()
                .filter(|event| event.job().is_some_and(|job| job.starts_with("stranger")))
                .count()
        };
        let all = self.alive.iter().map(|one| (one.member.id(), number(one)));
        let many = all.filter(|(_, events)| *events > 1_000);
        many.map(|(id, events)| format!("{id}: {events} events about strangers")).collect()
    }

    /// `false` if the trouble of this world explains such a breach.
    fn is_due_to_nodes(&self, kind: Kind) -> bool {
        let is_lease = matches!(
            kind,
            Kind::LeaseLapsed | Kind::NoLease | Kind::LeftBehind | Kind::BegunTooLate
        );
        // Two pages of the other service's jobs are read each second.
        let is_storm =
            kind == Kind::Storm && (self.scene.poll < secs(1) || self.scene.has(OtherService));
        !(is_storm || is_lease && (self.scene.has_failures() || self.scene.has(Clock)))
    }
}
