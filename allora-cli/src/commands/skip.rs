//! `allora skip`: leaves out the next occurrences of a schedule.

use crate::{
    failure::Outcome,
    session::{self, Session},
    store::StoreArgs,
    values::shown,
};
use allora_core::stored::MAX_SKIP;
use clap::Args;
use std::io::{self, Write};

/// Leaves out the next occurrences of a job's schedule.
///
/// They do not run, and the history has them as cancelled by an operator. Triggers, active runs and
/// further attempts go on. Repeated, it leaves out further ones: `allora next NAME` shows what comes.
#[derive(Debug, Args)]
pub(crate) struct Skip {
    /// The job's name.
    name: String,
    /// Number of occurrences to leave out.
    #[arg(long, short = 'n', default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MAX_SKIP as i64))]
    count: u16,
    #[command(flatten)]
    place: StoreArgs,
}

impl Skip {
    pub(crate) fn run(self) -> Outcome {
        let (skipped, next) = session::with(&self.place, async |session: Session| {
            let name = session.full_name(&self.name).await?;
            let skipped = session.schedules.skip_next(&name, self.count.into()).await?;
            Ok((skipped, session.schedules.get(&name).await?.next))
        })?;
        let next = next.map_or("none is to come".to_owned(), |next| {
            format!("the next is that of {}", shown(next.scheduled_at))
        });
        let text = match skipped {
            None => format!("nothing is left out: {next}"),
            Some(skipped) => {
                let last = shown(skipped.last);
                match skipped.count {
                    Some(1) => format!("left out: that of {last}; {next}"),
                    Some(count) => {
                        format!("left out: {count}, the last of them that of {last}; {next}")
                    }
                    None => format!("left out: all up to that of {last}; {next}"),
                }
            }
        };
        Ok(writeln!(io::stdout().lock(), "{text}")?)
    }
}
