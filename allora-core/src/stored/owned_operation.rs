//! Operations that own what they refer to, for a request that another caller sends.

use crate::{
    backend::{
        Action, Advance, Author, CancelScope, Counters, Edit, ImportedProgress, NewSchedule,
        NextRun, OPERATION_BYTES, Occurrence, Operation, Replan,
    },
    time::Time,
};
use std::time::Duration;

/// An operation of a client.
pub(super) struct OwnedOperation {
    name: String,
    action: OwnedAction,
    author: Option<Author>,
}

/// The actions of clients that have one operation for each call.
enum OwnedAction {
    Read,
    Create { kind: String, definition: String, first: Option<NextRun>, data: Vec<u8> },
    Modify(OwnedEdit),
    Pause { note: String, until: Option<Time> },
    Resume,
    Skip(Advance),
    Trigger { id: String, scheduled_at: Option<Time>, retention: Duration, data: Option<Vec<u8>> },
    Rerun { occurrence: Occurrence },
    Cancel(OwnedScope),
    Dismiss { occurrence: Occurrence },
    MarkSucceeded { occurrence: Occurrence },
    Reset { incarnation: i64, first: Option<NextRun> },
    Delete,
}

enum OwnedScope {
    All,
    Run(i64),
    Trigger(String),
}

struct OwnedEdit {
    generation: i64,
    kind: Option<String>,
    definition: Option<(String, Replan)>,
    data: Option<Vec<u8>>,
}

impl OwnedOperation {
    /// A copy; `None` for an operation that is sent alone: one of a node, or an import.
    pub(super) fn of(operation: &Operation<'_>) -> Option<Self> {
        let Operation {
            name,
            action,
            author,
            output: None,
            value: None,
            checkpoint,
            excluded: None,
            works_on: false,
        } = operation
        else {
            return None;
        };
        if checkpoint.is_some() {
            return None;
        }
        let action = match action {
            Action::Read => OwnedAction::Read,
            Action::Create(new) => {
                let NewSchedule { kind, definition, first, data, progress } = *new;
                if !is_none(progress) {
                    return None;
                }
                let (kind, definition) = (kind.to_owned(), definition.to_owned());
                OwnedAction::Create { kind, definition, first, data: data.to_vec() }
            }
            Action::Modify(Edit { generation, kind, definition, data }) => {
                OwnedAction::Modify(OwnedEdit {
                    generation: *generation,
                    kind: kind.map(str::to_owned),
                    definition: definition.map(|(text, plan)| (text.to_owned(), plan)),
                    data: data.map(<[u8]>::to_vec),
                })
            }
            Action::Pause { note, until } => {
                OwnedAction::Pause { note: (*note).to_owned(), until: *until }
            }
            Action::Resume => OwnedAction::Resume,
            Action::Skip(skip) => OwnedAction::Skip(*skip),
            Action::Trigger { id, scheduled_at, retention, data } => OwnedAction::Trigger {
                data: data.map(<[u8]>::to_vec),
                id: (*id).to_owned(),
                scheduled_at: *scheduled_at,
                retention: *retention,
            },
            Action::Rerun { occurrence } => {
                OwnedAction::Rerun { occurrence: (*occurrence).clone() }
            }
            Action::Cancel(scope) => OwnedAction::Cancel(match scope {
                CancelScope::All => OwnedScope::All,
                CancelScope::Run(fence) => OwnedScope::Run(*fence),
                CancelScope::Trigger(id) => OwnedScope::Trigger((*id).to_owned()),
            }),
            Action::MarkSucceeded { occurrence } => {
                OwnedAction::MarkSucceeded { occurrence: (*occurrence).clone() }
            }
            Action::Dismiss { occurrence } => {
                OwnedAction::Dismiss { occurrence: (*occurrence).clone() }
            }
            Action::Reset { incarnation, first } => {
                OwnedAction::Reset { incarnation: *incarnation, first: *first }
            }
            Action::Delete => OwnedAction::Delete,
            _ => return None,
        };
        Some(Self { name: (*name).to_owned(), action, author: author.cloned() })
    }

