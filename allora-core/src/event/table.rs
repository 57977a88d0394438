//! The tables in the documentation of [`Event`], compared with the code: every state in which something
//! does not run has an event at its start, one at its end, and a line in [`Health`].

use super::Event;
use crate::health::{Health, ProblemReason};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    /// A state in which something does not run begins.
    Start,
    /// Such a state ends.
    End,
    /// Something did not run, or was late; it is over.
    Moment,
    /// It keeps nothing from running.
    Other,
}

/// A variant without a role does not compile.
macro_rules! roles {
    ($($role:ident: $($event:ident)*;)*) => {
        const ROLES: &[(&str, Role)] = &[$($((stringify!($event), Role::$role),)*)*];

        fn role(event: &Event) -> Role {
            match event {
                $($(Event::$event { .. } => Role::$role,)*)*
            }
        }
    };
}

roles! {
    Start: StoreDown StoreError NotificationsDown CapacityFull ClockSkew JobUnreadable
        DefinitionConflict JobInvalid SchedulesInvalid Deleted ClockWasAhead ClockWasSetBack JobOverdue KindUnhandled
        DataMismatch LabelUnmatched NodeDead JobsOrphaned KeyBusy;
    End: StoreUp NotificationsUp CapacityFree ClocksAgree JobResumed SchedulesResumed KindHandled DataMatches LabelMatched NodeAlive
        OrphansGone KeyFree;
    Moment: RunLost RunExpired OccurrencesMissed OccurrencesSkipped LeaseLost LeaseRenewalFailed
        AfterCompletion EndRejected GivenUp ClaimAbandoned ScheduleLost Reregistered Pruned TimerDelayed;
    Other: DurabilityWarning ScheduleWarning Ready Started Ended KeyLimitsDiffer Recovered Redefined
        DefinitionAdopted Stopped;
}

/// A reason without a line does not compile.
macro_rules! problems {
    ($($reason:ident)*) => {
        const PROBLEMS: &[ProblemReason] = &[$(ProblemReason::$reason),*];

        fn line(reason: ProblemReason) -> String {
            match reason {
                $(ProblemReason::$reason => format!("problem *{}*", reason.word()),)*
            }
        }
    };
}

problems! { Unreadable DefinitionConflict Invalid Deleted ClockWasAhead Overdue }

/// The parts of [`Health`] that show a state in which something does not run. A part that is missing here
/// does not compile.
fn parts() -> BTreeSet<String> {
    let _ = |health: Health| {
        let Health {
            store: _,
            notifications: _,
            clock_offset_ms: _,
            capacity: _,
            kind_capacity: _,
            unresolved_claims: _,
            paused: _,
            problems: _,
            key_waits: _,
            unhandled_kinds: _,
            data_mismatches: _,
            invalid_schedules: _,
            nodes: _,
            unmatched_labels: _,
            orphans: _,
            conditions: _,
            disagreements: _,
            // These show no state in which something does not run.
            node: _,
            at: _,
            is_stopping: _,
            jobs: _,
        } = health;
    };
    let parts = [
        "store.failing",
        "notifications",
        "clock_offset_ms",
        "capacity.full_since",
        "kind_capacity",
        "unresolved_claims",
        "paused",
        "key_waits",
        "unhandled_kinds",
        "data_mismatches",
        "invalid_schedules",
        "nodes.dead",
        "unmatched_labels",
        "orphans",
        "conditions",
        "disagreements",
    ];
    let parts = parts.iter().map(|part| format!("`{part}`"));
    parts.chain(PROBLEMS.iter().map(|reason| line(*reason))).collect()
}

/// The cells of the rows below a heading of the documentation.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let source = include_str!("../event.rs");
    let (_, after) = source.split_once(&format!("/// # {heading}\n")).unwrap();
    let section = after.lines().take_while(|line| line.starts_with("///") && !line.contains("# "));
    let rows = section.filter_map(|line| line.strip_prefix("/// | ")?.strip_suffix(" |"));
    rows.skip(1).map(|row| row.split(" | ").collect()).collect()
}

/// The events that a cell links to.
fn links(cell: &str) -> impl Iterator<Item = &str> {
    cell.split("(Self::").skip(1).filter_map(|rest| Some(rest.split_once(')')?.0))
}

fn with(role: Role) -> BTreeSet<&'static str> {
    ROLES.iter().filter(|(_, one)| *one == role).map(|(name, _)| *name).collect()
}

#[test]
fn every_state_in_which_something_does_not_run_has_a_row_with_two_events_and_a_line() {
    let rows = rows("What keeps jobs from running");
    let column = |n: usize| rows.iter().flat_map(move |row| links(row[n])).collect::<BTreeSet<_>>();
    assert_eq!(column(1), with(Role::Start), "the events at the start");
    assert_eq!(column(2), with(Role::End), "the events at the end");
    let in_health: Vec<_> = rows.iter().map(|row| row[3]).collect();
    for part in parts() {
        assert!(in_health.iter().any(|cell| cell.contains(&part)), "no row has {part}");
    }
    for row in &rows {
        assert_eq!(row.len(), 4, "{row:?}");
        let is_known = parts().iter().any(|part| row[3].contains(part));
        assert!(is_known, "the code has no part of health as in {row:?}");
        // An operator's or a user's own decision has no event, and the row says so.
        let is_decided = row[1] == "none" && row[2] == "none";
        let is_state = links(row[1]).next().is_some() && links(row[2]).next().is_some();
        assert!(is_state != is_decided, "{row:?}");
    }
}

#[test]
fn every_event_without_an_end_has_a_row_that_says_so() {
    let rows = rows("What happens at a moment");
    let events: BTreeSet<_> = rows.iter().flat_map(|row| links(row[0])).collect();
    assert_eq!(events, with(Role::Moment));
    assert_eq!(role(&Event::OrphansGone), Role::End);
}
