//! `allora init`: creates a store's tables, or a quorum of servers.

use crate::{
    failure::Outcome,
    session,
    store::{HistoryOptions, StoreArgs, Tables},
};
use clap::Args;

/// Creates or updates the store's tables.
///
/// Turns independent Redis servers into a quorum. Does nothing if the store is ready.
#[derive(Debug, Args)]
pub(crate) struct Init {
    #[command(flatten)]
    place: StoreArgs,
}

impl Init {
    pub(crate) fn run(self) -> Outcome {
        let history = HistoryOptions::default();
        session::run(async { self.place.open(Tables::Initialise, history).await.map(drop) })
    }
}
