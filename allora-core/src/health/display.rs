//! Health as text: one line for each fact, for an operator.

use super::{Health, KindCapacity, NodesStatus, Notifications, ProblemReason};
use crate::time::{Time, since};
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
        self.job_lines(f)
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
        for failing in &store.failing {
            let how = if failing.is_rejected { "rejected" } else { "not answered" };
            let (part, error) = (failing.part.word(), &failing.error);
            write!(f, "\nstore: {part} {how} since {}: {error}", written(failing.since))?;
        }
        if let Some(warning) = &store.durability_warning {
            write!(f, "\nstore: durability: {warning}")?;
        }
        match &self.notifications {
            Notifications::Unsupported => {
                f.write_str("\nnotifications: none in this store; polled")
            }
            Notifications::Connecting => f.write_str("\nnotifications: not subscribed yet; polled"),
            Notifications::On => f.write_str("\nnotifications: on"),
            Notifications::Off { since, error } => {
                write!(f, "\nnotifications: off since {}, polled: {error}", written(*since))
            }
        }
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
        if let Some(since) = capacity.full_since {
            write!(
                f,
                "\ncapacity: due occurrences wait since {}; start more nodes, or set a larger \
                 concurrency",
                written(since)
            )?;
        }
        for KindCapacity { kinds, limit, used } in &self.kind_capacity {
            write!(f, "\ncapacity: {used} of {limit} runs of the kind {}", one_line(kinds))?;
        }
        if self.unresolved_claims > 0 {
            write!(f, "\nclaims: {} without a reply; repeated", self.unresolved_claims)?;
        }
        Ok(())
    }

    fn job_lines(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (jobs, paused, problems) = (self.jobs, self.paused, self.problems.len());
        write!(f, "\njobs: {jobs} in code, {paused} paused, {problems} with a problem")?;
        for problem in &self.problems {
            let (name, reason) = (one_line(&problem.name), problem.reason.word());
            write!(f, "\njob {name}: {reason} since {}", written(problem.since))?;
            match problem.until {
                Some(until) => write!(f, ", until {}", written(until))?,
                None => write!(f, ", for {}", short(since(self.at, problem.since)))?,
            }
            if !problem.detail.is_empty() {
                write!(f, ": {}", one_line(&problem.detail))?;
            }
            write!(f, "; {}", problem.remedy())?;
        }
        for wait in &self.key_waits {
            let (job, key) = (one_line(&wait.job), one_line(&wait.key));
            write!(f, "\njob {job}: waits since {} for the key {key}", written(wait.since))?;
            if !wait.holders.is_empty() {
                write!(f, ", held by {}", one_line(&wait.holders()))?;
            }
        }
        for unhandled in &self.unhandled_kinds {
            let (kind, example) = (one_line(&unhandled.kind), one_line(&unhandled.example));
            write!(
                f,
                "\nkind {kind}: no live node handles it; {} waiting; schedule {example} is due since \
                 {}; start a node with a handler for it",
                unhandled.waiting,
                written(unhandled.since)
            )?;
        }
        for mismatch in &self.data_mismatches {
            let [kind, example] = [&mismatch.kind, &mismatch.example].map(|text| one_line(text));
            write!(
                f,
                "\nkind {kind}: since {} the data of schedule {example} does not fit the handler ({}; builds: \
                 {}); deploy one build, or a type that reads both",
                written(mismatch.since),
                one_line(&mismatch.error),
                one_line(&mismatch.builds)
            )?;
        }
        if let Some(invalid) = &self.invalid_schedules {
            write!(
                f,
                "\n{} stored schedules cannot be run by this node, such as {}, since {}; {}",
                invalid.count,
                one_line(&invalid.example),
                written(invalid.since),
                ProblemReason::Invalid.remedy()
            )?;
        }
        for label in &self.unmatched_labels {
            write!(f, "\nlabel {}: no live node has it; start one with it", one_line(label))?;
        }
        for condition in self.conditions.iter().chain(&self.disagreements) {
            write!(f, "\n{}", one_line(condition))?;
        }
        if let Some(example) = self.orphans.examples.first() {
            let (count, example) = (self.orphans.count, one_line(example));
            write!(
                f,
                "\norphans: no live build declares {count} of the jobs in code, such as {example}; \
                 delete them, or deploy the build that declares them"
            )?;
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

/// Names and errors of users may have several lines.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}
