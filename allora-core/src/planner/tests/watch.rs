//! Takeovers: whatever the registry says, a healthy node claims what nobody else has claimed.

use super::*;
use crate::{
    name::MARK,
    registry::{Ranking, Rankings},
};
use std::collections::BTreeMap;

/// A node of which the store's registry has a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Healthy,
    /// It has no capacity.
    Full,
    /// It died, or never was.
    Dead,
}

/// Planners over common records. Each request is answered at once.
struct Fleet {
    nodes: Vec<(String, Planner, State)>,
    records: BTreeMap<String, Option<Record>>,
    now: Time,
    /// The lateness of each start since the last call of `take_late`, in milliseconds.
    late: Vec<i64>,
    /// The operations on jobs, and on marks.
    operations: usize,
    marks: usize,
}

impl Fleet {
    /// So many nodes, of which this says the state, with jobs of these names.
    fn new(nodes: usize, jobs: usize, spec: impl Fn(usize) -> JobSpec) -> Self {
        let names: Vec<String> = (0..nodes).map(|n| format!("node-{n:032x}")).collect();
        let node = |own: &String| {
            let seed = u128::from(allora_schedule::stable_hash(&[own.as_bytes()]));
            let mut planner = Planner::new(config(seed << 64 | seed, secs(3_600)));
            for n in 0..jobs {
                planner.add(format!("job-{n}").into(), spec(n)).unwrap();
            }
            let jobs = Ranking::new(own, names.iter().map(String::as_str));
            planner.turns.set_rankings(Rankings { jobs, ..Rankings::default() });
            (own.clone(), planner, State::Healthy)
        };
        let nodes = names.iter().map(node).collect();
        let records = BTreeMap::new();
        let now = at(0.0);
        let mut fleet = Self { nodes, records, now, late: Vec::new(), operations: 0, marks: 0 };
        fleet.until(0.001);
        fleet
    }

    fn set(&mut self, state: impl Fn(usize) -> State) {
        self.nodes.iter_mut().enumerate().for_each(|(n, node)| node.2 = state(n));
    }

    /// Answers what this node asks now. Returns the time of its next tick.
    fn turn(&mut self, n: usize) -> Option<Time> {
        let now = self.now;
        loop {
            let (id, planner, state) = &mut self.nodes[n];
            let room = match state {
                State::Healthy => 1_000,
                State::Full => 0,
                State::Dead => return None,
            };
            let tick = planner.ticked(now, room, &mut Vec::new());
            if tick.requests.is_empty() {
                match tick.wake_at {
                    Some(wake_at) if wake_at <= now => continue,
                    wake_at => return wake_at,
                }
            }
            for request in tick.requests {
                let operation = request.operation();
                let is_mark = operation.name.starts_with(MARK);
                *(if is_mark { &mut self.marks } else { &mut self.operations }) += 1;
                let record = self.records.entry(operation.name.to_owned()).or_default();
                let context = OpContext::new(id, now);
                let reply = apply(record, &operation, context, &mut HistoryBuffer::off()).unwrap();
                let answer = Answer::new(reply, now);
                let Some(start) = planner.replied(request, answer, &mut Vec::new()) else {
                    continue;
                };
                self.late.push(start.late.as_millis() as i64);
                let (fence, then) = (start.claimed.fence, start.then);
                let completion = Completion::Succeeded;
                let end = Operation::new(&start.name, Action::Complete { fence, then, completion });
                let record = self.records.entry(start.name.to_string()).or_default();
                let reply = apply(record, &end, context, &mut HistoryBuffer::off()).unwrap();
                let update = RunUpdate {
                    slot: start.slot,
                    name: start.name.clone(),
                    fence,
                    scheduled_at: start.claimed.occurrence.scheduled_at,
                    completed: Some(then),
                    window: None,
                    reply,
                };
                planner.on_run_update(&update);
            }
        }
    }

