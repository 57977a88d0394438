//! Each broken backend fails the cases that `must_fail.txt` names, and only these.

use crate::{broken::Broken, defects::*};
use allora_conformance::{Fixture, Passed, check, names};
use std::thread;

/// The cases that each defect must fail, indented below its name.
const MUST_FAIL: &str = include_str!("must_fail.txt");

/// True if the random walks are those that the lists were made from.
fn walks_are_the_usual() -> bool {
    ["ALLORA_SEED", "ALLORA_TEST_LONG"].iter().all(|name| std::env::var_os(name).is_none())
}

/// Every case but those of contention, which need luck to fail.
fn certain() -> impl Iterator<Item = &'static str> {
    names()
        .filter(|name| !name.starts_with("contention::"))
        .filter(|name| !name.starts_with("model::") || walks_are_the_usual())
}

fn failing<F: Fixture>() -> Vec<&'static str> {
    let fails = |name| check::<F>(name) != Ok(Passed::Holds);
    // Cases wait for a notification that does not come: run them side by side.
    let (notifications, others): (Vec<_>, Vec<_>) =
        certain().partition(|name| name.starts_with("notifications::"));
    thread::scope(|scope| {
        let waits = notifications.iter().map(|name| scope.spawn(|| fails(*name)));
        let waits: Vec<_> = waits.collect();
        let mut failing: Vec<_> = others.into_iter().filter(|name| fails(name)).collect();
        let silent = notifications
            .iter()
            .zip(waits)
            .filter_map(|(name, wait)| wait.join().unwrap().then_some(*name));
        failing.extend(silent);
        // In the order of the list.
        names().filter(|name| failing.contains(name)).collect()
    })
}

fn must_fail(defect: &str) -> Vec<&'static str> {
    let mut lines = MUST_FAIL.lines().skip_while(|line| *line != defect);
    assert!(lines.next().is_some(), "`must_fail.txt` knows no {defect}");
    let cases = lines.take_while(|line| line.starts_with(' ')).map(str::trim);
    cases.filter(|case| certain().any(|name| name == *case)).collect()
}

fn bites<F: Fixture>(defect: &str) {
    assert_eq!(failing::<F>(), must_fail(defect), "{defect}");
}

#[test]
fn a_sound_backend_passes_every_case() {
    let failing: Vec<&str> =
        names().filter(|name| check::<Broken<Sound>>(name) != Ok(Passed::Holds)).collect();
    assert_eq!(failing, [""; 0]);
}

#[test]
fn eight_nodes_find_a_store_that_reads_and_then_writes() {
    let case = "contention::eight_nodes_claim_each_occurrence_once";
    assert!(check::<Broken<ReadsThenWrites>>(case).is_err());
}

#[test]
fn every_list_names_cases_that_exist() {
    for line in MUST_FAIL.lines().filter(|line| line.starts_with(' ')) {
        assert!(names().any(|name| name == line.trim()), "{line}");
    }
}

/// A test for each defect, which is called as its type is, in small letters.
macro_rules! teeth {
    ($($test:ident: $defect:ident;)*) => {
        $(#[test]
        fn $test() {
            bites::<Broken<$defect>>(stringify!($test));
        })*

        #[test]
        fn every_defect_has_a_list_and_every_list_a_defect() {
            let listed: Vec<&str> =
                MUST_FAIL.lines().filter(|line| !line.starts_with(' ')).collect();
            assert_eq!(listed, [$(stringify!($test)),*]);
        }
    };
}

