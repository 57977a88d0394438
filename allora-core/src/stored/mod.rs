//! Schedules that live in a store. An application or an operator adds, changes and removes them while
//! nodes run. The nodes that handle their kinds run them.
//!
//! # How do I add a schedule for a customer?
//! With [`Schedules`], on any node or without one. [`StoredSchedule`] describes the schedule.
//!
//! # Which node runs it?
//! Any node whose scheduler has a handler for its kind: [`SchedulerBuilder::kind`](crate::SchedulerBuilder::kind).
//! A node leaves other kinds to other nodes.
//!
//! # How do I change one?
//! Read it with [`Schedules::get`], make it a [`StoredSchedule`] with [`StoredSchedule::of`], change
//! that, and pass it to [`Schedules::modify`]. Of two concurrent changes, the second fails.
//!
//! # What happens to a failed run?
//! It is tried again according to its [`Retry`](crate::Retry) policy. When its attempts are used up,
//! it is a dead letter in [`JobState::dead`](crate::backend::JobState::dead).
//! [`Schedules::rerun`] runs it again; [`Schedules::dismiss`] removes it. The last
//! [`MAX_DEAD`](crate::record::MAX_DEAD) dead letters are kept.
//!
//! # Can I keep them in a file?
//! With the feature `json`, serde reads and writes [`StoredSchedule`] as an object.
//! [`Schedules::sync`] reconciles the store with the [desired state](DesiredState) in a file or in
//! code.
//!
//! # How do I move them to another store?
//! With [`Schedules::list`] there and [`Schedules::import`] here, or through a file of
//! `ScheduleExport`.
//!
//! # How do several schedules share holidays?
//! With a named calendar: [`Schedules::upsert_calendar`] stores it, and `except calendar:NAME` in the
//! text of a schedule uses it.
//!
//! # Who changed one?
//! [`Schedules::changes`] says it, if the clients that change it say who they are: [`Schedules::by`].
//! [`Schedules::undo`] takes back a pause, an edit or a deletion.
//!
//! # Why does one not run?
//! [`Schedules::why`] says it, and what became of an occurrence.
//!
//! # Can I list them by due time?
//! [`Schedules::list_by_due`] does. The stores keep lists by name, and an index of the stored schedules
//! by due time, from which the first ones are read.
//!
//! # How many fail, are paused or have dead letters?
//! [`Schedules::counts`] says how many, for each kind, owner and tag as well, and [`Schedules::flagged`] or
//! a list with a [`ScheduleState`] says which. The stores keep an index of these
//! [flags](crate::backend::Flag), so neither reads the other jobs.
//!
//! # How long does it usually take?
//! [`Schedules::hours`] has the outcomes, lateness and duration of each hour of the last 30 days, also of
//! runs whose history entries have been removed. [`Schedules::hours_of`] has those of several jobs, and
//! [`Schedules::hour_totals`] those of many jobs together.

mod ahead;
mod bulk;
mod calendars;
mod chain;
mod changes;
mod client;
mod complete;
mod definition;
mod errors;
#[cfg(feature = "json")]
mod export;
mod history;
mod hours;
#[cfg(feature = "json")]
mod json;
mod list;
mod nodes;
mod operate;
mod owned_operation;
mod planned;
#[cfg(feature = "json")]
mod repr;
mod requests;
mod route;
mod shared_requests;
mod shortest_period;
mod spec_cache;
mod sync;
mod transfer;
mod value;
mod why;

pub use crate::hours::{Hour, HourTotals, Spread};
pub use crate::run_ticket::RunTicket;
pub use ahead::ahead_until;
pub use bulk::{Bulk, BulkReport};
pub(crate) use calendars::{AT_ONCE, of_reply, record_of};
#[cfg(all(test, feature = "codec"))]
pub(crate) use chain::delivered;
pub use changes::{ChangeFilter, ChangePage};
pub use client::Schedules;
pub use definition::Definition;
pub(crate) use definition::Found;
#[cfg(feature = "json")]
pub use export::{ExportLine, Imported, ScheduleExport};
pub use list::{Filter, ScheduleState};
pub use operate::{MAX_BACKFILL, MAX_SKIP};
pub use planned::Creation;
pub use route::Handler;
pub(crate) use route::{Resolved, Route, Routed, Router};
pub use sync::{DesiredState, Difference, Step, SyncProgress};
pub use value::{Gap, StoredSchedule};
pub use why::{Fact, Why, WhyCode};
