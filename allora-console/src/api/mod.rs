//! The HTTP API, below `/v1`: one table of its operations, by which requests are answered and described.
//!
//! Names stand in the query, since they are any text and proxies fold `..` and `%2F` in paths. So all paths are fixed,
//! and a request is looked up by its path and its method.

mod calendars;
mod call;
mod definition;
mod openapi;
mod params;
mod problem;
mod reads;
mod runs;
mod schedule;
mod service;
mod shown;
mod times;
mod token;
mod work;

pub(crate) use call::answer;

use crate::{access::Scope, words::Word};
use allora_core::record::ChangeAction;
use call::{Answer, Call};
use futures::future::BoxFuture;
use params::{Of, Param};
use std::time::Duration;

/// An operation: a row of the table.
pub(crate) struct Operation {
    pub(crate) method: &'static str,
    /// Below `/v1`.
    pub(crate) path: &'static str,
    /// `None`: everybody may.
    pub(crate) scope: Option<Scope>,
    /// It needs actions to be allowed.
    pub(crate) changes: bool,
    /// One line.
    pub(crate) summary: &'static str,
    pub(crate) params: &'static [Param],
    pub(crate) body: Option<Form>,
    /// The status and the form of its answers, problems apart.
    pub(crate) answers: &'static [(u16, Form)],
    pub(crate) run: fn(Call) -> BoxFuture<'static, Answer>,
}

/// The form of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Form {
    /// The media types of a request; of an answer, the one that it has.
    pub(crate) media: &'static [&'static str],
    /// The name of its schema; of lines, that of each line. Empty: any bytes.
    pub(crate) schema: &'static str,
    /// The most bytes of a request.
    pub(crate) most: usize,
    /// A request may have none.
    pub(crate) is_optional: bool,
}

impl Form {
    /// Its body has an object of the schema in each line.
    pub(crate) fn is_lines(&self) -> bool {
        self.media == LINES
    }
}

/// The media type of lines of JSON.
const LINES: &[&str] = &["application/x-ndjson"];

impl Operation {
    const fn new(
        (method, path): (&'static str, &'static str),
        scope: Scope,
        summary: &'static str,
        run: fn(Call) -> BoxFuture<'static, Answer>,
    ) -> Self {
        let (changes, params, body, answers) = (false, &[], None, &[]);
        Self { method, path, scope: Some(scope), changes, summary, params, body, answers, run }
    }

    /// Everybody may ask.
    const fn open(mut self) -> Self {
        self.scope = None;
        self
    }

    /// It changes something.
    const fn changes(mut self) -> Self {
        self.changes = true;
        self
    }

    const fn with(mut self, params: &'static [Param]) -> Self {
        self.params = params;
        self
    }

    const fn takes(mut self, body: Form) -> Self {
        self.body = Some(body);
        self
    }

    const fn answers(mut self, answers: &'static [(u16, Form)]) -> Self {
        self.answers = answers;
        self
    }
}

/// An object of this schema.
const fn json(schema: &'static str) -> Form {
    Form { media: &["application/json"], schema, most: 1024 * 1024, is_optional: false }
}

/// No body, or any bytes of this media type.
const fn bytes(media: &'static [&'static str]) -> Form {
    Form { media, schema: "", most: 0, is_optional: false }
}

/// No body.
const NOTHING: Form = bytes(&[]);

const NAME: Param = Param::new("name", Of::Name, "the name of the job").required();
const CALENDAR: Param = Param::new("name", Of::Name, "the name of the calendar").required();
const PREFIX: Param = Param::new("prefix", Of::Text, "only jobs whose names begin with this text");
const KIND: Param = Param::new("kind", Of::Name, "only jobs of this kind");
const LIMIT: Param = Param::new("limit", Of::Number(1, 500, Some(50)), "the most items of a page");
const PAGE: Param = Param::new("page", Of::Page, "the `next` of the page before");
const FROM: Param = Param::new("from", Of::Time, "only what is not older than this");
const UNTIL: Param = Param::new("until", Of::Time, "only what is older than this");
const OUTCOME: Param = Param::new(
    "outcome",
    Of::Word(outcomes),
    "only runs that ended so; `failures` and `all` are several",
);

fn outcomes() -> Vec<&'static str> {
    crate::entries::OUTCOMES.to_vec()
}

fn states() -> Vec<&'static str> {
    Word::ALL.map(Word::text).to_vec()
}

fn orders() -> Vec<&'static str> {
    vec!["name", "next"]
}

fn actions() -> Vec<&'static str> {
    ChangeAction::ALL.map(ChangeAction::word).to_vec()
}

/// The longest wait of a request.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

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
        Param::new("owner", Of::Name, "only jobs of this owner"),
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
        ("GET", "/job/definition"),
        Scope::Read,
        "The definition of a stored schedule, with its tag in `ETag`",
        |call| Box::pin(definition::get(call)),
    )
    .with(&[NAME])
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
        ("GET", "/runs"),
        Scope::Read,
        "The history of all jobs, the newest entry first",
        |call| Box::pin(runs::history(call)),
    )
    .with(&[PREFIX, KIND, OUTCOME, FROM, UNTIL, LIMIT, PAGE])
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
        Box::pin(service::description(call))
    })
    .open()
    .answers(&[(200, json("Description"))]),
];
