//! What the tests of schedulers share: a laboratory of simulated machines around one store, a store
//! that fails as told, and the log of what the jobs did.

mod faulty;
mod lab;
mod log;

pub(crate) use faulty::{Bare, Faults, Faulty, Rates};
pub(crate) use lab::{Lab, Member, Seat, at, ms, secs};
pub(crate) use log::{Entry, Log, Over};
