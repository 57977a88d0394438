//! `allora calendar`: named calendars, which stored schedules use.

use super::file::{self, shown_as};
use crate::{
    failure::{Failure, Outcome},
    output::{counted, on_one_line},
    session::{self, Session},
    store::StoreArgs,
    table,
};
use allora_core::{Result, schedule::Calendar as Rules};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use std::{
    io::{self, Write},
    path::PathBuf,
};

/// Manages named calendars: holidays, office hours and blackout periods.
///
/// A stored schedule uses one with `except calendar:NAME`.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora calendar put holidays-de holidays.txt
  allora calendar put holidays-de --dates '2026-12-25 2026-12-26' --dates 2027-01-01
  allora add report command '0 9 * * MON-FRI' '{\"command\": [\"report\"]}' --except calendar:holidays-de
  allora next report --explain")]
pub(crate) struct Calendar {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Put(Put),
    List(List),
    Show(Show),
    Delete(Delete),
}

/// Adds a calendar, or replaces the one of this name. Prints the schedules that are planned anew,
/// because their next time is not excluded any more, or is moved to another day.
///
/// A node learns of the change at once if the store has wake-ups, and else within its --heartbeat
/// (15 s). What was claimed before runs.
#[derive(Debug, Args)]
#[command(after_help = "\
FILE
  one or more dates a line, or a rule: except, only-within or blackout; # begins a comment:
    2026-12-25 2026-12-26   # Christmas
    2027-01-01 Europe/Berlin
    except SAT SUN
    blackout 2026-12-20T00:00:00Z/2027-01-07T00:00:00Z
    only-within 9:00-17:30")]
struct Put {
    /// The calendar's name: one word.
    name: String,
    /// The file; - is standard input.
    #[arg(required_unless_present = "dates", conflicts_with = "dates")]
    file: Option<PathBuf>,
    /// Dates with blanks between them, and perhaps a zone at the end; may be given several times.
    #[arg(long)]
    dates: Vec<String>,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON.
    #[arg(long)]
    json: bool,
}

/// Lists the calendars, by name.
#[derive(Debug, Args)]
struct List {
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

/// Prints a calendar, as `allora calendar put` reads it.
#[derive(Debug, Args)]
struct Show {
    /// The calendar's name.
    name: String,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, with the names of the schedules that use it.
    #[arg(long)]
    json: bool,
}

/// Deletes a calendar that no stored schedule uses.
#[derive(Debug, Args)]
struct Delete {
    /// The calendar's name.
    name: String,
    #[command(flatten)]
    place: StoreArgs,
}

/// The number of calendars that are read at once.
const PAGE: usize = 100;

impl Calendar {
    pub(crate) fn run(self) -> Outcome {
        match self.command {
            Command::Put(put) => put.run(),
            Command::List(list) => list.run(),
            Command::Show(show) => show.run(),
            Command::Delete(delete) => session::with(&delete.place, async |session: Session| {
                Ok(session.schedules.delete_calendar(&delete.name).await?)
            }),
        }
    }
}

impl Put {
    fn run(self) -> Outcome {
        let (text, place) = match &self.file {
            Some(file) => (file::text(file)?, shown_as(file)),
            None => (self.dates.join("\n"), "--dates".to_owned()),
        };
        let wrong = |error| Failure::wrong(format!("{place}: {error}"));
        let calendar = Rules::parse(&text).map_err(wrong)?;
        let moved = session::with(&self.place, async |session: Session| {
            let put = session.schedules.upsert_calendar(&self.name, &calendar).await;
            put.map_err(Failure::of_input)
        })?;
        let mut out = io::stdout().lock();
        if self.json {
            let mut object = object(&self.name, &Ok(calendar));
            object["replanned"] = json!(moved);
            return Ok(writeln!(out, "{object}")?);
        }
        writeln!(out, "{}: {}.", self.name, size(&calendar))?;
        for name in moved {
            writeln!(out, "{} is planned anew.", on_one_line(&name))?;
        }
        Ok(())
    }
}

impl List {
    fn run(self) -> Outcome {
        let calendars = session::with(&self.place, async |session: Session| all(&session).await)?;
        if self.json {
            let mut out = io::BufWriter::new(io::stdout().lock());
            for (name, calendar) in &calendars {
                writeln!(out, "{}", object(name, calendar))?;
            }
            return Ok(out.flush()?);
        }
        let rows: Vec<[String; 2]> = calendars
            .iter()
            .map(|(name, calendar)| {
                let size = match calendar {
                    Ok(calendar) => size(calendar),
                    Err(error) => error.to_string(),
                };
                [name.clone(), size]
            })
            .collect();
        table::print(["name", "size"], &rows)
    }
}

impl Show {
    fn run(self) -> Outcome {
        let (calendar, users) = session::with(&self.place, async |session: Session| {
            let calendar = session.schedules.calendar(&self.name).await?;
            let users = match self.json {
                true => session.schedules.calendar_users(&self.name, usize::MAX).await?,
                false => Vec::new(),
            };
            Ok((calendar, users))
        })?;
        let mut out = io::stdout().lock();
        if !self.json {
            return Ok(writeln!(out, "{calendar}")?);
        }
        let text = calendar.to_string();
        let mut object = object(&self.name, &Ok(calendar));
        object["text"] = text.into();
        object["users"] = json!(users);
        Ok(writeln!(out, "{object}")?)
    }
}

/// All calendars of the store.
pub(super) async fn all(session: &Session) -> Outcome<Vec<(String, Result<Rules>)>> {
    let mut calendars: Vec<(String, Result<Rules>)> = Vec::new();
    loop {
        let after = calendars.last().map(|(name, _)| name.clone());
        let more = session.schedules.calendars(after.as_deref(), PAGE).await?;
        let is_last = more.len() < PAGE;
        calendars.extend(more);
        if is_last {
            return Ok(calendars);
        }
    }
}

fn size(calendar: &Rules) -> String {
    let dates = counted(calendar.dates(), "date");
    match calendar.rules() {
        0 => dates,
        rules => format!("{dates}, {}", counted(rules, "other rule")),
    }
}

fn object(name: &str, calendar: &Result<Rules>) -> Value {
    match calendar {
        Ok(calendar) => {
            json!({ "name": name, "dates": calendar.dates(), "rules": calendar.rules() })
        }
        Err(error) => json!({ "name": name, "unreadable": error.to_string() }),
    }
}
