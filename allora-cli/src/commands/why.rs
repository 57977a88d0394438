//! `allora why`: why a job runs or does not run.

use crate::{
    failure::Outcome,
    kinds,
    output::on_one_line,
    session::{self, Session},
    store::StoreArgs,
    values::instant,
};
use allora_core::{
    ErrorKind, Time,
    backend::JobState,
    cron,
    schedule::between,
    stored::{Definition, Why as Reason, WhyCode},
};
use chrono::TimeDelta;
use clap::Args;
use std::io::{self, Write};

/// Says why a job does not run, or what became of a scheduled time, and what to do.
///
/// Prints the main reason first, and each other one on a line of its own.
#[derive(Debug, Args)]
pub(crate) struct Why {
    /// The job's name.
    name: String,
    /// A scheduled time: RFC 3339, seconds since 1970, or a time of the day as 02:30, which is the
    /// last one before now in the zone of the job's schedule [default: now].
    #[arg(long, value_parser = moment)]
    at: Option<Moment>,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints JSON, one object: the main reason, with the others in `also`.
    #[arg(long)]
    json: bool,
}

/// The time of the question.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Moment {
    At(Time),
    /// Hour and minute.
    OfDay(u8, u8),
}

fn moment(text: &str) -> Result<Moment, String> {
    if let Some(of_day) = of_day(text) {
        return Ok(of_day);
    }
    instant(text)
        .map(Moment::At)
        .map_err(|error| format!("{error}; a time of the day is written as 02:30"))
}

fn of_day(text: &str) -> Option<Moment> {
    let (hour, minute) = text.split_once(':')?;
    let number = |text: &str, end: u8| {
        let is_plain = matches!(text.len(), 1..=2) && text.bytes().all(|b| b.is_ascii_digit());
        text.parse().ok().filter(|number: &u8| is_plain && *number < end)
    };
    Some(Moment::OfDay(number(hour, 24)?, number(minute, 60).filter(|_| minute.len() == 2)?))
}

impl Why {
    pub(crate) fn run(self) -> Outcome {
        let reason = session::with(&self.place, async |session: Session| {
            let name = session.full_name(&self.name).await?;
            let state = match session.schedules.get(&name).await {
                // The history may have it still.
                Err(error) if error.kind() == ErrorKind::NotFound => JobState::empty(&name),
                state => state?,
            };
            let at = match self.at {
                None => None,
                Some(Moment::At(at)) => Some(at),
                Some(Moment::OfDay(hour, minute)) => {
                    let now = session.schedules.store_now().await?;
                    Some(last_of_day(zone(&state).as_deref(), (hour, minute), now)?)
                }
            };
            let reason = session.schedules.why(&name, at).await?;
            Ok(of_daemon(reason, &state, at.is_none()))
        })?;
        let mut out = io::stdout().lock();
        if self.json {
            writeln!(out, "{}", serde_json::json!(reason))?;
            return Ok(out.flush()?);
        }
        for reason in reason.each() {
            writeln!(out, "{}", on_one_line(&reason.to_string()))?;
        }
        Ok(out.flush()?)
    }
}

/// The zone of the job's schedule, if it names one.
fn zone(state: &JobState) -> Option<String> {
    let definition = Definition::parse(&state.name, &state.definition).ok()?;
    definition.schedule().zone().map(str::to_owned)
}

/// The last instant before now at which it was this time of the day. A time that a change of the
/// clocks dropped is that of the change, as for a schedule.
fn last_of_day(zone: Option<&str>, (hour, minute): (u8, u8), now: Time) -> Outcome<Time> {
    let daily = cron(&format!("{minute} {hour} * * *")).map_err(allora_core::Error::from)?;
    let daily = daily.in_zone(zone.unwrap_or("UTC")).map_err(allora_core::Error::from)?;
    let last = between(&daily, now - TimeDelta::days(3), now).last();
    Ok(last.unwrap_or(now))
}

/// The reason with what the daemon's own kinds know: their data, and how a daemon gets a kind.
fn of_daemon(mut reason: Reason, state: &JobState, is_about_now: bool) -> Reason {
    let is_unhandled = |one: &Reason| one.code == WhyCode::KindUnhandled;
    if is_unhandled(&reason) {
        reason.remedy = Some(kinds::remedy(&state.kind));
    }
    for one in reason.also.iter_mut().filter(|one| is_unhandled(one)) {
        one.remedy = Some(kinds::remedy(&state.kind));
    }
    let is_readable = reason.code != WhyCode::RecordUnreadable && is_about_now;
    let Some(what) = kinds::bad_data(state).filter(|_| is_readable) else { return reason };
    let mut bad = Reason::new(WhyCode::DataMismatch, format!("it cannot be run: {what}"))
        .with("reason", what)
        .remedy(format!("`allora modify {} --data` replaces it", state.name));
    bad.also = std::mem::take(&mut reason.also);
    bad.also.insert(0, reason);
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Time {
        instant(text).unwrap()
    }

    #[test]
    fn a_time_of_the_day_is_the_last_one_before_now_in_the_zone_of_the_job() {
        assert_eq!(moment("02:30"), Ok(Moment::OfDay(2, 30)));
        assert_eq!(moment("0"), Ok(Moment::At(at("0"))));
        for wrong in ["24:00", "02:60", "2:3", "2", "02:30:00x", ":30", "-1:30"] {
            assert!(of_day(wrong).is_none(), "{wrong}");
        }
        assert!(moment("noon").unwrap_err().contains("as 02:30"));
        let last = |zone, now| last_of_day(zone, (2, 30), at(now)).unwrap();
        let noon = "2026-07-01T12:00:00Z";
        assert_eq!(last(Some("Europe/Rome"), noon), at("2026-07-01T00:30:00Z"));
        assert_eq!(last(None, noon), at("2026-07-01T02:30:00Z"));
        let early = "2026-07-01T00:29:59Z";
        assert_eq!(last(Some("Europe/Rome"), early), at("2026-06-30T00:30:00Z"));
        // The clocks go forward: 02:30 is 03:00, as for a schedule.
        let march = "2026-03-29T12:00:00Z";
        assert_eq!(last(Some("Europe/Rome"), march), at("2026-03-29T01:00:00Z"));
    }
}
