//! Reaching the store: a daemon that is started before its store waits for it.

use super::{
    Order, Signals,
    log::Log,
    notify::{STARTING, notify},
};
use crate::{
    failure::{Failure, Outcome},
    store::Store,
};
use allora_core::runtime::{Runtime, Tokio};
use std::{pin::pin, time::Duration};
use tracing::{error, info};

/// The wait after the first attempt; it doubles after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest wait between two attempts.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// The store, as soon as it answers; `None` if a signal stops the daemon first.
///
/// # Errors
/// At once: an error that waiting does not resolve, such as a wrong password. After `store_wait`:
/// the store does not answer.
pub(super) async fn connect_with_retry(
    open: impl AsyncFn() -> Outcome<Store>,
    store_wait: Option<Duration>,
    runtime: &Tokio,
    signals: &mut Signals,
    log: &Log,
) -> Outcome<Option<Store>> {
    let mut reached = pin!(again(open, store_wait, runtime));
    loop {
        let order = tokio::select! {
            reached = &mut reached => return reached.map(Some),
            order = signals.next() => order,
        };
        match order {
            Order::Stop => {
                notify("STOPPING=1");
                info!(target: "allora", "stopped before the store answered");
                return Ok(None);
            }
            Order::Reopen => log.reopen(),
            // The crontabs are read when the store answers.
            Order::Reload => {}
        }
    }
}

async fn again(
    open: impl AsyncFn() -> Outcome<Store>,
    store_wait: Option<Duration>,
    runtime: &Tokio,
) -> Outcome<Store> {
    let begun = runtime.now();
    let (mut wait, mut said) = (FIRST_WAIT, String::new());
    loop {
        let what = match open().await {
            Err(Failure::Unavailable(what)) => what,
            opened => return opened,
        };
        if store_wait.is_some_and(|store_wait| runtime.now() - begun >= store_wait) {
            return Err(Failure::Unavailable(what));
        }
        // Once, until it is another reason: a store may be down for days.
        if said != what {
            error!(target: "allora", "waiting for the store: {what}");
            said = what;
        }
        notify(STARTING);
        // Not all daemons of a cluster at once.
        let half = wait / 2;
        let random = runtime.random() % u64::try_from(half.as_millis()).unwrap_or(1).max(1);
        runtime.sleep_until(runtime.now() + half + Duration::from_millis(random)).await;
        wait = (wait * 2).min(MAX_BACKOFF);
    }
}
