//! A program's report about itself, next to what its scheduler knows, and the comparison of the
//! reports of all nodes.

use super::NodeInfo;
use std::collections::{BTreeMap, BTreeSet};

/// The report of a program about itself, for operators and the other nodes
/// ([`Handle::report`](crate::Handle::report)). Default: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProgramReport {
    /// The conditions that only the program knows, such as a configuration that it cannot read: each
    /// with evidence and remedy, on one line
    /// ([`Condition::ProgramReport`](crate::Condition::ProgramReport)). While there is one, the node is
    /// not [healthy](crate::Health::is_healthy).
    pub conditions: Vec<String>,
    /// Names of jobs in code that this node does not run now and that have a use all the same. They
    /// are not orphaned and not pruned while the node lives.
    pub kept_jobs: Vec<String>,
    /// Beginnings of such names.
    pub kept_prefixes: Vec<String>,
    /// Settings that all nodes should share, by name. If live nodes differ, all report both values.
    pub settings: BTreeMap<String, String>,
    /// A name that no other live node should have.
    pub unique_name: Option<String>,
}

/// The most names of kept jobs in the record of a node. With more, it keeps all jobs.
pub(crate) const KEPT: usize = 128;

impl NodeInfo {
    /// The things that the live ones among these nodes should agree about, and do not: settings with
    /// different values, and names that two of them have. Each on one line, with its remedy.
    ///
    /// Nodes are compared that wrote their records after both had started: the one before a restart
    /// is not compared with the one after it.
    pub fn disagreements(nodes: &[NodeInfo]) -> Vec<String> {
        let mut lines = Vec::new();
        let live: Vec<&NodeInfo> = nodes.iter().filter(|node| node.is_live).collect();
        let mut told = BTreeSet::new();
        for (i, one) in live.iter().enumerate() {
            for other in live[..i].iter().filter(|other| overlap(one, other)) {
                if let (Some(name), true) = (&one.unique_name, one.unique_name == other.unique_name)
                {
                    lines.push(format!(
                        "two live nodes have the name {name:?}: {} and {}; give each a name of its own",
                        other.node, one.node
                    ));
                }
                for (name, here) in &one.settings {
                    let Some(there) = other.settings.get(name).filter(|there| *there != here)
                    else {
                        continue;
                    };
                    if told.insert(name) {
                        lines.push(format!(
                            "live nodes differ in {name}: {there} on {}, {here} on {}; give all of \
                             them the same",
                            other.node, one.node
                        ));
                    }
                }
            }
        }
        lines
    }
}

fn overlap(one: &NodeInfo, other: &NodeInfo) -> bool {
    one.last_seen >= other.started_at && other.last_seen >= one.started_at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{registry::decode, time::from_millis};

    fn node(id: &str, (started, seen): (i64, i64), name: &str, zone: &str) -> NodeInfo {
        NodeInfo {
            started_at: from_millis(started * 1_000).unwrap(),
            last_seen: from_millis(seen * 1_000).unwrap(),
            is_live: true,
            unique_name: Some(name.into()),
            settings: BTreeMap::from([("the zone".into(), zone.into())]),
            ..decode(id, "seen=1970-01-01T00:00:00Z").unwrap()
        }
    }

    #[test]
    fn live_nodes_that_differ_are_named_with_both_values_and_those_of_one_name_too() {
        let nodes = [
            node("a", (0, 60), "one", "UTC"),
            node("b", (0, 60), "two", "Europe/Rome"),
            node("c", (0, 60), "one", "UTC"),
        ];
        assert_eq!(
            NodeInfo::disagreements(&nodes),
            [
                "live nodes differ in the zone: UTC on a, Europe/Rome on b; give all of them the same",
                "two live nodes have the name \"one\": a and c; give each a name of its own",
            ]
        );
        let dead = NodeInfo { is_live: false, ..nodes[1].clone() };
        assert_eq!(NodeInfo::disagreements(&[nodes[0].clone(), dead]), [""; 0]);
    }

    #[test]
    fn a_node_is_not_compared_with_the_one_that_it_has_replaced() {
        let nodes = [node("a", (0, 20), "one", "UTC"), node("b", (21, 22), "one", "Europe/Rome")];
        assert_eq!(NodeInfo::disagreements(&nodes), [""; 0]);
    }
}
