//! The order of the nodes for each job in code, and for the stored schedules of each instant, by
//! rendezvous hashing.
//!
//! Each node computes the same order from the registry. The first node of a job claims its occurrences,
//! the second and third check a moment later, and all others follow in the order of the instant. The
//! first node of an instant claims the stored schedules that are due then, and the others follow one
//! after the other, because queries at the same time would work through the same rows. Where no query
//! claims, the first node of each stored schedule claims it. Only speed depends on the order: two nodes
//! with different views both claim, and the fence decides.
//!
//! Each pair of a node and a job has a weight, and the nodes of a job are ordered by it (D. Thaler and
//! C. Ravishankar, "Using name-based mappings to increase hit rates", 1998). A node that joins or
//! leaves moves only its own share of the jobs.

use super::{Fleet, NodeInfo, name_hash};
use crate::time::{Time, saturating_add};
use allora_schedule::stable_hash;
use std::{collections::BTreeSet, time::Duration};

/// The time within which a node that starts has written its record, while it stores its definitions.
const STARTS: Duration = Duration::from_secs(5);

/// The orders of the nodes that can take this node's work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rankings {
    /// Among the nodes that have the same jobs in code.
    pub(crate) jobs: Ranking,
    /// Among the nodes that run the same kinds of stored schedules.
    pub(crate) kinds: Ranking,
    /// The jobs in code that other live nodes can run; `None` if the registry is not known.
    pub(crate) others: Option<OtherBuilds>,
}

/// The jobs in code that other live nodes have, and whose stored definitions their builds can run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct OtherBuilds {
    /// The time at which their records were read.
    read_at: Time,
    names: BTreeSet<u32>,
    /// One of them has more jobs than its record has names.
    have_more: bool,
}

impl OtherBuilds {
    /// `true` if one of them may run this job by a definition that was stored at `defined_at`. A node
    /// whose record was not read since then may be the one that has stored it.
    pub(crate) fn may_run(&self, name: &str, defined_at: Time) -> bool {
        self.have_more
            || self.names.contains(&name_hash(name))
            || self.read_at < saturating_add(defined_at, STARTS)
    }
}

impl Rankings {
    /// The orders among the live nodes, for the node with this information about itself. The records
    /// were read at `now`.
    pub(crate) fn of(fleet: &Fleet, own: &NodeInfo, now: Time) -> Self {
        // A node with other jobs or kinds may lack one, and would only delay it.
        let has_jobs = |node: &&NodeInfo| (node.jobs, node.jobs_hash) == (own.jobs, own.jobs_hash);
        let has_kinds = |node: &&NodeInfo| (&node.kinds, &node.labels) == (&own.kinds, &own.labels);
        // Where kinds change, the records are behind, and a node would wait for one without the kind.
        let stay = |node: &&NodeInfo| !(own.kinds_change || node.kinds_change);
        let jobs = fleet.live().filter(has_jobs).map(|node| &*node.node);
        let kinds = fleet.live().filter(has_kinds).filter(stay).map(|node| &*node.node);
        let mut others = OtherBuilds { read_at: now, ..OtherBuilds::default() };
        for node in fleet.live().filter(|node| node.node != own.node) {
            others.have_more |= node.job_names.is_none() && node.jobs > 0;
            let runs = |name: &&u32| !node.left_jobs.contains(name);
            others.names.extend(node.job_names.iter().flatten().filter(runs));
        }
        let (jobs, kinds) = (Ranking::new(&own.node, jobs), Ranking::new(&own.node, kinds));
        Self { jobs, kinds, others: Some(others) }
    }
}

/// This node among others that have the same work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ranking {
    own: u64,
    /// The hashes of the other nodes, in order.
    others: Vec<u64>,
}

