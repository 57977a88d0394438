//! A random walk of calls by several nodes, compared step by step with the [reference](crate::reference).
//!
//! A walk is a list of operations, each with a number of its own that decides its details when it
//! is carried out. So any part of a walk is a walk, and one that fails can be made shorter.

mod op;
mod pair;

use crate::{random::Random, world::World};
use op::{Op, Walker, What};

/// How long the walks are, and how many.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) walks: u64,
    pub(crate) steps: usize,
}

/// How often a failing walk is tried with some of its operations left out.
const SHORTENINGS: usize = 150;

/// Walks from every seed, or from the one in `ALLORA_SEED`, and panics with the shortest walk found
/// on which the store and the reference disagree.
pub(crate) async fn walk(w: &World, what: &[What], size: Size) {
    let given = std::env::var("ALLORA_SEED").ok();
    let seeds: Vec<u64> = match given.as_deref().map(str::parse) {
        Some(Ok(seed)) => vec![seed],
        Some(Err(_)) => panic!("ALLORA_SEED is {given:?}; a seed is a whole number"),
        None => (1..=size.walks).collect(),
    };
    for seed in seeds {
        let mut random = Random::new(seed);
        let mut ops: Vec<Op> = Vec::new();
        for _ in 0..size.steps {
            let what = *random.pick(what).expect("a walk has operations to pick from");
            ops.push(Op { what, draw: random.draw() });
        }
        if let Err(end) = attempt(w, &ops).await {
            ops.truncate(end.steps);
            let (shorter, end) = shorten(w, ops, end).await;
            panic!(
                "the store and the pure functions disagree; ALLORA_SEED={seed} walks here again\n\
                 {} of {} steps are enough:\n{}",
                shorter, size.steps, end.story
            );
        }
    }
}

/// Where a walk ended, and what was said on the way.
struct End {
    steps: usize,
    story: String,
}

/// Leaves out ever smaller parts, as long as the rest still fails.
async fn shorten(w: &World, mut ops: Vec<Op>, mut end: End) -> (usize, End) {
    let mut part = ops.len().div_ceil(2);
    let mut left = SHORTENINGS;
    while part > 0 && left > 0 {
        let mut from = 0;
        while from < ops.len() && left > 0 {
            left -= 1;
            let mut fewer = ops.clone();
            fewer.drain(from..ops.len().min(from + part));
            match attempt(w, &fewer).await {
                Err(sooner) => {
                    fewer.truncate(sooner.steps);
                    (ops, end) = (fewer, sooner);
                }
                Ok(()) => from += part,
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    (ops.len(), end)
}

/// Walks once, on a fresh store.
async fn attempt(w: &World, ops: &[Op]) -> Result<(), End> {
    let fresh = w.beside().await;
    let nodes = [fresh.join("node-a").await, fresh.join("node-b").await];
    let mut walker = Walker::new(nodes, w.lacks());
    let mut outcome = Ok(());
    for (i, op) in ops.iter().enumerate() {
        if let Err(difference) = walker.go(op).await {
            let story = format!("{}\n{difference}", walker.story());
            outcome = Err(End { steps: i + 1, story });
            break;
        }
    }
    if outcome.is_ok()
        && let Err(difference) = walker.compare_past().await
    {
        let story = format!("{}\n{difference}", walker.story());
        outcome = Err(End { steps: ops.len(), story });
    }
    drop(walker);
    crate::world::fine(fresh.tear_down().await);
    outcome
}

/// With leases and stored schedules.
pub(crate) const ALL: &[What] = &[
    What::Register,
    What::Redefine,
    What::Look,
    What::Take,
    What::Take,
    What::Take,
    What::Skip,
    What::Reap,
    What::Wait,
    What::Wait,
    What::Settle,
    What::Settle,
    What::Settle,
    What::Add,
    What::Edit,
    What::Pause,
    What::Resume,
    What::Resume,
    What::Trigger,
    What::Rerun,
    What::Delete,
    What::List,
    What::Find,
    What::Find,
    What::Batch,
];

/// For a store that has neither.
pub(crate) const BARE: &[What] = &[
    What::Register,
    What::Redefine,
    What::Look,
    What::TakeOnce,
    What::TakeOnce,
    What::TakeOnce,
    What::Skip,
    What::Wait,
];
