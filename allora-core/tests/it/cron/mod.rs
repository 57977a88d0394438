//! Cron expressions.

mod golden;

use allora_core::{Cron, Time};

fn time(text: &str) -> Time {
    text.parse().unwrap()
}

fn cron(text: &str) -> Cron {
    Cron::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}
