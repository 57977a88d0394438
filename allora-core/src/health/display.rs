//! Health as text: one line for each fact, for an operator.

use super::{Health, KindCapacity, NodesStatus, Notifications};
use crate::{
    condition::{ActiveCondition, one_line},
    time::{Time, since},
};
use chrono::SecondsFormat;
use std::{fmt, time::Duration};

/// One line for each fact, without an indentation or an empty line. The first line is a summary.
impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let summary = match (self.is_stopping, self.is_healthy()) {
            (true, _) => "stopping",
            (false, true) => "ok",
            (false, false) => "not ok",
        };
        write!(f, "{summary}: node {} at {}", self.node, written(self.at))?;
        self.store_lines(f)?;
        self.node_lines(f)?;
        self.condition_lines(f)
    }
}

impl Health {
    fn store_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let store = &self.store;
        match (store.last_reply, store.age) {
            (Some(at), Some(age)) => {
                write!(f, "\nstore: last reply {} ago, at {}", short(age), written(at))?;
            }
            _ => f.write_str("\nstore: no reply yet")?,
        }
        f.write_str(match self.notifications {
            Notifications::Unsupported => "\nnotifications: none in this store; polled",
            Notifications::Connecting => "\nnotifications: not subscribed yet; polled",
            Notifications::On => "\nnotifications: on",
            Notifications::Off => "\nnotifications: off; polled",
        })
    }

    fn node_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.clock_offset_ms {
            None => f.write_str("\nclock: not compared yet")?,
            Some(0) => f.write_str("\nclock: agrees with the store's")?,
            Some(offset) => {
                let by = short(Duration::from_millis(offset.unsigned_abs()));
                let side = if offset > 0 { "ahead of" } else { "behind" };
                write!(f, "\nclock: {by} {side} the store's, which is used")?;
            }
        }
        if self.nodes.live > 0 {
            let NodesStatus { live, idle, dead } = &self.nodes;
            write!(f, "\nnodes: {live} live, {idle} of them idle, {} dead", dead.len())?;
        }
        let capacity = self.capacity;
        write!(f, "\ncapacity: {} of {} runs", capacity.used, capacity.limit)?;
        if capacity.reserved > 0 {
            write!(f, ", and {} reserved for claims", capacity.reserved)?;
        }
        for KindCapacity { kinds, limit, used } in &self.kind_capacity {
            write!(f, "\ncapacity: {used} of {limit} runs of the kind {}", one_line(kinds))?;
        }
        if self.unresolved_claims > 0 {
            write!(f, "\nclaims: {} without a reply; repeated", self.unresolved_claims)?;
        }
        let (jobs, paused) = (self.jobs, self.paused);
        let of_job = |one: &&ActiveCondition| one.condition.is_problem_of_job();
        let problems = self.conditions.iter().filter(of_job).count();
        write!(f, "\njobs: {jobs} in code, {paused} paused, {problems} with a problem")
    }

    fn condition_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for ActiveCondition { condition, since: begun } in &self.conditions {
            let (code, lasts) = (condition.code(), short(since(self.at, *begun)));
            let remedy = condition.remedy();
            write!(f, "\n{code} since {}, for {lasts}: {condition}; {remedy}", written(*begun))?;
        }
        Ok(())
    }
}

fn written(at: Time) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// A duration in two digits or more of its largest unit.
fn short(span: Duration) -> String {
    match span.as_secs() {
        0..10 => format!("{:.1} s", span.as_secs_f64()),
        seconds @ 10..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3_600),
        seconds => format!("{} days", seconds / 86_400),
    }
}
