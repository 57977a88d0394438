//! A random walk of calls by several nodes, compared step by step with the
//! [reference](crate::reference).
//!
//! A walk is a list of steps, each with a number of its own that decides its details when it is
//! carried out. So any part of a walk is a walk, and one that fails can be made shorter.

mod pair;
mod sound;
mod step;

use crate::{cluster::Cluster, random::Random};
pub(crate) use step::StepKind;
use step::{Step, Walker};

/// The number of the walks and their length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    pub(crate) walks: u64,
    pub(crate) steps: usize,
}

/// Number of times a failing walk is tried with some of its steps left out.
const SHORTENINGS: usize = 150;

/// Walks from every seed, or from the one in `ALLORA_SEED`, and panics with the shortest walk found
/// on which the store and the reference disagree.
pub(crate) async fn walk(w: &Cluster, kinds: &'static [StepKind], size: Size) {
    let given = std::env::var("ALLORA_SEED").ok();
    let seeds: Vec<u64> = match given.as_deref().map(str::parse) {
        Some(Ok(seed)) => vec![seed],
        Some(Err(_)) => panic!("ALLORA_SEED is {given:?}; a seed is a whole number"),
        None => (1..=size.walks).collect(),
    };
    for seed in seeds {
        let mut random = Random::new(seed);
        let mut steps: Vec<Step> = Vec::new();
        for _ in 0..size.steps {
            let kind = *random.pick(kinds).expect("a walk has kinds of steps to pick from");
            steps.push(Step { kind, draw: random.draw() });
        }
        if let Err(end) = attempt(w, kinds, &steps).await {
            steps.truncate(end.steps);
            let (shorter, end) = shorten(w, kinds, steps, end).await;
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
async fn shorten(
    w: &Cluster,
    kinds: &'static [StepKind],
    mut steps: Vec<Step>,
    mut end: End,
) -> (usize, End) {
    let mut part = steps.len().div_ceil(2);
    let mut left = SHORTENINGS;
    while part > 0 && left > 0 {
        let mut from = 0;
        while from < steps.len() && left > 0 {
            left -= 1;
            let mut fewer = steps.clone();
            fewer.drain(from..steps.len().min(from + part));
            match attempt(w, kinds, &fewer).await {
                Err(sooner) => {
                    fewer.truncate(sooner.steps);
                    (steps, end) = (fewer, sooner);
                }
                Ok(()) => from += part,
            }
        }
        part = if part == 1 { 0 } else { part.div_ceil(2) };
    }
    (steps.len(), end)
}

/// Walks once, on a fresh store.
async fn attempt(w: &Cluster, kinds: &'static [StepKind], steps: &[Step]) -> Result<(), End> {
    let fresh = w.beside().await;
    let nodes = [fresh.join("node-a").await, fresh.join("node-b").await];
    let mut walker = Walker::new(nodes, kinds, w.unsupported());
    let mut outcome = Ok(());
    for (i, step) in steps.iter().enumerate() {
        if let Err(difference) = walker.go(step).await {
            let story = format!("{}\n{difference}", walker.story());
            outcome = Err(End { steps: i + 1, story });
            break;
        }
    }
    if outcome.is_ok()
        && let Err(difference) = walker.compare_history().await
    {
        let story = format!("{}\n{difference}", walker.story());
        outcome = Err(End { steps: steps.len(), story });
    }
    drop(walker);
    crate::cluster::fine(fresh.tear_down().await);
    outcome
}

/// Of a store with queries, whose leases end by the given time.
pub(crate) const ALL: &[StepKind] = &[
    StepKind::Register,
    StepKind::Redefine,
    StepKind::Read,
    StepKind::Claim,
    StepKind::Claim,
    StepKind::Claim,
    StepKind::Advance,
    StepKind::Reap,
    StepKind::Wait,
    StepKind::Wait,
    StepKind::End,
    StepKind::End,
    StepKind::End,
    StepKind::Create,
    StepKind::Edit,
    StepKind::Pause,
    StepKind::Resume,
    StepKind::Resume,
    StepKind::Trigger,
    StepKind::Chain,
    StepKind::Cancel,
    StepKind::Replace,
    StepKind::ClaimKey,
    StepKind::ClaimKey,
    StepKind::EndKey,
    StepKind::DeadLetter,
    StepKind::Delete,
    StepKind::List,
    StepKind::Find,
    StepKind::Find,
    StepKind::ClaimDue,
    StepKind::ClaimDue,
    StepKind::Batch,
    StepKind::Batch,
];

/// Of any store: at most once, with leases that do not end, and without queries.
pub(crate) const AT_MOST_ONCE: &[StepKind] = &[
    StepKind::Register,
    StepKind::Redefine,
    StepKind::Read,
    StepKind::ClaimOnce,
    StepKind::ClaimOnce,
    StepKind::ClaimOnce,
    StepKind::ClaimOnce,
    StepKind::Advance,
    StepKind::Reap,
    StepKind::Wait,
    StepKind::Wait,
    StepKind::End,
    StepKind::End,
    StepKind::Create,
    StepKind::Edit,
    StepKind::Pause,
    StepKind::Resume,
    StepKind::Resume,
    StepKind::Trigger,
    StepKind::Chain,
    StepKind::Cancel,
    StepKind::Replace,
    StepKind::ClaimKey,
    StepKind::ClaimKey,
    StepKind::EndKey,
    StepKind::DeadLetter,
    StepKind::Delete,
    StepKind::Batch,
];
