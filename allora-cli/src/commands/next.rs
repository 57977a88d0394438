//! `allora next`: the next times of a schedule.

use crate::{
    clock,
    failure::{Failure, Outcome},
    output::complain,
    session::{self, Session},
    store::StoreArgs,
    values::{instant, shown},
};
use allora_core::{
    AnySchedule, Dst, Schedule, Settings, Time, schedule::explain, stored::Definition,
};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::io::{self, Write};

/// Shows the next times of a schedule, one RFC 3339 instant a line, in UTC.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora next '30 2 * * *' --zone America/New_York --after 2026-03-07T12:00:00Z --count 8
  allora next '@every 90m'
  allora next 'H 4 * * *' --name invoices --explain
  allora next invoices --url postgres://cron@db.example/cron

A schedule is a cron expression of five fields, or of six with seconds first, with a zone as last
word if wanted; a macro such as @daily; @every and a period; @at and an instant; @quartz and an
expression in the Quartz dialect; or a phrase that has exactly one reading, such as 'every monday at
9am Europe/Rome'.")]
pub(crate) struct Next {
    /// The schedule; a single word that is no macro is the name of a stored one.
    schedule: String,
    #[command(flatten)]
    place: StoreArgs,
    /// The zone whose wall clock it goes by, as Europe/Rome or +02:00 [default: UTC, unless the
    /// schedule names one].
    #[arg(long, short = 't', visible_alias = "timezone")]
    zone: Option<String>,
    /// Shows the times after this instant: RFC 3339, or seconds since 1970 [default: now].
    #[arg(long, value_parser = instant)]
    after: Option<Time>,
    /// Number of times to print.
    #[arg(long, short = 'n', default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    count: u16,
    /// The treatment of local times that a change of the clock skips or repeats [default: debian,
    /// unless the schedule says otherwise].
    #[arg(long)]
    dst: Option<DstPolicy>,
    /// The job's name, from which `H` in the schedule follows.
    #[arg(long)]
    name: Option<String>,
    /// Adds the reasons where a time differs from the plain reading of the schedule.
    #[arg(long)]
    explain: bool,
    /// Prints JSON, one object a line.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum DstPolicy {
    /// Fixed times that are skipped run once after the gap, and repeated ones the first time;
    /// schedules whose minute or hour begins with `*` follow elapsed time.
    Debian,
    /// As the wall clock shows it: skipped times are left out, repeated ones run twice.
    Literal,
}

impl Next {
    pub(crate) fn run(self) -> Outcome {
        let (name, schedule, settings) = self.job()?;
        for warning in schedule.warnings() {
            complain("warning", &warning.message);
        }
        if self.explain
            && let Some(description) = schedule.describe()
        {
            complain("note", &description);
        }
        let after = self.after.unwrap_or_else(clock::now);
        let count = usize::from(self.count);
        let next = explain(&name, &schedule, &settings, after, count);
        let mut out = io::stdout().lock();
        for occurrence in &next {
            let (at, due) = (shown(occurrence.nominal), shown(occurrence.due));
            let reasons = &occurrence.reasons;
            match (self.json, self.explain) {
                (true, true) => {
                    writeln!(
                        out,
                        "{}",
                        json!({ "scheduled_at": at, "due_at": due, "reasons": reasons })
                    )?;
                }
                (true, false) => writeln!(out, "{}", json!({ "scheduled_at": at, "due_at": due }))?,
                (false, true) if !reasons.is_empty() => {
                    writeln!(out, "{at}  {}", reasons.join("; "))?;
                }
                (false, _) => writeln!(out, "{at}")?,
            }
        }
        out.flush()?;
        if next.is_empty() {
            complain("note", &format!("the schedule has no occurrence after {}", shown(after)));
        }
        Ok(())
    }

    /// The job that is asked about: its name, its schedule, and its settings.
    fn job(&self) -> Outcome<(String, AnySchedule, Settings)> {
        let is_name = !self.schedule.starts_with('@') && !self.schedule.contains([' ', '\t']);
        if !is_name || self.name.is_some() {
            let name = self.name.clone().unwrap_or_default();
            return Ok((name, self.schedule()?, Settings::default()));
        }
        let name = self.schedule.clone();
        let state = session::with(&self.place, async |session: Session| {
            Ok(session.schedules.get(&name).await?)
        });
        let state = state.map_err(|failure| match failure {
            Failure::Failed(what) => Failure::failed(format!(
                "`{name}` is one word, and so the name of a stored schedule: {what}"
            )),
            other => other,
        })?;
        let definition = Definition::parse(&name, &state.definition)?;
        if self.zone.is_some() || self.dst.is_some() {
            let what = "--zone and --dst are for schedules on the command line";
            return Err(Failure::Usage(what.into()));
        }
        Ok((name, definition.schedule().clone(), definition.settings().clone()))
    }

    fn schedule(&self) -> Outcome<AnySchedule> {
        let wrong = |error| Failure::failed(format!("the schedule: {error}"));
        let schedule = match &self.name {
            Some(name) => {
                allora_core::check_name(name)?;
                AnySchedule::for_job(name, &self.schedule)
            }
            None => self.schedule.parse(),
        };
        let mut schedule = schedule.map_err(wrong)?;
        if let Some(zone) = &self.zone {
            let wrong = |error| Failure::failed(format!("--zone: {error}"));
            schedule = schedule.in_zone(zone).map_err(wrong)?;
        }
        Ok(match (schedule, self.dst) {
            (AnySchedule::Cron(cron), Some(DstPolicy::Debian)) => {
                AnySchedule::Cron(cron.dst(Dst::Debian))
            }
            (AnySchedule::Cron(cron), Some(DstPolicy::Literal)) => {
                AnySchedule::Cron(cron.dst(Dst::Literal))
            }
            (schedule, _) => schedule,
        })
    }
}
