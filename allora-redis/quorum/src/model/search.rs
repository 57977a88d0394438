//! A search over the states of a cluster.

use super::{
    change::Changes,
    cluster::{Action, Cluster, Goal},
    setting::{Defect, Setting},
};
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    vec::IntoIter,
};

/// The result of a search.
pub(super) struct Found {
    pub(super) states: usize,
    /// The violation, and the way to it.
    pub(super) violation: Option<String>,
    pub(super) reached: HashSet<Goal>,
    /// True if no state was left.
    pub(super) whole: bool,
}

/// A state on the way that is being followed.
struct Stage {
    cluster: Cluster,
    /// The actions that have not been tried yet.
    open: IntoIter<Action>,
    /// The action that is being tried.
    action: Option<Action>,
}

impl Stage {
    fn new(cluster: Cluster, setting: &Setting) -> Self {
        Self { open: cluster.actions(setting).into_iter(), cluster, action: None }
    }
}

/// Searches depth first: states are kept along one way only, and a hash of every visited state.
pub(super) fn search(setting: &Setting) -> Found {
    let mut changes =
        Changes::new(setting.leases, setting.defect != Some(Defect::FenceNotCompared));
    let first = Cluster::new(setting);
    let mut seen = HashSet::from([print(&first)]);
    let mut reached = HashSet::new();
    let mut way = vec![Stage::new(first, setting)];
    while let Some(stage) = way.last_mut() {
        stage.action = stage.open.next();
        let Some(action) = stage.action else {
            way.pop();
            continue;
        };
        let mut after = stage.cluster.clone();
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

fn print(cluster: &Cluster) -> u64 {
    let mut hasher = DefaultHasher::new();
    cluster.in_order().hash(&mut hasher);
    hasher.finish()
}

fn told(way: &[Stage]) -> String {
    let actions = way.iter().filter_map(|stage| stage.action);
    actions.map(|action| format!("  {action:?}")).collect::<Vec<_>>().join("\n")
}
