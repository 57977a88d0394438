//! `allora next`: the next times of a schedule.

use crate::{
    clock,
    crontab_files::{self, Defaults, Form, find},
    failure::{Failure, Outcome},
    output::{complain, on_one_line},
    session::{self, Session},
    store::StoreArgs,
    values::{instant, shown},
};
use allora_core::{AnySchedule, Dst, Every, Explained, Schedule, Settings, Time, backend::NextRun};
use chrono::TimeDelta;
use clap::{Args, ValueEnum};
use serde_json::json;
use std::{
    collections::HashMap,
    io::{self, Write},
    path::PathBuf,
    sync::Arc,
};

/// Shows the next times of a schedule, one RFC 3339 instant a line, in UTC.
#[derive(Debug, Args)]
#[command(after_help = "\
EXAMPLES
  allora next '30 2 * * *' --zone America/New_York --after 2026-03-07T12:00:00Z --count 8
  allora next '@every 90m'
  allora next 'every other friday at 9am from 2026-03-06' --zone Europe/Rome --explain
  allora next 'H 4 * * *' --name invoices --explain
  allora next invoices --url postgres://cron@db.example/cron

A schedule is a cron expression of five fields, or of six with seconds first, with a zone as last
word if wanted; a macro such as @daily; @every and a period; @at and an instant; @quartz and an
expression in the Quartz dialect; a recurrence of iCalendar such as 'DTSTART;TZID=Europe/Rome:20260302T090000
RRULE:FREQ=WEEKLY;INTERVAL=2', or of ISO 8601; or a phrase that has exactly one reading, such as 'every
2 weeks on monday at 9am Europe/Rome from 2026-03-02'.")]
pub(crate) struct Next {
    /// The schedule; a single word that is not a macro is the name of a stored one.
    #[arg(required_unless_present = "crontab", default_value = "")]
    schedule: String,
    /// Shows the next time of each line of this crontab, or with --count the next times of all
    /// lines, with their names. May be given several times.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["schedule", "name", "dst"])]
    crontab: Vec<PathBuf>,
    #[command(flatten)]
    place: StoreArgs,
    /// The crontabs have a user before the command, as /etc/crontab [default: by the file's folder].
    #[arg(long, requires = "crontab")]
    system: bool,
    /// The lines of the crontabs have six time fields, seconds first.
    #[arg(long, requires = "crontab")]
    seconds: bool,
    /// The zone whose wall clock it goes by, as Europe/Rome or +02:00 [default: UTC, or the machine's
    /// for crontabs, unless the schedule names one].
    #[arg(long, short = 't', visible_alias = "timezone")]
    zone: Option<String>,
    /// Shows the times after this instant: RFC 3339, or seconds since 1970 [default: now].
    #[arg(long, value_parser = instant)]
    after: Option<Time>,
    /// Number of times to print [default: 5; of crontabs, the next one of each line].
    #[arg(long, short = 'n', value_parser = clap::value_parser!(u16).range(1..=10_000))]
    count: Option<u16>,
    /// Only times up to this instant: RFC 3339, or seconds since 1970.
    #[arg(long, value_parser = instant)]
    until: Option<Time>,
    /// Shows the times in the schedule's own zone.
    #[arg(long)]
    local: bool,
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

/// The number of times of one schedule, unless it is given.
const COUNT: u16 = 5;

/// The job that is asked about.
struct Job {
    name: String,
    schedule: AnySchedule,
    settings: Settings,
    /// The next times of a stored schedule, from its own state.
    coming: Option<Vec<Coming>>,
    after: Time,
}

/// One of the next times.
struct Coming {
    scheduled_at: Time,
    due_at: Time,
    reasons: Vec<String>,
}

fn explained(times: Vec<Explained>) -> Vec<Coming> {
    let coming = |Explained { nominal, due, reasons, .. }| Coming {
        scheduled_at: nominal,
        due_at: due,
        reasons,
    };
    times.into_iter().map(coming).collect()
}

/// The last instant up to `after` that is whole periods away from an occurrence.
fn in_phase(every: &Every, occurrence: Time, after: Time) -> Time {
    let period = i64::try_from(every.period().as_millis()).unwrap_or(i64::MAX);
    let past = (after - occurrence).num_milliseconds().rem_euclid(period);
    after - TimeDelta::milliseconds(past)
}

/// An instant in UTC, or by the clock of a zone.
fn time(at: Time, zone: Option<&str>) -> String {
    let local = zone.and_then(|zone| {
        let at = jiff::Timestamp::from_millisecond(at.timestamp_millis()).ok()?;
        Some(at.in_tz(zone).ok()?.strftime("%Y-%m-%dT%H:%M:%S%:z %Z").to_string())
    });
    local.unwrap_or_else(|| shown(at))
}

impl Next {
    pub(crate) fn run(self) -> Outcome {
        if !self.crontab.is_empty() {
            return self.lines();
        }
        let Job { name, schedule, settings, coming, after } = self.job()?;
        for warning in schedule.warnings() {
            complain("warning", &warning.message);
        }
        if self.explain
            && let Some(description) = schedule.describe()
        {
            complain("note", &description);
        }
        let count = usize::from(self.count.unwrap_or(COUNT));
        let mut next = match coming {
            Some(coming) => coming,
            None => explained(settings.explain(&name, &schedule, after, count)),
        };
        next.retain(|next| self.until.is_none_or(|until| next.scheduled_at <= until));
        let mut out = io::stdout().lock();
        for occurrence in &next {
            let zone = self.local.then(|| schedule.zone()).flatten();
            let at = time(occurrence.scheduled_at, zone);
            let due = time(occurrence.due_at, zone);
            let mut reasons = if self.explain { occurrence.reasons.clone() } else { Vec::new() };
            if !self.json && occurrence.due_at != occurrence.scheduled_at {
                reasons.push(format!("due at {due}"));
            }
            match (self.json, self.explain) {
                (true, true) => {
                    writeln!(
                        out,
                        "{}",
                        json!({ "scheduled_at": at, "due_at": due, "reasons": reasons })
                    )?;
                }
                (true, false) => writeln!(out, "{}", json!({ "scheduled_at": at, "due_at": due }))?,
                (false, _) if reasons.is_empty() => writeln!(out, "{at}")?,
                (false, _) => writeln!(out, "{at}  {}", reasons.join("; "))?,
            }
        }
        out.flush()?;
        if next.is_empty() {
            let until = self.until.map(|until| format!(" up to {}", shown(until)));
            let after = format!("after {}{}", shown(after), until.unwrap_or_default());
            match &schedule {
                AnySchedule::AfterEnd(_) => {
                    complain("note", "it runs now; its next time follows the end of that run")
                }
                _ => complain("note", &format!("the schedule has no occurrence {after}")),
            }
        }
        Ok(())
    }

