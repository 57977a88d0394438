//! The events of the sun.

/// An event of each day, at which the sun passes a height above the horizon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SunEvent {
    /// The sun is 6 degrees below the horizon, in the morning: civil dawn.
    Dawn,
    /// The upper rim of the sun appears.
    Sunrise,
    /// The upper rim of the sun disappears.
    Sunset,
    /// The sun is 6 degrees below the horizon, in the evening: civil dusk.
    Dusk,
}

impl SunEvent {
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Dawn, "dawn"),
        (Self::Sunrise, "sunrise"),
        (Self::Sunset, "sunset"),
        (Self::Dusk, "dusk"),
    ];

    pub(crate) fn name(self) -> &'static str {
        Self::ALL.iter().find(|(event, _)| *event == self).map_or("", |(_, name)| name)
    }

    pub(crate) fn named(word: &str) -> Option<Self> {
        let is = |(_, name): &&(Self, &str)| name.eq_ignore_ascii_case(word);
        Self::ALL.iter().find(is).map(|(event, _)| *event)
    }
}
