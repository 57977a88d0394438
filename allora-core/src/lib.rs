//! The heart of allora: schedules, the record and its state machine, the planner, the scheduler.

pub mod backend;
mod error;
mod name;
pub mod record;
pub mod runtime;
pub mod schedule;
pub mod time;

pub use backend::{Backend, Occurrence};
pub use error::{BoxError, Error, Kind, Result};
pub use name::{MAX_NAME, check_name};
pub use runtime::Runtime;
pub use schedule::Schedule;
pub use time::Time;
