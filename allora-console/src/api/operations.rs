//! The table of operations, by which requests are answered and described.

use super::{
    bulk, calendars,
    call::{Answer, Call},
    changes, definition, openapi, operate,
    operation::{LONGEST_WAIT, NOTHING, Operation, PATCH, bytes, json, lines, note, optional},
    params::{Of, Param},
    reads, runs, service, times, transfer, work,
};
use crate::{access::Scope, entries::OUTCOMES, words::Word};
use allora_core::record::ChangeAction;
use axum::{http::header, response::IntoResponse};
use std::{sync::LazyLock, time::Duration};

const NAME: Param = Param::new("name", Of::Name, "the name of the job").required();
const CALENDAR: Param = Param::new("name", Of::Name, "the name of the calendar").required();
const PREFIX: Param = Param::new("prefix", Of::Text, "only jobs whose names begin with this text");
const OWNER: Param = Param::new("owner", Of::Name, "only jobs that have this owner now");
const KIND: Param = Param::new("kind", Of::Name, "only jobs of this kind");
const LIMIT: Param = Param::new("limit", Of::Number(1, 500, Some(50)), "the most items of a page");
const PAGE: Param = Param::new("page", Of::Page, "the `next` of the page before");
const NOTE: Param = Param::new("note", Of::Text, "the reason, for the record of changes");
const DRY_RUN: Param =
    Param::new("dry_run", Of::Flag, "changes nothing, and says what would be changed");
const GAP: Param =
    Param::new("gap", Of::Word(gaps), "what becomes of the occurrences that are due");
const FROM: Param = Param::new("from", Of::Time, "only what is not older than this");
const UNTIL: Param = Param::new("until", Of::Time, "only what is older than this");
const OUTCOME: Param = Param::new(
    "outcome",
    Of::Word(outcomes),
    "only runs that ended so; `failures` and `all` are several",
);

fn outcomes() -> Vec<&'static str> {
    OUTCOMES.to_vec()
}

fn states() -> Vec<&'static str> {
    Word::ALL.map(Word::text).to_vec()
}

fn gaps() -> Vec<&'static str> {
    vec!["catch-up", "missed"]
}

fn orders() -> Vec<&'static str> {
    vec!["name", "next"]
}

fn actions() -> Vec<&'static str> {
    ChangeAction::ALL.map(ChangeAction::word).to_vec()
}

const IF_MATCH: (&str, &str) =
    ("If-Match", "the `ETag` of the definition that you have read, or *");
const IF_NONE_MATCH: (&str, &str) = ("If-None-Match", "*: only if there is no such job");
const IDEMPOTENCY_KEY: (&str, &str) = (
    "Idempotency-Key",
    "the id of the trigger, as `id` in the body; the same one runs the job once",
);

/// The longest time for which orphans are kept.
const LONGEST_GRACE: Duration = Duration::from_secs(366 * 24 * 60 * 60);

async fn description(_: Call) -> Answer {
    static TEXT: LazyLock<String> = LazyLock::new(|| openapi::description(OPERATIONS).to_string());
    let json = [(header::CONTENT_TYPE, "application/json")];
    Ok((json, TEXT.as_str()).into_response())
}

