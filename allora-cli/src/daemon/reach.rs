//! Reaching the store: a daemon that is started before its store waits for it.

use super::{
    Order, Signals,
    log::Log,
    notify::{STARTING, notify},
    reopen,
};
use crate::{
    failure::{Failure, Outcome},
    store::Store,
};
use allora_core::runtime::{Runtime, Tokio};
use std::{pin::pin, time::Duration};
use tracing::{error, info};

/// How long to wait after the first attempt; twice as long after each further one.
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// The longest wait between two attempts.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The store, as soon as it answers; `None` if the daemon is told to stop before.
///
/// # Errors
/// What waiting does not mend, as a wrong password, at once; that the store does not answer, when
/// that has lasted for `patience`.
pub(super) async fn reach(
    open: impl AsyncFn() -> Outcome<Store>,
    patience: Option<Duration>,
    runtime: &Tokio,
    signals: &mut Signals,
    log: &Log,
) -> Outcome<Option<Store>> {
    let mut reached = pin!(again(open, patience, runtime));
    loop {
        let order = tokio::select! {
            reached = &mut reached => return reached.map(Some),
            order = signals.next() => order,
        };
        match order {
            Order::Stop => {
                notify("STOPPING=1");
                info!(target: "allora", "stopped before the store was reached");
                return Ok(None);
            }
            Order::Reopen => reopen(log),
            // They are looked at when the store is reached.
            Order::Reload => {}
        }
    }
}

async fn again(
    open: impl AsyncFn() -> Outcome<Store>,
    patience: Option<Duration>,
    runtime: &Tokio,
) -> Outcome<Store> {
    let begun = runtime.now();
    let (mut wait, mut said) = (FIRST_WAIT, String::new());
    loop {
        let what = match open().await {
            Err(Failure::Unavailable(what)) => what,
            opened => return opened,
        };
        if patience.is_some_and(|patience| runtime.now() - begun >= patience) {
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
        wait = (wait * 2).min(LONGEST_WAIT);
    }
}
