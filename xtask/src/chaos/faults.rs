//! The faults of servers. Each waits until it has happened, and says what it was.

use super::{
    emptied, pause,
    scene::{Scene, has_clock},
};
use crate::{Failure, Outcome, services::Arena};
use fastrand::Rng;
use std::time::Duration;

/// The longest time that a server is away, and the shortest and longest for which it is frozen, in milliseconds.
const AWAY: u64 = 3_000;
const FROZEN: (u64, u64) = (1_000, 8_000);

/// The longest time of a failover.
const FAILOVER: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// SIGKILL, and a start after some time.
    Kill,
    /// SIGSTOP for some time.
    Freeze,
    /// An orderly stop, and a start after some time.
    Restart,
    /// SIGKILL for the primary, until its replica has its place.
    FailOver,
    /// No room on the disk of the data, for some time.
    Fill,
    /// The clock of the server goes ahead, and back.
    Clock,
    /// All records are removed; of a quorum, those of one server.
    Empty,
}

/// The times for which the clock of a server is ahead, in seconds.
const AHEAD: u64 = 7;

/// The time that a server has to notice that its disk is full.
const NOTICED: Duration = Duration::from_secs(15);

/// Words of servers whose disk is full.
const FULL: [&str; 5] =
    ["No space left", "no space left", "Errcode: 28", "Disk is full", "Short write while writing"];

impl Fault {
    /// Those of a store.
    pub(super) fn of(scene: &Scene, is_short: bool) -> Vec<Self> {
        let mut faults = match scene.store {
            "sqlite" => vec![],
            store if has_replicas(store) => vec![Self::FailOver],
            _ => vec![Self::Kill, Self::Freeze, Self::Restart],
        };
        if is_short {
            return faults;
        }
        // Some do not survive that: MariaDB 10.11 aborts in a rollback and comes back without some of its rows,
        // Redis leaves a file that it does not read again, and all servers of a cluster would have one full disk.
        let survives = ["sqlite", "postgres", "pgbouncer", "etcd"].contains(&scene.store);
        faults.extend(scene.disk().filter(|_| survives).map(|_| Self::Fill));
        faults.extend(has_clock(scene.store).then_some(Self::Clock));
        // A file is not emptied by anybody; with replicas, one of them may be asked.
        let is_emptied = scene.store != "sqlite" && !has_replicas(scene.store);
        faults.extend(is_emptied.then_some(Self::Empty));
        faults
    }

    /// Injects it, and says so to `mark` when it begins and ends.
    pub(super) fn inject(
        self,
        scene: &mut Scene,
        random: &mut Rng,
        mark: &mut dyn FnMut(&str),
    ) -> Outcome<String> {
        if self == Self::Fill {
            return fill(scene, mark);
        }
        let store = scene.store;
        let Some(arena) = &mut scene.arena else {
            return Err(Failure::Check(format!("{store} has no server")));
        };
        match self {
            Self::FailOver => return fail_over(store, arena, random, mark),
            Self::Clock => return step(store, arena, mark),
            Self::Empty if store == "redis-quorum" => return wipe(arena, random, mark),
            Self::Empty => {
                emptied::empty(store, arena)?;
                mark("the store was emptied");
                return Ok("emptied".into());
            }
            _ => {}
        }
        let servers = arena.len();
        let number = random.usize(..servers);
        let server = match servers {
            1 => "the server".to_owned(),
            _ => format!("server {} of {servers}", number + 1),
        };
        let away = Duration::from_millis(random.u64(..AWAY));
        match self {
            Self::Freeze => {
                let (least, most) = FROZEN;
                let long = Duration::from_millis(least + random.u64(..most - least));
                arena.freeze(number)?;
                mark(&format!("{server} is frozen for {long:?}"));
                pause(long);
                arena.thaw(number)?;
                return Ok("frozen".into());
            }
            Self::Restart => {
                mark(&format!("{server} is restarted, and away for {away:?}"));
                arena.stop(number)?;
            }
            _ => {
                arena.kill(number)?;
                mark(&format!("{server} is killed, and away for {away:?}"));
            }
        }
        pause(away);
        arena.restart(number)?;
        arena.wait()?;
        mark(&format!("{server} answers again"));
        Ok(if self == Self::Restart { "restarted" } else { "killed" }.into())
    }
}

/// Takes the room on the disk until a server has noticed, and gives it back.
fn fill(scene: &mut Scene, mark: &mut dyn FnMut(&str)) -> Outcome<String> {
    let count = |scene: &Scene| {
        let log = scene.log();
        FULL.iter().map(|words| log.matches(words).count()).sum::<usize>()
    };
    let before = count(scene);
    let disk = scene.disk().ok_or_else(|| Failure::Check("there is no disk to fill".into()))?;
    disk.fill()?;
    mark("the disk is full");
    // A file has no server that could say so.
    let patience = if scene.arena.is_some() { NOTICED } else { Duration::ZERO };
    let mut steps = patience.as_millis() / STEP.as_millis();
    let ended = |scene: &Scene| {
        scene
            .arena
            .as_ref()
            .is_some_and(|arena| (0..arena.len()).any(|one| arena.pid(one).is_none()))
    };
    while count(scene) == before && !ended(scene) && steps > 0 {
        pause(STEP);
        steps -= 1;
    }
    let is_noticed = steps > 0 || scene.arena.is_none();
    // Long enough that nodes meet it.
    pause(Duration::from_secs(2));
    disk.free()?;
    mark("the disk has room again");
    if let Some(arena) = &mut scene.arena {
        for number in 0..arena.len() {
            if arena.pid(number).is_none() {
                arena.restart(number)?;
            }
        }
        arena.wait()?;
    }
    Ok(if is_noticed { "disk full" } else { "disk full, not noticed" }.into())
}

