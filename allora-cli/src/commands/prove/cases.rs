//! The conformance cases, on the store of the command.

use super::interrupt::Interrupt;
use crate::{
    failure::{Failure, Outcome},
    output::Progress,
    store::{HistoryOptions, StoreArgs, Tables},
};
use allora_conformance::{Capability, Fixture, Passed, check, names};
use allora_core::{Backend, Error, ErrorKind, Result};
use async_trait::async_trait;
use std::{
    panic,
    sync::{Arc, LazyLock, OnceLock},
};
use tokio::runtime::Runtime;

/// The outcomes of the cases.
#[derive(Debug, Default)]
pub(super) struct Cases {
    pub(super) hold: usize,
    /// They need what this store has not.
    pub(super) denied: usize,
    /// The names of those that failed, each with its message.
    pub(super) failed: Vec<(&'static str, String)>,
}

/// The scratch store, beside which each case has one of its own.
static PLACE: OnceLock<(StoreArgs, Vec<Capability>)> = OnceLock::new();

/// Enough for every case.
const ENTRIES: u64 = 20_000;

/// Runs all cases, one after the other, unless it is interrupted.
pub(super) fn run(scratch: &StoreArgs, interrupt: &Interrupt) -> Outcome<Cases> {
    let store = block_on(scratch.open(Tables::Keep, HistoryOptions::default()))?;
    let mut lacks = Vec::new();
    if store.queries().is_none() {
        // A quorum: another node may finish the write of one whose answer was lost.
        use Capability::{Changes, ExactReplies, History, Queries};
        lacks.extend([Queries, History, Changes, ExactReplies]);
    }
    if store.notifier().is_none() {
        lacks.push(Capability::Notifications);
    }
    drop(store);
    PLACE.set((scratch.clone(), lacks)).map_err(|_| Failure::failed("the cases run once"))?;
    let mut cases = Cases::default();
    let mut progress = Progress::new("conformance cases");
    let hook = panic::take_hook();
    // The verdict lists each failure with its case.
    panic::set_hook(Box::new(|_| {}));
    for name in names() {
        if interrupt.check().is_err() {
            break;
        }
        match check::<Scratch>(name) {
            Ok(Passed::Holds) => cases.hold += 1,
            Ok(_) => cases.denied += 1,
            Err(message) => cases.failed.push((name, message)),
        }
        progress.more(1);
    }
    panic::set_hook(hook);
    interrupt.check()?;
    Ok(cases)
}

/// A store of one case.
struct Scratch(StoreArgs);

#[async_trait]
impl Fixture for Scratch {
    async fn set_up(namespace: &str) -> Result<Self> {
        let (place, _) = PLACE.get().ok_or_else(|| Error::invalid("there is no place"))?;
        let prefix = format!("{}_{namespace}", place.prefix().unwrap_or_default());
        Ok(Self(place.with_prefix(&prefix)))
    }

    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        let history = super::node::history(ENTRIES);
        self.0.open(Tables::Initialise, history).await.map_err(|failure| told(&failure))
    }

    async fn reopen(self) -> Result<Self> {
        Ok(self)
    }

    async fn tear_down(self) -> Result<()> {
        self.0.remove().await.map_err(|failure| told(&failure))
    }

    fn block_on<T: Future>(future: T) -> T::Output {
        block_on(future)
    }

    fn occurrences() -> u64 {
        1_000
    }

    fn unsupported() -> &'static [Capability] {
        PLACE.get().map(|(_, lacks)| lacks.as_slice()).unwrap_or_default()
    }
}

fn told(failure: &Failure) -> Error {
    Error::new(ErrorKind::Other, failure.what().unwrap_or("the store cannot be opened").to_owned())
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    #[expect(clippy::expect_used, reason = "without a runtime there is nothing to do")]
    static RUNTIME: LazyLock<Runtime> =
        LazyLock::new(|| Runtime::new().expect("this machine has threads"));
    RUNTIME.block_on(future)
}
