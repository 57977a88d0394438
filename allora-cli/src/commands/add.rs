//! `allora add`: a new stored schedule.

use super::options::{Options, payload};
use crate::{
    declared::warn_of_unhandled,
    failure::{Failure, Outcome},
    kinds,
    output::complain,
    session::{self, Session, state_json},
    store::StoreArgs,
};
use allora_core::{AnySchedule, StoredSchedule};
use clap::Args;
use std::io::{self, Write};

/// Adds a stored schedule.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora add backup command '0 4 * * *' '{\"command\": [\"backup\", \"--all\"]}' -t Europe/Paris
  allora add invoices http '0 9 1 * *' '{\"url\": \"https://app.example/invoices\"}' --attempts 10
  allora add s1 user_task '* * * * *' '{}' -d 30 -t Asia/Tokyo -s 1356966000 -a 1356970000")]
pub(crate) struct Add {
    /// The schedule's name.
    name: String,
    /// The kind, which selects the handler: `command`, `http`, or a kind of an application. Empty:
    /// the part of the name before the first dot.
    kind: String,
    /// A cron expression, a macro, or @every and a period.
    schedule: String,
    /// The data of its runs: a JSON object.
    data: String,
    /// Leaves out dates, the times of a schedule, or what a named calendar excludes, as
    /// calendar:holidays-de; may be given several times.
    #[arg(long, value_name = "RULE")]
    except: Vec<String>,
    /// Moves what --except leaves out to another day: next or previous, and perhaps a number,
    /// in-month and each, as in "next 3 in-month".
    #[arg(long, value_name = "WHERE", requires = "except")]
    r#move: Option<String>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints the added schedule as JSON.
    #[arg(long)]
    json: bool,
}

impl Add {
    pub(crate) fn run(self) -> Outcome {
        let kind = match self.kind.as_str() {
            "" => self.name.split('.').next().unwrap_or_default(),
            kind => kind,
        };
        let kind = self.options.kind(kind)?;
        let data = payload(&self.data)?;
        kinds::check(&kind, &data)?;
        let rules = self.except.iter().map(|rule| format!("; except {rule}"));
        let rules = rules.chain(self.r#move.iter().map(|to| format!("; move {to}")));
        let schedule = self.schedule.clone() + &rules.collect::<String>();
        let stored = StoredSchedule::new(&self.name, &kind, &schedule).data(&data);
        let mut stored = self.options.apply(stored);
        let default = self.place.settings()?.timezone;
        if let (None, Some(zone)) = (&self.options.timezone, default)
            && AnySchedule::for_job(&self.name, &schedule).is_ok_and(|given| given.lacks_zone())
        {
            stored = stored.in_zone(zone);
        }
        if let Ok(definition) = stored.definition() {
            for warning in definition.schedule().warnings() {
                complain("warning", &warning.message);
            }
        }
        let state = session::with(&self.place, async |session: Session| {
            let state = session.schedules.add(&stored).await.map_err(Failure::of_input)?;
            warn_of_unhandled(&session, [stored.kind()]).await;
            Ok(state)
        })?;
        if self.json {
            writeln!(io::stdout(), "{}", state_json(&state, false))?;
        }
        Ok(())
    }
}
