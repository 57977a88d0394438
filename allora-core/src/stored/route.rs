//! The choice of code for the kinds of stored schedules.

use super::{
    Definition,
    labels::{is_selectable, selects},
    spec_cache::SpecCache,
};
use crate::{
    backend::JobState,
    error::{BoxError, Error, Result},
    job::{IntoOutcome, JobSpec},
    name::check_name,
    run::{Payload, Run},
};
use futures::future::{BoxFuture, FutureExt};
use regex_lite::Regex;
use std::{fmt, sync::Arc};

/// The kinds that a handler is for.
///
/// A text matches that kind alone. If the patterns of several handlers match, the first one
/// declared runs the schedule.
///
/// ```
/// use allora_core::Pattern;
///
/// # fn main() -> allora_core::Result {
/// let (mail, all_mail) = (Pattern::from("mail"), Pattern::prefix("mail."));
/// assert!(mail.matches("mail") && !mail.matches("mail.digest"));
/// assert!(all_mail.matches("mail.digest"));
/// assert!(Pattern::regex("^(sms|fax)$")?.matches("fax"));
/// assert!(Pattern::any().matches("any.kind"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pattern {
    is: Is,
}

#[derive(Clone, Debug)]
enum Is {
    Exact(String),
    Prefix(String),
    Regex(Regex),
    Labelled(Labelled),
}

/// A kind with selectors of nodes, and the labels of the node.
#[derive(Clone, Debug)]
struct Labelled {
    kind: String,
    labels: Vec<String>,
    /// Both, with `@` between them.
    text: String,
}

impl Pattern {
    /// The kinds that begin with this prefix.
    pub fn prefix(prefix: impl Into<String>) -> Self {
        Self { is: Is::Prefix(prefix.into()) }
    }

    /// The kinds that contain a match of this regular expression; use `^` and `$` for the whole
    /// kind. The syntax is that of the crate `regex-lite`: ASCII classes, no look-around.
    ///
    /// # Errors
    /// `Invalid`, with the error in the expression.
    pub fn regex(regex: &str) -> Result<Self> {
        let read = Regex::new(regex).map_err(|why| {
            Error::invalid(format!("the pattern `{regex}` of a kind is not a regular expression"))
                .source(why)
        })?;
        Ok(Self { is: Is::Regex(read) })
    }

    /// This kind, and the kind with `@` and a [`LabelSelector`](super::LabelSelector) after it that
    /// includes a node with these labels. Labels that no selector can name are left out: those with
    /// `@`, `!` or a comma.
    ///
    /// ```
    /// use allora_core::Pattern;
    ///
    /// let here = Pattern::labelled("command", ["gpu", "big"]);
    /// assert!(here.matches("command") && here.matches("command@gpu") && here.matches("command@!spot"));
    /// assert!(!here.matches("command@gpu,fast") && !here.matches("command@!gpu"));
    /// ```
    pub fn labelled<L: Into<String>>(
        kind: impl Into<String>,
        labels: impl IntoIterator<Item = L>,
    ) -> Self {
        let mut labels: Vec<String> = labels.into_iter().map(Into::into).collect();
        labels.retain(|label| is_selectable(label));
        labels.sort();
        labels.dedup();
        let kind = kind.into();
        let text = format!("{kind}@{}", labels.join(","));
        Self { is: Is::Labelled(Labelled { kind, labels, text }) }
    }

    /// Every kind. Declare it last, for the kinds without another handler.
    pub fn any() -> Self {
        Self::prefix("")
    }

    /// `true` if the pattern matches this kind.
    pub fn matches(&self, kind: &str) -> bool {
        match &self.is {
            Is::Exact(exact) => exact == kind,
            Is::Prefix(prefix) => kind.starts_with(prefix.as_str()),
            Is::Regex(regex) => regex.is_match(kind),
            Is::Labelled(labelled) => labelled.matches(kind),
        }
    }

    /// The pattern as the word of its form and its text.
    pub(crate) fn word_and_text(&self) -> (&'static str, &str) {
        match &self.is {
            Is::Exact(exact) => ("kind", exact),
            Is::Prefix(prefix) => ("prefix", prefix),
            Is::Regex(regex) => ("regex", regex.as_str()),
            Is::Labelled(labelled) => ("labelled", &labelled.text),
        }
    }

