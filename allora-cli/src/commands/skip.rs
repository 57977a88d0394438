//! `allora skip`: leaves out the next occurrences of a schedule.

use super::changes::{Changes, made};
use crate::{
    failure::{Failure, Outcome},
    session::{self, Session},
    store::StoreArgs,
    values::shown,
};
use allora_core::{ErrorKind, stored::MAX_SKIP};
use clap::Args;
use serde_json::json;

/// Leaves out the next occurrences of a job's schedule.
///
/// They do not run, and the history has them as skipped by an operator, with your name and the note.
/// Triggers, active runs and further attempts go on. Repeated, it leaves out further ones: `allora next NAME` shows what comes.
#[derive(Debug, Args)]
pub(crate) struct Skip {
    /// The job's name.
    name: String,
    /// Number of occurrences to leave out.
    #[arg(long, short = 'n', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MAX_SKIP as i64))]
    count: u16,
    /// The reason, which the history and the record of changes keep.
    #[arg(long, short = 'm', default_value = "")]
    note: String,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Skip {
    pub(crate) fn run(self) -> Outcome {
        let (name, skipped, next) = session::with(&self.place, async |session: Session| {
            let name = session.full_name(&self.name).await?;
            let schedules = session.schedules.clone().by(session::author().note(&self.note));
            let skipped = schedules.skip_next(&name, self.count.into()).await;
            let skipped = skipped.map_err(|error| match error.kind() {
                ErrorKind::Unavailable => Failure::Unavailable(format!(
                    "{error}; perhaps they are left out: look at `allora next {name}` before you \
                     repeat it"
                )),
                _ => error.into(),
            })?;
            // If the store stops answering now, the command still says what was done.
            let state = session.schedules.get(&name).await.unwrap_or_default();
            let next = state.next.filter(|next| state.last_started < Some(next.scheduled_at));
            Ok((name, skipped, next.map(|next| shown(next.scheduled_at))))
        })?;
        let last = skipped.map(|skipped| shown(skipped.last));
        let left_out = match (skipped.map(|skipped| skipped.count), &last) {
            (Some(Some(1)), Some(last)) => format!("left out: that of {last}"),
            (Some(Some(count)), Some(last)) => {
                format!("left out: {count}, the last of them that of {last}")
            }
            (_, Some(last)) => format!("left out: all up to that of {last}"),
            (_, None) => "nothing is left out".to_owned(),
        };
        let coming = match &next {
            Some(next) => format!("the next is that of {next}"),
            None => "none is to come".to_owned(),
        };
        let mut object = made(&name, "skipped");
        object["count"] = json!(skipped.map_or(Some(0), |skipped| skipped.count));
        (object["last"], object["next"]) = (json!(last), json!(next));
        self.changes.print([object], format_args!("{left_out}; {coming}\n"))
    }
}