    pub(super) fn borrowed(&self) -> Operation<'_> {
        let action = match &self.action {
            OwnedAction::Read => Action::Read,
            OwnedAction::Create { kind, definition, first, data } => {
                Action::Create(NewSchedule::new(kind, definition, *first).data(data))
            }
            OwnedAction::Modify(OwnedEdit { generation, kind, definition, data }) => {
                Action::Modify(Edit {
                    generation: *generation,
                    kind: kind.as_deref(),
                    definition: definition.as_ref().map(|(text, plan)| (text.as_str(), *plan)),
                    data: data.as_deref(),
                })
            }
            OwnedAction::Pause { note, until } => Action::Pause { note, until: *until },
            OwnedAction::Resume => Action::Resume,
            OwnedAction::Skip(skip) => Action::Skip(*skip),
            OwnedAction::Trigger { id, scheduled_at, retention, data } => {
                let (scheduled_at, retention) = (*scheduled_at, *retention);
                Action::Trigger { id, scheduled_at, retention, data: data.as_deref() }
            }
            OwnedAction::Rerun { occurrence } => Action::Rerun { occurrence },
            OwnedAction::Cancel(scope) => Action::Cancel(match scope {
                OwnedScope::All => CancelScope::All,
                OwnedScope::Run(fence) => CancelScope::Run(*fence),
                OwnedScope::Trigger(id) => CancelScope::Trigger(id),
            }),
            OwnedAction::Dismiss { occurrence } => Action::Dismiss { occurrence },
            OwnedAction::MarkSucceeded { occurrence } => Action::MarkSucceeded { occurrence },
            OwnedAction::Reset { incarnation, first } => {
                Action::Reset { incarnation: *incarnation, first: *first }
            }
            OwnedAction::Delete => Action::Delete,
        };
        Operation::new(&self.name, action).by(self.author.as_ref())
    }

    /// An upper bound of its size in a request.
    pub(super) fn bytes(&self) -> usize {
        let texts = match &self.action {
            OwnedAction::Create { definition, data, .. } => definition.len() + data.len(),
            OwnedAction::Modify(OwnedEdit { definition, data, .. }) => {
                definition.as_ref().map_or(0, |(text, _)| text.len())
                    + data.as_ref().map_or(0, Vec::len)
            }
            OwnedAction::Pause { note, .. } => note.len(),
            OwnedAction::Trigger { data, .. } => data.as_ref().map_or(0, Vec::len),
            _ => 0,
        };
        let note = self.author.as_ref().map_or(0, |author| author.note.len());
        OPERATION_BYTES + texts + note
    }
}

/// `true` for a schedule that comes from no other store.
fn is_none(progress: ImportedProgress<'_>) -> bool {
    let ImportedProgress { last_started, paused, counters, dead } = progress;
    last_started.is_none() && paused.is_none() && counters == Counters::default() && dead.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{NotRun, NotRunReason, Pause},
        time::from_millis,
    };

    fn time(ms: i64) -> Time {
        from_millis(ms).unwrap()
    }

    #[test]
    fn a_copy_is_the_same_operation() {
        let occurrence = Occurrence { scheduled_at: time(1), trigger: Some("id".to_owned()) };
        let next = Some(NextRun { scheduled_at: time(2), due_at: time(3) });
        let not_run = NotRun { count: Some(2), last: time(4), reason: NotRunReason::CatchUp };
        let plan =
            Replan { expected: Some(time(1)), not_run: Some((time(2), not_run)), then: next };
        let edit = Edit {
            generation: 7,
            kind: Some("k"),
            definition: Some(("d", plan)),
            data: Some(b"x"),
        };
        let retention = Duration::from_secs(5);
        for action in [
            Action::Read,
            Action::Create(NewSchedule::new("kind", "@daily", next).data(b"data")),
            Action::Modify(edit),
            Action::Modify(Edit::of(8)),
            Action::Pause { note: "why", until: None },
            Action::Pause { note: "why", until: Some(time(12)) },
            Action::Skip(Advance::new(9, time(1), not_run, next)),
            Action::Resume,
            Action::Trigger { id: "id", scheduled_at: Some(time(6)), retention, data: Some(b"x") },
            Action::Rerun { occurrence: &occurrence },
            Action::Cancel(CancelScope::All),
            Action::Cancel(CancelScope::Run(10)),
            Action::Cancel(CancelScope::Trigger("id")),
            Action::Dismiss { occurrence: &occurrence },
            Action::MarkSucceeded { occurrence: &occurrence },
            Action::Reset { incarnation: 11, first: next },
            Action::Delete,
        ] {
            let author = Author::new("ann").via("console").note("why");
            let operation = Operation::new("job", action).by(Some(&author));
            let copy = OwnedOperation::of(&operation).unwrap();
            assert_eq!(format!("{:?}", copy.borrowed()), format!("{operation:?}"));
        }
    }

    #[test]
    fn what_has_more_than_a_copy_would_have_is_sent_alone() {
        let import = |progress| {
            let new = NewSchedule::new("kind", "@daily", None).progress(progress);
            Operation::new("job", Action::Create(new))
        };
        let none = ImportedProgress::default();
        assert!(OwnedOperation::of(&import(none)).is_some());
        let paused = Pause { note: "why".to_owned(), since: time(1), until: None };
        let counters = Counters { started: 1, ..Counters::default() };
        for progress in [
            ImportedProgress { last_started: Some(time(1)), ..none },
            ImportedProgress { paused: Some(&paused), ..none },
            ImportedProgress { counters, ..none },
        ] {
            assert!(OwnedOperation::of(&import(progress)).is_none());
        }
        let output = Operation::new("job", Action::Delete).output(Some("text"));
        assert!(OwnedOperation::of(&output).is_none());
        assert!(OwnedOperation::of(&Operation::new("job", Action::Reap)).is_none());
    }
}
