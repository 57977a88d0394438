//! The jobs of the processes: what each machine runs, and the verdict looks for.

use allora::{
    BoxError, Schedule, Time,
    crontab::{self, When},
    every,
    schedule::between,
};
use std::{sync::Arc, time::Duration};

/// From when until when there are occurrences, both included: so that all of them can be counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span {
    pub(crate) from: Time,
    pub(crate) until: Time,
}

pub(crate) struct Chore {
    pub(crate) name: String,
    pub(crate) schedule: Arc<dyn Schedule>,
    /// Of an at-least-once job.
    pub(crate) lease: Option<Duration>,
    /// The duration of its work.
    pub(crate) takes: Duration,
}

const LEASE: Duration = Duration::from_secs(2);

/// The crontab's jobs, and some that run so often that there is something to see.
pub(crate) fn all(span: Span) -> Result<Vec<Chore>, BoxError> {
    let ms = Duration::from_millis;
    let often = |name: &str, period, lease, takes| Chore {
        name: name.into(),
        schedule: Arc::new(every(period).starting(span.from)),
        lease,
        takes,
    };
    let mut chores = vec![
        often("heartbeat", ms(1_000), None, ms(300)),
        often("measure", ms(1_000), None, ms(800)),
        often("mail", ms(2_000), None, ms(1_500)),
        often("invoice", ms(1_000), Some(LEASE), ms(400)),
        often("settle", ms(2_000), Some(LEASE), ms(900)),
    ];
    for entry in crontab::parse_system(include_str!("../crontab"))? {
        // What runs at the start of a process has no times to look for.
        let When::Cron(schedule) = entry.when else { continue };
        let schedule = Arc::new(schedule);
        chores.push(Chore { name: entry.name, schedule, lease: None, takes: ms(100) });
    }
    Ok(chores)
}

impl Chore {
    /// Every occurrence there is.
    pub(crate) fn instants(&self, span: Span) -> impl Iterator<Item = Time> {
        let before = span.from - Duration::from_millis(1);
        between(&*self.schedule, before, span.until)
    }
}