teeth! {
    grants_twice: GrantsTwice;
    accepts_a_stale_fence: AcceptsAStaleFence;
    forgets_the_cursor: ForgetsTheCursor;
    due_is_not_yet: DueIsNotYet;
    claims_too_early: ClaimsTooEarly;
    forgets_moves_ahead: ForgetsMovesAhead;
    fences_stand_still: FencesStandStill;
    fences_begin_anew: FencesBeginAnew;
    forgets_the_deleted: ForgetsTheDeleted;
    completes_once: CompletesOnce;
    loses_a_trigger: LosesATrigger;
    forgets_triggers: ForgetsTriggers;
    forgets_the_data_of_triggers: ForgetsTheDataOfTriggers;
    loses_the_outbox: LosesTheOutbox;
    forgets_what_it_received: ForgetsWhatItReceived;
    counts_releases: CountsReleases;
    ends_completed_leases: EndsCompletedLeases;
    forgets_completions: ForgetsCompletions;
    forgets_checkpoints: ForgetsCheckpoints;
    keeps_late_checkpoints: KeepsLateCheckpoints;
    remembers_triggers_for_ever: RemembersTriggersForEver;
    shrinks_leases: ShrinksLeases;
    trusts_the_clock: TrustsTheClock;
    leases_at_most_once_never_end: LeasesAtMostOnceNeverEnd;
    merges_case: MergesCase;
    ignores_the_fence: IgnoresTheFence;
    ignores_the_version: IgnoresTheVersion;
    ignores_the_plans_cursor: IgnoresThePlansCursor;
    ignores_the_claim_id: IgnoresTheClaimId;
    cuts_the_claim_id: CutsTheClaimId;
    moves_the_cursor_back: MovesTheCursorBack;
    replies_out_of_order: RepliesOutOfOrder;
    advances_without_a_record: AdvancesWithoutARecord;
    ignores_leases: IgnoresLeases;
    ignores_exclusive_runs: IgnoresExclusiveRuns;
    ends_data_at_nul: EndsDataAtNul;
    cuts_instants: CutsInstants;
    ignores_the_pause: IgnoresThePause;
    ignores_the_breaker: IgnoresTheBreaker;
    forgets_the_streak: ForgetsTheStreak;
    forgets_the_end_of_the_pause: ForgetsTheEndOfThePause;
    keeps_ended_pauses: KeepsEndedPauses;
    finds_too_much: FindsTooMuch;
    hides_others: HidesOthers;
    lists_backwards: ListsBackwards;
    forgets_attempts: ForgetsAttempts;
    forgets_outcomes: ForgetsOutcomes;
    forgets_when_runs_started: ForgetsWhenRunsStarted;
    pages_by_fence: PagesByFence;
    ignores_the_owner: IgnoresTheOwner;
    evicts_the_oldest_of_all: EvictsTheOldestOfAll;
    counts_what_succeeded_as_lost: CountsWhatSucceededAsLost;
    forgets_failures: ForgetsFailures;
    ignores_the_age: IgnoresTheAge;
    keeps_successes: KeepsSuccesses;
    forgets_active_runs: ForgetsActiveRuns;
    never_notifies: NeverNotifies;
    forgets_kinds: ForgetsKinds;
    forgets_dead_letters: ForgetsDeadLetters;
    keeps_runs_at_reset: KeepsRunsAtReset;
    forgets_cancellations: ForgetsCancellations;
    keeps_what_waits: KeepsWhatWaits;
    forgets_replacements: ForgetsReplacements;
    extends_without_a_word: ExtendsWithoutAWord;
    forgets_runs_of_the_deleted: ForgetsRunsOfTheDeleted;
    forgets_outputs: ForgetsOutputs;
    forgets_values: ForgetsValues;
    begins_anew: BeginsAnew;
    keeps_the_kind: KeepsTheKind;
    keeps_nothing: KeepsNothing;
    takes_emptied_for_deleted: TakesEmptiedForDeleted;
    forgets_its_queries: ForgetsItsQueries;
    claims_without_a_plan: ClaimsWithoutAPlan;
    counts_keys_from_zero: CountsKeysFromZero;
    forgets_the_queue: ForgetsTheQueue;
    keeps_released_keys: KeepsReleasedKeys;
    keys_of_the_dead_stay: KeysOfTheDeadStay;
    ignores_the_claim_id_of_a_key: IgnoresTheClaimIdOfAKey;
    grants_keys_late: GrantsKeysLate;
    forgets_refusals: ForgetsRefusals;
    forgets_what_was: ForgetsWhatWas;
    shows_old_changes_first: ShowsOldChangesFirst;
    notes_in_another_step: NotesInAnotherStep;
    keeps_all_changes: KeepsAllChanges;
    forgets_changes_early: ForgetsChangesEarly;
    fails_for_ever: FailsForEver;
    counts_all_names: CountsAllNames;
}
