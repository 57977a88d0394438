//! Takeovers: whatever the registry, the poll interval and the heartbeat say, an idle node starts what
//! nobody else has claimed within two seconds.

use crate::support::{Lab, Member, at, ms, secs};
use allora_core::{Condition, Event, backend::Action, every, time::since};
use std::time::Duration;

/// The nodes of which the registry has records that help nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Others {
    /// They die together.
    Dead,
    /// A run on each of them takes all of its capacity.
    Full,
    /// Records that no node has written, with a heartbeat of a year.
    Invented,
}

#[derive(Clone, Copy, Debug)]
struct World {
    others: Others,
    nodes: usize,
    healthy: usize,
    poll: Duration,
    heartbeat: Duration,
}

const PERIODS: [u64; 3] = [1, 10, 60];

impl World {
    fn member(&self, lab: &Lab, is_full: bool) -> Member {
        lab.start(|seat, builder| {
            let builder = builder.poll_interval(self.poll).heartbeat(self.heartbeat);
            let builder = builder.kind("mail", seat.handler(ms(0), |_| Ok(())));
            let add = |builder, (n, period): (usize, u64)| {
                let schedule = every(secs(period)).phase(Duration::ZERO);
                let spec = seat.job(schedule, ms(0));
                let spec = if n.is_multiple_of(2) { spec } else { spec.at_least_once(secs(30)) };
                allora_core::SchedulerBuilder::add(builder, format!("job-{n}-{period}"), spec)
            };
            let jobs = (0..4).flat_map(|n| PERIODS.map(|period| (n, period)));
            let builder = jobs.fold(builder, add);
            if !is_full {
                return builder;
            }
            let fill = seat.job(every(secs(1)), secs(1_000_000)).on_every_node();
            builder.concurrency(1).add("fill", fill)
        })
    }

    /// The longest and the median delay of the runs, after the others have become useless.
    fn play(self, seed: u64) -> (Duration, Duration) {
        let lab = Lab::new(seed);
        let healthy: Vec<Member> = (0..self.healthy).map(|_| self.member(&lab, false)).collect();
        let bad = self.nodes - self.healthy;
        let others: Vec<Member> = match self.others {
            Others::Invented => Vec::new(),
            others => (0..bad).map(|_| self.member(&lab, others == Others::Full)).collect(),
        };
        for n in 0..4 {
            let text = format!("@every {}s; at-least-once 30s", PERIODS[n % 3]);
            lab.store(&format!("stored-{n}"), "mail", &text);
        }
        lab.until(2.0);
        if self.others == Others::Invented {
            let text = lab.state(&format!("allora:node:{}", healthy[0].handle.node())).definition;
            let heartbeat = format!("heartbeat={}", self.heartbeat.as_millis());
            let year = text.replace(&heartbeat, "heartbeat=31536000000");
            assert_ne!(text, year);
            for n in 0..bad {
                let record = format!("allora:node:ghost-{n}");
                let register = Action::Register { definition: &year, version: 0, first: None };
                lab.operate(&record, register).unwrap();
            }
        }
        // After the second look at the registry.
        let start = self.heartbeat.as_secs_f64() * 2.2 + 5.5;
        lab.until(start);
        if self.others == Others::Dead {
            others.iter().for_each(|one| one.node.crash());
        }
        lab.until(start + 63.0);
        let runs = lab.log.entries().into_iter();
        let runs: Vec<_> = runs.filter(|run| run.at > at(start) && run.name != "fill").collect();
        let mut late: Vec<Duration> = runs.iter().map(|run| since(run.began, run.at)).collect();
        late.sort_unstable();
        let of = |period: u64| {
            runs.iter().filter(|run| run.name.ends_with(&format!("-{period}"))).count()
        };
        // Late runs of a job that is due each second may stand for two of its occurrences.
        assert!(of(1) >= 4 * 30 && of(10) >= 4 * 6 && of(60) >= 4, "{self:?}: {}", late.len());
        let longest = *late.last().unwrap();
        // Runs in their turn do not count.
        late.retain(|late| *late > ms(100));
        (late.get(late.len() / 2).copied().unwrap_or_default(), longest)
    }
}

