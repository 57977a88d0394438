//! Schedulers in virtual time: the promises, one by one.

mod cancel;
mod delivery;
mod deploys;
mod emptied;
mod faults;
mod health;
mod hostile;
mod isolation;
mod keys;
mod liveness;
mod local;
mod nodes;
mod operators;
mod policies;
mod shutdown;
mod year;
