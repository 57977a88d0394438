//! The ticket of a run: with it, any process that reaches the store completes the run.

use crate::{
    backend::{Cursor, NextRun},
    error::{Error, Result},
    time::{Time, from_millis},
};
use allora_schedule::Excluded;
use std::{fmt, str::FromStr};

/// All that completes a run, from [`Run::ticket`](crate::Run::ticket). It holds for one attempt. As text,
/// it goes to a worker in another process and comes back; whoever lets it leave the program signs it.
///
/// ```
/// # use allora::stored::RunTicket;
/// let ticket: RunTicket = "7 keep - acme/report".parse()?;
/// assert_eq!((ticket.name(), ticket.fence()), ("acme/report", 7));
/// assert_eq!(ticket.to_string(), "7 keep - acme/report");
/// # Ok::<(), allora::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunTicket {
    pub(crate) name: String,
    pub(crate) fence: i64,
    pub(crate) then: Cursor,
    pub(crate) excluded: Option<Excluded>,
}

impl RunTicket {
    /// The job.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The fence of the run.
    pub fn fence(&self) -> i64 {
        self.fence
    }
}

/// Four parts with a space between them: the fence, the move of the cursor, the occurrences that are left
/// out by a calendar, and the name. Times are milliseconds.
impl fmt::Display for RunTicket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.fence)?;
        match self.then {
            Cursor::Keep => f.write_str("keep"),
            Cursor::AfterEnd => f.write_str("after-end"),
            Cursor::To(None) => f.write_str("end"),
            Cursor::To(Some(NextRun { scheduled_at, due_at })) => {
                write!(f, "{},{}", scheduled_at.timestamp_millis(), due_at.timestamp_millis())
            }
        }?;
        match &self.excluded {
            None => f.write_str(" -"),
            Some(Excluded { first, last, count }) => {
                write!(f, " {},{}", first.timestamp_millis(), last.timestamp_millis())?;
                count.map_or(Ok(()), |count| write!(f, ",{count}"))
            }
        }?;
        write!(f, " {}", self.name)
    }
}

impl FromStr for RunTicket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        parse(text).ok_or_else(|| Error::invalid("this is not the ticket of a run"))
    }
}

fn parse(text: &str) -> Option<RunTicket> {
    let mut parts = text.splitn(4, ' ');
    let fence = parts.next()?.parse().ok()?;
    let then = match parts.next()? {
        "keep" => Cursor::Keep,
        "after-end" => Cursor::AfterEnd,
        "end" => Cursor::To(None),
        times => {
            let (scheduled_at, due_at) = times.split_once(',')?;
            let (scheduled_at, due_at) = (time(scheduled_at)?, time(due_at)?);
            Cursor::To(Some(NextRun { scheduled_at, due_at }))
        }
    };
    let excluded = match parts.next()? {
        "-" => None,
        range => {
            let mut range = range.split(',');
            let (first, last) = (time(range.next()?)?, time(range.next()?)?);
            let count = range.next().map(str::parse).transpose().ok()?;
            Some(Excluded { first, last, count })
        }
    };
    Some(RunTicket { name: parts.next()?.to_owned(), fence, then, excluded })
}

fn time(text: &str) -> Option<Time> {
    from_millis(text.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_ticket_is_read_as_it_was_written() {
        for text in [
            "7 keep - a b  c",
            "-1 end 1000,2000 a",
            "7 60000,61000 - a",
            "9 60000,60000 1000,2000,3 \u{e9}",
        ] {
            assert_eq!(text.parse::<RunTicket>().unwrap().to_string(), text);
        }
        for wrong in ["", "7", "x keep - a", "7 soon - a", "7 1 - a", "7 keep 1 a", "7 keep -"] {
            let error = wrong.parse::<RunTicket>().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{wrong}");
        }
    }
}
