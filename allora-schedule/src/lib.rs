//! Schedules as pure functions: cron expressions in time zones, periods, instants and crontabs.
//!
//! ```
//! use allora::{Schedule, cron};
//!
//! let weekdays_at_nine = cron("0 9 * * MON-FRI Europe/Rome")?;
//! let friday_noon = "2026-03-27T12:00:00Z".parse().unwrap();
//! // The clocks in Rome are set forward on the Sunday in between.
//! let monday = weekdays_at_nine.next_at(friday_noon).unwrap();
//! assert_eq!(monday.to_string(), "2026-03-30 07:00:00 UTC");
//! # Ok::<(), allora::schedule::ParseError>(())
//! ```
//!
//! Nothing here reads a clock, sleeps, or starts a thread: a [`Schedule`] maps an instant to the
//! next one. Instants are in UTC, in whole milliseconds, from 1970 to 9999 (module [`time`]).
//!
//! | to run | write |
//! |---|---|
//! | by the calendar and a wall clock | [`cron()`], [`Cron`] |
//! | in the Quartz dialect | [`Cron::quartz`] |
//! | once each period, without drift | [`every`] |
//! | some time after the end of the run before | [`after_end`] |
//! | once | [`at`] |
//! | at sunrise, sunset, dawn or dusk of a place (feature `sun`) | [`Sun`] |
//! | every second week, on the last day of the month, by a rule of iCalendar | [`Recurrence`] |
//! | by a text or an English phrase | [`parse`] |
//! | except on dates, outside hours, in a blackout period | [`Schedule::except`], [`Schedule::only_within`], [`Schedule::blackout`] |
//! | on the next or previous day that nothing excludes, on a business day of the month | [`Filtered::moved`] |
//! | except by rules that are kept elsewhere, under a name | [`Calendar`] |
//! | by the lines of a crontab | [`crontab::parse`], [`crontab::parse_system`] |
//! | by a rule of your own | any `Fn(Time) -> Option<Time>`, or implement [`Schedule`] |
//!
//! Cron expressions follow Debian's cron, also where the clocks change ([`Dst`]). An expression
//! that never matches is rejected when it is read, so that every search ends. Errors name the
//! column and what to write instead ([`ParseError`]).
//!
//! [`next_n`] and [`between`] list instants, [`explain()`] adds the notes about changes of the
//! clock, and [`jitter()`] is a delay that follows from a job's name.

mod after_end;
mod any;
mod at;
mod calendar;
mod cron;
#[cfg(feature = "cron")]
mod cron_crate;
pub mod crontab;
mod english;
mod error;
mod every;
mod explain;
mod hash;
mod jitter;
mod nearest;
mod never;
mod note;
mod period;
mod phrase;
mod range;
mod recur;
mod schedule;
#[cfg_attr(not(feature = "sun"), path = "no_solar.rs")]
mod solar;
mod sun;
mod sun_event;
pub mod time;
mod zone;

pub use after_end::{AfterEnd, after_end};
pub use any::{AnySchedule, parse};
pub use at::{At, at, parse_instant};
pub use calendar::{Calendar, Dates, Excluded, Exclusion, Filtered, Move, Weekdays};
pub use cron::{Cron, Dst, Quartz, Warning, cron};
pub use error::{Field, ParseError, ScheduleError};
pub use every::{Every, every};
pub use explain::{Explain, Explained, explain};
pub use hash::stable_hash;
pub use jitter::jitter;
pub use never::{Never, never};
pub use note::{Note, NoteReason};
pub use period::{parse_period, period_text};
pub use range::{Between, between, next_n};
pub use recur::Recurrence;
pub use schedule::Schedule;
#[doc(hidden)]
pub use schedule::{delay_after_end, is_built_in};
pub use sun::Sun;
pub use sun_event::SunEvent;
pub use time::Time;
pub use zone::{tz_version, zone_name};
