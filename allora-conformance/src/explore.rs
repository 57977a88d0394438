//! An exhaustive search of a model: all states that can be reached, breadth first.
//!
//! Breadth first, so a violation is found on a shortest way. `stateright` was the alternative: it reduces by
//! symmetry only in its depth-first search, whose ways are not the shortest, cannot say that a state is reachable
//! *from every other one*, which is what liveness means here, and brings a web server. These are 150 lines.

use std::{
    collections::{HashMap, VecDeque},
    env,
    fmt::Debug,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
};

/// The variable with the folder for the results of large searches, which are made only if it is set.
const FOLDER: &str = "ALLORA_MODEL";

/// `true` if large searches are wanted, which take minutes: the environment has `ALLORA_MODEL`.
pub fn is_large() -> bool {
    env::var_os(FOLDER).is_some()
}

/// A state machine to be searched.
pub trait Model {
    /// A state.
    type State: Clone + Hash;
    /// A step from one state to another.
    type Action: Debug;

    /// The state with which it begins.
    fn first(&mut self) -> Self::State;

    /// The steps that a state allows, always in the same order.
    fn actions(&mut self, state: &Self::State) -> Vec<Self::Action>;

    /// Takes a step.
    ///
    /// # Errors
    /// The property that the step violates.
    fn act(&mut self, state: &mut Self::State, action: &Self::Action) -> Result<(), String>;

    /// The state that stands for all that differ from it by a symmetry only.
    fn canonical(&mut self, state: Self::State) -> Self::State {
        state
    }

    /// `true` if no work is left. From every state such a one must be reachable.
    fn is_at_rest(&mut self, state: &Self::State) -> bool;
}

/// The result of a search.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    /// The number of states, those that a symmetry makes equal counted once.
    pub states: usize,
    /// The number of steps between them.
    pub steps: usize,
    /// The number of steps to the state that is farthest from the first one.
    pub depth: usize,
    /// `true` if no state was left.
    pub is_whole: bool,
    /// The first violation.
    pub violation: Option<Violation>,
}

impl Explored {
    /// Prints the result, and with `ALLORA_MODEL=FOLDER` writes it there as JSON.
    #[expect(
        clippy::print_stderr,
        reason = "how far a search went is what its reader wants to know"
    )]
    pub fn note(&self, model: &str, what: &str) {
        let Self { states, steps, depth, is_whole, violation } = self;
        let verdict = violation.as_ref().map(|violation| &violation.what);
        let all = if *is_whole { "all" } else { "not all" };
        eprintln!(
            "{model}: {what}: {states} states ({all}), {steps} steps, depth {depth}: {verdict:?}"
        );
        let way = violation.iter().flat_map(|violation| &violation.way);
        way.for_each(|step| eprintln!("  {step}"));
        let Some(folder) = env::var_os(FOLDER).map(PathBuf::from) else { return };
        let result = serde_json::json!({
            "model": model, "what": what, "states": states, "steps": steps, "depth": depth, "whole": is_whole,
            "violation": verdict, "length": violation.as_ref().map(|violation| violation.way.len()),
        });
        let letters = format!("{model} {what}");
        let letters = letters.chars().filter(char::is_ascii_alphanumeric).take(200);
        let file = folder.join(format!("{}.json", letters.collect::<String>()));
        fs::write(file, result.to_string()).expect("the folder can be written");
    }
}

/// A violated property.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The property.
    pub what: String,
    /// The steps that lead to it. There is no shorter way.
    pub way: Vec<String>,
}

/// Where a state was found first: the number of the state before it, and of the step there.
type Origin = (u32, u32);

