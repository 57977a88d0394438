//! Many schedules as lines of JSON: export, import, and the desired state of a set.

use super::{
    call::{Answer, Call},
    changes::may_have,
    problem::{Problem, Type},
    schedule::{Object, schedule},
};
use crate::{actions::log_action, reader::Reader};
use allora_core::{
    Error, ErrorKind, StoredSchedule,
    backend::JobState,
    stored::{DesiredState, ExportLine, Filter, Imported, ScheduleExport},
};
use axum::{
    body::Body,
    http::{StatusCode, header},
    response::IntoResponse,
};
use futures::{Stream, StreamExt, stream};
use serde_json::{Value, json};

/// The schedules that are read or sent at once.
const BATCH: usize = 500;

/// The most errors of an answer.
const ERRORS: usize = 1_000;

/// Calendars and schedules, one a line. A record that cannot be read is a line with its error.
pub(crate) async fn export(call: Call) -> Answer {
    let Call { query, reader, .. } = call;
    let (calendars, _) = reader.calendars(None, usize::MAX).await?;
    let calendars = calendars.into_iter().map(|(name, calendar)| match calendar {
        Ok(calendar) => format!("{}\n", ExportLine::Calendar { name, calendar }),
        Err(error) => unreadable(&error),
    });
    let (prefix, kind) = (query.text("prefix").to_owned(), query.some("kind").map(str::to_owned));
    let schedules = schedules(reader, prefix, kind);
    let lines = stream::iter(calendars.map(Ok::<_, Error>)).chain(schedules);
    let media = [(header::CONTENT_TYPE, "application/x-ndjson")];
    Ok((StatusCode::OK, media, Body::from_stream(lines)).into_response())
}

fn schedules(
    reader: Reader,
    prefix: String,
    kind: Option<String>,
) -> impl Stream<Item = Result<String, Error>> + Send {
    stream::try_unfold(Some(String::new()), move |after| {
        let (reader, prefix, kind) = (reader.clone(), prefix.clone(), kind.clone());
        async move {
            let Some(after) = after else { return Ok(None) };
            let mut filter = Filter::default().prefix(&prefix).stored_only();
            filter.kind = kind.as_deref();
            let after = Some(after.as_str()).filter(|after| !after.is_empty());
            let states = reader.unredacted_list(filter, after, BATCH).await?;
            let next = states.last().filter(|_| states.len() == BATCH);
            let next = next.map(|last| last.name.clone());
            let line = |state: &JobState| match ScheduleExport::of(state) {
                Ok(schedule) => format!("{}\n", ExportLine::Schedule(Box::new(schedule))),
                Err(error) => unreadable(&error),
            };
            Ok(Some((states.iter().map(line).collect::<String>(), next)))
        }
    })
}

fn unreadable(error: &Error) -> String {
    format!("{}\n", json!({ "error": error.to_string() }))
}

/// Adds the lines of an export. A bad line is reported with its number, and the others are added.
pub(crate) async fn import(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let (keep, note) = (query.is_set("skip_existing"), query.text("note"));
    let mut report = Report::default();
    let (mut numbers, mut good) = (Vec::new(), Vec::new());
    for (number, line) in lines(call.body()) {
        let read = match line.and_then(|line| line.parse().map_err(of_line)) {
            Ok(line) => may_import(&call, &line).map(|()| line),
            Err(problem) => Err(problem),
        };
        match read {
            Err(problem) => report.refuse(number, &problem),
            Ok(line) => {
                numbers.push(number);
                good.push(line);
            }
        }
    }
    if query.is_set("dry_run") {
        report.imported = good.len();
        return call.json(report.object());
    }
    let names = good.iter().filter_map(|line| match line {
        ExportLine::Schedule(schedule) => Some(schedule.name()),
        _ => None,
    });
    reader.admits_all(names).await.map_err(Problem::of_limit)?;
    let store = reader.whole_store(note);
    for (numbers, lines) in numbers.chunks(BATCH).zip(good.chunks(BATCH)) {
        let done = store.import_lines(lines, keep).await;
        let of = format!("lines {} to {}", numbers[0], numbers[numbers.len() - 1]);
        log_action("import", &of, (reader, note), done.as_ref().err());
        for (number, result) in numbers.iter().zip(done?) {
            match result {
                Ok(Imported::Added) => report.imported += 1,
                Ok(Imported::Kept) => report.kept += 1,
                Err(error) => report.refuse(*number, &of_line(error)),
            }
        }
    }
    call.json(report.object())
}

/// The problem of a line that is no line of an export, or cannot be added.
fn of_line(error: Error) -> Problem {
    match error.kind() {
        ErrorKind::Invalid => Problem::new(Type::Rejected, error.to_string()),
        _ => error.into(),
    }
}

