//! Sunrise, sunset, dawn and dusk at a place.
//!
//! Each node computes the same instant: the crate that computes it does so without the functions of
//! the platform, which differ in their last bits.

use crate::{
    Field, Note, NoteReason, ParseError, Schedule, ScheduleError, SunEvent, Time,
    period::{parse_period, period_text},
    solar,
    time::{from_millis, whole_millis},
};
use chrono::{Datelike, NaiveDate, TimeDelta};
use std::{fmt, str::FromStr};

/// Runs at an event of the sun at a place, or a fixed time before or after it; made by [`Sun::new`] and
/// [`Sun::parse`].
///
/// On days without the event, because the sun does not rise or does not set, there is no occurrence;
/// [`explain`](crate::explain()) notes the days. A time is right to about a minute at sea level, without
/// hills and weather, up to a latitude of about 65 degrees. The schedule follows no wall clock.
///
/// ```
/// use allora::schedule::{Schedule, Sun, parse};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let lights = Sun::parse("sunset - 30m at 41.9,12.5")?;
/// let noon = "2026-06-21T10:00:00Z".parse()?;
/// let on = lights.next_at(noon).ok_or("never")?;
/// assert_eq!(on.format("%H:%M").to_string(), "18:18");
/// assert_eq!(parse("sunset - 30m at 41.9,12.5")?.next_at(noon), Some(on));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sun {
    event: SunEvent,
    /// Milliseconds after the event.
    offset: i64,
    /// In millionths of a degree, the north and the east positive.
    latitude: i32,
    longitude: i32,
}

/// The longest time before or after an event.
const MOST_OFFSET: TimeDelta = TimeDelta::hours(12);

/// The longest search, in days: at every place that has the event, there is one within a year.
const MOST_DAYS: i64 = 400;

/// The most days that are counted.
const MOST_COUNTED: i64 = 100_000;

/// The most notes about one range.
const MOST_NOTES: usize = 100;

impl Sun {
    /// The event at a place: degrees of latitude (north is positive) and longitude (east is positive),
    /// cut to millionths.
    ///
    /// ```
    /// use allora::schedule::{Sun, SunEvent};
    /// use chrono::TimeDelta;
    ///
    /// let rome = Sun::new(SunEvent::Sunset, 41.9, 12.5)?.offset(TimeDelta::minutes(-30))?;
    /// assert_eq!(rome.to_string(), "sunset - 30m at 41.9,12.5");
    /// assert!(Sun::new(SunEvent::Sunset, 91.0, 0.0).is_err());
    /// # Ok::<(), allora::schedule::ParseError>(())
    /// ```
    ///
    /// # Errors
    /// A place off the globe.
    pub fn new(event: SunEvent, latitude: f64, longitude: f64) -> Result<Self, ParseError> {
        let latitude = degrees(0, &latitude.to_string(), 90)?;
        let longitude = degrees(0, &longitude.to_string(), 180)?;
        Ok(Self { event, offset: 0, latitude, longitude })
    }

    /// So long after the event, or before it if negative. Default: 0. Range: -12 h to 12 h, in whole
    /// milliseconds.
    ///
    /// # Errors
    /// An offset out of range.
    pub fn offset(self, offset: TimeDelta) -> Result<Self, ParseError> {
        if offset.abs() > MOST_OFFSET {
            let text = offset.to_string();
            return Err(far(0, &text));
        }
        Ok(Self { offset: offset.num_milliseconds(), ..self })
    }

