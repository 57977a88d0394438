//! The registry: the record that each node keeps about itself, and what the records of all nodes
//! show together. Pure; the scheduler sends the requests.
//!
//! A node's record is an ordinary record under a name of the scheduler's own, whose definition is
//! the text of a [`NodeInfo`]. It has no kind and no occurrence, so that it is in no due index, no
//! kind and no history. The fence of its last write is the time of that write by the store's clock.

mod fleet;
mod node_info;
mod program;
mod ranking;
mod retention;
mod text;

pub(crate) use fleet::{Fleet, read_nodes};
pub(crate) use node_info::{FORMAT, LEFT, MAX_HEARTBEAT, NAMES, TRIGGER_DATA, name_hash};
pub use node_info::{NodeInfo, RunProgress};
pub use program::ProgramReport;
pub(crate) use ranking::{OtherBuilds, Ranking, Rankings};
pub(crate) use retention::{
    OrphanRule, Orphans, is_finished, is_orphaned, is_written_after, key_unused_since, unused_since,
};
pub(crate) use text::{decode, encode};

use crate::name::NODE;

/// The name of the record of a node.
pub(crate) fn record_of(node: &str) -> String {
    format!("{NODE}{node}")
}
