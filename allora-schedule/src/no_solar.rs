//! Without the feature `sun`, nothing is known of the position of the sun.

use crate::SunEvent;
use chrono::NaiveDate;

pub(crate) const IS_KNOWN: bool = false;

pub(crate) fn second(_: SunEvent, _: f64, _: f64, _: NaiveDate) -> Option<i64> {
    None
}
