//! The core of allora: jobs, the record and its state machine, the planner, the scheduler.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod backend;
mod backoff;
mod condition;
mod error;
mod event;
mod health;
mod hours;
mod job;
#[cfg_attr(not(feature = "json"), path = "no_json.rs")]
mod json;
mod labels;
mod monotonic;
mod name;
mod notify;
mod pattern;
mod planner;
pub mod record;
mod registry;
mod run;
#[cfg(feature = "json")]
mod run_json;
mod run_ticket;
pub mod runtime;
pub mod schedule;
mod scheduler;
#[cfg(feature = "json")]
mod serialize;
pub mod store;
mod store_clock;
pub mod stored;
mod sync;
mod trace;

pub use allora_schedule::{crontab, time};
/// The attribute for implementations of [`Job`], [`Backend`] and [`RecordStore`](store::RecordStore):
/// their traits have async methods and are used as `dyn`. It is that of the crate
/// [`async-trait`](https://docs.rs/async-trait), version 0.1.
pub use async_trait::async_trait;
pub use backend::{After, Backend, HistoryEntry, HistoryQuery, JobState, Occurrence, On, Outcome};
/// The crate of [`Time`]: its types are in the API.
pub use chrono;
pub use condition::{ActiveCondition, Condition, Evidence, FailingPart, KeyHolder, StorePart};
pub use error::{BoxError, Error, ErrorKind, Result};
pub use event::Event;
pub use health::{
    CapacityStatus, Health, JobStatus, KindCapacity, NodesStatus, Notifications, Place, StoreStatus,
};
#[doc(hidden)]
pub use job::Returns;
pub use job::{
    AlertRule, Breaker, CatchUp, ConcurrencyKey, Delivery, Explained, IntoJob, IntoOutcome, Job,
    JobFuture, JobHistory, JobSpec, Overlap, Placement, Retry, Settings, job,
};
pub use labels::LabelSelector;
pub use name::{MAX_NAME, check_name, is_internal};
pub use pattern::Pattern;
pub use registry::{NodeInfo, ProgramReport, RunProgress};
pub use run::{Cancelled, Run};
pub use runtime::Runtime;
pub use schedule::{
    AnySchedule, At, Cron, Dst, Every, Quartz, Schedule, after_end, at, cron, every,
};
pub use scheduler::{Handle, Next, Scheduler, SchedulerBuilder, Stopped};
#[cfg(feature = "json")]
pub use serialize::JSON_SCHEMA;
pub use stored::{Schedules, StoredSchedule};
pub use time::Time;
pub use trace::with_traceparent;
