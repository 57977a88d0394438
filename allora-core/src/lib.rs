//! The heart of allora: schedules, the record and its state machine, the planner, the scheduler.

pub mod crontab;
mod error;
pub mod runtime;
pub mod schedule;
pub mod time;

pub use error::{BoxError, Error, Kind, Result};
pub use runtime::Runtime;
pub use schedule::{AnySchedule, At, Cron, Dst, Every, Quartz, Schedule, at, cron, every};
pub use time::Time;
