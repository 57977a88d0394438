//! The primitives of `notify` and of the control of a run. The searches of `loom` put their own in the place of these.

pub(crate) use futures::task::AtomicWaker;
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU64},
};