    /// Runs until so many seconds after the start.
    fn until(&mut self, seconds: f64) {
        let end = at(seconds);
        loop {
            let wake_at = (0..self.nodes.len()).filter_map(|n| self.turn(n)).min();
            match wake_at {
                Some(wake_at) if wake_at < end => self.now = wake_at.max(self.now),
                _ => break,
            }
        }
        self.now = end;
    }

    /// The median and the highest lateness of the starts since the last call.
    fn take_late(&mut self) -> (usize, i64, i64) {
        let mut late = std::mem::take(&mut self.late);
        late.sort_unstable();
        let max = late.last().copied().unwrap_or_default();
        (late.len(), late.get(late.len() / 2).copied().unwrap_or_default(), max)
    }
}

/// Jobs of these periods, in turn.
fn periodic(periods: &'static [u64]) -> impl Fn(usize) -> JobSpec {
    move |n| of(every(secs(periods[n % periods.len()])))
}

#[test]
fn one_healthy_node_starts_everything_within_two_seconds_whatever_the_others_are() {
    for nodes in [2, 3, 4, 5, 8, 12, 30, 100] {
        for (n, other) in [State::Dead, State::Full].into_iter().enumerate() {
            let mut fleet = Fleet::new(nodes, 12, periodic(&[1, 10, 60]));
            fleet.until(65.5);
            let (_, _, max) = fleet.take_late();
            assert!(max <= 40, "{nodes} nodes: {max}");
            let healthy = (n * 7 + 1) % nodes;
            fleet.set(|n| if n == healthy { State::Healthy } else { other });
            fleet.until(125.5);
            let (runs, _, max) = fleet.take_late();
            assert!(max < 2_000, "{nodes} nodes, {other:?}: {max} ms late");
            // Four jobs each second, ten seconds and minute. A late run may stand for two occurrences.
            assert!(runs >= 4 * 29 + 4 * 6 + 4, "{nodes} nodes, {other:?}: {runs} runs");
        }
    }
}

#[test]
fn while_half_of_the_nodes_are_healthy_what_is_left_starts_within_a_second_at_the_median() {
    for nodes in [6, 10, 30, 100] {
        let mut fleet = Fleet::new(nodes, 100, periodic(&[10]));
        fleet.until(35.0);
        fleet.take_late();
        fleet.set(|n| if n % 2 == 0 { State::Healthy } else { State::Dead });
        fleet.until(185.0);
        fleet.late.retain(|late| *late > 40);
        let (runs, median, max) = fleet.take_late();
        assert!(runs > 20, "{nodes} nodes: {runs}");
        assert!(median < 1_000 && max < 2_000, "{nodes} nodes: {median} ms, at most {max} ms");
    }
}

#[test]
fn a_backlog_is_started_by_one_healthy_node_at_once() {
    for nodes in [8, 100] {
        let mut fleet = Fleet::new(nodes, 300, periodic(&[60]));
        fleet.until(70.0);
        fleet.set(|_| State::Dead);
        fleet.until(250.0);
        fleet.take_late();
        fleet.set(|n| if n == 5 { State::Healthy } else { State::Dead });
        fleet.until(252.0);
        assert_eq!(fleet.take_late().0, 300, "{nodes} nodes");
    }
}

/// The first nodes are full at each occurrence, and free again before the next one.
#[test]
fn a_job_whose_first_nodes_are_full_at_each_occurrence_is_late_by_a_second_and_a_half_at_most() {
    let mut fleet = Fleet::new(8, 1, periodic(&[3_600]));
    for hour in 1..20 {
        let instant = f64::from(hour) * 3_600.0;
        fleet.until(instant - 1.0);
        fleet.set(|n| if n == 7 { State::Healthy } else { State::Full });
        fleet.until(instant + 60.0);
        fleet.set(|_| State::Healthy);
        let (runs, _, max) = fleet.take_late();
        assert!(runs == 1 && max <= 1_500, "hour {hour}: {runs} runs, {max} ms late");
    }
}

