//! Days of the Gregorian calendar.

/// The seconds of a day.
pub(crate) const DAY: i64 = 86_400;

/// Year, month and day of a number of days since 1970-01-01 (Howard Hinnant, "chrono-compatible
/// low-level date algorithms", `civil_from_days`).
pub(crate) fn civil(days: i64) -> (i64, u32, u32) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097) as u32;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = i64::from(year_of_era) + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// The inverse of [`civil`] (`days_from_civil` of the same source).
pub(crate) fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400) as u32;
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + i64::from(of_era) - 719_468
}

/// The weekday of a number of days since 1970-01-01. 0 is Sunday; 1970-01-01 was a Thursday.
pub(crate) fn weekday(days: i64) -> u32 {
    (days + 4).rem_euclid(7) as u32
}

pub(crate) fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(crate) fn month_length(leap: bool, month: u32) -> u32 {
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