    /// The job that is asked about: its name, its schedule, and its settings.
    fn job(&self) -> Outcome<Job> {
        let after = self.after.unwrap_or_else(clock::now);
        let is_name = !self.schedule.starts_with('@') && !self.schedule.contains([' ', '\t']);
        if !is_name || self.name.is_some() {
            let name = self.name.clone().unwrap_or_default();
            let (schedule, settings) = (self.given()?, Settings::default());
            return Ok(Job { name, schedule, settings, coming: None, after });
        }
        let name = self.schedule.clone();
        let count = usize::from(self.count.unwrap_or(COUNT));
        let state = session::with(&self.place, async |session: Session| {
            let state = session.schedules.get(&name).await?;
            // From its next occurrence: an interval has a phase of its own.
            let coming = match self.after {
                None => Some(session.schedules.next(&name, count).await?),
                Some(_) => None,
            };
            let definition = session.schedules.definition(&state).await?;
            Ok((state, definition, coming))
        });
        let (state, definition, coming) = state.map_err(|failure| match failure {
            Failure::Failed(what) => Failure::failed(format!(
                "`{name}` is one word, and so the name of a stored schedule: {what}"
            )),
            other => other,
        })?;
        if self.zone.is_some() || self.dst.is_some() {
            let what = "--zone and --dst are for schedules on the command line";
            return Err(Failure::Invalid(what.into()));
        }
        let (schedule, settings) = (definition.schedule().clone(), definition.settings().clone());
        let coming = coming.map(|coming| {
            // Nothing before its start is of interest.
            let start = settings.start.map(|start| start - TimeDelta::milliseconds(1));
            let mut before = start.map_or(after, |start| start.max(after));
            let next = |NextRun { scheduled_at, due_at }| {
                let notes = schedule.notes(before, scheduled_at);
                before = scheduled_at;
                let reasons = notes.into_iter().map(|note| note.message).collect();
                Coming { scheduled_at, due_at, reasons }
            };
            coming.into_iter().map(next).collect()
        });
        let after = match (&schedule, state.next) {
            (AnySchedule::Every(every), Some(next)) => in_phase(every, next.scheduled_at, after),
            _ => after,
        };
        Ok(Job { name, schedule, settings, coming, after })
    }

