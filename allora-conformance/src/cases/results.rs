//! The outputs and values of runs, in the entries of the history.

use super::entries::told;
use crate::cluster::*;
use allora_core::{
    backend::{Completion, Cursor, Operation, Outcome, Reply},
    record::MAX_VALUE,
};

pub(super) async fn the_output_of_a_run_is_in_its_entry(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let long = "\0ä".repeat(1_000);
    let outputs = [Some("3 mails\n\0'🧾"), None, Some(&*long)];
    for (claim, output) in (1..).zip(outputs) {
        let now = t(60 * claim as i64);
        let run = won(w.node().lease(now, "job", claim).await);
        let next = t(60 * (claim as i64 + 1));
        let (then, completion) = (Cursor::To(Some(next.into())), Completion::Failed("x"));
        let end = match output {
            Some(_) => ran(next),
            None => RunAction::Complete { then, completion },
        };
        let end = Operation::new("job", end.under(run.fence)).output(output);
        assert_eq!(fine(w.node().apply(now, &[end]).await.single()), Reply::Accepted);
    }
    let past = w.node().history_entries("job").await;
    let kept: Vec<Option<&str>> = past.iter().rev().map(|past| past.output.as_deref()).collect();
    assert_eq!(kept[..2], outputs[..2]);
    let cut = kept[2].expect("it has an output");
    assert!(cut.len() <= 1_024 && long.starts_with(cut.trim_end_matches('…')), "{cut:?}");
}

pub(super) async fn the_outputs_of_runs_that_end_together_are_in_their_own_entries(w: &Cluster) {
    let outputs = [
        ("d", Some("of d, and longer than the others")),
        ("b", None),
        ("c", Some("of c")),
        ("e", None),
        ("a", Some("")),
    ];
    let mut ends = Vec::new();
    for ((name, output), claim) in outputs.into_iter().zip(1..) {
        w.node().register(t(0), name, t(60)).await;
        let run = won(w.node().lease(t(61), name, claim).await);
        ends.push(Operation::new(name, ran(t(120)).under(run.fence)).output(output));
    }
    let replies = w.node().replies(t(62), &ends).await;
    assert!(replies.iter().all(|reply| *reply == Reply::Accepted), "{replies:?}");
    for (name, output) in outputs {
        let past = w.node().history_entries(name).await;
        let run = (t(60), 1, "node-1", t(62), &Outcome::Succeeded);
        assert_eq!(told(&past), [run], "{name}");
        let times = (past[0].due_at, past[0].started_at);
        assert_eq!((&*past[0].name, past[0].output.as_deref()), (name, output));
        assert_eq!(times, (Some(t(60)), Some(t(61))), "{name}");
    }
}

pub(super) async fn the_value_of_a_run_is_in_its_entry(w: &Cluster) {
    w.node().register(t(0), "job", t(60)).await;
    let long = format!("[{}]", "\"\u{e4}\",".repeat(13_106) + "1234");
    assert_eq!(long.len(), MAX_VALUE);
    let values = [Some(r#"{"mails": 3, "to": "🧾'\\"}"#), None, Some(&*long)];
    for (claim, value) in (1..).zip(values) {
        let now = t(60 * claim as i64);
        let run = won(w.node().lease(now, "job", claim).await);
        let end = ran(t(60 * (claim as i64 + 1)));
        let end = Operation::new("job", end.under(run.fence)).value(value);
        assert_eq!(fine(w.node().apply(now, &[end]).await.single()), Reply::Accepted);
    }
    let past = w.node().history_entries("job").await;
    let kept: Vec<Option<&str>> = past.iter().rev().map(|past| past.value.as_deref()).collect();
    assert_eq!(kept, values);
}
