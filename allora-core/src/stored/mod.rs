//! Schedules that live in a store: added, changed and removed while everything runs, by an
//! application for its customers or by an operator, and run by nodes that know their kinds.
//!
//! # How do I add a schedule for a customer?
//! With [`Schedules`], on any node or none. [`Stored`] says what one is.
//!
//! # Who runs it?
//! Any node whose scheduler was given a handler for its kind: [`Builder::kind`](crate::Builder::kind).
//! Kinds that a node does not know it leaves to others.
//!
//! # How do I change one?
//! Read it with [`Schedules::get`], make it a [`Stored`] with [`Stored::of`], change that, and give
//! it to [`Schedules::modify`]: of two who read the same, the second is told.
//!
//! # What becomes of one that fails?
//! It is tried again as its [`Retry`](crate::Retry) policy says, and is then a dead letter in
//! [`State::dead`](crate::backend::State::dead), to be run again with [`Schedules::rerun`] or
//! dismissed with [`Schedules::dismiss`]. The last [`MAX_DEAD`](crate::record::MAX_DEAD) are kept.
//!
//! # Can I keep them in a file?
//! [`Stored`] is read and written by serde, as an object, with the feature `json`;
//! [`Schedules::sync`] brings about what a file, or code, [declares](Declared).
//!
//! # How do I move them to another store?
//! With [`Schedules::list`] there and [`Schedules::import`] here, or by way of a file of
//! `Exported`.
//!
//! # Can I list them by due time?
//! The stores keep lists by name. [`Schedules::list_by_due`] reads them all and keeps the first; so does
//! a list of those in one [`Condition`].

mod client;
mod definition;
#[cfg(feature = "json")]
mod exported;
#[cfg(feature = "json")]
mod form;
#[cfg(feature = "json")]
mod json;
mod list;
mod operate;
mod planned;
mod route;
mod sync;
mod transfer;
mod value;
mod words;

pub use client::Schedules;
pub use definition::Definition;
#[cfg(feature = "json")]
pub use exported::Exported;
pub use list::{Condition, Filter};
pub use operate::{Gap, MAX_BACKFILL};
pub use route::{Handler, Pattern};
pub(crate) use route::{Route, Routed, Router};
pub use sync::{Declared, Difference, Step};
pub use value::Stored;
