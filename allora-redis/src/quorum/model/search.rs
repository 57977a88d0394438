//! A search over worlds.

use super::{
    Setting,
    change::Changes,
    world::{Action, Defect, Goal, World},
};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    vec::IntoIter,
};

/// What a search came to.
pub(super) struct Found {
    pub(super) states: usize,
    /// What went wrong, and the way there.
    pub(super) violation: Option<String>,
    pub(super) reached: HashSet<Goal>,
    /// Whether no state was left.
    pub(super) whole: bool,
}

/// A state on the way that is being followed.
struct Stage {
    world: World,
    /// What can happen and has not been tried yet.
    open: IntoIter<Action>,
    /// What is being tried.
    action: Option<Action>,
}

impl Stage {
    fn new(world: World, setting: &Setting) -> Self {
        Self { open: world.actions(setting).into_iter(), world, action: None }
    }
}

/// Depth first: worlds are kept only along one way, and of all others that were visited a hash.
pub(super) fn search(setting: &Setting) -> Found {
    let mut changes =
        Changes::new(setting.leases, setting.defect != Some(Defect::FenceNotCompared));
    let first = World::new(setting);
    let mut seen = HashSet::from([print(&first)]);
    let mut reached = HashSet::new();
    let mut way = vec![Stage::new(first, setting)];
    while let Some(stage) = way.last_mut() {
        stage.action = stage.open.next();
        let Some(action) = stage.action else {
            way.pop();
            continue;
        };
        let mut after = stage.world.clone();
        match after.act(action, setting, &mut changes) {
            Ok(goal) => reached.extend(goal),
            Err(what) => {
                let violation = Some(format!("{what}\n{}", told(&way)));
                return Found { states: seen.len(), violation, reached, whole: false };
            }
        }
        if seen.insert(print(&after)) {
            way.push(Stage::new(after, setting));
        }
        if seen.len() >= setting.most {
            return Found { states: seen.len(), violation: None, reached, whole: false };
        }
    }
    Found { states: seen.len(), violation: None, reached, whole: true }
}

fn print(world: &World) -> u64 {
    let mut hasher = DefaultHasher::new();
    world.in_order().hash(&mut hasher);
    hasher.finish()
}

fn told(way: &[Stage]) -> String {
    let actions = way.iter().filter_map(|stage| stage.action);
    actions.map(|action| format!("  {action:?}")).collect::<Vec<_>>().join("\n")
}
