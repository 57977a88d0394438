//! The same calls as in `metrics.rs` without effect: the feature `metrics` is off.

use crate::{condition::ActiveCondition, error::Error, event::Event, time::Time};
use chrono::TimeDelta;
use std::{sync::Arc, time::Duration};

#[derive(Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(in crate::scheduler) fn new() -> Self {
        Self
    }
    pub(in crate::scheduler) fn add_job(&self, _: &Arc<str>) {}
    pub(in crate::scheduler) fn observe(&self, _: &Event) {}
    pub(in crate::scheduler) fn claimed(&self, _: usize, _: Duration) {}
    pub(in crate::scheduler) fn claims_failed(&self, _: usize, _: &'static str) {}
    pub(in crate::scheduler) fn requested(&self, _: &'static str, _: Duration, _: Option<&Error>) {}
    pub(in crate::scheduler) fn woken(&self, _: &'static str) {}
    pub(in crate::scheduler) fn next_due(&self, _: Option<Time>) {}
    pub(in crate::scheduler) fn overdue(&self, _: usize) {}
    pub(in crate::scheduler) fn ended(&self, _: &[Arc<ActiveCondition>]) {}
    pub(in crate::scheduler) fn clock_offset(&self, _: TimeDelta) {}
}
