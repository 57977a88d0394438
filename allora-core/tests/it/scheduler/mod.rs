//! Schedulers in virtual time: the promises, one by one.

mod after_end;
mod cancel;
mod chains;
mod delivery;
mod deploys;
mod due_claims;
mod emptied;
mod fairness;
mod faults;
mod finished;
mod health;
mod hostile;
mod isolation;
mod keys;
mod liveness;
mod local;
mod long_jobs;
mod lost;
#[cfg(feature = "metrics")]
mod metrics;
mod nodes;
mod operators;
mod partial;
mod policies;
mod rates;
mod shares;
mod shutdown;
mod stops;
mod takeovers;
mod traces;
mod trigger_waits;
mod turns;
mod year;
