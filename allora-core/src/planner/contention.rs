//! The number of due occurrences that a node claims at once, and the offset at which it begins.
//!
//! If several nodes claim the same occurrences at the same time, the first one gets all of them,
//! and the claims of the others fail. So each node has an order of its own for the occurrences that
//! are due in the same second. If its claims fail nevertheless, it sends fewer at once, and begins
//! at an offset of its own. It halves the number while other nodes interfere, and doubles it when
//! they do not.

use super::{
    congestion_window::BATCH,
    wake_up::{WakeUp, When},
};

/// The smallest number of claims at once, however many nodes interfere: each round trip has a cost.
const LEAST: usize = 125;

/// The smallest number of replies from which interference is measured.
const SAMPLE: usize = 16;

pub(super) struct Contention {
    size: usize,
    won: usize,
    lost: usize,
}

impl Default for Contention {
    fn default() -> Self {
        Self { size: BATCH, won: 0, lost: 0 }
    }
}

impl Contention {
    /// Records the result of a claim.
    pub(super) fn record(&mut self, is_won: bool) {
        *(if is_won { &mut self.won } else { &mut self.lost }) += 1;
    }

    /// The number of claims to send now, with capacity for `room`.
    pub(super) fn size(&mut self, room: usize) -> usize {
        let answers = self.won + self.lost;
        if answers >= SAMPLE {
            if self.lost * 4 > answers {
                self.size = (self.size / 2).max(LEAST);
            } else if self.lost * 16 < answers {
                self.size = (self.size * 2).min(BATCH);
            }
            (self.won, self.lost) = (0, 0);
        }
        self.size.min(room)
    }

    /// `true` if other nodes claim the same occurrences.
    pub(super) fn is_losing(&self) -> bool {
        self.size < BATCH
    }

    /// The number of due occurrences among which `size` are chosen.
    pub(super) fn choice(&self, size: usize) -> usize {
        if self.is_losing() { BATCH } else { size }
    }

    /// Sorts due occurrences into this node's order of those of each second: on a full node, those of
    /// an earlier second never wait for later ones.
    pub(super) fn order(&self, due: &mut [WakeUp]) {
        if self.is_losing() {
            let second = |at: When| match at {
                When::Next => None,
                When::At(at) => Some(at.timestamp()),
            };
            due.sort_unstable_by_key(|(at, rank, _)| (second(*at), *rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Run,
        backend::Reply,
        cron, job,
        planner::{Planner, Request, reply::Answer, tests::config},
        record::{HistoryBuffer, OpContext, Record, apply},
        time::{Time, from_millis},
    };
    use std::{collections::BTreeMap, time::Duration};

    const JOBS: usize = 3_000;

    /// Nodes that send at the same time. Each decides on its own replies only.
    struct Fleet {
        nodes: Vec<(String, Planner)>,
        records: BTreeMap<String, Option<Record>>,
        /// The number of claims that each node won, and the number that failed in all.
        won: Vec<usize>,
        lost: usize,
    }

    impl Fleet {
        fn of(nodes: u128) -> Self {
            let node = |seed: u128| {
                let mut planner = Planner::new(config(seed << 64 | seed, Duration::from_secs(5)));
                for i in 0..JOBS {
                    let minutely = job(cron("* * * * *").unwrap(), async |_: Run| {});
                    planner.add(format!("job-{i}").into(), minutely).unwrap();
                }
                (format!("node-{seed}"), planner)
            };
            let nodes: Vec<_> = (1..=nodes).map(node).collect();
            let won = vec![0; nodes.len()];
            let records = (0..JOBS).map(|i| (format!("job-{i}"), None)).collect();
            Self { nodes, records, won, lost: 0 }
        }

        fn at(&mut self, now: Time) {
            let mut events = Vec::new();
            loop {
                let turns = self.nodes.iter_mut();
                let turns = turns.map(|(_, node)| node.ticked(now, 10_000, &mut events).requests);
                let turns: Vec<Vec<Request>> = turns.collect();
                if turns.iter().all(Vec::is_empty) {
                    return;
                }
                for (i, requests) in turns.into_iter().enumerate() {
                    let (id, node) = &mut self.nodes[i];
                    for request in requests {
                        let record = self.records.get_mut(&*request.name).unwrap();
                        let at = OpContext::new(id, now);
                        let reply =
                            apply(record, &request.operation(), at, &mut HistoryBuffer::off());
                        let reply = reply.unwrap();
                        match &reply {
                            Reply::Claimed(_) => self.won[i] += 1,
                            _ => self.lost += usize::from(request.is_claim()),
                        }
                        node.replied(request, Answer::new(reply, now), &mut events);
                    }
                }
            }
        }
    }

    #[test]
    fn nodes_share_what_is_due_at_one_instant() {
        let mut fleet = Fleet::of(3);
        let start = 1_767_225_600_000;
        for minute in 0..4 {
            fleet.at(from_millis(start + minute * 60_000).unwrap());
            if minute == 1 {
                // By now each node has detected the others.
                (fleet.won, fleet.lost) = (vec![0; 3], 0);
            }
        }
        assert_eq!(fleet.won.iter().sum::<usize>(), 2 * JOBS, "each occurrence, once");
        let fair = 2 * JOBS / 3;
        let all_share = fleet.won.iter().all(|won| (fair / 2..fair * 2).contains(won));
        assert!(all_share, "{:?} won, {} lost", fleet.won, fleet.lost);
    }

    fn replies(share: &mut Contention, won: usize, lost: usize) -> usize {
        (0..won).for_each(|_| share.record(true));
        (0..lost).for_each(|_| share.record(false));
        share.size(usize::MAX)
    }

    #[test]
    fn who_loses_asks_for_less_and_who_wins_for_more() {
        let mut share = Contention::default();
        assert_eq!(replies(&mut share, 1_000, 0), BATCH);
        assert_eq!(share.choice(BATCH), BATCH);
        assert_eq!(replies(&mut share, 700, 300), 500);
        assert_eq!(share.choice(500), BATCH, "it chooses among more than it claims");
        assert_eq!(replies(&mut share, 100, 400), 250);
        assert_eq!(replies(&mut share, 200, 50), 250, "a few failures do not matter");
        assert_eq!(replies(&mut share, 0, 3), 250, "three failures do not matter");
        for _ in 0..9 {
            replies(&mut share, 0, 100);
        }
        assert_eq!(share.size(usize::MAX), LEAST);
        assert_eq!(share.size(7), 7, "never more than the capacity");
        for size in [250, 500, 1_000, 1_000] {
            assert_eq!(replies(&mut share, 100, 0), size);
        }
    }
}
