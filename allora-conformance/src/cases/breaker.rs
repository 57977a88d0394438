//! Jobs that pause themselves after failures in a row.

use crate::cluster::*;
use allora_core::backend::{Action, Completion, Cursor, JobState, NewSchedule, Reply, Streak};

fn died(then: i64) -> RunAction<'static> {
    let completion = Completion::Dead("boom");
    RunAction::Complete { then: Cursor::To(Some(t(then).into())), completion }
}

async fn add(node: &Node, rules: &str) -> JobState {
    let definition = format!("every 1m; at-least-once 30s; {rules}");
    let new = NewSchedule::new("mail", &definition, Some(t(60).into()));
    fine(node.add_one(t(0), "job", new).await)
}

/// Claims what is due at this time, and ends it a second later.
async fn run(node: &Node, at: i64, end: RunAction<'_>) -> JobState {
    let run = won(node.lease(t(at), "job", at as u128).await);
    assert_eq!(node.end(t(at + 1), "job", run.fence, end).await, Reply::Accepted);
    node.shown("job").await
}

/// The failures in a row, and the end of the pause in seconds.
fn seen(state: &JobState) -> (u32, Option<Option<i64>>) {
    let until = state.paused.as_ref().map(|pause| pause.until.map(|at| (at - t(0)).num_seconds()));
    (state.streak.as_ref().map_or(0, |streak: &Streak| streak.failures), until)
}

pub(super) async fn a_job_pauses_itself_until_its_probe_succeeds(w: &Cluster) {
    let node = w.node();
    add(node, "breaker 2 100s").await;
    assert_eq!(seen(&run(node, 60, died(120)).await), (1, None));
    let paused = run(node, 120, died(180)).await;
    assert_eq!((seen(&paused), paused.due_at), ((2, Some(Some(221))), Some(t(221))));
    let note = paused.paused.clone().expect("it is paused").note;
    assert!(note.contains("2 occurrences") && note.contains("boom"), "{note}");
    lost(node.claim(t(220), "job", leased(&paused, 7)).await);
    assert_eq!(seen(&run(node, 221, died(240)).await), (3, Some(Some(322))));
    let sound = run(node, 322, ran(t(360))).await;
    assert_eq!((seen(&sound), sound.due_at), ((0, None), Some(t(360))));
    assert_eq!(seen(&run(node, 360, died(420)).await), (1, None), "it begins to count anew");
}

pub(super) async fn a_trigger_that_succeeds_resumes_a_job_that_has_paused_itself(w: &Cluster) {
    let node = w.node();
    add(node, "breaker 1; alert 1").await;
    let paused = run(node, 60, died(120)).await;
    assert_eq!((seen(&paused), paused.due_at), ((1, Some(None)), None));
    node.trigger(t(200), "job", "id").await;
    let sound = run(node, 200, ran_and_stay()).await;
    assert_eq!((seen(&sound), sound.due_at), ((0, None), Some(t(120))));
}

pub(super) async fn an_operators_pause_and_resumption_are_no_ones_own(w: &Cluster) {
    let node = w.node();
    add(node, "breaker 1").await;
    run(node, 60, died(120)).await;
    let by_hand = fine(node.modify(t(62), "job", Action::Pause { note: "", until: None }).await);
    assert!(!by_hand.streak.expect("it has failed").has_paused);
    node.trigger(t(70), "job", "id").await;
    assert_eq!(seen(&run(node, 70, ran_and_stay()).await), (0, Some(None)), "it stays paused");
    node.resume(t(80), "job").await;
    run(node, 120, died(180)).await;
    let resumed = node.resume(t(130), "job").await;
    assert_eq!(seen(&resumed), (0, None), "one more failure does not count twice");
}

pub(super) async fn a_lost_run_counts_until_it_is_heard_of_again(w: &Cluster) {
    let node = w.node();
    let definition = "every 1m; breaker 1";
    let new = NewSchedule::new("mail", definition, Some(t(60).into()));
    let added = fine(node.add_one(t(0), "job", new).await);
    let claim = once(&added, 1, Some(t(120).into()));
    let run = won(node.claim(t(60), "job", claim).await);
    let paused = node.reap(t(121), "job").await;
    assert_eq!((seen(&paused), paused.due_at), ((1, Some(None)), None));
    assert_eq!(node.end(t(122), "job", run.fence, ran_and_stay()).await, Reply::Accepted);
    assert_eq!(seen(&node.read("job").await), (0, None));
}
