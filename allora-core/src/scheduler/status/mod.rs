//! The state of this node as others see it: health, conditions and metrics.

pub(in crate::scheduler) mod active;
pub(in crate::scheduler) mod board;
pub(in crate::scheduler) mod health;
#[cfg_attr(not(feature = "metrics"), path = "no_metrics.rs")]
pub(in crate::scheduler) mod metrics;
