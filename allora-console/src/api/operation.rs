//! An operation of the API, and the forms of bodies: the columns of the table of operations.

use super::{
    call::{Answer, Call},
    params::Param,
};
use crate::access::Scope;
use futures::future::BoxFuture;
use std::time::Duration;

/// The longest wait of a request: for a change, for runs, or for the end of a run.
pub(super) const LONGEST_WAIT: Duration = Duration::from_secs(60);

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
    /// The headers of which it takes notice, each with a line about it.
    pub(crate) headers: &'static [(&'static str, &'static str)],
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
    pub(super) const fn new(
        (method, path): (&'static str, &'static str),
        scope: Scope,
        summary: &'static str,
        run: fn(Call) -> BoxFuture<'static, Answer>,
    ) -> Self {
        let (changes, scope, body, answers) = (false, Some(scope), None, &[]);
        let (params, headers) = (&[], &[]);
        Self { method, path, scope, changes, summary, params, headers, body, answers, run }
    }

    /// Everybody may ask.
    pub(super) const fn open(mut self) -> Self {
        self.scope = None;
        self
    }

    /// It changes something.
    pub(super) const fn changes(mut self) -> Self {
        self.changes = true;
        self
    }

    pub(super) const fn with(mut self, params: &'static [Param]) -> Self {
        self.params = params;
        self
    }

    pub(super) const fn headers(
        mut self,
        headers: &'static [(&'static str, &'static str)],
    ) -> Self {
        self.headers = headers;
        self
    }

    pub(super) const fn takes(mut self, body: Form) -> Self {
        self.body = Some(body);
        self
    }

    pub(super) const fn answers(mut self, answers: &'static [(u16, Form)]) -> Self {
        self.answers = answers;
        self
    }
}

/// An object of this schema. The largest data of a job, as JSON, has a place in it.
pub(super) const fn json(schema: &'static str) -> Form {
    Form { media: &["application/json"], schema, most: 4 * 1024 * 1024, is_optional: false }
}

/// As [`json`], which a request may leave away.
pub(super) const fn optional(schema: &'static str) -> Form {
    Form { is_optional: true, ..json(schema) }
}

/// A body that has a note at most.
pub(super) const fn note() -> Form {
    optional("NoteBody")
}

/// An object of this schema in each line.
pub(super) const fn lines(schema: &'static str) -> Form {
    Form { media: LINES, most: 16 * 1024 * 1024, ..json(schema) }
}

pub(super) const PATCH: Form =
    Form { media: &["application/merge-patch+json", "application/json"], ..json("Patch") };

/// An answer without a body.
pub(super) const NOTHING: Form = bytes(&[]);

/// Any bytes of these media types.
pub(super) const fn bytes(media: &'static [&'static str]) -> Form {
    Form { media, schema: "", most: 0, is_optional: false }
}