/// `Ok` if the caller may have what the line adds.
fn may_import(call: &Call, line: &ExportLine) -> Result<(), Problem> {
    let access = call.reader.access();
    let (name, is_own) = match line {
        ExportLine::Calendar { name, .. } => (name.as_str(), access.may_name(name)),
        ExportLine::Schedule(schedule) => {
            let name = schedule.name();
            (name, access.may_see(name, schedule.kind()))
        }
        _ => ("", false),
    };
    if !is_own {
        let detail = format!("your access has nothing of the name {name:?}, or of this kind");
        return Err(Problem::rejected("name", detail));
    }
    Ok(())
}

/// The lines that are not blank, with their numbers from 1.
fn lines(body: &[u8]) -> impl Iterator<Item = (usize, Result<&str, Problem>)> {
    let lines = body.split(|byte| *byte == b'\n').enumerate();
    let lines = lines.map(|(index, line)| {
        let wrong = |_| Problem::new(Type::BadBody, "the line is not UTF-8");
        (index + 1, std::str::from_utf8(line).map_err(wrong))
    });
    lines.filter(|(_, line)| !line.as_ref().is_ok_and(|line| line.trim().is_empty()))
}

/// The results of the lines.
#[derive(Debug, Default)]
struct Report {
    imported: usize,
    kept: usize,
    refused: usize,
    errors: Vec<Value>,
}

impl Report {
    fn refuse(&mut self, line: usize, problem: &Problem) {
        self.refused += 1;
        if self.errors.len() < ERRORS {
            self.errors.push(problem.of_line(line));
        }
    }

    fn object(mut self) -> Value {
        self.errors.sort_by_key(|error| error["line"].as_u64());
        json!({
            "imported": self.imported,
            "kept": self.kept,
            "refused": self.refused,
            "errors": self.errors,
        })
    }
}

/// Makes the store have these schedules, one a line; with `complete`, no others of the prefix. If a line is bad, nothing
/// is changed.
pub(crate) async fn sync(call: Call) -> Answer {
    let Call { query, reader, .. } = &call;
    let (mut stored, mut errors): (Vec<StoredSchedule>, Vec<Value>) = (Vec::new(), Vec::new());
    for (number, line) in lines(call.body()) {
        let declared = match line {
            Ok(line) => declared(&call, line).await,
            Err(problem) => Err(problem),
        };
        match declared {
            Ok(declared) => stored.push(declared),
            Err(problem) => errors.push(problem.of_line(number)),
        }
    }
    if !errors.is_empty() {
        let detail = format!("{} lines are bad, and nothing was changed", errors.len());
        errors.truncate(ERRORS);
        return Err(Problem::new(Type::Rejected, detail).errors(errors));
    }
    let mut desired = DesiredState::new(&stored);
    if let Some(prefix) = query.given("complete") {
        if reader.access().parts(prefix, None) != [(prefix, None)] {
            let detail = "your access has only a part of the jobs with this prefix";
            return Err(Problem::bad_parameter("complete", detail));
        }
        desired = desired.complete(prefix);
    }
    if let Some(grace) = query.period("grace") {
        desired = desired.grace(grace);
    }
    let is_dry = query.is_set("dry_run");
    if is_dry {
        desired = desired.dry_run();
    }
    let names = stored.iter().map(StoredSchedule::name);
    reader.admits_all(names).await.map_err(Problem::of_limit)?;
    let note = query.text("note");
    let done = reader.whole_store(note).sync(desired).await;
    if !is_dry {
        let of = format!("{} declared schedules", stored.len());
        log_action("sync", &of, (reader, note), done.as_ref().err());
    }
    let items = done?.into_iter().map(|difference| {
        let text = difference.to_string();
        let step = text.split(' ').next().unwrap_or_default();
        json!({ "name": difference.name, "step": step, "text": text })
    });
    let items: Vec<Value> = items.collect();
    call.json(json!({ "declared": stored.len(), "items": items }))
}

async fn declared(call: &Call, line: &str) -> Result<StoredSchedule, Problem> {
    let Object(object) = serde_json::from_str(line).map_err(|error| Problem::of_json(&error))?;
    let stored = schedule(object)?;
    may_have(call, &stored)?;
    let (reader, name) = (&call.reader, stored.name());
    if reader.access().has_kinds() && reader.is_taken(name).await? {
        // By a job of another kind, perhaps, which would be changed.
        reader.check(name).await.map_err(|_| Problem::rejected("name", "the name is taken"))?;
    }
    Ok(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_their_numbers_and_blank_ones_are_left_out() {
        let all: Vec<(usize, bool)> =
            lines(b"a\n\r\n \nb\n\xff\n").map(|(number, line)| (number, line.is_ok())).collect();
        assert_eq!(all, [(1, true), (4, true), (5, false)]);
    }
}
