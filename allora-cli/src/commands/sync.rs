//! `allora sync`: reconciles the store with a file.

use super::{
    changes::{Changes, tried},
    file::{self, shown_as},
};
use crate::{
    declared::warn_of_unhandled,
    failure::{Failure, Outcome},
    kinds,
    output::{Progress, on_one_line},
    session::{self, Session},
    store::StoreArgs,
    values::{duration, shown},
    yaml::seems_yaml,
};
use allora_core::{
    AnySchedule, StoredSchedule,
    stored::{DesiredState, Difference, Step, SyncProgress},
};
use clap::Args;
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    path::PathBuf,
    sync::{Mutex, PoisonError},
    time::Duration,
};

/// Makes the stored schedules those of a file: adds, changes and removes.
///
/// Prints each change, and the number of changes of each sort. An equal schedule keeps its next time,
/// its counters and its pause.
#[derive(Debug, Args)]
#[command(after_help = "\
FILE
  a JSON array of objects with name, kind and schedule, and as needed zone, delay, window, jitter,
  timeout, start, end, max-runs, run-when-created, run-if-past, catch-up, overlap, retry, concurrency-key,
  max-key-wait, breaker, alert, history, after, at-least-once, at-most-once, owner, tags, data (labels are a part of the kind, as
  command@gpu). What the file does not say, the schedule does not have, its owner and tags included:
    [{\"name\": \"backup\", \"kind\": \"command\", \"schedule\": \"0 4 * * *\", \"zone\": \"Europe/Paris\",
      \"data\": {\"command\": [\"backup\", \"--all\"]}}]

EXAMPLES
  allora sync schedules.json --complete acme/ --dry-run
  allora sync schedules.json --complete acme/")]
pub(crate) struct Sync {
    /// The file; - is standard input.
    file: PathBuf,
    /// The file declares all schedules whose names begin with this: orphaned ones are paused, and
    /// pruned by the first sync after the grace. '' stands for all names [default: none is pruned].
    #[arg(long, value_name = "PREFIX")]
    complete: Option<String>,
    /// Time for which an orphaned schedule keeps its progress, in case it is declared again.
    #[arg(long, default_value = "24h", requires = "complete", value_parser = duration)]
    grace: Duration,
    /// Prints the changes and makes none.
    #[arg(long, short = 'n')]
    dry_run: bool,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    place: StoreArgs,
}

impl Sync {
    pub(crate) fn run(self) -> Outcome {
        let zone = self.place.settings()?.timezone;
        let text = file::text(&self.file)?;
        let wrong = |what: String| Failure::wrong(format!("{}: {what}", shown_as(&self.file)));
        let mut stored = declared(&text, zone.as_deref()).map_err(|error| {
            wrong(match seems_yaml(&self.file, &text) {
                true => "this is YAML, and JSON is read here; write an array of objects, as `allora sync --help` \
                         shows"
                    .into(),
                false if text.trim_start().starts_with('{') => {
                    "one JSON array of all schedules is read here; `allora import` reads a JSON object in each line".into()
                }
                false => error.to_string(),
            })
        })?;
        for stored in &mut stored {
            *stored = kinds::checked(stored.clone())
                .map_err(|what| wrong(format!("{:?}: {what}", stored.name())))?;
        }
        let mut declared = DesiredState::new(&stored).grace(self.grace);
        if let Some(prefix) = &self.complete {
            declared = declared.complete(prefix);
        }
        if self.dry_run {
            declared = declared.dry_run();
        }
        let progress = Mutex::new((Progress::new("schedules compared or changed"), 0));
        let report = |now: SyncProgress| {
            let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
            let (shown, before) = &mut *progress;
            let done = now.compared + now.changed;
            shown.more(done - std::mem::replace(before, done));
        };
        declared = declared.on_progress(&report);
        let differences = session::with(&self.place, async |session: Session| {
            let differences = session.schedules.sync(declared).await;
            let differences = differences.map_err(Failure::of_input)?;
            progress.lock().unwrap_or_else(PoisonError::into_inner).0.clear();
            warn_of_unhandled(&session, stored.iter().map(StoredSchedule::kind)).await;
            Ok(differences)
        })?;
        drop(progress);
        let line = |difference: &Difference| on_one_line(&difference.to_string()) + "\n";
        let lines: String = differences.iter().map(line).collect();
        let summary = summary(stored.len(), &differences, self.dry_run);
        let objects = differences.iter().map(|difference| object(difference, self.dry_run));
        self.changes.print(objects, format_args!("{lines}{summary}\n"))
    }
}

/// The changes by their words, those of declared schedules first.
const STEPS: [&str; 5] = ["added", "modified", "restored", "orphaned", "deleted"];

/// The place of a change in [`STEPS`].
fn step_of(step: &Step) -> usize {
    match step {
        Step::Add { .. } => 0,
        Step::Modify { .. } => 1,
        Step::Restore => 2,
        Step::Orphan { .. } => 3,
        _ => 4,
    }
}

/// A difference as programs read it.
fn object(Difference { name, step }: &Difference, is_dry_run: bool) -> Value {
    let mut object = tried(name, STEPS[step_of(step)], is_dry_run);
    let change = |(before, after): &(String, String)| json!({ "before": before, "after": after });
    match step {
        Step::Add { definition } => {
            object["definition"] = json!({ "before": null, "after": definition });
        }
        Step::Modify { kind, definition, data } => {
            object["kind"] = json!(kind.as_ref().map(change));
            object["definition"] = json!(definition.as_ref().map(change));
            object["is_data_changed"] = json!(data);
        }
        Step::Orphan { until } => object["until"] = shown(*until).into(),
        _ => {}
    }
    object
}

/// The counts of the changes, as one line.
fn summary(declared: usize, differences: &[Difference], dry_run: bool) -> String {
    let mut counts = [0; STEPS.len()];
    let mut changed = BTreeSet::new();
    for Difference { name, step } in differences {
        let step = step_of(step);
        counts[step] += 1;
        if step < 3 {
            changed.insert(name);
        }
    }
    let schedules = if declared == 1 { "schedule" } else { "schedules" };
    let tried = if dry_run { "would be " } else { "" };
    let unchanged = declared - changed.len();
    let mut line = format!("{declared} {schedules} declared: {unchanged} unchanged");
    for (count, step) in counts.iter().zip(STEPS).filter(|(count, _)| **count > 0) {
        line.push_str(&format!(", {count} {tried}{step}"));
    }
    line + "."
}

/// The schedules that a file declares. One without a zone gets `zone`, as with `allora add`.
fn declared(text: &str, zone: Option<&str>) -> serde_json::Result<Vec<StoredSchedule>> {
    let stored: Vec<StoredSchedule> = serde_json::from_str(text)?;
    let Some(zone) = zone else { return Ok(stored) };
    let objects: Vec<Value> = serde_json::from_str(text)?;
    let with_zone = |(stored, object): (StoredSchedule, Value)| {
        let names_none = object.get("zone").is_none()
            && object["schedule"].as_str().is_some_and(|schedule| {
                AnySchedule::for_job(stored.name(), schedule).is_ok_and(|given| given.lacks_zone())
            });
        if names_none { stored.in_zone(zone) } else { stored }
    };
    Ok(stored.into_iter().zip(objects).map(with_zone).collect())
}
