//! The public items of all crates of allora, under one name.
//!
//! [jobs]: guide::jobs
//! [choosing_a_store]: guide::choosing_a_store
//! [production]: guide::production
//! [backup]: guide::backup
//! [monitoring]: guide::monitoring
//! [troubleshooting]: guide::troubleshooting
//! [stored_schedules]: guide::stored_schedules
//! [workers]: guide::workers
//! [testing]: guide::testing
//! [writing_a_job_type]: guide::writing_a_job_type
//! [writing_a_store]: guide::writing_a_store
//! [workers]: guide::workers
//! [migrating]: guide::migrating
//!
// README links to the same guides as files. The first definition of a link counts, so here they are
// modules.
#![doc = include_str!("../README.md")]
//!
//! # Features
//!
//! Features only add items.
//!
//! | feature | what it adds | by default |
//! |---|---|---|
//! | `tokio` | [`runtime::Tokio`] | yes |
//! | `async-std` | `runtime::AsyncStd`; async-std is unmaintained upstream: use `smol` in new services | |
//! | `smol` | `runtime::Smol` | |
//! | `memory` | [`Memory`]: a store in process memory | yes |
//! | `json` | data of stored schedules as serde values; [`Health`], [`JobStatus`] and the states of jobs are `Serialize` | yes |
//! | `metrics` | metrics for any exporter of the crate `metrics`: see [`guide::monitoring`] | |
//! | `sun` | sunrise, sunset, dawn and dusk at a place as schedules: [`schedule::Sun`] | |
//! | `cron` | the `Schedule` of the `cron` crate is a [`Schedule`] | |
//! | `codec` | [`record`]`::codec`: records as bytes, for a store of your own | |
//! | `sqlite`, `postgres`, `mysql` | `sql`: a store in the database you have | |
//! | `etcd` | `etcd`: a store in etcd; its build needs `protoc` | |
//! | `redis` | `redis`: a store in Redis: one server, Sentinel, Cluster | |
//! | `redis-quorum` | `redis_quorum`: a store over three or five independent Redis servers; no stored schedules | |
//!
//! # Items to begin with
//!
//! - [`Scheduler`] and [`SchedulerBuilder`]: a scheduler from its jobs and settings.
//! - [`JobSpec`]: the settings of a job: delivery, catch-up, overlap, retry, bounds, jitter.
//! - [`Schedule`], [`every`], [`cron()`], [`at`] and the module [`schedule`]: the times of a job.
//! - [`Job`]: a job type of your own. [`store::RecordStore`]: a store of your own, in three methods;
//!   [`Backend`]: a wrapper around another store.
//! - [`Schedules`] and [`StoredSchedule`]: schedules that live in the store, and are added and changed
//!   while all nodes run. [`SchedulerBuilder::kind`] runs them. The module [`stored`] shows how to add a schedule
//!   for a customer.
//! - [`runtime::Sim`]: test schedules without waiting.
//! - [`crontab`]: read an existing crontab.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod guide;

pub use allora_core::*;
/// A store in etcd.
#[cfg(feature = "etcd")]
pub use allora_etcd as etcd;
#[cfg(feature = "memory")]
pub use allora_memory::Memory;
/// Stores in Redis.
#[cfg(feature = "redis")]
pub use allora_redis as redis;
/// A store over three or five independent Redis servers.
#[cfg(feature = "redis-quorum")]
pub use allora_redis_quorum as redis_quorum;
/// Stores in SQL databases: SQLite, PostgreSQL, MySQL and MariaDB.
///
/// For a pool or a transaction of sqlx, name the crate `allora-sql` itself. Its version follows that of
/// sqlx.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub mod sql {
    pub use allora_sql::{
        Column, Param, RawStatement, RawTransaction, Sql, SqlBuilder, System, Tls, Url, Version,
    };
}
