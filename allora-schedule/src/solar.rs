//! The position of the sun.

use crate::SunEvent;
use chrono::NaiveDate;
use sunrise::{Coordinates, DawnType, SolarDay, SolarEvent};

pub(crate) const IS_KNOWN: bool = true;

/// The second of an event on the day of a place; `None` if it does not happen.
pub(crate) fn second(
    event: SunEvent,
    latitude: f64,
    longitude: f64,
    date: NaiveDate,
) -> Option<i64> {
    let event = match event {
        SunEvent::Dawn => SolarEvent::Dawn(DawnType::Civil),
        SunEvent::Sunrise => SolarEvent::Sunrise,
        SunEvent::Sunset => SolarEvent::Sunset,
        SunEvent::Dusk => SolarEvent::Dusk(DawnType::Civil),
    };
    let day = SolarDay::new(Coordinates::new(latitude, longitude)?, date);
    day.event_time(event).map(|at| at.timestamp())
}