/// Removes what one server of a quorum has, and waits until the others have filled it again.
fn wipe(arena: &Arena, random: &mut Rng, mark: &mut dyn FnMut(&str)) -> Outcome<String> {
    let number = random.usize(..arena.len());
    let asked = |words: &[&str]| emptied::asked(arena.port(number), words).trim().to_owned();
    let server = format!("server {} of {}", number + 1, arena.len());
    if asked(&["FLUSHALL"]) != "OK" {
        return Err(Failure::Check(format!("{server} did not lose its data")));
    }
    mark(&format!("{server} has lost its data"));
    let is_voter = || {
        let keys = asked(&["KEYS", "*:quorum"]);
        keys.lines().any(|key| asked(&["HEXISTS", key, "m:run"]) == "1")
    };
    for _ in 0..FAILOVER.as_millis() / STEP.as_millis() {
        if is_voter() {
            mark(&format!("{server} votes again"));
            return Ok("wiped".into());
        }
        pause(STEP);
    }
    Err(Failure::Check(format!("{server} was not filled again by the others")))
}

/// Sets the clock of the server ahead, and right again.
fn step(store: &str, arena: &Arena, mark: &mut dyn FnMut(&str)) -> Outcome<String> {
    let none = || Failure::Check(format!("{store} has no clock to set"));
    let clock = arena.clock.as_ref().ok_or_else(none)?;
    let ahead = || -> Outcome<i64> {
        let now = emptied::time(store, arena).ok_or_else(none)?;
        Ok(now - super::now())
    };
    clock.set(AHEAD)?;
    mark(&format!("the clock of the server is {AHEAD} s ahead"));
    if ahead()? < 3 {
        return Err(Failure::Check(format!("the clock of {store} was not set")));
    }
    pause(Duration::from_secs(4));
    clock.set(0)?;
    mark("the clock of the server is right again");
    match ahead()? < 3 {
        true => Ok("clock set".into()),
        false => Err(Failure::Check(format!("the clock of {store} was not set back"))),
    }
}

/// The time between two looks at a server.
const STEP: Duration = Duration::from_millis(100);

/// True if replicas take the place of primaries.
fn has_replicas(store: &str) -> bool {
    ["redis-sentinel", "redis-cluster-replicas"].contains(&store)
}

/// Kills a primary, waits until its replica has its place, and brings it back as the replica.
fn fail_over(
    store: &str,
    arena: &mut Arena,
    random: &mut Rng,
    mark: &mut dyn FnMut(&str),
) -> Outcome<String> {
    // Behind sentinels the first two are primary and replica; a cluster has as many replicas as primaries.
    let (servers, cluster) = match store {
        "redis-sentinel" => (2, None),
        _ => (arena.len(), Some(random.usize(..arena.len() / 2))),
    };
    let primary = |arena: &Arena| match cluster {
        None => primary_of_sentinels(arena),
        Some(range) => primary_of(range, arena),
    };
    let before = primary(arena).ok_or_else(|| Failure::Check("no server is a primary".into()))?;
    let number = (0..servers).find(|number| arena.port(*number) == before).unwrap_or(0);
    arena.kill(number)?;
    mark("a primary is killed");
    let mut left = FAILOVER.as_millis() / STEP.as_millis();
    let mut wait = |arena: &Arena, is_over: &dyn Fn(&Arena) -> bool, what: &str| {
        while !is_over(arena) {
            left -= 1;
            if left == 0 {
                return Err(Failure::Check(format!("{store}: {what}")));
            }
            pause(STEP);
        }
        Ok(())
    };
    let is_replaced = |arena: &Arena| primary(arena).is_some_and(|now| now != before);
    wait(arena, &is_replaced, "no replica takes the place of a primary that is gone")?;
    mark("its replica is the primary");
    arena.restart(number)?;
    // The others make it a replica.
    let follows = |arena: &Arena| {
        emptied::asked(arena.port(number), &["INFO", "replication"])
            .contains("master_link_status:up")
    };
    wait(arena, &follows, "a former primary becomes no replica")?;
    Ok("failed over".into())
}

/// The port of the primary, as a sentinel knows it.
fn primary_of_sentinels(arena: &Arena) -> Option<u16> {
    let words = ["SENTINEL", "get-master-addr-by-name", "allora"];
    emptied::asked(arena.port(2), &words).lines().nth(1)?.trim().parse().ok()
}

/// The port of the server that has the slots of this part of a cluster, as one of those that live says.
fn primary_of(range: usize, arena: &Arena) -> Option<u16> {
    let first = ["0-", "5461-", "10923-"][range];
    let living = (0..arena.len()).find(|number| arena.pid(*number).is_some())?;
    let nodes = emptied::asked(arena.port(living), &["CLUSTER", "NODES"]);
    let has_slots = |line: &&str| line.split(' ').skip(8).any(|slots| slots.starts_with(first));
    let line = nodes.lines().filter(|line| !line.contains("fail")).find(has_slots)?;
    let address = line.split(' ').nth(1)?.split('@').next()?;
    address.rsplit(':').next()?.parse().ok()
}