fn worlds() -> Vec<World> {
    let mut worlds = Vec::new();
    for others in [Others::Dead, Others::Full, Others::Invented] {
        for (nodes, poll, heartbeat) in [
            (2, secs(3_600), secs(15)),
            (4, ms(100), secs(1)),
            (8, secs(3_600), secs(300)),
            (13, secs(5), secs(15)),
            (100, secs(3_600), secs(15)),
        ] {
            worlds.push(World { others, nodes, healthy: 1, poll, heartbeat });
        }
    }
    worlds
}

#[test]
#[expect(clippy::print_stdout, reason = "the table is a part of the result")]
fn one_healthy_node_starts_everything_within_two_seconds() {
    for (seed, world) in worlds().into_iter().enumerate() {
        let (median, longest) = world.play(seed as u64);
        println!("{world:?}: taken over after {median:?} at the median, {longest:?} at most");
        assert!(longest < secs(2), "{world:?}: {longest:?}");
    }
}

#[test]
#[expect(clippy::print_stdout, reason = "the table is a part of the result")]
fn while_half_of_the_nodes_are_healthy_takeovers_take_less_than_a_second_at_the_median() {
    for (seed, others) in [Others::Dead, Others::Full, Others::Invented].into_iter().enumerate() {
        let (nodes, poll, heartbeat) = (20, secs(3_600), secs(15));
        let world = World { others, nodes, healthy: 10, poll, heartbeat };
        let (median, longest) = world.play(seed as u64);
        println!("{world:?}: taken over after {median:?} at the median, {longest:?} at most");
        assert!(median < secs(1) && longest < secs(2), "{world:?}: {median:?}, {longest:?}");
    }
}

/// A node that ends as often as it starts leaves a dead record each time.
#[test]
fn the_records_of_a_crash_loop_delay_no_job_beyond_a_second_and_a_half() {
    let lab = Lab::new(9);
    let world =
        World { others: Others::Dead, nodes: 27, healthy: 2, poll: secs(60), heartbeat: secs(15) };
    let _healthy = [(); 2].map(|()| world.member(&lab, false));
    lab.until(60.0);
    for n in 0..60 {
        let crashes = world.member(&lab, false);
        lab.until(61.0 + 2.0 * f64::from(n));
        crashes.node.crash();
        lab.until(62.0 + 2.0 * f64::from(n));
    }
    lab.until(240.0);
    let late = lab.log.entries().iter().map(|run| since(run.began, run.at)).max().unwrap();
    assert!(late < secs(2), "{late:?}");
    let missed: u64 = (0..4).map(|n| lab.state(&format!("job-{n}-10")).counters.missed).sum();
    assert_eq!(missed, 0);
}

/// The first nodes are full at each occurrence.
#[test]
fn a_trigger_by_hand_starts_within_two_seconds_on_the_only_node_with_capacity() {
    let world = World {
        others: Others::Full,
        nodes: 8,
        healthy: 1,
        poll: secs(3_600),
        heartbeat: secs(15),
    };
    let lab = Lab::new(10);
    let _full: Vec<Member> = (0..7).map(|_| world.member(&lab, true)).collect();
    let healthy = world.member(&lab, false);
    lab.until(70.3);
    lab.sim.block_on(healthy.handle.trigger("job-0-60", "by-hand")).unwrap();
    lab.until(73.0);
    let runs = lab.log.of("job-0-60");
    let run = runs.iter().find(|run| run.trigger.is_some()).unwrap();
    assert!(since(run.began, at(70.3)) < secs(2), "{run:?}");
}

#[test]
fn a_record_with_a_heartbeat_of_a_year_counts_for_a_quarter_of_an_hour_at_most() {
    let world = World {
        others: Others::Invented,
        nodes: 2,
        healthy: 1,
        poll: secs(5),
        heartbeat: secs(15),
    };
    let lab = Lab::new(11);
    let node = world.member(&lab, false);
    lab.until(1.0);
    let definition = "seen=2026-01-01T00:00:00Z heartbeat=31536000000";
    let register = Action::Register { definition, version: 0, first: None };
    lab.operate("allora:node:ghost", register).unwrap();
    let is_live = || {
        let nodes = lab.sim.block_on(node.handle.nodes()).unwrap();
        nodes.iter().find(|one| one.node == "ghost").map(|one| one.is_live)
    };
    lab.until(800.0);
    assert_eq!(is_live(), Some(true));
    lab.until(920.0);
    assert_eq!(is_live(), Some(false));
    let is_dead = |event: &Event| matches!(event, Event::Began(Condition::NodeDead { .. }));
    lab.until(1_000.0);
    assert!(node.events().iter().any(is_dead));
}
