//! The history checker: what a run of many nodes wrote down, judged against the promises.
//!
//! Each node appends an [`Event`] for what it saw: what it took, when it started and ended the
//! job's code, what it passed over. [`check`] reads the whole log and lists every [`Violation`].
//! The log knows no secrets: it judges what happened, whatever store and runtime it happened on.
//!
//! ```
//! use allora_conformance::history::{Claims, Event, Law, Outcome, What, check};
//!
//! let at = |s: i64| s * 1_000;
//! let event = |what| Event { job: "job".into(), node: "a".into(), at: at(60), what };
//! let log = [
//!     event(What::Claim(Claims { occurrence: at(60), fence: 7, attempt: 1, until: None })),
//!     event(What::Start { occurrence: at(60), fence: 7 }),
//!     event(What::End { occurrence: at(60), fence: 7, outcome: Outcome::Ran }),
//! ];
//! let every_minute = |_: &str, at: i64| Some(at + 60_000);
//! let law = Law::new(&every_minute).until(at(60));
//! assert_eq!(check(&log, &law), []);
//! assert_eq!(check(&log[..2], &law).len(), 0, "it may still run");
//! assert_eq!(check(&log[1..], &law).len(), 1, "nobody had taken what was started");
//! ```

mod check;
mod log;
mod told;

pub use check::{Law, Violation, check};
pub use log::{Claims, Event, Outcome, What, read, write};
pub use told::told;
