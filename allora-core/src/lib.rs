//! The core of allora: jobs, the record and its state machine, the planner, the scheduler.

pub mod backend;
mod error;
mod event;
mod health;
mod job;
mod name;
mod planner;
pub mod record;
mod run;
pub mod runtime;
pub mod schedule;
mod scheduler;
#[cfg(feature = "json")]
mod serialize;
pub mod store;
mod store_clock;
pub mod stored;

pub use allora_schedule::{crontab, time};
pub use backend::{Backend, Occurrence};
pub use error::{BoxError, Error, ErrorKind, Result};
pub use event::Event;
pub use health::{
    CapacityStatus, FailingPart, Health, JobProblem, JobStatus, KeyHolder, KeyWait, Notifications,
    Place, ProblemReason, StorePart, StoreStatus, UnhandledKind,
};
#[doc(hidden)]
pub use job::Returns;
pub use job::{
    CatchUp, ConcurrencyKey, Delivery, IntoOutcome, Job, JobSpec, Overlap, Placement, Retry,
    Settings, job,
};
pub use name::{MAX_NAME, check_name};
pub use run::{Cancelled, Run};
pub use runtime::Runtime;
pub use schedule::{AnySchedule, At, Cron, Dst, Every, Quartz, Schedule, at, cron, every};
pub use scheduler::{Builder, Handle, Next, Scheduler, Stopped};
pub use stored::{Pattern, Schedules, StoredSchedule};
pub use time::Time;
