//! The options that choose jobs, for lists and for changes of many.

use crate::failure::{Failure, Outcome};
use allora_core::stored::{Filter, ScheduleState};
use clap::{Args, ValueEnum};

/// Chooses jobs.
#[derive(Debug, Args)]
pub(crate) struct FilterOptions {
    /// Only jobs whose names begin so, at whole words where something is changed: acme7 is not the
    /// beginning of acme70/mail. 'acme7*' is.
    #[arg(long = "name", id = "beginning", value_name = "PREFIX")]
    beginning: Option<String>,
    /// Only schedules of this kind.
    #[arg(long, visible_alias = "type")]
    kind: Option<String>,
    /// Only schedules with this tag.
    #[arg(long)]
    tag: Option<String>,
    /// Only schedules of this owner.
    #[arg(long)]
    owner: Option<String>,
    /// Only jobs in this state.
    #[arg(long)]
    state: Option<In>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum In {
    /// It waits for its time.
    Waiting,
    /// A run of it is alive.
    Running,
    /// It is paused.
    Paused,
    /// It has nothing more to run.
    Ended,
    /// It has dead letters.
    Dead,
    /// Its last attempt failed or was lost.
    Failing,
    /// Its record or its definition cannot be read.
    Unreadable,
    /// Its data is not what its kind, command or http, reads.
    BadData,
    /// No live node has this line or job in code any more (with --all).
    Orphaned,
}

impl In {
    fn state(self) -> Option<ScheduleState> {
        Some(match self {
            // The store does not know it.
            Self::Orphaned | Self::BadData => return None,
            Self::Waiting => ScheduleState::Waiting,
            Self::Running => ScheduleState::Running,
            Self::Paused => ScheduleState::Paused,
            Self::Ended => ScheduleState::Ended,
            Self::Dead => ScheduleState::Dead,
            Self::Failing => ScheduleState::Failing,
            Self::Unreadable => ScheduleState::Broken,
        })
    }
}

impl FilterOptions {
    /// True if orphans are asked for, which no filter of the store finds.
    pub(crate) fn is_for_orphans(&self) -> bool {
        self.state == Some(In::Orphaned)
    }

    /// True if schedules with bad data are asked for, which no filter of the store finds.
    pub(crate) fn is_for_bad_data(&self) -> bool {
        self.state == Some(In::BadData)
    }

    /// True if a beginning of names is among the conditions.
    pub(crate) fn names_prefix(&self) -> bool {
        self.beginning.is_some()
    }

    /// Rejects a prefix that ends within a word of one of these names, unless it was asked for.
    pub(crate) fn check_words(&self, names: &[String]) -> Outcome {
        let prefix = self.beginning.as_deref().unwrap_or_default();
        let is_in_word = |name: &&String| {
            let rest = name.strip_prefix(prefix).unwrap_or_default();
            prefix.ends_with(char::is_alphanumeric) && rest.starts_with(char::is_alphanumeric)
        };
        let Some(name) = names.iter().find(is_in_word) else { return Ok(()) };
        Err(Failure::failed(format!(
            "--name {prefix} ends within a word of {name:?}, and nothing is changed; end it with what \
             follows the word, as {prefix}/, or select such names, too, with '{prefix}*'"
        )))
    }

    /// The filter of the store.
    pub(crate) fn filter(&self) -> Filter<'_> {
        let prefix = self.beginning.as_deref().unwrap_or_default();
        let mut filter = Filter::default().prefix(prefix.strip_suffix('*').unwrap_or(prefix));
        filter.kind = self.kind.as_deref();
        filter.tag = self.tag.as_deref();
        filter.owner = self.owner.as_deref();
        filter.state = self.state.and_then(In::state);
        filter
    }
}
