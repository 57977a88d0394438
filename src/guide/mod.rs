//! Guides: one page for each question, with examples that compile.
//!
//! | question | guide |
//! |---|---|
//! | How do I write a job, and when does it run? | [`jobs`] |
//! | How does a job that runs for hours survive deployments and crashes? | [`long_jobs`] |
//! | Which store fits? | [`choosing_a_store`] |
//! | What do I set before production? | [`production`] |
//! | How do I back a store up, and what does a restore mean? | [`backup`] |
//! | How do I see that everything runs? | [`monitoring`] |
//! | A job does not run, runs late, or ran twice. Why? | [`troubleshooting`] |
//! | How do I keep the schedules of my customers? | [`stored_schedules`] |
//! | How do programs in other languages run jobs? | [`workers`] |
//! | What does the JSON look like? | [`json`] |
//! | How do programs in other languages use it? | [`http_api`] |
//! | How do I test my jobs? | [`testing`] |
//! | How do I write a job type or a schedule of my own? | [`writing_a_job_type`] |
//! | How do I write a store? | [`writing_a_store`] |
//! | What changes if I used another scheduler before? | [`migrating`] |

#[doc = include_str!("backup.md")]
pub mod backup {}
#[doc = include_str!("choosing_a_store.md")]
pub mod choosing_a_store {}
#[doc = include_str!("http_api.md")]
pub mod http_api {}
#[doc = include_str!("json.md")]
pub mod json {}
#[doc = include_str!("jobs.md")]
pub mod jobs {}
#[doc = include_str!("long_jobs.md")]
pub mod long_jobs {}
#[doc = include_str!("migrating.md")]
pub mod migrating {}
#[doc = include_str!("monitoring.md")]
pub mod monitoring {}
#[doc = include_str!("production.md")]
pub mod production {}
#[doc = include_str!("stored_schedules.md")]
pub mod stored_schedules {}
#[doc = include_str!("testing.md")]
pub mod testing {}
#[doc = include_str!("troubleshooting.md")]
pub mod troubleshooting {}
#[doc = include_str!("workers.md")]
pub mod workers {}
#[doc = include_str!("writing_a_job_type.md")]
pub mod writing_a_job_type {}
#[doc = include_str!("writing_a_store.md")]
pub mod writing_a_store {}
