//! `allora modify`: changes a stored schedule.

use super::options::{Options, payload};
use crate::{
    daemon::kinds,
    failure::Outcome,
    session::{self, Session, state_json},
    store::Place,
};
use allora_core::Stored;
use clap::Args;
use std::io::{self, Write};

/// Changes a stored schedule; what is not given stays as it is, and what runs goes on.
///
/// Nothing is changed if somebody else changes it at the same time.
#[derive(Debug, Args)]
pub(crate) struct Modify {
    /// The schedule's name.
    key: String,
    /// Another type.
    #[arg(long = "type", visible_alias = "kind", value_name = "TYPE")]
    kind: Option<String>,
    /// Another schedule.
    #[arg(long, visible_alias = "schedule")]
    cron: Option<String>,
    /// Other data: a JSON object.
    #[arg(long)]
    data: Option<String>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    place: Place,
    /// Prints what it is now, as JSON.
    #[arg(long)]
    json: bool,
}

impl Modify {
    pub(crate) fn run(self) -> Outcome {
        let data = self.data.as_deref().map(payload).transpose()?;
        let state = session::with(&self.place, async |session: Session| {
            let mut stored = Stored::of(&session.schedules.get(&self.key).await?)?;
            if let Some(kind) = &self.kind {
                stored = stored.with_kind(kind);
            }
            if let Some(cron) = &self.cron {
                stored = stored.schedule(cron);
            }
            if let Some(data) = &data {
                stored = stored.data(data);
            }
            if self.kind.is_some() || data.is_some() {
                kinds::check(stored.kind(), &stored.data_as()?)?;
            }
            Ok(session.schedules.modify(&self.options.apply(stored)).await?)
        })?;
        if self.json {
            writeln!(io::stdout(), "{}", state_json(&state))?;
        }
        Ok(())
    }
}
