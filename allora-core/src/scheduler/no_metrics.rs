//! No metrics: the feature `metrics` is off.

use crate::{error::Error, event::Event, health::KeyWait, time::Time};
use chrono::TimeDelta;
use std::{sync::Arc, time::Duration};

#[derive(Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(super) fn new() -> Self {
        Self
    }
    pub(super) fn add_job(&self, _: &Arc<str>) {}
    pub(super) fn observe(&self, _: &Event) {}
    pub(super) fn claimed(&self, _: usize, _: Duration) {}
    pub(super) fn claims_failed(&self, _: usize, _: &'static str) {}
    pub(super) fn requested(&self, _: &'static str, _: Duration, _: Option<&Error>) {}
    pub(super) fn woken(&self, _: &'static str) {}
    pub(super) fn next_due(&self, _: Option<Time>) {}
    pub(super) fn overdue(&self, _: usize) {}
    pub(super) fn ended(&self) {}
    pub(super) fn clock_offset(&self, _: TimeDelta) {}
    pub(super) fn key_waits(&self, _: &[Arc<KeyWait>]) {}
}
