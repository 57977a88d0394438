//! The common parts of the scheduler tests: a laboratory of simulated machines around one store, a
//! store with programmed faults, and the log of the jobs' executions.

mod dies_at;
mod faulty;
mod lab;
mod log;
mod moody;
mod switched;

use allora_conformance::faults::{Bare, Wrapped};

pub(crate) use dies_at::DiesAt;
pub(crate) use faulty::{Faults, Faulty, Rates, Which};
pub(crate) use lab::{Lab, Member, Seat, at, failing, ms, secs, whole_history};
pub(crate) use log::{Entry, Log, Over};
pub(crate) use moody::Moody;
pub(crate) use switched::Switched;

/// A backend that can only reschedule.
pub(crate) fn bare(store: impl allora_core::Backend) -> impl allora_core::Backend {
    Wrapped::around(store, Bare)
}
