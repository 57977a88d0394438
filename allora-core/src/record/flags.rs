//! The flags of a record that a store keeps in an index, and how a change of the record changes them.
//!
//! Claims and most completions change none, so they write nothing for it: a flag is written when a job
//! begins or ceases to fail, to be paused, to have dead letters or to have ended, and when it is made,
//! edited or deleted.

use super::Record;
use crate::{
    backend::{Flag, has_failed},
    job::owner_and_tags,
    name::is_internal,
};
use std::collections::BTreeSet;

/// The [keys](Flag::key) that a change adds to the index of flags, and those that it removes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlagChanges {
    /// The job has these flags from now on.
    pub added: Vec<String>,
    /// The job has these flags no more.
    pub removed: Vec<String>,
}

impl FlagChanges {
    /// The changes of the flags of the job `name` by a write of `after` in place of `before`, which is
    /// `None` if there was no record, or none that can be read.
    pub fn of(name: &str, before: Option<&Record>, after: &Record) -> Self {
        if is_internal(name) {
            return Self::default();
        }
        let of_states = before.and_then(|it| it.flag_summary().changes_to(after.flag_summary()));
        if let Some(changes) = of_states {
            return changes;
        }
        let was = before.map(|before| before.flags(name)).unwrap_or_default();
        let is = after.flags(name);
        let added = is.difference(&was).cloned().collect();
        let removed = was.difference(&is).cloned().collect();
        Self { added, removed }
    }

    /// `true` if the flags stay as they are.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.removed.is_empty()
    }
}

/// The parts of a record from which its flags follow: two versions of a record with the same summary have the same
/// flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlagSummary {
    /// `true` for each flag that it has of those that are no words of the definition, in their order.
    states: [bool; 5],
    is_live: bool,
    /// Changes with kind and definition.
    generation: i64,
}

impl FlagSummary {
    /// The changes from this version of a record to a later one; `None` if its kind, owner or tags may have
    /// changed, so that both versions must be read. For a change that keeps the flags, nothing is allocated.
    pub fn changes_to(self, later: Self) -> Option<FlagChanges> {
        let mut changes = FlagChanges::default();
        if (self.is_live, self.generation) != (later.is_live, later.generation) {
            return None;
        }
        let states = self.states.into_iter().zip(later.states);
        for (flag, states) in crate::backend::INDEXED.into_iter().zip(states) {
            match states {
                (false, true) => changes.added.extend(flag.key()),
                (true, false) => changes.removed.extend(flag.key()),
                _ => {}
            }
        }
        Some(changes)
    }
}

impl Record {
    /// The parts from which the flags of the record follow, at little cost.
    pub fn flag_summary(&self) -> FlagSummary {
        let Self { generation, .. } = *self;
        FlagSummary { states: self.states(), is_live: self.is_live(), generation }
    }

    /// The [keys](Flag::key) of the flags of this record, under this name, in an index: none if it was
    /// deleted, and none of the scheduler's own records.
    pub fn flags(&self, name: &str) -> BTreeSet<String> {
        let mut flags = BTreeSet::new();
        if !self.is_live() || is_internal(name) {
            return flags;
        }
        let indexed = crate::backend::INDEXED.into_iter().zip(self.states());
        flags.extend(indexed.filter(|(_, holds)| *holds).filter_map(|(flag, _)| flag.key()));
        flags.extend(Flag::Kind(&self.kind).key());
        if !self.kind.is_empty() {
            let (owner, tags) = owner_and_tags(&self.definition);
            flags.extend(owner.and_then(|owner| Flag::Owner(&owner).key()));
            flags.extend(tags.iter().filter_map(|tag| Flag::Tag(tag).key()));
        }
        flags
    }

    fn states(&self) -> [bool; 5] {
        let is_live = self.is_live();
        let is_paused = self.paused.is_some();
        // The runs first: most jobs that have none have a cursor.
        let has_ended = self.leases.is_empty()
            && self.cursor.is_none()
            && self.triggers.is_empty()
            && self.retries.is_empty()
            && !is_paused;
        let (has_failed, has_outbox) = (has_failed(self.last.as_ref()), self.has_outbox());
        [has_failed, !self.dead.is_empty(), is_paused, has_ended, has_outbox]
            .map(|holds| is_live && holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{backend::Outcome, time::Time};

    fn schedule() -> Record {
        Record {
            kind: "mail".into(),
            definition: "@daily; owner sales; tags eu,gold".into(),
            cursor: Some(Time::UNIX_EPOCH.into()),
            ..Record::default()
        }
    }

    #[test]
    fn a_change_that_keeps_the_flags_writes_none() {
        let before = schedule();
        let mut after = Record { fence: 7, last: Some(Outcome::Succeeded), ..before.clone() };
        assert!(FlagChanges::of("job", Some(&before), &after).is_empty());
        after.last = Some(Outcome::Dead("e".into()));
        let changes = FlagChanges::of("job", Some(&before), &after);
        assert_eq!((changes.added, changes.removed), (vec!["failing".into()], vec![]));
        let changes = FlagChanges::of("job", Some(&after), &before);
        assert_eq!((changes.added, changes.removed), (vec![], vec!["failing".into()]));
    }

    #[test]
    fn a_new_record_has_all_its_flags_and_a_deleted_one_has_none() {
        let new = schedule();
        let all = ["kind:mail", "owner:sales", "tag:eu", "tag:gold"];
        assert_eq!(FlagChanges::of("job", None, &new).added, all);
        let deleted = Record { deleted_at: Some(Time::UNIX_EPOCH), ..new.clone() };
        assert_eq!(FlagChanges::of("job", Some(&new), &deleted).removed, all);
        let definition = "@daily; tags eu".into();
        let edited = Record { definition, cursor: None, generation: 1, ..new.clone() };
        let changes = FlagChanges::of("job", Some(&new), &edited);
        assert_eq!(changes.added, ["ended"]);
        assert_eq!(changes.removed, ["owner:sales", "tag:gold"]);
        assert!(FlagChanges::of("allora:node:n", None, &new).is_empty());
    }
}
