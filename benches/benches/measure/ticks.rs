//! Schedules that are due every second, on three processes: jobs in code, or stored schedules.

use crate::{Figures, figure, place::Place};
use allora_benches::{
    server,
    ticks::{self, Load, Log},
};
use allora_core::{
    CatchUp, Run, Scheduler, cron, job,
    stored::{Schedules, StoredSchedule},
};
use std::time::Duration;

const EVERY_SECOND: &str = "* * * * * *";
const KIND: &str = "tick";
/// An occurrence that is late by more than a second is run all the same.
const CATCH_UP: CatchUp = CatchUp::All { limit: 60 };
/// The lease of at-least-once runs. After it, the runs of a killed process are started again, before
/// the measurement ends.
const LEASE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Kind {
    /// At most once, which is their default.
    InCode,
    /// At least once, which is their default.
    Stored,
}

/// # Panics
/// If a promise is broken: at most once, none is repeated; at least once, none is lost; and neither
/// while no process is killed.
pub(crate) async fn measure(place: &Place, kind: Kind, load: Load) -> Figures {
    let Place::Sql(url) = place else { panic!("ticks are counted on PostgreSQL only") };
    if kind == Kind::Stored {
        let tick = |i| {
            let stored = StoredSchedule::new(name(i), KIND, cron(EVERY_SECOND).unwrap());
            stored.at_least_once(LEASE).catch_up(CATCH_UP)
        };
        let stored: Vec<_> = (0..load.schedules).map(tick).collect();
        let schedules = Schedules::new(place.open().await).unwrap();
        let added = schedules.add_all(&stored).await.unwrap();
        added.into_iter().for_each(|one| drop(one.unwrap()));
    }
    let figures = ticks::measure(load, async || server::sql::transactions(url).await).await;
    let of = |name: &str| figures.iter().find(|figure| figure.0 == name).unwrap().1;
    if kind == Kind::InCode || !load.is_killed {
        assert!(of("repeated") == 0.0, "started more than once: {figures:?}");
    }
    if kind == Kind::Stored || !load.is_killed {
        assert!(of("lost") == 0.0, "never started: {figures:?}");
    }
    figures.into_iter().map(|(name, value)| figure(name, value)).collect()
}

/// One of the processes.
pub(crate) async fn node(place: &Place, kind: Kind, schedules: usize, log: Log) {
    let log: &'static Log = Box::leak(Box::new(log));
    let tick = move |run: Run| async move {
        log.add(number(run.name()), run.scheduled_at().timestamp());
    };
    let heartbeat = Duration::from_secs(1);
    let builder = Scheduler::builder(place.open().await);
    let mut builder = builder.concurrency(2 * schedules).heartbeat(heartbeat);
    match kind {
        Kind::Stored => builder = builder.kind(KIND, tick),
        Kind::InCode => {
            for i in 0..schedules {
                let times = cron(EVERY_SECOND).unwrap();
                builder = builder.add(name(i), job(times, tick).catch_up(CATCH_UP));
            }
        }
    }
    let running = tokio::spawn(builder.build().unwrap().run());
    ticks::until_alone().await;
    running.abort();
}

fn name(schedule: usize) -> String {
    format!("tick-{schedule}")
}

fn number(name: &str) -> usize {
    name.strip_prefix("tick-").unwrap().parse().unwrap()
}