    /// The pattern of this form; `None` if the form is not known.
    pub(crate) fn of_word(word: &str, text: &str) -> Option<Self> {
        match word {
            "kind" => Some(text.into()),
            "prefix" => Some(Self::prefix(text)),
            "regex" => Self::regex(text).ok(),
            "labelled" => {
                let (kind, labels) = text.rsplit_once('@')?;
                Some(Self::labelled(kind, labels.split(',').filter(|label| !label.is_empty())))
            }
            _ => None,
        }
    }

    /// A kind that it matches in any case.
    fn certain(&self) -> Option<&str> {
        match &self.is {
            Is::Exact(exact) => Some(exact),
            Is::Labelled(labelled) => Some(&labelled.kind),
            Is::Prefix(_) | Is::Regex(_) => None,
        }
    }
}

impl Labelled {
    fn matches(&self, kind: &str) -> bool {
        let rest = kind.strip_prefix(&*self.kind);
        rest.is_some_and(|rest| match rest.strip_prefix('@') {
            Some(selector) => selects(selector, &self.labels),
            None => rest.is_empty(),
        })
    }
}

/// Equal if they were made alike.
impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.word_and_text() == other.word_and_text()
    }
}

/// `report`, `sync.*` for a prefix, `/^(sms|fax)$/` for a regular expression, `report[@big,gpu]` for a kind
/// and selectors of these labels.
impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.is {
            Is::Exact(exact) => f.write_str(exact),
            Is::Prefix(prefix) => write!(f, "{prefix}*"),
            Is::Regex(regex) => write!(f, "/{}/", regex.as_str()),
            Is::Labelled(Labelled { kind, labels, .. }) if labels.is_empty() => f.write_str(kind),
            Is::Labelled(Labelled { kind, labels, .. }) => {
                write!(f, "{kind}[@{}]", labels.join(","))
            }
        }
    }
}

impl From<&str> for Pattern {
    fn from(exact: &str) -> Self {
        Self { is: Is::Exact(exact.to_owned()) }
    }
}

impl From<String> for Pattern {
    fn from(exact: String) -> Self {
        Self { is: Is::Exact(exact) }
    }
}

/// Code that runs stored schedules of some kind: an async closure that takes a [`Run`] or, with the
/// feature `json`, a [`Run`] and its data as a value.
///
/// It is called once for each run, on a clone of its own. It captures the state that the runs
/// share. The compiler infers `Args`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot run stored schedules",
    label = "not an async closure from `Run`, or from `Run` and a value, to `()` or `Result`",
    note = "it is `Clone`, `Send`, `Sync` and 'static; what it shares it captures in an `Arc`",
    note = "with `?` inside, say what it returns: `async move |run: Run| -> Result<(), BoxError> {{ .. }}`",
    note = "to be given a value, its type implements `serde::Deserialize`, and the feature `json` is on"
)]
pub trait Handler<Args>: Send + Sync + 'static {
    /// Runs one occurrence.
    fn handle(&self, run: Run) -> BoxFuture<'static, Result<(), BoxError>>;
}

impl<F, Fut> Handler<(Run,)> for F
where
    F: FnOnce(Run) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    fn handle(&self, run: Run) -> BoxFuture<'static, Result<(), BoxError>> {
        let work = (self.clone())(run);
        async move { work.await.into_outcome() }.boxed()
    }
}

/// A handler without its argument types.
type Work = Arc<dyn Fn(Run) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// The handlers of a node, in the order in which they were declared.
#[derive(Clone, Default)]
pub(crate) struct Router {
    routes: Vec<Handled>,
    /// The largest numbers of simultaneous runs of handlers, by their patterns.
    limits: Vec<(Pattern, usize)>,
}

/// A handler, the kinds it is for, and its jobs by their definitions.
#[derive(Clone)]
struct Handled {
    pattern: Pattern,
    work: Work,
    specs: SpecCache,
}

/// The decision of a node about a stored schedule.
pub(crate) enum Routed {
    /// This node runs it.
    Here(JobSpec),
    /// This node has no code for its kind.
    Elsewhere,
    /// No node can run it, for this reason.
    Broken(String),
    /// It names a calendar that this node has not read yet.
    Later,
}

/// A definition with its named calendars, as far as this node has them.
pub(crate) enum Resolved {
    /// It has all of them.
    Ready(Box<Definition>),
    /// The node reads one of them.
    Later,
    /// One of them is missing, for this reason.
    Missing(String),
}

