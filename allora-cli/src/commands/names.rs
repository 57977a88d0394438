//! `allora names`: the names of jobs, for the completion of shells.

use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
};
use allora_core::stored::Filter;
use clap::Args;
use std::io::{self, Write};

/// Prints the names of jobs that begin so, at most 200.
#[derive(Debug, Args)]
pub(crate) struct Names {
    #[arg(default_value = "")]
    beginning: String,
    #[command(flatten)]
    place: StoreArgs,
}

/// More than a person reads.
const MOST: usize = 200;

impl Names {
    pub(crate) fn run(self) -> Outcome {
        let filter = Filter::default().prefix(&self.beginning);
        let states = session::with(&self.place, async |session: Session| {
            Ok(session.schedules.list(filter, None, MOST).await?)
        })?;
        let mut out = io::BufWriter::new(io::stdout().lock());
        // A name with a line feed would be two.
        for state in states.iter().filter(|state| !state.name.contains('\n')) {
            writeln!(out, "{}", state.name)?;
        }
        Ok(out.flush()?)
    }
}
