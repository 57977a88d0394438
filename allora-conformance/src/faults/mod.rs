//! For tests that kill, freeze and cut off: nodes in processes of their own, stores that write
//! down for the [history checker](crate::history) what they were asked, a line that can be cut, and
//! stores that are slow or answer partially.

mod fault_workload;
mod lost_replies;
mod partial_backend;
mod process;
mod proxy;
mod recording_backend;
mod slow_backend;
mod traced_backend;

pub use fault_workload::{FaultWorkload, LEAST, ONCE, claims};
pub use lost_replies::{LostReplies, lost_replies};
pub use partial_backend::{PartialBackend, Shares};
pub use process::Node;
pub use proxy::Proxy;
pub use recording_backend::{Log, RecordingBackend, wall};
pub use slow_backend::{SlowBackend, Speed};
pub use traced_backend::{TracedRequests, TracedStore};