/// Makes that decision from the schedule's state in the store. Pure.
pub(crate) type Route = Arc<dyn Fn(&JobState) -> Routed + Send + Sync>;

impl Router {
    pub(crate) fn add<Args: 'static>(&mut self, pattern: Pattern, handler: impl Handler<Args>) {
        let work: Work = Arc::new(move |run| handler.handle(run));
        self.routes.push(Handled { pattern, work, specs: SpecCache::default() });
    }

    /// Limits the simultaneous runs of the handler with this pattern.
    pub(crate) fn limit(&mut self, pattern: Pattern, runs: usize) {
        self.limits.retain(|(one, _)| *one != pattern);
        self.limits.push((pattern, runs));
    }

    /// The handlers whose simultaneous runs are limited, by their patterns, with the largest numbers.
    pub(crate) fn limits(&self) -> &[(Pattern, usize)] {
        &self.limits
    }

    /// The limit of the handler of this kind.
    pub(crate) fn limit_of(&self, kind: &str) -> Option<usize> {
        let pattern = self.patterns().find(|pattern| pattern.matches(kind))?;
        self.limits.iter().position(|(limited, _)| limited == pattern)
    }

    /// `true` if this node limits the simultaneous runs of this kind. They are claimed one by one.
    pub(crate) fn is_limited(&self, kind: &str) -> bool {
        !self.limits.is_empty() && self.limit_of(kind).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    /// The patterns, in the order in which they were declared.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.routes.iter().map(|handled| &handled.pattern)
    }

    pub(crate) fn check(&self) -> Result {
        for (pattern, runs) in &self.limits {
            if *runs == 0 {
                return Err(Error::invalid(format!(
                    "`kind_concurrency` of `{pattern}` is 0; use 1 or more, or declare no handler"
                )));
            }
            if !self.patterns().any(|declared| declared == pattern) {
                return Err(Error::invalid(format!(
                    "`kind_concurrency` is set for `{pattern}`, which has no handler; declare it with \
                     `kind`, by the same pattern"
                )));
            }
        }
        for (i, pattern) in self.patterns().enumerate() {
            let Some(kind) = pattern.certain() else { continue };
            check_name(kind)?;
            if self.patterns().take(i).any(|before| before.matches(kind)) {
                return Err(Error::invalid(format!(
                    "the handler of the kind {kind:?} would never run: one that was declared \
                     before it is for that kind too"
                )));
            }
        }
        Ok(())
    }

    /// The kinds that need not be read from the store.
    pub(crate) fn certain(&self) -> impl Iterator<Item = &str> {
        self.patterns().filter_map(Pattern::certain)
    }

    /// `true` if the store's kinds must be read to select those that this node runs.
    pub(crate) fn has_patterns(&self) -> bool {
        self.patterns().any(|pattern| !matches!(pattern.is, Is::Exact(_)))
    }

    pub(crate) fn matches(&self, kind: &str) -> bool {
        self.patterns().any(|pattern| pattern.matches(kind))
    }

    pub(crate) fn route(
        &self,
        state: &JobState,
        resolve: impl FnOnce(Definition) -> Resolved,
    ) -> Routed {
        let route = self.routes.iter().find(|handled| handled.pattern.matches(&state.kind));
        let Some(Handled { work, specs, .. }) = route.filter(|_| !state.kind.is_empty()) else {
            return Routed::Elsewhere;
        };
        let here = |spec: JobSpec| {
            let limited = self.limit_of(&state.kind);
            let (kind, data) = (state.kind.as_str().into(), state.data.as_slice().into());
            Routed::Here(spec.carrying(Payload { kind, data, limited }))
        };
        if let Some(spec) = specs.get(&state.definition) {
            return here(spec);
        }
        let broken = |why: String| Routed::Broken(format!("its definition cannot be read: {why}"));
        match Definition::parse(&state.name, &state.definition).map(resolve) {
            Ok(Resolved::Ready(definition)) => {
                let work = work.clone();
                let spec = definition.spec(async move |run: Run| work(run).await);
                specs.put(&state.definition, &spec);
                here(spec)
            }
            Ok(Resolved::Later) => Routed::Later,
            Ok(Resolved::Missing(reason)) => broken(reason),
            Err(error) => broken(error.to_string()),
        }
    }
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.patterns()).finish()
    }
}