    /// Reads `sunset - 30m at 41.9,12.5`: an event (`dawn`, `sunrise`, `sunset`, `dusk`), perhaps `+` or
    /// `-` and a period, `at`, and the degrees of latitude and longitude with a comma between them.
    ///
    /// # Errors
    /// Other notations, a place off the globe, an offset beyond 12 h, and any text if the library was
    /// built without the feature `sun`.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let words: Vec<(usize, &str)> = crate::schedule::words(text).collect();
        let end = text.trim_ascii_end().len();
        let word = |index: usize| words.get(index).copied().unwrap_or((end, ""));
        let (at, first) = word(0);
        let Some(event) = SunEvent::named(first) else {
            return Err(wrong(at, first, "is no event of the sun", FORM));
        };
        if !solar::IS_KNOWN {
            let remedy = "build allora with the feature `sun`";
            return Err(wrong(at, first, "cannot be computed by this program", remedy));
        }
        let (next, offset) = match word(1) {
            (_, sign @ ("+" | "-")) => {
                let (at, period) = word(2);
                let length = parse_period(period).map_err(|error| error.shifted(at))?;
                let length = TimeDelta::from_std(length).ok().filter(|one| *one <= MOST_OFFSET);
                let length = length.ok_or_else(|| far(at, period))?.num_milliseconds();
                (3, if sign == "-" { -length } else { length })
            }
            _ => (1, 0),
        };
        let ((at, is_at), (place_at, place), (more_at, more)) =
            (word(next), word(next + 1), word(next + 2));
        if !is_at.eq_ignore_ascii_case("at") {
            return Err(wrong(at, is_at, "stands where `at` and a place are expected", FORM));
        }
        let Some((latitude, longitude)) = place.split_once(',') else {
            return Err(wrong(place_at, place, "is not a latitude and a longitude", FORM));
        };
        if !more.is_empty() {
            return Err(wrong(more_at, more, "is one word too many", FORM));
        }
        Ok(Self {
            event,
            offset,
            latitude: degrees(place_at, latitude, 90)?,
            longitude: degrees(place_at + latitude.len() + 1, longitude, 180)?,
        })
    }

    /// `true` if a text begins with an event of the sun.
    pub(crate) fn begins(first: &str) -> bool {
        SunEvent::named(first).is_some()
    }

    /// The occurrence of a day, counted from 1970 by the local mean time of the place.
    fn on(&self, day: i64) -> Option<Time> {
        let date = date(day)?;
        let [latitude, longitude] = [self.latitude, self.longitude].map(|one| f64::from(one) / 1e6);
        let second = solar::second(self.event, latitude, longitude, date)?;
        from_millis(second.checked_mul(1_000)?.checked_add(self.offset)?)
    }

    /// The day of an instant, two days early or late at most.
    fn day(&self, at: Time) -> i64 {
        (at.timestamp_millis() - self.offset).div_euclid(86_400_000)
    }

    /// The reason of a day without the event: what the sun does then.
    fn absence(&self, day: i64) -> &'static str {
        // From the equinox of March to that of September, the sun is above the equator.
        let is_north = date(day).is_some_and(|date| (80..266).contains(&date.ordinal()));
        match (is_north == (self.latitude > 0), self.event) {
            (true, SunEvent::Sunrise | SunEvent::Sunset) => "the sun does not set",
            (true, SunEvent::Dawn | SunEvent::Dusk) => "it does not get dark",
            (false, SunEvent::Sunrise | SunEvent::Sunset) => "the sun does not rise",
            (false, SunEvent::Dawn | SunEvent::Dusk) => "it does not get light",
        }
    }
}

fn date(day: i64) -> Option<NaiveDate> {
    NaiveDate::from_epoch_days(i32::try_from(day).ok()?)
}

const FORM: &str = "write `sunset - 30m at 41.9,12.5`: dawn, sunrise, sunset or dusk, perhaps a time \
                    before or after it, and the degrees of latitude and longitude, south and west negative";

fn wrong(at: usize, word: &str, reason: &'static str, remedy: &'static str) -> ParseError {
    ParseError::new(Field::Text, at, word, reason).remedy(remedy)
}

fn far(at: usize, text: &str) -> ParseError {
    wrong(at, text, "is too far from the event", "use at most 12h before or after it")
}

/// Degrees with up to six decimals, in millionths.
fn degrees(at: usize, text: &str, most: i64) -> Result<i32, ParseError> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (whole, part) = digits.split_once('.').unwrap_or((digits, "0"));
    let plain = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !plain(whole) || !plain(part) || whole.len() > 3 {
        return Err(wrong(at, text, "is not a number of degrees", "write degrees such as 41.9"));
    }
    let cut = &part[..part.len().min(6)];
    let millionths = format!("{whole}{cut:0<6}").parse::<i64>().unwrap_or(i64::MAX);
    if millionths > most * 1_000_000 {
        let remedy = match most {
            90 => "use a latitude of -90 to 90, and write it before the longitude",
            _ => "use a longitude of -180 to 180",
        };
        return Err(wrong(at, text, "is off the globe", remedy));
    }
    let signed = if text.starts_with('-') { -millionths } else { millionths };
    Ok(i32::try_from(signed).unwrap_or_default())
}