#[test]
fn the_work_for_an_occurrence_does_not_grow_with_the_nodes() {
    for nodes in [10, 30, 100] {
        let mut fleet = Fleet::new(nodes, 300, periodic(&[60]));
        fleet.until(90.0);
        (fleet.operations, fleet.marks) = (0, 0);
        fleet.take_late();
        fleet.until(390.0);
        let (runs, _, max) = fleet.take_late();
        assert!(runs == 1_500 && max <= 20, "{nodes} nodes: {runs} runs, {max} ms late");
        // Claims, reads by the second and the third node, and those of the one that checks.
        let each = fleet.operations as f64 / runs as f64;
        assert!(each < 4.5, "{nodes} nodes: {each} operations");
        let marks = fleet.marks as f64 / 5.0;
        assert!(marks <= 1.05 * nodes as f64 + 2.0, "{nodes} nodes: {marks} for each instant");
    }
}

/// A hundred nodes, and one job each second.
#[test]
fn a_sparse_fleet_reads_one_small_record_for_each_node_and_second_at_most() {
    let mut fleet = Fleet::new(100, 1, periodic(&[1]));
    fleet.until(10.0);
    (fleet.operations, fleet.marks) = (0, 0);
    fleet.until(70.0);
    let (operations, marks) = (fleet.operations as f64 / 60.0, fleet.marks as f64 / 60.0);
    assert!(operations <= 6.0 && marks <= 102.0, "{operations} operations and {marks} on marks");
}

/// The node that runs the occurrence dies, and so does the one that has checked it.
#[test]
fn an_expired_lease_is_found_by_nodes_that_did_not_read_it() {
    let leased = |_| of(every(secs(3_600))).at_least_once(secs(30));
    for seed in 0..8 {
        let mut fleet = Fleet::new(8, 1, leased);
        fleet.until(3_599.0);
        fleet.take_late();
        // A node claims it, and dies during its run.
        let dead = "dead";
        let record = fleet.records.get_mut("job-0").unwrap();
        let (fence, cursor) = record.as_ref().map(|one| (one.fence, one.cursor)).unwrap();
        let expected = cursor.unwrap().scheduled_at.into();
        let claim = Claim::at_least_once(7, fence, expected, secs(30));
        let claim = Operation::new("job-0", Action::Claim(claim));
        let context = OpContext::new(dead, at(3_600.0));
        let reply = apply(record, &claim, context, &mut HistoryBuffer::off()).unwrap();
        assert!(matches!(reply, Reply::Claimed(_)));
        fleet.until(3_610.0);
        fleet.set(|n| if n == seed { State::Healthy } else { State::Dead });
        fleet.until(3_700.0);
        let (runs, ..) = fleet.take_late();
        assert_eq!(runs, 1, "node {seed}");
        let started = fleet.records["job-0"].as_ref().unwrap().fence;
        let late = started - at(3_630.0).timestamp_micros();
        assert!((0..1_600_000).contains(&late), "node {seed}: {late} µs after the end");
    }
}

#[test]
fn a_mark_of_another_view_or_of_the_future_is_not_believed() {
    let texts = ["until=1767312000000 view=0000000000000000", "until=9999999999999 view=0", "x"];
    for text in texts {
        let mut fleet = Fleet::new(30, 20, periodic(&[10]));
        fleet.until(35.0);
        fleet.take_late();
        fleet.set(|n| if n == 3 { State::Healthy } else { State::Dead });
        for second in 36..90 {
            let marks = fleet.records.iter_mut().filter(|(name, _)| name.starts_with(MARK));
            marks.for_each(|(_, record)| record.as_mut().unwrap().definition = text.into());
            fleet.until(f64::from(second));
        }
        let (runs, _, max) = fleet.take_late();
        assert!(runs == 100 && max < 2_000, "{text}: {runs} runs, {max} ms late");
    }
}
