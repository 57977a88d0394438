//! Texts of clients, nodes and workers: definitions, their settings, lines of an export, tickets of runs.

use crate::{
    schedule::moves_on,
    text::{Refusal, text, value},
};
use allora_core::{
    After, AlertRule, Breaker, ConcurrencyKey, JobHistory, LabelSelector, StoredSchedule,
    backend::{HistoryCursor, Notification},
    schedule::{parse_instant, parse_period, period_text},
    stored::{Definition, ExportLine, RunTicket},
};
use serde::{Serialize, de::DeserializeOwned};
use std::fmt;

/// The definition of a stored schedule, as the store has it.
pub(crate) fn definition(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let read = |text: &str| Definition::parse("acme/report", text);
    match read(text) {
        Ok(definition) => {
            let written = definition.to_string();
            match read(&written) {
                Ok(again) => assert_eq!(again, definition, "{text:?} was written as {written:?}"),
                Err(error) => panic!("{text:?} was written as {written:?}, and refused: {error}"),
            }
            moves_on(definition.schedule(), text);
        }
        Err(error) => error.is_explained(text),
    }
}

/// A line of an export, or an object of the JSON that `sync` and the API read.
pub(crate) fn export(data: &[u8]) {
    let Some(text) = text(data) else { return };
    value::<ExportLine>(text);
    json::<StoredSchedule>(text);
}

fn json<T: DeserializeOwned + Serialize + PartialEq + fmt::Debug>(text: &str) {
    match serde_json::from_str::<T>(text) {
        Ok(value) => {
            let written = serde_json::to_string(&value).expect("what was read is written");
            match serde_json::from_str::<T>(&written) {
                Ok(again) => assert_eq!(again, value, "{text:?} was written as {written:?}"),
                Err(error) => panic!("{text:?} was written as {written:?}, and refused: {error}"),
            }
        }
        Err(error) => assert!(!error.to_string().is_empty(), "{text:?}"),
    }
}

/// One setting or parameter.
pub(crate) fn setting(data: &[u8]) {
    let Some(text) = text(data) else { return };
    value::<After>(text);
    value::<AlertRule>(text);
    value::<Breaker>(text);
    value::<ConcurrencyKey>(text);
    value::<HistoryCursor>(text);
    value::<JobHistory>(text);
    value::<LabelSelector>(text);
    let heard = Notification::parse(text);
    assert_eq!(Notification::parse(&heard.to_string()), heard, "{text:?}");
    match parse_period(text) {
        Ok(period) => {
            let written = period_text(period);
            assert_eq!(parse_period(&written), Ok(period), "{text:?} was written as {written:?}");
        }
        Err(error) => error.is_explained(text),
    }
    if let Err(error) = parse_instant(text) {
        error.is_explained(text);
    }
}

/// The ticket of a run.
pub(crate) fn ticket(data: &[u8]) {
    let Some(text) = text(data) else { return };
    value::<RunTicket>(text);
}
