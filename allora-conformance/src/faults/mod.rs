//! For tests that kill, freeze and cut off: nodes in processes of their own, stores that write down
//! for the [history checker](crate::history) what they were asked, a connection that can be cut,
//! stores that are slow or answer partially, and the faults that every store is tested with.

mod fault_workload;
mod fleet;
mod lost_replies;
mod mixed;
mod partial_backend;
mod planted;
mod process;
mod proxy;
mod recording_backend;
mod scenarios;
mod skewed;
mod slow_backend;
mod traced_backend;
mod wrapped;

pub use fault_workload::{FaultWorkload, LEAST, ONCE, claims, is_once};
pub use fleet::{Fleet, NodeStore, a_node_runs_and_stops, is_node};
pub use lost_replies::{LostReplies, lost_replies};
pub use mixed::{
    Acknowledged, EDITED, FOLLOWER, MIXED_RATE, REMOTE, REMOTE_KIND, TRIGGERED, is_left_out,
};
pub use partial_backend::{Hang, Partial, PartialBackend, Shares};
pub use planted::{Defective, Planted, PlantedBackend};
pub use process::Node;
pub use proxy::Proxy;
pub use recording_backend::{Log, Recording, RecordingBackend, wall};
pub use scenarios::{
    a_killed_nodes_runs_run_again_or_are_lost,
    a_node_frozen_beyond_its_lease_is_fenced_and_goes_on, cut_connections,
    occurrences_released_by_stopping_nodes_run_on_others, outages,
};
pub use skewed::Skewed;
pub use slow_backend::{Slow, SlowBackend, Speed};
pub use traced_backend::{TracedRequests, TracedStore, TracesRecords, TracesRequests};
pub use wrapped::{Bare, Hooks, Wrapped};
