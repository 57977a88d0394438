//! `allora modify`: changes a stored schedule.

use super::options::{Options, payload};
use crate::{
    declared::warn_of_unhandled,
    failure::{Failure, Outcome},
    kinds,
    session::{self, Session, state_json},
    store::StoreArgs,
};
use allora_core::StoredSchedule;
use clap::Args;
use std::io::{self, Write};

/// Changes a stored schedule.
///
/// Settings that are not given stay, and active runs continue. Changes nothing if another client
/// changes the schedule at the same time.
#[derive(Debug, Args)]
pub(crate) struct Modify {
    /// The schedule's name.
    name: String,
    /// Another kind.
    #[arg(long, visible_alias = "type")]
    kind: Option<String>,
    /// Another schedule.
    #[arg(long, visible_alias = "cron")]
    schedule: Option<String>,
    /// Other data: a JSON object.
    #[arg(long)]
    data: Option<String>,
    #[command(flatten)]
    options: Options,
    #[command(flatten)]
    place: StoreArgs,
    /// Prints the changed schedule as JSON.
    #[arg(long)]
    json: bool,
}

impl Modify {
    pub(crate) fn run(self) -> Outcome {
        let data = self.data.as_deref().map(payload).transpose()?;
        let state = session::with(&self.place, async |session: Session| {
            let mut stored = StoredSchedule::of(&session.schedules.get(&self.name).await?)?;
            if let Some(kind) = &self.kind {
                stored = stored.with_kind(kind);
            }
            let kind = self.options.kind(stored.kind())?;
            stored = stored.with_kind(&kind);
            if let Some(schedule) = &self.schedule {
                stored = stored.schedule(schedule);
            }
            if let Some(data) = &data {
                stored = stored.data(data);
            }
            if self.kind.is_some() || data.is_some() {
                kinds::check(stored.kind(), &stored.data_as()?)?;
            }
            let stored = self.options.apply(stored);
            let state = session.schedules.modify(&stored).await.map_err(Failure::of_input)?;
            warn_of_unhandled(&session, [stored.kind()]).await;
            Ok(state)
        })?;
        if self.json {
            writeln!(io::stdout(), "{}", state_json(&state, false))?;
        }
        Ok(())
    }
}