impl Schedule for Sun {
    fn next_at(&self, after: Time) -> Option<Time> {
        let day = self.day(after);
        let days = day - 2..=day + MOST_DAYS;
        days.filter_map(|day| self.on(day)).find(|at| *at > after)
    }

    fn latest_at(&self, from: Time, until: Time) -> Option<Time> {
        let day = self.day(until);
        let days = (day - MOST_DAYS..=day + 2).rev();
        let latest = days.filter_map(|day| self.on(day)).find(|at| *at <= until);
        Some(latest.map_or(from, |latest| latest.max(from)))
    }

    fn count(&self, from: Time, until: Time) -> Option<u64> {
        let days = self.day(from) - 2..=self.day(until) + 2;
        if days.end() - days.start() > MOST_COUNTED {
            return None;
        }
        let found = days.filter_map(|day| self.on(day)).filter(|at| from < *at && *at <= until);
        u64::try_from(found.count()).ok()
    }

    fn definition(&self) -> Option<String> {
        Some(self.to_string())
    }

    fn is_built_in(&self, _: crate::schedule::Token) -> bool {
        true
    }

    fn check(&self) -> Result<(), ScheduleError> {
        if self.next_at(Time::UNIX_EPOCH).is_none() {
            return Err(ScheduleError::new(format!(
                "{self}: the sun has no {} at this place on any day; use another place",
                self.event.name()
            )));
        }
        Ok(())
    }

    fn describe(&self) -> Option<String> {
        let place = format!("{},{}", decimal(self.latitude), decimal(self.longitude));
        let name = self.event.name();
        let length = period_text(TimeDelta::milliseconds(self.offset).abs().to_std().ok()?);
        Some(match self.offset {
            0 => format!("at {name} at {place}"),
            1.. => format!("{length} after {name} at {place}"),
            _ => format!("{length} before {name} at {place}"),
        })
    }

    fn notes(&self, after: Time, until: Time) -> Vec<Note> {
        let (first, last) = (self.day(after), self.day(until).min(self.day(after) + MOST_COUNTED));
        let mut notes: Vec<Note> = Vec::new();
        let mut day = first;
        while day <= last && notes.len() < MOST_NOTES {
            let begin = day;
            while day <= last && self.on(day).is_none() {
                day += 1;
            }
            if let (true, Some(from), Some(to)) = (day > begin, date(begin), date(day - 1)) {
                let at = whole_millis(from.and_hms_opt(12, 0, 0).unwrap_or_default().and_utc());
                let what = self.absence(begin);
                let message = match from == to {
                    true => format!("no occurrence on {from}: {what} there"),
                    false => format!("no occurrence from {from} to {to}: {what} there"),
                };
                notes.push(Note::new(at, NoteReason::NoSun, message));
            }
            day += 1;
        }
        notes
    }
}

/// Millionths as a decimal number without needless zeros.
fn decimal(millionths: i32) -> String {
    let sign = if millionths < 0 { "-" } else { "" };
    let (whole, part) =
        (millionths.unsigned_abs() / 1_000_000, millionths.unsigned_abs() % 1_000_000);
    let text = format!("{sign}{whole}.{part:06}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The text that [`Sun::parse`] reads.
impl fmt::Display for Sun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.event.name())?;
        if self.offset != 0 {
            let length = TimeDelta::milliseconds(self.offset).abs().to_std().unwrap_or_default();
            let sign = if self.offset < 0 { '-' } else { '+' };
            write!(f, " {sign} {}", period_text(length))?;
        }
        write!(f, " at {},{}", decimal(self.latitude), decimal(self.longitude))
    }
}

impl FromStr for Sun {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::parse(text)
    }
}
