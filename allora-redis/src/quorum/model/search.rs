//! Breadth-first search over worlds.

use super::{
    Setting,
    change::Changes,
    world::{Action, Defect, Goal, World},
};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    rc::Rc,
};

/// What a search came to.
pub(super) struct Found {
    pub(super) states: usize,
    /// What went wrong, and the shortest way there.
    pub(super) violation: Option<String>,
    pub(super) reached: HashSet<Goal>,
    /// Whether no state was left.
    pub(super) whole: bool,
}

/// The way to a state, the last step first.
struct Step {
    action: Action,
    before: Option<Rc<Step>>,
}

pub(super) fn search(setting: &Setting) -> Found {
    let mut changes =
        Changes::new(setting.leases, setting.defect != Some(Defect::FenceNotCompared));
    let first = World::new(setting);
    let mut seen = HashSet::from([print(&first)]);
    let mut reached = HashSet::new();
    let mut edge: Vec<(World, Option<Rc<Step>>)> = vec![(first, None)];
    while !edge.is_empty() {
        let mut next = Vec::new();
        for (world, way) in edge {
            for action in world.actions(setting) {
                let mut after = world.clone();
                let outcome = after.act(action, setting, &mut changes);
                let step = || Rc::new(Step { action, before: way.clone() });
                match outcome {
                    Ok(goal) => reached.extend(goal),
                    Err(what) => {
                        let violation = Some(format!("{what}\n{}", told(&step())));
                        return Found { states: seen.len(), violation, reached, whole: false };
                    }
                }
                if seen.insert(print(&after)) {
                    next.push((after, Some(step())));
                }
                if seen.len() >= setting.most {
                    let states = seen.len();
                    return Found { states, violation: None, reached, whole: false };
                }
            }
        }
        edge = next;
    }
    Found { states: seen.len(), violation: None, reached, whole: true }
}

fn print(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.in_order().hash(&mut hasher);
    hasher.finish()
}

fn told(step: &Rc<Step>) -> String {
    let mut lines = Vec::new();
    let mut at = Some(step);
    while let Some(step) = at {
        lines.push(format!("  {:?}", step.action));
        at = step.before.as_ref();
    }
    lines.reverse();
    lines.join("\n")
}