impl Ranking {
    /// The order among these nodes, of which `own` is always one.
    pub(crate) fn new<'a>(own: &str, nodes: impl IntoIterator<Item = &'a str>) -> Self {
        let others = nodes.into_iter().filter(|node| *node != own);
        let mut others: Vec<u64> = others.map(hash).collect();
        others.sort_unstable();
        Self { own: hash(own), others }
    }

    /// `true` if this node knows no other.
    pub(crate) fn is_alone(&self) -> bool {
        self.others.is_empty()
    }

    /// The number of nodes, with this one.
    pub(crate) fn nodes(&self) -> usize {
        self.others.len() + 1
    }

    /// The number of nodes that come before this one for a job: 0 if it is the first or knows no
    /// other.
    pub(crate) fn rank(&self, name: &str) -> usize {
        if self.is_alone() { 0 } else { self.rank_of(hash(name)) }
    }

    /// The same for what is due at an instant.
    pub(crate) fn rank_at(&self, due_at: Time) -> usize {
        let instant = || stable_hash(&[&due_at.timestamp_millis().to_be_bytes()]);
        if self.is_alone() { 0 } else { self.rank_of(instant()) }
    }

    fn rank_of(&self, work: u64) -> usize {
        let own = (weight(self.own, work), self.own);
        self.others.iter().filter(|other| (weight(**other, work), **other) > own).count()
    }
}

fn hash(text: &str) -> u64 {
    stable_hash(&[text.as_bytes()])
}

/// The weight of a node for a job or an instant: the finaliser of SplitMix64 (G. Steele, D. Lea and
/// C. Flood, "Fast splittable pseudorandom number generators", 2014) over both hashes.
fn weight(node: u64, work: u64) -> u64 {
    let mixed = node ^ work.rotate_left(32);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const JOBS: usize = 10_000;

    fn nodes(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("node-{n:032x}")).collect()
    }

    fn rankings(nodes: &[String]) -> Vec<Ranking> {
        let all = || nodes.iter().map(String::as_str);
        nodes.iter().map(|own| Ranking::new(own, all())).collect()
    }

    /// The place of the first node of each job.
    fn firsts(nodes: &[String]) -> Vec<usize> {
        let rankings = rankings(nodes);
        let first = |n: usize| {
            let name = format!("job-{n}");
            rankings.iter().position(|ranking| ranking.rank(&name) == 0).unwrap()
        };
        (0..JOBS).map(first).collect()
    }

    #[test]
    fn each_node_of_a_job_has_another_rank() {
        let rankings = rankings(&nodes(7));
        for n in 0..100 {
            let name = format!("job-{n}");
            let ranks: BTreeSet<usize> = rankings.iter().map(|one| one.rank(&name)).collect();
            assert_eq!(ranks, (0..7).collect(), "{name}");
        }
    }

    #[test]
    fn each_rank_is_spread_evenly() {
        for count in [2, 3, 10, 100] {
            let ranking = &rankings(&nodes(count))[count / 2];
            let mut jobs = vec![0; count];
            (0..JOBS).for_each(|n| jobs[ranking.rank(&format!("job-{n}"))] += 1);
            let fair = JOBS / count;
            for (rank, jobs) in jobs.iter().enumerate() {
                // Six standard deviations.
                let off = 6.0 * (fair as f64).sqrt();
                assert!((*jobs as f64 - fair as f64).abs() < off, "rank {rank} of {count}: {jobs}");
            }
        }
    }

    #[test]
    fn a_node_that_leaves_or_joins_moves_its_own_share_only() {
        let all = nodes(10);
        let before = firsts(&all);
        let after = firsts(&all[..9]);
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
        assert!(moved.clone().all(|(before, _)| *before == 9), "a job of another node has moved");
        let moved = moved.count();
        assert!((JOBS / 20..JOBS / 5).contains(&moved), "{moved} jobs have moved");
        let heirs: BTreeSet<usize> =
            before.iter().zip(&after).filter(|(was, _)| **was == 9).map(|(_, is)| *is).collect();
        assert_eq!(heirs, (0..9).collect(), "every other node inherits");
    }

    #[test]
    fn a_node_that_knows_no_other_is_the_first_for_every_job() {
        let alone = [Ranking::default(), Ranking::new("a", []), Ranking::new("a", ["a"])];
        for ranking in alone {
            assert_eq!(ranking.rank("job"), 0);
        }
    }
}