/// Searches up to so many states. States are told apart by hashes of 64 bits.
///
/// Without a violation, and if no state was left, a state from which none [at rest](Model::is_at_rest) can be reached
/// is a violation.
pub fn explore<M: Model>(model: &mut M, most: usize) -> Explored {
    let first = model.first();
    let first = model.canonical(first);
    let mut seen = HashMap::from([(print(&first), 0_u32)]);
    let mut origins: Vec<Origin> = vec![(0, 0)];
    let mut depths = vec![0_u32];
    let mut before: Vec<(u32, u32)> = Vec::new();
    let mut rest = Vec::new();
    let mut open = VecDeque::from([(0_u32, first)]);
    let mut explored = Explored::default();
    while let Some((number, state)) = open.pop_front() {
        explored.depth = depths[number as usize] as usize;
        if model.is_at_rest(&state) {
            rest.push(number);
        }
        for (i, action) in (0..).zip(model.actions(&state)) {
            explored.steps += 1;
            let mut after = state.clone();
            if let Err(what) = model.act(&mut after, &action) {
                let mut way = way_to(model, &origins, number);
                way.push(format!("{action:?}"));
                explored.states = origins.len();
                explored.violation = Some(Violation { what, way });
                return explored;
            }
            let after = model.canonical(after);
            let new = small(origins.len());
            let next = *seen.entry(print(&after)).or_insert(new);
            before.push((next, number));
            if next == new {
                origins.push((number, i));
                depths.push(depths[number as usize] + 1);
                open.push_back((new, after));
            }
        }
        if origins.len() >= most {
            explored.states = origins.len();
            return explored;
        }
    }
    explored.states = origins.len();
    explored.is_whole = true;
    if let Some(stuck) = stuck(before, rest, origins.len()) {
        let what = "no state without work can be reached".to_owned();
        explored.violation = Some(Violation { what, way: way_to(model, &origins, stuck) });
    }
    explored
}

/// The first state from which none of `rest` can be reached.
fn stuck(mut before: Vec<(u32, u32)>, rest: Vec<u32>, states: usize) -> Option<u32> {
    before.sort_unstable();
    let mut reaches = vec![false; states];
    let mut open = rest;
    while let Some(number) = open.pop() {
        if std::mem::replace(&mut reaches[number as usize], true) {
            continue;
        }
        let from = before.partition_point(|(to, _)| *to < number);
        let steps = before[from..].iter().take_while(|(to, _)| *to == number);
        open.extend(steps.map(|(_, from)| *from).filter(|from| !reaches[*from as usize]));
    }
    reaches.iter().position(|reaches| !reaches).map(small)
}

fn print(state: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

fn small(number: usize) -> u32 {
    u32::try_from(number).expect("fewer states than memory has room for")
}

/// The steps to a state, repeated from the first one.
fn way_to<M: Model>(model: &mut M, origins: &[Origin], mut number: u32) -> Vec<String> {
    let mut steps = Vec::new();
    while number != 0 {
        let (from, step) = origins[number as usize];
        steps.push(step);
        number = from;
    }
    let first = model.first();
    let mut state = model.canonical(first);
    let mut way = Vec::new();
    for step in steps.into_iter().rev() {
        let action = model.actions(&state).swap_remove(step as usize);
        way.push(format!("{action:?}"));
        model.act(&mut state, &action).expect("it was taken before");
        state = model.canonical(state);
    }
    way
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A counter below this limit, which counts on by one or two; three is where it may stay for ever.
    struct Counter {
        limit: u8,
        trap: bool,
    }

    impl Model for Counter {
        type State = u8;
        type Action = u8;

        fn first(&mut self) -> u8 {
            0
        }

        fn actions(&mut self, state: &u8) -> Vec<u8> {
            match self.trap && *state == 3 || *state >= 9 {
                true => Vec::new(),
                false => vec![1, 2],
            }
        }

        fn act(&mut self, state: &mut u8, by: &u8) -> Result<(), String> {
            *state += by;
            if *state > self.limit { Err("too high".into()) } else { Ok(()) }
        }

        fn is_at_rest(&mut self, state: &u8) -> bool {
            *state >= 9
        }
    }

    #[test]
    fn a_search_finds_every_state_the_shortest_way_and_the_traps() {
        let all = explore(&mut Counter { limit: 10, trap: false }, 100);
        assert_eq!((all.states, all.depth, all.is_whole), (11, 5, true));
        assert!(all.violation.is_none());
        let high = explore(&mut Counter { limit: 4, trap: false }, 100).violation.unwrap();
        assert_eq!(high.way, ["1", "2", "2"]);
        let trap = explore(&mut Counter { limit: 10, trap: true }, 100).violation.unwrap();
        assert_eq!(trap.way, ["1", "2"]);
        assert!(!explore(&mut Counter { limit: 10, trap: false }, 3).is_whole);
    }
}
