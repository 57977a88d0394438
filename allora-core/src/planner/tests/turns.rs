//! The turns of the nodes that have the same job.

use super::*;
use crate::registry::{Ranking, Rankings};
use std::collections::BTreeMap;

/// Every minute, on the node of this rank among ten, which has just seen the others.
fn ranked(rank: usize) -> OneJob {
    let mut job = OneJob::new(minutely()).at(0.0);
    job.planner.turns.set_rankings(ranking(rank, 10));
    job.asked = 0;
    job
}

fn ranking(rank: usize, nodes: usize) -> Rankings {
    let nodes: Vec<String> = (0..nodes).map(|n| format!("node-{n}")).collect();
    let mut rankings = nodes.iter().map(|own| Ranking::new(own, nodes.iter().map(String::as_str)));
    let jobs = rankings.find(|ranking| ranking.rank("job") == rank).unwrap();
    Rankings { jobs, ..Rankings::default() }
}

/// Another node runs what is due.
fn other_node(job: &mut OneJob, time: f64) {
    let mut other = OneJob::found(minutely(), job.record.take()).at(time - 1.0).at(time);
    assert_eq!(other.ran, [time]);
    job.record = other.record.take();
}

#[test]
fn the_first_node_claims_at_the_due_time() {
    ranked(0).at(60.0).expect(&[60.], &[], 120.);
}

#[test]
fn a_later_node_reads_in_its_turn_and_claims_what_is_still_due() {
    for (rank, turn) in [(1, 0.02), (2, 0.04)] {
        let job = ranked(rank).at(60.0).at(60.0 + turn - 0.001);
        assert_eq!((job.asked, job.ran.len()), (0, 0), "rank {rank}");
        let job = job.at(60.0 + turn);
        assert_eq!(job.asked, 2, "rank {rank}: a read and a claim");
        job.expect(&[60.], &[], 120.);
    }
}

#[test]
fn a_later_node_reads_what_another_has_run_and_claims_nothing() {
    for (rank, turn) in [(1, 0.02), (2, 0.04)] {
        let mut job = ranked(rank);
        other_node(&mut job, 60.0);
        let job = job.at(60.0).at(60.0 + turn).at(119.0);
        assert_eq!(job.asked, 1, "rank {rank}");
        job.at(120.0 + turn).expect(&[120.], &[], 180.);
    }
}

/// Two jobs, each due every minute: this node is the first one for `own`, and the second for `others`.
struct TwoJobs {
    planner: Planner,
    own: String,
    others: String,
    records: BTreeMap<String, Option<Record>>,
}

impl TwoJobs {
    fn new() -> Self {
        let jobs = Self::rankings().jobs;
        let of_rank = |rank: usize| {
            (0..).map(|n| format!("job-{n}")).find(|name| jobs.rank(name) == rank).unwrap()
        };
        let (own, others) = (of_rank(0), of_rank(1));
        let planner = Planner::new(config(1, secs(5)));
        let mut two = Self { planner, own, others, records: BTreeMap::new() };
        for name in [&two.own, &two.others] {
            two.planner.add(name.as_str().into(), minutely()).unwrap();
            two.records.insert(name.clone(), None);
        }
        for (_, request, reply) in two.sent(0.0) {
            two.answer(request, Answer::new(reply, at(0.0)));
        }
        two.planner.turns.set_rankings(Self::rankings());
        two
    }

    fn rankings() -> Rankings {
        Rankings { jobs: Ranking::new("me", ["me", "one", "two"]), ..Rankings::default() }
    }

    /// The requests of a tick, which the store decides at once.
    fn sent(&mut self, now: f64) -> Vec<(String, Request, Reply)> {
        let requests = self.planner.ticked(at(now), 10, &mut Vec::new()).requests.into_iter();
        let decided = requests.map(|request| {
            let context = OpContext::new("me", at(now));
            let record = self.records.get_mut(&*request.name).unwrap();
            let reply = apply(record, &request.operation(), context, &mut HistoryBuffer::off());
            (request.name.to_string(), request, reply.unwrap())
        });
        decided.collect()
    }

    /// The jobs of these requests.
    fn asked(&mut self, now: f64) -> Vec<String> {
        self.sent(now).into_iter().map(|(name, ..)| name).collect()
    }

    fn answer(&mut self, request: Request, answer: Answer) -> Option<Start> {
        self.planner.replied(request, answer, &mut Vec::new())
    }
}

/// The first node has as many claims, and they take as long.
#[test]
fn a_later_node_checks_nothing_while_the_store_is_slow_with_its_own_claims() {
    let mut two = TwoJobs::new();
    let (name, request, reply) = two.sent(60.0).pop().unwrap();
    assert_eq!(name, two.own);
    for now in [60.02, 60.04, 60.079] {
        assert_eq!(two.asked(now), [] as [String; 0], "{now}");
    }
    // The store decided at once, and the reply came late.
    let answer = Answer::new(reply, at(60.0)).came_at(at(60.079));
    assert!(two.answer(request, answer).is_some());
    for now in [60.08, 60.157] {
        assert_eq!(two.asked(now), [] as [String; 0], "{now}");
    }
    assert_eq!(two.asked(60.158), [two.others.clone()]);
}

#[test]
fn a_claim_whose_reply_came_or_was_lost_keeps_no_later_node_waiting() {
    for is_lost in [false, true] {
        let mut two = TwoJobs::new();
        let (_, request, reply) = two.sent(60.0).pop().unwrap();
        // Meanwhile this node is not the first one any more.
        let nodes: Vec<String> = (0..30).map(|n| format!("node-{n}")).collect();
        let jobs = Ranking::new("me", nodes.iter().map(String::as_str));
        assert!(jobs.rank(&two.own) > 0);
        two.planner.turns.set_rankings(Rankings { jobs, ..Rankings::default() });
        match is_lost {
            true => two.planner.lost(vec![request], at(60.001), &mut Vec::new()),
            false => drop(two.answer(request, Answer::new(reply, at(60.001)))),
        }
        two.planner.turns.set_rankings(TwoJobs::rankings());
        let asked: Vec<String> = [60.02, 60.021].iter().flat_map(|now| two.asked(*now)).collect();
        assert!(asked.contains(&two.others), "lost: {is_lost}, asked: {asked:?}");
    }
}

#[test]
fn a_node_that_becomes_the_first_claims_at_once_what_is_due() {
    let mut job = ranked(5).at(60.0);
    job.planner.turns.set_rankings(ranking(0, 1));
    job.at(61.0).expect(&[60.], &[], 120.);
}

#[test]
fn a_turn_misses_no_occurrence_that_may_be_late_only_a_little() {
    let narrow = || minutely().window(Duration::from_millis(10));
    let mut job = OneJob::new(narrow()).at(0.0);
    job.planner.turns.set_rankings(ranking(7, 10));
    job.at(60.0).at(60.005).expect(&[60.], &[], 120.);
}

#[test]
fn a_node_waits_behind_an_expired_lease_of_a_job_for_which_it_is_not_the_first() {
    let leased = || minutely().at_least_once(secs(62));
    let mut first = OneJob::new(leased()).held().at(0.0).at(60.0);
    let mut job = OneJob::found(leased(), first.record.take());
    job.planner.turns.set_rankings(ranking(3, 10));
    // The lease ends at 122. Its turn is half a second later, and its check within a second after that.
    let job = job.at(61.0).at(122.0).at(122.49);
    assert!(job.ran.is_empty());
    job.at(122.5).at(123.5).expect(&[60., 120.], &[], 180.);
}
