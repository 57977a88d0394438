//! The log of the nodes, one JSON object a line.

use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, Write};

/// One thing that a node saw. All instants are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The job.
    pub job: String,
    /// The node: an id that no other process has.
    pub node: String,
    /// When: of a claim, the store's now that decided; otherwise by one clock for all nodes, as
    /// that of their machine.
    pub at: i64,
    /// The observation.
    #[serde(flatten)]
    pub what: What,
}

/// An observation of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
#[non_exhaustive]
pub enum What {
    /// It took an occurrence.
    Claim(Claims),
    /// The reply to the claim with this fence arrived, from a store without a clock: it has decided
    /// by the time at which the claim was sent, at some moment before this one.
    Answered {
        /// Of the claim.
        fence: i64,
    },
    /// The store confirmed that the lease or mark of this fence lasts until then.
    Extend {
        /// Of the run.
        fence: i64,
        /// By the store's clock.
        until: i64,
    },
    /// The job's code was started: the ground truth of executions, best written by the job itself.
    Start {
        /// The nominal instant.
        occurrence: i64,
        /// Of the run.
        fence: i64,
    },
    /// The store accepted the end of a run.
    End {
        /// The nominal instant.
        occurrence: i64,
        /// Of the run.
        fence: i64,
        /// The kind of its end.
        outcome: Outcome,
    },
    /// Instants were missed or skipped, and recorded so.
    Skip {
        /// The first of them.
        first: i64,
        /// The last of them.
        last: i64,
    },
    /// An at-most-once run was recorded as lost.
    Lost {
        /// The nominal instant.
        occurrence: i64,
        /// Of the run.
        fence: i64,
    },
}

/// The name under which an occurrence is in the log: a trigger is a job of its own, with one occurrence.
pub fn booked(job: &str, trigger: Option<&str>) -> String {
    match trigger {
        Some(id) => format!("{job}{TRIGGER}{id}"),
        None => job.to_owned(),
    }
}

/// The job and the id of a trigger, of a name in the log; `None` for a job's own occurrences.
pub fn trigger_of(booked: &str) -> Option<(&str, &str)> {
    booked.split_once(TRIGGER)
}

/// Stands between the job and the trigger. No name and no id has it, which is a control character.
const TRIGGER: char = '\u{1f}';

/// The claim of an occurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// The nominal instant.
    pub occurrence: i64,
    /// The fence it was taken under.
    pub fence: i64,
    /// Which attempt, from 1.
    pub attempt: u32,
    /// When the lease ends unless extended; `None` for a take at most once.
    pub until: Option<i64>,
}

/// The kind of a run's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Outcome {
    /// Well.
    Succeeded,
    /// With an error, for good.
    Failed,
    /// With an error, to be tried again.
    Retry,
    /// Returned to the store uncounted.
    Released,
    /// By a stopping node.
    Cancelled,
}

impl Outcome {
    /// True if nothing comes after it for this occurrence.
    pub(super) fn is_final(self) -> bool {
        !matches!(self, Outcome::Retry | Outcome::Released)
    }
}

/// Appends an event, in one write: whole lines survive a killed process.
///
/// # Errors
/// As the writer's.
pub fn write(log: &mut impl Write, event: &Event) -> io::Result<()> {
    let mut line = serde_json::to_vec(event)?;
    line.push(b'\n');
    log.write_all(&line)
}

/// Reads a log. A last line without its end is what a killed process leaves, and is ignored.
///
/// # Errors
/// `InvalidData`, with the number of the line, for a line that is no event; else as the reader's.
pub fn read(mut log: impl BufRead) -> io::Result<Vec<Event>> {
    let mut events = Vec::new();
    let mut line = String::new();
    for number in 1.. {
        line.clear();
        if log.read_line(&mut line)? == 0 || !line.ends_with('\n') {
            break;
        }
        let event = serde_json::from_str(&line).map_err(|cause| {
            io::Error::new(io::ErrorKind::InvalidData, format!("line {number}: {cause}"))
        })?;
        events.push(event);
    }
    Ok(events)
}
