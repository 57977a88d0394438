//! A search over the states of a cluster.

use super::{
    change::Changes,
    cluster::{Action, Cluster, Goal},
    setting::{Defect, Setting},
};
use allora_conformance::explore::Model;
use std::{
    collections::HashSet,
    hash::{DefaultHasher, Hash, Hasher},
    vec::IntoIter,
};

/// The result of a search.
pub(super) struct Found {
    pub(super) states: usize,
    pub(super) steps: usize,
    /// The length of the longest way that was followed.
    pub(super) depth: usize,
    /// The violation, and the way to it.
    pub(super) violation: Option<String>,
    pub(super) reached: HashSet<Goal>,
    /// True if no state was left.
    pub(super) whole: bool,
}

/// The model for a search breadth first, which finds the shortest way to a violation, and keeps more in memory.
pub(super) struct Shortest {
    setting: Setting,
    changes: Changes,
}

impl Shortest {
    pub(super) fn new(setting: &Setting) -> Self {
        let changes =
            Changes::new(setting.leases, setting.defect != Some(Defect::FenceNotCompared));
        Self { setting: setting.clone(), changes }
    }
}

impl Model for Shortest {
    type State = Cluster;
    type Action = Action;

    fn first(&mut self) -> Cluster {
        Cluster::new(&self.setting)
    }

    fn actions(&mut self, cluster: &Cluster) -> Vec<Action> {
        cluster.actions(&self.setting)
    }

    fn act(&mut self, cluster: &mut Cluster, action: &Action) -> Result<(), String> {
        cluster.act(*action, &self.setting, &mut self.changes).map(drop)
    }

    fn canonical(&mut self, cluster: Cluster) -> Cluster {
        cluster.without_unread(&self.setting).in_order()
    }

    /// Proposers may use up their ballots: only safety is searched.
    fn is_at_rest(&mut self, _: &Cluster) -> bool {
        true
    }
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
    let (mut steps, mut depth) = (0, 0);
    let found = |states, steps, depth, violation, reached, whole| Found {
        states,
        steps,
        depth,
        violation,
        reached,
        whole,
    };
    while let Some(stage) = way.last_mut() {
        stage.action = stage.open.next();
        let Some(action) = stage.action else {
            way.pop();
            continue;
        };
        steps += 1;
        let mut after = stage.cluster.clone();
        match after.act(action, setting, &mut changes) {
            Ok(goal) => reached.extend(goal),
            Err(what) => {
                let violation = Some(format!("{what}\n{}", told(&way)));
                return found(seen.len(), steps, depth, violation, reached, false);
            }
        }
        let after = after.without_unread(setting);
        if seen.insert(print(&after)) {
            way.push(Stage::new(after, setting));
            depth = depth.max(way.len());
        }
        if seen.len() >= setting.most {
            return found(seen.len(), steps, depth, None, reached, false);
        }
    }
    found(seen.len(), steps, depth, None, reached, true)
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
