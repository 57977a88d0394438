//! How much of what is due a node asks for at once, and where it begins.
//!
//! Of nodes that ask for the same at the same time, the first one would win all of it, and the others
//! would have asked in vain. So each begins at a place of its own among what is due at one instant;
//! and who loses asks for less at once, and begins at a place of its own among all that is due, until
//! it loses nothing: halved when others are in the way, doubled when nobody is, as a sender on a
//! shared line does (V. Jacobson, "Congestion Avoidance and Control", 1988).

use super::WakeUp;

/// How many plans one request carries at most.
pub(super) const BATCH: usize = 1_000;

/// However many others there are, so much is asked for at once: a round trip has its price, too.
const LEAST: usize = 125;

/// Fewer answers say nothing about others.
const SAMPLE: usize = 16;

pub(super) struct Share {
    size: usize,
    won: usize,
    lost: usize,
}

impl Default for Share {
    fn default() -> Self {
        Self { size: BATCH, won: 0, lost: 0 }
    }
}

impl Share {
    /// What became of a take.
    pub(super) fn note(&mut self, is_won: bool) {
        *(if is_won { &mut self.won } else { &mut self.lost }) += 1;
    }

    /// How many takes to ask for now, with room for so many.
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

    /// Whether others take what this node asks for.
    pub(super) fn is_losing(&self) -> bool {
        self.size < BATCH
    }

    /// Among how many of what is due to choose `size`.
    pub(super) fn choice(&self, size: usize) -> usize {
        if self.is_losing() { BATCH } else { size }
    }

    /// The order in which this node asks for what is due.
    pub(super) fn order(&self, due: &mut [WakeUp]) {
        if self.is_losing() {
            due.sort_unstable_by_key(|(_, rank, _)| *rank);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Run,
        backend::Answer,
        cron, job,
        planner::{Intent, Planner, decide::Powers},
        record::{At, Ledger, Record, step},
        time::{Time, from_millis},
    };
    use std::{collections::BTreeMap, time::Duration};

    const JOBS: usize = 3_000;

    /// Nodes that ask at the same time: what each is told, it has decided without the others.
    struct Fleet {
        nodes: Vec<(String, Planner)>,
        records: BTreeMap<String, Option<Record>>,
        /// How much each node has won, and all have asked for in vain.
        won: Vec<usize>,
        lost: usize,
    }

    impl Fleet {
        fn of(nodes: u128) -> Self {
            let node = |seed: u128| {
                let powers = Powers { mark: Duration::from_secs(30), leases: false };
                let mut planner = Planner::new(seed << 64 | seed, Duration::from_secs(5), powers);
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
                let turns = turns.map(|(_, node)| node.turn(now, 10_000, &mut events).intents);
                let turns: Vec<Vec<Intent>> = turns.collect();
                if turns.iter().all(Vec::is_empty) {
                    return;
                }
                for (i, intents) in turns.into_iter().enumerate() {
                    let (id, node) = &mut self.nodes[i];
                    for intent in intents {
                        let record = self.records.get_mut(&*intent.name).unwrap();
                        let at = At::new(id, now);
                        let answer = step(record, &intent.plan(), at, &mut Ledger::off());
                        match &answer {
                            Answer::Taken(_) => self.won[i] += 1,
                            _ => self.lost += usize::from(intent.is_take()),
                        }
                        node.answered(intent, answer, now, &mut events);
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
                // By then each has noticed the others.
                (fleet.won, fleet.lost) = (vec![0; 3], 0);
            }
        }
        assert_eq!(fleet.won.iter().sum::<usize>(), 2 * JOBS, "each occurrence, once");
        let fair = 2 * JOBS / 3;
        let all_share = fleet.won.iter().all(|won| (fair / 2..fair * 2).contains(won));
        assert!(all_share, "{:?} won, {} lost", fleet.won, fleet.lost);
    }

    fn told(share: &mut Share, won: usize, lost: usize) -> usize {
        (0..won).for_each(|_| share.note(true));
        (0..lost).for_each(|_| share.note(false));
        share.size(usize::MAX)
    }

    #[test]
    fn who_loses_asks_for_less_and_who_wins_for_more() {
        let mut share = Share::default();
        assert_eq!(told(&mut share, 1_000, 0), BATCH);
        assert_eq!(share.choice(BATCH), BATCH);
        assert_eq!(told(&mut share, 700, 300), 500);
        assert_eq!(share.choice(500), BATCH, "it chooses among more than it asks for");
        assert_eq!(told(&mut share, 100, 400), 250);
        assert_eq!(told(&mut share, 200, 50), 250, "now and then a loss is no reason");
        assert_eq!(told(&mut share, 0, 3), 250, "nor are three");
        for _ in 0..9 {
            told(&mut share, 0, 100);
        }
        assert_eq!(share.size(usize::MAX), LEAST);
        assert_eq!(share.size(7), 7, "never more than there is room for");
        for size in [250, 500, 1_000, 1_000] {
            assert_eq!(told(&mut share, 100, 0), size);
        }
    }
}
