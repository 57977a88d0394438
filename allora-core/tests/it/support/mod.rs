//! The common parts of the scheduler tests: a laboratory of simulated machines around one store, a
//! store with programmed faults, and the log of the jobs' executions.

mod faulty;
mod lab;
mod log;
mod moody;
mod switched;

pub(crate) use faulty::{Bare, Faults, Faulty, Rates, Which};
pub(crate) use lab::{Lab, Member, Seat, at, failing, ms, secs, whole_history};
pub(crate) use log::{Entry, Log, Over};
pub(crate) use moody::Moody;
pub(crate) use switched::Switched;
