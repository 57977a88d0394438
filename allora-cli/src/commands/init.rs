//! `allora init`: makes a store's tables.

use crate::{
    failure::Outcome,
    session,
    store::{Place, Tables},
};
use clap::Args;

/// Makes the store's tables, or brings them up to date; does nothing where all is well.
#[derive(Debug, Args)]
pub(crate) struct Init {
    #[command(flatten)]
    place: Place,
}

impl Init {
    pub(crate) fn run(self) -> Outcome {
        session::run(async { self.place.open(Tables::Make, None).await.map(drop) })
    }
}