    /// The next time of each line of crontabs, or so many times of all lines; the earliest first.
    fn lines(&self) -> Outcome {
        // As the daemon reads them.
        let zone = Some(crontab_files::zone(self.zone.as_deref())?);
        let defaults = Defaults { zone, seconds: self.seconds, ..Defaults::default() };
        let after = self.after.unwrap_or_else(clock::now);
        // Lines without a time are rows with the reason, if each line is one.
        let (mut all, mut timeless) = (Vec::new(), Vec::new());
        let of_each = usize::from(self.count.unwrap_or(1));
        for source in find(&self.crontab, self.system.then_some(Form::System))? {
            let text = source.text().map_err(|wrong| Failure::wrong(wrong.to_string()))?;
            let reading = crontab_files::read(&source, &text, &defaults);
            if let Some(wrong) = reading.diagnostics.first() {
                return Err(Failure::wrong(wrong.to_string()));
            }
            for line in reading.lines {
                let Some(schedule) = line.schedule else {
                    timeless.push(("@reboot", line.name));
                    continue;
                };
                let mut times =
                    explained(line.settings.explain(&line.name, &schedule, after, of_each));
                times.retain(|next| self.until.is_none_or(|until| next.scheduled_at <= until));
                if times.is_empty() {
                    timeless.push(("never", line.name.clone()));
                }
                let zone = schedule.zone().map(str::to_owned).filter(|_| self.local);
                let times = times.into_iter();
                all.extend(times.map(|next| (next, line.name.clone(), zone.clone())));
            }
        }
        all.sort_by(|(one, name, _), (other, other_name, _)| {
            (one.scheduled_at, name).cmp(&(other.scheduled_at, other_name))
        });
        let mut out = io::BufWriter::new(io::stdout().lock());
        for (next, name, zone) in all.iter().take(self.count.map_or(usize::MAX, usize::from)) {
            let at = time(next.scheduled_at, zone.as_deref());
            let due = time(next.due_at, zone.as_deref());
            match self.json {
                true => {
                    let object = json!({ "scheduled_at": at, "due_at": due, "name": name });
                    writeln!(out, "{object}")?;
                }
                false => writeln!(out, "{at}  {}", on_one_line(name))?,
            }
        }
        for (reason, name) in timeless.iter().filter(|_| self.count.is_none()) {
            match self.json {
                true => {
                    let object = json!({ "scheduled_at": null, "due_at": null, "name": name });
                    writeln!(out, "{object}")?;
                }
                false => writeln!(out, "{reason:<20}  {}", on_one_line(name))?,
            }
        }
        Ok(out.flush()?)
    }

    /// The schedule on the command line, with the named calendars of the store.
    fn given(&self) -> Outcome<AnySchedule> {
        let schedule = self.schedule()?;
        if schedule.calendars().is_empty() {
            return Ok(schedule);
        }
        let calendars = session::with(&self.place, async |session: Session| {
            let mut calendars = HashMap::new();
            for name in schedule.calendars() {
                let calendar = session.schedules.calendar(name).await?;
                calendars.insert(name.to_owned(), Arc::new(calendar));
            }
            Ok(calendars)
        })?;
        Ok(schedule.with_calendars(|name| calendars.get(name).cloned()))
    }

    fn schedule(&self) -> Outcome<AnySchedule> {
        let wrong = |error| Failure::wrong(format!("the schedule: {error}"));
        let schedule = match &self.name {
            Some(name) => {
                allora_core::check_name(name).map_err(Failure::of_input)?;
                AnySchedule::for_job(name, &self.schedule)
            }
            None => self.schedule.parse(),
        };
        let mut schedule = schedule.map_err(wrong)?;
        if let Some(zone) = &self.zone {
            let wrong = |error| Failure::wrong(format!("--zone: {error}"));
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
