//! The choice of code for the kinds of stored schedules.

use super::{Definition, spec_cache::SpecCache};
use crate::{
    backend::JobState,
    error::{BoxError, Error, ErrorKind, Result},
    job::{IntoOutcome, JobSpec},
    name::check_name,
    pattern::Pattern,
    run::{Payload, Run},
};
use futures::future::{BoxFuture, FutureExt};
use std::{fmt, sync::Arc};

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
    handlers: Vec<Handled>,
    /// The handlers with limits, and the largest numbers of their simultaneous runs when the node starts.
    limits: Vec<(Limited, usize)>,
}

/// A handler, the kinds it is for, and its jobs by their definitions.
#[derive(Clone)]
struct Handled {
    /// The name by which its kinds are changed while the node runs.
    id: Option<Arc<str>>,
    patterns: Vec<Pattern>,
    work: Work,
    specs: SpecCache,
}

/// A handler whose simultaneous runs are limited: by its pattern, or by its id.
#[derive(Clone, Debug, PartialEq)]
enum Limited {
    Pattern(Pattern),
    Named(Arc<str>),
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
        self.handlers.push(Handled::new(None, vec![pattern], handler));
    }

    /// Adds a handler whose kinds can be changed, with its limit.
    pub(crate) fn add_named<Args: 'static>(
        &mut self,
        id: &str,
        kinds: Vec<Pattern>,
        limit: Option<usize>,
        handler: impl Handler<Args>,
    ) {
        let id: Arc<str> = id.into();
        self.limits.extend(limit.map(|limit| (Limited::Named(id.clone()), limit)));
        self.handlers.push(Handled::new(Some(id), sorted(kinds), handler));
    }

    /// Limits the simultaneous runs of the handler with this pattern.
    pub(crate) fn limit(&mut self, pattern: Pattern, runs: usize) {
        let limited = Limited::Pattern(pattern);
        self.limits.retain(|(one, _)| *one != limited);
        self.limits.push((limited, runs));
    }

    /// The router in which the handler of this id is for these kinds; `None` if it is already.
    ///
    /// # Errors
    /// `NotFound` if no handler has the id; `Invalid` for a kind that is no name, or that an earlier
    /// handler runs.
    pub(crate) fn with_kinds(&self, id: &str, kinds: Vec<Pattern>) -> Result<Option<Self>> {
        let i = self.named(id)?;
        let kinds = sorted(kinds);
        if self.handlers[i].patterns == kinds {
            return Ok(None);
        }
        let mut router = self.clone();
        router.handlers[i].patterns = kinds;
        router.check_kinds(i)?;
        Ok(Some(router))
    }

    /// The number of the limit of the handler of this id.
    ///
    /// # Errors
    /// `NotFound` if no handler has the id; `Invalid` if the handler has no limit.
    pub(crate) fn limit_of_named(&self, id: &str) -> Result<usize> {
        let limit = self.limited(&self.handlers[self.named(id)?]);
        limit.ok_or_else(|| {
            Error::invalid(format!(
                "the handler {id:?} was declared without a limit; declare it with one"
            ))
        })
    }

    fn named(&self, id: &str) -> Result<usize> {
        let is_named = |handled: &Handled| handled.id.as_deref() == Some(id);
        self.handlers.iter().position(is_named).ok_or_else(|| {
            let unknown =
                format!("no handler of this node is named {id:?}; declare it before the start");
            Error::new(ErrorKind::NotFound, unknown)
        })
    }

    /// `true` if the kinds of some handler can be changed.
    pub(crate) fn can_change(&self) -> bool {
        self.handlers.iter().any(|handled| handled.id.is_some())
    }

    /// The largest numbers of simultaneous runs of the limited handlers when the node starts.
    pub(crate) fn limits(&self) -> impl Iterator<Item = usize> {
        self.limits.iter().map(|(_, runs)| *runs)
    }

    /// The kinds of each limited handler, as text.
    pub(crate) fn limited_kinds(&self) -> impl Iterator<Item = String> {
        self.limits.iter().map(|(limited, _)| match limited {
            Limited::Pattern(pattern) => pattern.to_string(),
            Limited::Named(id) => {
                let of_id = self.handlers.iter().filter(|one| one.id.as_ref() == Some(id));
                let kinds: Vec<String> =
                    of_id.flat_map(|one| &one.patterns).map(Pattern::to_string).collect();
                kinds.join(", ")
            }
        })
    }

    /// The handler of this kind, by its place among all.
    pub(crate) fn handler_of(&self, kind: &str) -> Option<usize> {
        self.handlers.iter().position(|handled| handled.matches(kind))
    }

    /// The limit of the handler of this kind.
    pub(crate) fn limit_of(&self, kind: &str) -> Option<usize> {
        self.limited(&self.handlers[self.handler_of(kind)?])
    }

    fn limited(&self, handled: &Handled) -> Option<usize> {
        self.limits.iter().position(|(limited, _)| match limited {
            Limited::Pattern(pattern) => {
                handled.id.is_none() && handled.patterns.first() == Some(pattern)
            }
            Limited::Named(id) => handled.id.as_ref() == Some(id),
        })
    }

    /// `true` if some handler has kinds, apart from those of the limited handlers that are left out.
    pub(crate) fn has_kinds(&self, left_out: &[bool]) -> bool {
        let is_left_out =
            |handled| self.limited(handled).is_some_and(|one| left_out.get(one) == Some(&true));
        self.handlers.iter().any(|handled| !handled.patterns.is_empty() && !is_left_out(handled))
    }

    /// `true` if this node limits the simultaneous runs of this kind. They are claimed one by one.
    pub(crate) fn is_limited(&self, kind: &str) -> bool {
        !self.limits.is_empty() && self.limit_of(kind).is_some()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }

    /// The patterns, in the order in which they were declared.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &Pattern> {
        self.handlers.iter().flat_map(|handled| &handled.patterns)
    }

    pub(crate) fn check(&self) -> Result {
        for (limited, runs) in &self.limits {
            let Limited::Pattern(pattern) = limited else { continue };
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
        for (i, handled) in self.handlers.iter().enumerate() {
            if let Some(id) = &handled.id
                && self.named(id)? != i
            {
                let twice = format!("two handlers are named {id:?}; names of handlers are unique");
                return Err(Error::new(ErrorKind::AlreadyExists, twice));
            }
            self.check_kinds(i)?;
        }
        Ok(())
    }

    /// Checks the kinds of one handler against those of the handlers that were declared before it.
    fn check_kinds(&self, i: usize) -> Result {
        let before = &self.handlers[..i];
        for kind in self.handlers[i].patterns.iter().filter_map(Pattern::certain) {
            check_name(kind)?;
            if before.iter().any(|before| before.matches(kind)) {
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
        self.patterns().any(|pattern| !pattern.is_one_kind())
    }

    pub(crate) fn matches(&self, kind: &str) -> bool {
        self.patterns().any(|pattern| pattern.matches(kind))
    }

    pub(crate) fn route(
        &self,
        state: &JobState,
        resolve: impl FnOnce(Definition) -> Resolved,
    ) -> Routed {
        let Some(handler) = self.handler_of(&state.kind).filter(|_| !state.kind.is_empty()) else {
            return Routed::Elsewhere;
        };
        let handled = &self.handlers[handler];
        let Handled { work, specs, .. } = handled;
        let here = |spec: JobSpec| {
            let limited = self.limited(handled);
            let (kind, data) = (state.kind.as_str().into(), state.data.as_slice().into());
            Routed::Here(spec.carrying(Payload { kind, data, handler, limited }))
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

impl Handled {
    fn new<Args: 'static>(
        id: Option<Arc<str>>,
        patterns: Vec<Pattern>,
        handler: impl Handler<Args>,
    ) -> Self {
        let work: Work = Arc::new(move |run| handler.handle(run));
        Self { id, patterns, work, specs: SpecCache::default() }
    }

    fn matches(&self, kind: &str) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(kind))
    }
}

/// The same kinds in one order, each once: the same text in the record of each node.
fn sorted(mut kinds: Vec<Pattern>) -> Vec<Pattern> {
    kinds.sort_by(|a, b| a.word_and_text().cmp(&b.word_and_text()));
    kinds.dedup();
    kinds
}

impl fmt::Debug for Router {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.patterns()).finish()
    }
}
