//! What threads share in `notify` and in the control of a run. The searches of `loom` put their own in its place.

pub(crate) use futures::task::AtomicWaker;
pub(crate) use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU8, AtomicU64},
};
