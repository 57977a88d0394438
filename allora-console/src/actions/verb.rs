//! The sorts of actions, and their buttons.

use crate::{access::Scope, context::Context, links::Linked, times::machine};
use allora_core::{Occurrence, backend::JobState};

/// A sort of action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Pause,
    Resume,
    Skip,
    Trigger,
    Cancel,
    Rerun,
    Dismiss,
    Mark,
    Backfill,
    Reset,
    Delete,
}

/// One row for each: its word in addresses, the text of its button, and whether it wants a note.
pub(super) const VERBS: [(Verb, &str, &str, bool); 11] = [
    (Verb::Trigger, "trigger", "Run now", false),
    (Verb::Pause, "pause", "Pause", true),
    (Verb::Resume, "resume", "Resume", false),
    (Verb::Skip, "skip", "Skip next", true),
    (Verb::Cancel, "cancel", "Cancel runs", true),
    (Verb::Backfill, "backfill", "Backfill", true),
    (Verb::Reset, "reset", "Reset", true),
    (Verb::Delete, "delete", "Delete", true),
    (Verb::Rerun, "rerun", "Rerun", false),
    (Verb::Dismiss, "dismiss", "Dismiss", true),
    (Verb::Mark, "mark", "Mark as succeeded", true),
];

impl Verb {
    fn row(self) -> (Verb, &'static str, &'static str, bool) {
        let own = VERBS.into_iter().find(|row| row.0 == self);
        own.unwrap_or(VERBS[0])
    }

    pub(crate) fn word(self) -> &'static str {
        self.row().1
    }

    pub(super) fn label(self) -> &'static str {
        self.row().2
    }

    /// `true` if the action needs a note, because its reason will be asked for later.
    pub(super) fn needs_note(self) -> bool {
        self.row().3
    }

    pub(super) fn from_word(word: &str) -> Option<Self> {
        VERBS.into_iter().find(|row| row.1 == word).map(|row| row.0)
    }

    pub(crate) fn scope(self) -> Scope {
        match self {
            Self::Delete => Scope::Edit,
            _ => Scope::Run,
        }
    }

    pub(super) fn is_allowed(self, context: &Context) -> bool {
        match self.scope() {
            Scope::Edit => context.may_edit,
            _ => context.may_run,
        }
    }
}

/// The buttons of a job: the actions that the reader may do here.
pub(crate) fn buttons(state: &JobState, context: &Context) -> Vec<Linked> {
    let (name, is_paused) = (state.name.as_str(), state.paused.is_some());
    let is_of_job = |verb: &Verb| match verb {
        Verb::Rerun | Verb::Dismiss | Verb::Mark => false,
        Verb::Pause => !is_paused,
        Verb::Resume => is_paused,
        _ => true,
    };
    let is_stored = !state.kind.is_empty() && state.unreadable.is_none();
    let mut buttons = Vec::new();
    for verb in VERBS.into_iter().map(|row| row.0).filter(is_of_job) {
        if verb.is_allowed(context) {
            let link = context.link("act", &[("do", verb.word()), ("name", name)]);
            buttons.push(Linked { text: format!("{}…", verb.label()), link });
        }
        if matches!(verb, Verb::Pause | Verb::Resume) && is_stored && context.may_edit {
            let link = context.link("edit", &[("name", name)]);
            buttons.push(Linked { text: "Edit…".into(), link });
        }
    }
    buttons
}

/// The buttons of the dead letter of this occurrence.
pub(crate) fn letter_buttons(
    name: &str,
    occurrence: &Occurrence,
    context: &Context,
) -> Vec<Linked> {
    let verbs = [Verb::Rerun, Verb::Mark, Verb::Dismiss];
    verbs.iter().filter_map(|verb| occurrence_button(*verb, name, occurrence, context)).collect()
}

/// The button that records the work of this occurrence as done.
pub(crate) fn mark_button(
    name: &str,
    occurrence: &Occurrence,
    context: &Context,
) -> Option<Linked> {
    occurrence_button(Verb::Mark, name, occurrence, context)
}

fn occurrence_button(
    verb: Verb,
    name: &str,
    occurrence: &Occurrence,
    context: &Context,
) -> Option<Linked> {
    let at = machine(occurrence.scheduled_at);
    let trigger = occurrence.trigger.as_deref().unwrap_or_default();
    let params = [("do", verb.word()), ("name", name), ("at", &at), ("trigger", trigger)];
    let link = context.link("act", &params);
    verb.is_allowed(context).then(|| Linked { text: format!("{}…", verb.label()), link })
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::backend::Pause;

    #[test]
    fn every_verb_has_its_word_and_only_deleting_needs_more_than_run() {
        for (verb, word, label, _) in VERBS {
            assert_eq!(
                (Verb::from_word(word), verb.word(), verb.label()),
                (Some(verb), word, label)
            );
            assert_eq!(verb.scope() == Scope::Edit, verb == Verb::Delete, "{word}");
        }
        assert_eq!(Verb::from_word("explode"), None);
    }

    #[test]
    fn buttons_are_those_of_the_scopes_and_of_the_state() {
        let context = Context { may_edit: false, ..Context::of_test() };
        let state = |is_paused: bool| {
            let mut state = JobState::empty("a&b");
            let pause = Pause { since: context.now, until: None, note: String::new() };
            (state.kind, state.paused) = ("mail".into(), is_paused.then_some(pause));
            state
        };
        let texts = |is_paused| {
            let all = buttons(&state(is_paused), &context);
            all.into_iter().map(|button| button.text).collect::<Vec<_>>()
        };
        let has = |texts: &[String], text: &str| texts.iter().any(|other| other == text);
        let (going, paused) = (texts(false), texts(true));
        assert!(has(&going, "Pause…") && !has(&going, "Resume…") && !has(&going, "Delete…"));
        assert!(has(&paused, "Resume…") && !has(&paused, "Pause…"));
        let none = Context { may_run: false, may_edit: false, ..Context::of_test() };
        assert!(
            buttons(&state(false), &none).is_empty()
                && letter_buttons("a", &none.now.into(), &none).is_empty()
        );
        assert_eq!(buttons(&state(false), &context)[0].link, "act?do=trigger&name=a%26b");
        let editor = Context { may_run: false, ..Context::of_test() };
        let links = |state: &JobState| {
            buttons(state, &editor).into_iter().map(|button| button.link).collect::<Vec<_>>()
        };
        assert_eq!(links(&state(true)), ["edit?name=a%26b", "act?do=delete&name=a%26b"]);
        assert_eq!(links(&JobState::empty("in code")), ["act?do=delete&name=in%20code"]);
    }
}