/// All operations. Those of one path stand together.
pub(crate) const OPERATIONS: &[Operation] = &[
    Operation::new(("GET", ""), Scope::Read, "The service, and what you may do", |call| {
        Box::pin(service::about(call))
    })
    .answers(&[(200, json("Service"))]),
    Operation::new(
        ("GET", "/summary"),
        Scope::Read,
        "The numbers of jobs, and what needs a person",
        |call| Box::pin(service::summary(call)),
    )
    .answers(&[(200, json("Summary"))]),
    Operation::new(
        ("GET", "/jobs"),
        Scope::Read,
        "Lists jobs by name, or those that are due first",
        |call| Box::pin(reads::list(call)),
    )
    .with(&[
        PREFIX,
        KIND,
        Param::new("state", Of::Word(states), "only jobs in this state"),
        Param::new("tag", Of::Name, "only jobs with this tag"),
        OWNER,
        Param::new(
            "sort",
            Of::Word(orders),
            "`next`: those that are due first, without further pages",
        ),
        LIMIT,
        PAGE,
    ])
    .answers(&[(200, json("JobPage"))]),
    Operation::new(
        ("POST", "/jobs"),
        Scope::Edit,
        "Adds a job",
        |call| Box::pin(changes::add(call)),
    )
    .changes()
    .with(&[NOTE])
    .takes(json("StoredSchedule"))
    .answers(&[(201, json("JobState"))]),
    Operation::new(
        ("GET", "/job"),
        Scope::Read,
        "A job; with `wait`, as soon as it is another than that of `tag`",
        |call| Box::pin(reads::one(call)),
    )
    .with(&[
        NAME,
        Param::new("wait", Of::Period(LONGEST_WAIT), "the longest wait for a change"),
        Param::new("tag", Of::Name, "the `tag` of the job that you know"),
    ])
    .answers(&[(200, json("Job"))]),
    Operation::new(
        ("DELETE", "/job"),
        Scope::Edit,
        "Deletes a job; its history stays, and the deletion can be undone",
        |call| Box::pin(changes::delete(call)),
    )
    .changes()
    .with(&[NAME, NOTE])
    .headers(&[IF_MATCH])
    .answers(&[(200, json("Deleted"))]),
    Operation::new(
        ("GET", "/job/definition"),
        Scope::Read,
        "The definition of a stored schedule, with its tag in `ETag`",
        |call| Box::pin(definition::get(call)),
    )
    .with(&[NAME])
    .answers(&[(200, json("StoredSchedule"))]),
    Operation::new(
        ("PUT", "/job/definition"),
        Scope::Edit,
        "Sets the definition of a job, which is added if there is none",
        |call| Box::pin(definition::put(call)),
    )
    .changes()
    .with(&[NAME, NOTE, GAP])
    .headers(&[IF_MATCH, IF_NONE_MATCH])
    .takes(json("StoredSchedule"))
    .answers(&[(200, json("StoredSchedule")), (201, json("StoredSchedule"))]),
    Operation::new(
        ("PATCH", "/job/definition"),
        Scope::Edit,
        "Changes parts of a definition, as RFC 7396 merges them",
        |call| Box::pin(definition::patch(call)),
    )
    .changes()
    .with(&[NAME, NOTE, GAP])
    .headers(&[IF_MATCH])
    .takes(PATCH)
    .answers(&[(200, json("StoredSchedule"))]),
    Operation::new(("GET", "/job/data"), Scope::Data, "The data of a job, as its bytes", |call| {
        Box::pin(reads::data(call))
    })
    .with(&[NAME])
    .answers(&[(
        200,
        bytes(&["application/json", "text/plain; charset=utf-8", "application/octet-stream"]),
    )]),
    Operation::new(
        ("GET", "/job/next"),
        Scope::Read,
        "The next times of a job, each with its reasons",
        |call| Box::pin(times::next(call)),
    )
    .with(&[
        NAME,
        Param::new("count", Of::Number(1, 1_000, Some(10)), "the number of times"),
        Param::new(
            "after",
            Of::Time,
            "only times after this one; default: from the next occurrence on",
        ),
    ])
    .answers(&[(200, json("Times"))]),
    Operation::new(
        ("GET", "/job/why"),
        Scope::Read,
        "The reason why a job does not run, or what became of a scheduled time",
        |call| Box::pin(reads::why(call)),
    )
    .with(&[NAME, Param::new("at", Of::Time, "the scheduled time; default: the present")])
    .answers(&[(200, json("Why"))]),
    Operation::new(
        ("GET", "/job/history"),
        Scope::Read,
        "The history of a job, the newest entry first",
        |call| Box::pin(runs::history(call)),
    )
    .with(&[NAME, OUTCOME, FROM, UNTIL, LIMIT, PAGE])
    .answers(&[(200, json("RunPage"))]),
    Operation::new(
        ("POST", "/job/trigger"),
        Scope::Run,
        "Runs a job now, once for each id; with `wait`, the answer is the end of the run",
        |call| Box::pin(operate::trigger(call)),
    )
    .changes()
    .with(&[NAME, Param::new("wait", Of::Period(LONGEST_WAIT), "the longest wait for the end of the run")])
    .headers(&[IDEMPOTENCY_KEY])
    .takes(optional("TriggerBody"))
    .answers(&[(200, json("Triggered")), (202, json("Triggered"))]),
    Operation::new(
        ("POST", "/job/pause"),
        Scope::Run,
        "Pauses a job; triggers still run",
        |call| Box::pin(operate::pause(call)),
    )
    .changes()
    .with(&[NAME])
    .takes(optional("PauseBody"))
    .answers(&[(200, json("JobState"))]),
    Operation::new(
        ("POST", "/job/resume"),
        Scope::Run,
        "Ends a pause",
        |call| Box::pin(operate::resume(call)),
    )
    .changes()
    .with(&[NAME])
    .takes(optional("ResumeBody"))
    .answers(&[(200, json("JobState"))]),
    Operation::new(
        ("POST", "/job/skip"),
        Scope::Run,
        "Leaves out the next occurrences",
        |call| Box::pin(operate::skip(call)),
    )
    .changes()
    .with(&[NAME])
    .takes(optional("SkipBody"))
    .answers(&[(200, json("Skipped"))]),
    Operation::new(
        ("POST", "/job/cancel"),
        Scope::Run,
        "Cancels active and waiting runs",
        |call| Box::pin(operate::cancel(call)),
    )
    .changes()
    .with(&[NAME])
    .takes(optional("CancelBody"))
    .answers(&[(200, json("Cancelled"))]),
    Operation::new(
        ("POST", "/job/reset"),
        Scope::Run,
        "Starts a schedule again from now",
        |call| Box::pin(operate::reset(call)),
    )
    .changes()
    .with(&[NAME])
    .takes(note())
    .answers(&[(200, json("JobState"))]),
    Operation::new(
        ("POST", "/job/rerun"),
        Scope::Run,
        "Runs a dead letter again, or all of a job",
        |call| Box::pin(operate::rerun(call)),
    )
    .changes()
    .with(&[NAME])
    .takes(optional("LetterBody"))
    .answers(&[(200, json("Occurrences"))]),
    Operation::new(
        ("POST", "/job/dismiss"),
        Scope::Run,
        "Removes a dead letter, or all of a job",
        |call| Box::pin(operate::dismiss(call)),
    )
    .changes()
    .with(&[NAME])
    .takes(optional("LetterBody"))
    .answers(&[(200, json("Occurrences"))]),
    Operation::new(
        ("POST", "/job/mark"),
        Scope::Run,
        "Records that the work of an occurrence is done: a dead letter, or all of a job; or one that has failed, \
         was lost or was missed",
        |call| Box::pin(operate::mark(call)),
    )
    .changes()
    .with(&[NAME])
    .takes(optional("LetterBody"))
    .answers(&[(200, json("Occurrences"))]),
    Operation::new(
        ("POST", "/job/backfill"),
        Scope::Run,
        "Runs the scheduled times of a range in the past",
        |call| Box::pin(operate::backfill(call)),
    )
    .changes()
    .with(&[NAME, DRY_RUN])
    .takes(json("BackfillBody"))
    .answers(&[(200, json("Occurrences"))]),
    Operation::new(
        ("GET", "/runs"),
        Scope::Read,
        "The history of all jobs, the newest entry first",
        |call| Box::pin(runs::history(call)),
    )
    .with(&[PREFIX, KIND, OWNER, OUTCOME, FROM, UNTIL, LIMIT, PAGE])
    .answers(&[(200, json("RunPage"))]),
    Operation::new(
        ("GET", "/run"),
        Scope::Read,
        "An entry of the history, or an active run",
        |call| Box::pin(runs::one(call)),
    )
    .with(&[
        NAME,
        Param::new("fence", Of::Number(0, i64::MAX, None), "the fence of the run").required(),
    ])
    .answers(&[(200, json("HistoryEntry"))]),
    Operation::new(
        ("GET", "/keys"),
        Scope::Read,
        "The concurrency keys, with their holders and waiters",
        |call| Box::pin(service::keys(call)),
    )
    .with(&[LIMIT, PAGE])
    .answers(&[(200, json("KeyPage"))]),
    Operation::new(("GET", "/key"), Scope::Read, "A concurrency key", |call| {
        Box::pin(service::key(call))
    })
    .with(&[Param::new("key", Of::Name, "the concurrency key").required()])
    .answers(&[(200, json("Key"))]),
    Operation::new(("GET", "/nodes"), Scope::Read, "The nodes, live and gone", |call| {
        Box::pin(service::nodes(call))
    })
    .answers(&[(200, json("NodePage"))]),
    Operation::new(
        ("GET", "/health"),
        Scope::Read,
        "The node of the process that answers",
        |call| Box::pin(service::health(call)),
    )
    .answers(&[(200, json("Health"))]),
    Operation::new(
        ("GET", "/calendars"),
        Scope::Read,
        "Lists the calendars of the store",
        |call| Box::pin(calendars::list(call)),
    )
    .with(&[LIMIT, PAGE])
    .answers(&[(200, json("CalendarPage"))]),
    Operation::new(
        ("GET", "/calendar"),
        Scope::Read,
        "A calendar, with the jobs that use it",
        |call| Box::pin(calendars::one(call)),
    )
    .with(&[CALENDAR])
    .answers(&[(200, json("Calendar"))]),
    Operation::new(
        ("PUT", "/calendar"),
        Scope::Edit,
        "Sets a calendar; jobs that it excludes no more run earlier",
        |call| Box::pin(calendars::put(call)),
    )
    .changes()
    .with(&[CALENDAR, NOTE])
    .takes(json("CalendarText"))
    .answers(&[(200, json("Calendar"))]),
    Operation::new(
        ("DELETE", "/calendar"),
        Scope::Edit,
        "Deletes a calendar that no job uses",
        |call| Box::pin(calendars::delete(call)),
    )
    .changes()
    .with(&[CALENDAR, NOTE])
    .answers(&[(204, NOTHING)]),
    Operation::new(
        ("POST", "/explain"),
        Scope::Read,
        "A schedule that need not be stored: in words, with warnings and times",
        |call| Box::pin(times::explain(call)),
    )
    .takes(json("Explanation"))
    .answers(&[(200, json("Explained"))]),
    Operation::new(
        ("GET", "/audit"),
        Scope::Read,
        "The changes by clients, the newest first",
        |call| Box::pin(runs::audit(call)),
    )
    .with(&[
        Param::new("name", Of::Name, "only those of this job, also if it was deleted"),
        PREFIX,
        Param::new("actor", Of::Name, "only those of this actor"),
        Param::new("action", Of::Word(actions), "only this action"),
        FROM,
        UNTIL,
        LIMIT,
        PAGE,
    ])
    .answers(&[(200, json("ChangePage"))]),
    Operation::new(
        ("GET", "/deleted"),
        Scope::Read,
        "The deletions that can be undone, the newest first",
        |call| Box::pin(runs::deleted(call)),
    )
    .with(&[PREFIX, LIMIT, PAGE])
    .answers(&[(200, json("ChangePage"))]),
    Operation::new(
        ("POST", "/audit/undo"),
        Scope::Read,
        "Takes back a pause, a resumption, an edit or a deletion; needs the scope of that",
        |call| Box::pin(changes::undo(call)),
    )
    .changes()
    .with(&[NAME, Param::new("sequence", Of::Number(0, i64::MAX, None), "the `sequence` of the change").required()])
    .takes(note())
    .answers(&[(200, json("JobState"))]),
    Operation::new(
        ("POST", "/bulk"),
        Scope::Read,
        "Changes all jobs of a filter; needs `run`, or `edit` to delete",
        |call| Box::pin(bulk::change(call)),
    )
    .changes()
    .with(&[DRY_RUN])
    .takes(json("BulkBody"))
    .answers(&[(200, json("BulkReport"))]),
    Operation::new(
        ("POST", "/sync"),
        Scope::Admin,
        "Makes the store have these schedules",
        |call| Box::pin(transfer::sync(call)),
    )
    .changes()
    .with(&[Param::new("complete", Of::Text, "the set is all that has names with this prefix: others are orphaned, and later deleted"), Param::new("grace", Of::Period(LONGEST_GRACE), "the time for which orphans are kept; default: 24h"), DRY_RUN, NOTE])
    .takes(lines("StoredSchedule"))
    .answers(&[(200, json("Synced"))]),
    Operation::new(
        ("GET", "/export"),
        Scope::Admin,
        "Calendars and stored schedules with their progress, one a line",
        |call| Box::pin(transfer::export(call)),
    )
    .with(&[PREFIX, KIND])
    .answers(&[(200, lines("ExportLine"))]),
    Operation::new(
        ("POST", "/import"),
        Scope::Admin,
        "Adds the lines of an export",
        |call| Box::pin(transfer::import(call)),
    )
    .changes()
    .with(&[Param::new("skip_existing", Of::Flag, "a name that is taken is no error"), DRY_RUN, NOTE])
    .takes(lines("ExportLine"))
    .answers(&[(200, json("ImportReport"))]),
    Operation::new(
        ("GET", "/events"),
        Scope::Read,
        "Hints that something has changed, as server-sent events; each means: read again",
        |call| Box::pin(service::events(call)),
    )
    .answers(&[(200, bytes(&["text/event-stream"]))]),
    Operation::new(
        ("POST", "/claims"),
        Scope::Work,
        "Waits for runs of some kinds, and takes them",
        |call| Box::pin(work::claim(call)),
    )
    .takes(json("Claims"))
    .answers(&[(200, json("Claimed")), (204, NOTHING)]),
    Operation::new(
        ("POST", "/claim/heartbeat"),
        Scope::Work,
        "Keeps runs, and says which of them are to end",
        |call| Box::pin(work::heartbeat(call)),
    )
    .takes(json("ClaimHeartbeat"))
    .answers(&[(200, json("ClaimStates"))]),
    Operation::new(
        ("POST", "/claim/complete"),
        Scope::Work,
        "Completes a run as succeeded, at any gateway",
        |call| Box::pin(work::complete(call)),
    )
    .takes(json("ClaimComplete"))
    .answers(&[(200, json("ClaimEnd"))]),
    Operation::new(
        ("POST", "/claim/fail"),
        Scope::Work,
        "Ends a run as failed: it is retried, or given up, by its policy",
        |call| Box::pin(work::fail(call)),
    )
    .takes(json("ClaimFail"))
    .answers(&[(200, json("ClaimEnd"))]),
    Operation::new(
        ("POST", "/claim/release"),
        Scope::Work,
        "Gives a run back, without counting the attempt",
        |call| Box::pin(work::release(call)),
    )
    .takes(json("ClaimRelease"))
    .answers(&[(200, json("ClaimEnd"))]),
    Operation::new(("GET", "/openapi.json"), Scope::Read, "This description", |call| {
        Box::pin(description(call))
    })
    .open()
    .answers(&[(200, json("Description"))]),
];
