//! The history checker: what a run of many nodes wrote down, judged against the promises.
//!
//! Each node appends an [`Event`] for what it saw: what it took, when it started and ended the
//! job's code, and the instants that were missed or skipped. [`check`] reads the whole log and
//! lists every [`Violation`]. The log does not depend on the store or on the runtime. [`liveness`]
//! judges whether all that could run was started, by a [`Trace`].
//!
//! ```
//! use allora_conformance::history::{Claims, Event, Invariant, Outcome, What, check};
//!
//! let at = |s: i64| s * 1_000;
//! let event = |what| Event { job: "job".into(), node: "a".into(), at: at(60), what };
//! let log = [
//!     event(What::Claim(Claims { occurrence: at(60), fence: 7, attempt: 1, until: None })),
//!     event(What::Start { occurrence: at(60), fence: 7 }),
//!     event(What::End { occurrence: at(60), fence: 7, outcome: Outcome::Succeeded }),
//! ];
//! let every_minute = |_: &str, at: i64| Some(at + 60_000);
//! let law = Invariant::new(&every_minute).until(at(60));
//! assert_eq!(check(&log, &law), []);
//! assert_eq!(check(&log[..2], &law).len(), 0, "it may still run");
//! assert_eq!(check(&log[1..], &law).len(), 1, "it was started without a claim");
//! ```

mod check;
pub mod liveness;
mod log;
mod merge;
mod spans;
mod stall;
mod summary;
mod trace;

pub use check::{Invariant, Violation, check};
pub use log::{Claims, Event, Outcome, What, booked, read, trigger_of, write};
pub use merge::merge_store_history;
pub use summary::{Summary, percentile};
pub use trace::{Code, Delays, Execution, Following, Observation, Running, Seen, Trace};
