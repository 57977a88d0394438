//! The choice of code for the kinds of stored schedules.

use super::{Definition, spec_cache::SpecCache};
use crate::{
    backend::JobState,
    error::{BoxError, Error, Result},
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
