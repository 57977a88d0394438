//! The filter of *Jobs*, which is wholly in the address.

use crate::{context::Context, failure::Failure, params::Params, words::Word};
use allora_core::stored::{Filter, ScheduleState};

/// The filter in the address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) prefix: String,
    pub(crate) kind: String,
    pub(crate) tag: String,
    pub(crate) owner: String,
    pub(crate) state: Option<Word>,
    pub(crate) is_by_due: bool,
    pub(crate) after: String,
}

impl Asked {
    pub(crate) fn read(params: &Params) -> Result<Self, Failure> {
        let state = match params.some("state") {
            Some(text) => Some(Word::from_text(text).ok_or_else(|| {
                let all: Vec<&str> = Word::ALL.iter().map(|word| word.text()).collect();
                Failure::bad_address(format!(
                    "There is no state {text:?}; use one of {}.",
                    all.join(", ")
                ))
            })?),
            None => None,
        };
        let is_by_due = match params.get("sort") {
            "" | "name" => false,
            "next" => true,
            other => {
                let text = format!("The list cannot be sorted by {other:?}; use name or next.");
                return Err(Failure::bad_address(text));
            }
        };
        Ok(Self {
            prefix: params.exact("q").to_owned(),
            kind: params.get("kind").to_owned(),
            tag: params.get("tag").to_owned(),
            owner: params.get("owner").to_owned(),
            state,
            is_by_due,
            after: params.exact("after").to_owned(),
        })
    }

    pub(crate) fn filter(&self) -> Filter<'_> {
        let mut filter = Filter::default().prefix(&self.prefix);
        filter.kind = Some(self.kind.as_str()).filter(|kind| !kind.is_empty());
        filter.tag = Some(self.tag.as_str()).filter(|tag| !tag.is_empty());
        filter.owner = Some(self.owner.as_str()).filter(|owner| !owner.is_empty());
        filter
    }

    /// The same filter, as the store selects many jobs by it; `None` if its state is none that the store knows.
    pub(crate) fn filter_of_many(&self) -> Option<Filter<'_>> {
        let filter = self.filter();
        let state = match self.state {
            None => return Some(filter),
            Some(Word::Running) => ScheduleState::Running,
            Some(Word::Paused) => ScheduleState::Paused,
            Some(Word::Ended) => ScheduleState::Ended,
            Some(Word::Dead) => ScheduleState::Dead,
            Some(Word::Failing) => ScheduleState::Failing,
            Some(Word::Waiting) => ScheduleState::Waiting,
            Some(_) => return None,
        };
        Some(filter.state(state))
    }

    /// The address of the list with this filter, and with these parameters changed.
    pub(crate) fn link(&self, context: &Context, changed: &[(&str, &str)]) -> String {
        self.link_to("jobs", context, changed)
    }

    /// The address of a page with this filter, and with these parameters changed.
    pub(crate) fn link_to(
        &self,
        page: &str,
        context: &Context,
        changed: &[(&str, &str)],
    ) -> String {
        let own = [
            ("q", self.prefix.as_str()),
            ("kind", self.kind.as_str()),
            ("tag", self.tag.as_str()),
            ("owner", self.owner.as_str()),
            ("state", self.state.map_or("", Word::text)),
            ("sort", if self.is_by_due { "next" } else { "" }),
        ];
        let is_kept = |(name, _): &(&str, &str)| !changed.iter().any(|(new, _)| new == name);
        let params: Vec<(&str, &str)> =
            own.into_iter().filter(is_kept).chain(changed.iter().copied()).collect();
        context.link(page, &params)
    }

    pub(crate) fn is_filtered(&self) -> bool {
        *self != Self { after: self.after.clone(), is_by_due: self.is_by_due, ..Self::default() }
    }
}
