//! The zone of the schedules that name none: cron goes by the machine's.

use crate::failure::{Failure, Outcome};
use allora_core::schedule::zone_name;
use std::env;

/// The zone of this name, or the machine's.
///
/// # Errors
/// There is no such zone, or the machine's has no name.
pub(crate) fn zone(name: Option<&str>) -> Outcome<String> {
    if let Some(zone) = name {
        return zone_name(zone).map_err(|error| Failure::wrong(format!("--zone: {error}")));
    }
    match jiff::tz::TimeZone::try_system() {
        Ok(zone) if zone.iana_name().is_some() => {
            Ok(zone.iana_name().unwrap_or_default().to_owned())
        }
        // As the C library does.
        _ if env::var_os("TZ").is_none() && !std::path::Path::new("/etc/localtime").exists() => {
            Ok("UTC".into())
        }
        _ => Err(Failure::wrong(
            "the machine's time zone has no name that is known here; give one with --zone",
        )),
    }
}
