//! For tests that kill, freeze and cut off: nodes in processes of their own, a store that writes
//! down for the [history checker](crate::history) what it was asked, and a line that can be cut.

mod fault_workload;
mod lost_replies;
mod process;
mod proxy;
mod recording_backend;

pub use fault_workload::{FaultWorkload, LEAST, ONCE, claims};
pub use lost_replies::{LostReplies, lost_replies};
pub use process::Node;
pub use proxy::Proxy;
pub use recording_backend::{Log, RecordingBackend, wall};
