//! One node as a process of its own.

use crate::{
    jobs::{self, Chore, Span},
    log::{BEGAN, ENDED, Log},
    store,
};
use allora::{BoxError, CatchUp, JobSpec, Run, Runtime, Scheduler, job, runtime::Tokio};
use std::{io::Read, path::PathBuf, time::Duration};

/// The orders of a process, from the one that starts it.
pub(crate) struct Orders {
    pub(crate) label: String,
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) log: PathBuf,
    pub(crate) span: Span,
}

/// The lease of an at-most-once run, after which the run of a silent machine is lost.
pub(crate) const MARK: Duration = Duration::from_secs(2);

pub(crate) async fn run(orders: &Orders) -> Result<(), BoxError> {
    let log = Log::append(&orders.log)?;
    let clock = Tokio::current()?;
    let store = store::open(&orders.url, &orders.prefix).await?;
    let mut builder = Scheduler::builder(store)
        .label(orders.label.as_str())
        .lost_after(MARK)
        .poll_interval(Duration::from_secs(1))
        .grace(Duration::from_secs(5));
    for chore in jobs::all(orders.span)? {
        let name = chore.name.clone();
        builder = builder.add(name, entry(chore, orders.span, &log, &clock));
    }
    builder.build()?.run_until(end_of_input()).await;
    Ok(())
}

/// Work that takes a while, and writes down its beginning and its end.
fn entry(chore: Chore, span: Span, log: &Log, clock: &Tokio) -> JobSpec {
    let (log, clock, takes) = (log.clone(), clock.clone(), chore.takes);
    let entry = job(chore.schedule, async move |run: Run| -> Result<(), BoxError> {
        log.note(BEGAN, &run)?;
        clock.sleep_until(clock.now() + takes).await;
        log.note(ENDED, &run)
    });
    let entry = entry.starting(span.from).ending(span.until);
    match chore.lease {
        None => entry,
        Some(lease) => entry.at_least_once(lease).catch_up(CatchUp::All { limit: 1_000 }),
    }
}

/// Ready when the parent closes our standard input, or is no more.
async fn end_of_input() {
    let read = || std::io::stdin().read(&mut [0]);
    // An error is an end as well.
    _ = tokio::task::spawn_blocking(read).await;
}
