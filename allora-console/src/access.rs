//! The reader of a page, and the things that this reader may see and do.

use allora_core::is_internal;
use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

/// A thing that a reader may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// To read every page, without the data of schedules and the output of runs.
    Read,
    /// To see data, checkpoints and output as well.
    Data,
    /// To pause, resume, skip, trigger, cancel, rerun, dismiss, backfill and reset.
    Run,
    /// To add, change and delete jobs.
    Edit,
    /// To do all that the other scopes allow, except [`Work`](Self::Work).
    Admin,
    /// To run jobs as a worker. It reads no page.
    Work,
}

impl Scope {
    /// Every scope.
    pub const ALL: [Self; 6] =
        [Self::Read, Self::Data, Self::Run, Self::Edit, Self::Admin, Self::Work];

    /// Its name in files and messages.
    pub fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Data => "data",
            Self::Run => "run",
            Self::Edit => "edit",
            Self::Admin => "admin",
            Self::Work => "work",
        }
    }

    /// The scope of this name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.word() == word)
    }
}

/// The reader of a page, from the closure of [`Console::access`](crate::Console::access).
///
/// ```
/// use allora_console::{Access, Scope};
///
/// let operator = Access::reader("ann").with(Scope::Run).only_prefixes(["acme/"]);
/// assert!(operator.may(Scope::Read) && operator.may_see("acme/report", "mail"));
/// assert!(!operator.may(Scope::Data) && !operator.may_see("beta/report", "mail"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    who: String,
    scopes: BTreeSet<Scope>,
    /// `None`: no limit.
    prefixes: Option<BTreeSet<String>>,
    kinds: Option<BTreeSet<String>>,
    max_jobs: Option<usize>,
    shortest_period: Option<Duration>,
}

/// The largest limit on the number of jobs.
pub(crate) const MOST_JOBS: usize = 10_000;

/// Prefixes and kinds; `None`: all.
pub(crate) type Limits = (Option<BTreeSet<String>>, Option<BTreeSet<String>>);

impl Access {
    /// May do nothing, until a scope is [given](Self::with).
    pub fn new(who: impl Into<String>) -> Self {
        Self {
            who: who.into(),
            scopes: BTreeSet::new(),
            prefixes: None,
            kinds: None,
            max_jobs: None,
            shortest_period: None,
        }
    }

    /// May read every page, without the data of schedules and the output of runs. `who` is shown in the
    /// head of the pages and stands for the actor of an action; it may be empty.
    pub fn reader(who: impl Into<String>) -> Self {
        Self::new(who).with(Scope::Read)
    }

    /// May also do this. Every scope but [`Work`](Scope::Work) brings [`Read`](Scope::Read) with it.
    #[must_use]
    pub fn with(mut self, scope: Scope) -> Self {
        self.scopes.insert(scope);
        self
    }

    /// May also see the data of schedules and the output of runs: [`Scope::Data`].
    #[must_use]
    pub fn with_data(self) -> Self {
        self.with(Scope::Data)
    }

    /// Only jobs whose names begin with one of these texts exist for this reader: in lists, counts,
    /// plots, searches, the history and for actions. Without any text, no job does. Default: no limit.
    ///
    /// With a limit, the pages also leave out what nodes report about jobs.
    #[must_use]
    pub fn only_prefixes(mut self, prefixes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.prefixes = Some(prefixes.into_iter().map(Into::into).collect());
        self
    }

    /// Only stored schedules of these kinds exist for this reader, as with
    /// [`only_prefixes`](Self::only_prefixes). Jobs in code have no kind, so they do not. Default: no
    /// limit.
    #[must_use]
    pub fn only_kinds(mut self, kinds: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.kinds = Some(kinds.into_iter().map(Into::into).collect());
        self
    }

    /// May add jobs until so many exist for this reader. Requests that come at the same time may exceed it by their
    /// number. Each addition lists the jobs that are counted. Range: 0 to 10,000, since a larger number would make
    /// additions slow; above that, 10,000 counts. Default: no limit.
    #[must_use]
    pub fn with_max_jobs(mut self, jobs: usize) -> Self {
        self.max_jobs = Some(jobs.min(MOST_JOBS));
        self
    }

    /// May not add or edit a schedule so that it runs more often than once in this time. Default: no limit.
    #[must_use]
    pub fn with_shortest_period(mut self, period: Duration) -> Self {
        self.shortest_period = Some(period);
        self
    }

    /// The most jobs that may exist for this reader when it adds one. Default: `None`, no limit.
    pub fn max_jobs(&self) -> Option<usize> {
        self.max_jobs
    }

    /// The shortest time between two runs of a schedule that this reader adds or edits. Default: `None`, no limit.
    pub fn shortest_period(&self) -> Option<Duration> {
        self.shortest_period
    }

    /// The prefixes and kinds of this reader: what two readers have in common to whom the same jobs exist.
    pub(crate) fn limits(&self) -> Limits {
        (self.prefixes.clone(), self.kinds.clone())
    }

    /// The name of the reader.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// `true` if the reader may do this.
    pub fn may(&self, scope: Scope) -> bool {
        let has = |scope| self.scopes.contains(&scope);
        match scope {
            Scope::Work => has(Scope::Work),
            Scope::Read => self.scopes.iter().any(|scope| *scope != Scope::Work),
            other => has(other) || has(Scope::Admin),
        }
    }

    /// `true` if data and output are shown. Default: `false`.
    pub fn sees_data(&self) -> bool {
        self.may(Scope::Data)
    }

    /// `true` if a job of this name and kind exists for this reader. The kind of a job in code is empty.
    pub fn may_see(&self, name: &str, kind: &str) -> bool {
        self.may_name(name) && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    /// `true` if some jobs do not exist for this reader.
    pub(crate) fn is_limited(&self) -> bool {
        self.prefixes.is_some() || self.kinds.is_some()
    }

    /// `true` if jobs do not exist for this reader because of their names.
    pub(crate) fn has_prefixes(&self) -> bool {
        self.prefixes.is_some()
    }

    /// `true` if some kinds do not exist for this reader.
    pub(crate) fn has_kinds(&self) -> bool {
        self.kinds.is_some()
    }

    /// `true` if a job of this name may exist for this reader, depending on its kind. The scheduler's own
    /// records name jobs of others.
    pub(crate) fn may_name(&self, name: &str) -> bool {
        let begins = |prefixes: &BTreeSet<String>| {
            prefixes.iter().any(|prefix| name.starts_with(prefix.as_str()))
        };
        self.prefixes.as_ref().is_none_or(begins) && !(self.is_limited() && is_internal(name))
    }

    /// The prefixes and kinds that together make this filter of a list, for this reader. No two prefixes
    /// have a name in common. Without any, there is nothing to list.
    pub(crate) fn parts<'a>(
        &'a self,
        prefix: &'a str,
        kind: Option<&'a str>,
    ) -> Vec<(&'a str, Option<&'a str>)> {
        let mut prefixes: Vec<&str> = match &self.prefixes {
            None => vec![prefix],
            Some(own) => own.iter().filter_map(|own| narrower(own, prefix)).collect(),
        };
        // They are in their order, so one that begins with another one comes right after its like.
        prefixes.dedup_by(|later, earlier| later.starts_with(*earlier));
        let kinds: Vec<Option<&str>> = match (&self.kinds, kind) {
            (None, kind) => vec![kind],
            (Some(own), Some(kind)) => {
                own.contains(kind).then_some(Some(kind)).into_iter().collect()
            }
            (Some(own), None) => own.iter().map(|own| Some(own.as_str())).collect(),
        };
        let with_kinds = |prefix| kinds.iter().map(move |kind| (prefix, *kind));
        prefixes.into_iter().flat_map(with_kinds).collect()
    }
}

/// The one of two prefixes that begins with the other one: the names that have both.
fn narrower<'a>(one: &'a str, other: &'a str) -> Option<&'a str> {
    match (one.starts_with(other), other.starts_with(one)) {
        (true, _) => Some(one),
        (_, true) => Some(other),
        _ => None,
    }
}

/// The result of [`Console::access`](crate::Console::access).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Decision {
    /// This reader asks.
    Reader(Access),
    /// Somebody asks who may not read: 403.
    Refused,
    /// Nobody has said who asks: 401, with a challenge to which a browser asks for a name and a password
    /// (`Basic`).
    Unknown,
    /// The request has a signature that is not accepted: 401 with this reason, which may be shown and logged.
    Unproven(String),
    /// The decision needs the body, which is read as a whole before anything is done with it: at most 1 MiB, or as
    /// much as the operation takes.
    ByBody(BodyCheck),
    /// It cannot be decided now: 503, and 1 s until another attempt.
    Busy,
}

/// A decision that depends on the body of the request, as where a signature covers it.
#[derive(Clone)]
pub struct BodyCheck(Arc<Check>);

type Check = dyn Fn(&[u8]) -> Decision + Send + Sync;

impl BodyCheck {
    /// Decides by this closure, which gets the whole body.
    pub fn new(check: impl Fn(&[u8]) -> Decision + Send + Sync + 'static) -> Self {
        Self(Arc::new(check))
    }

    /// The decision. One that needs the body again is refused.
    pub fn decide(&self, body: &[u8]) -> Decision {
        match (self.0)(body) {
            Decision::ByBody(_) => Decision::Refused,
            decision => decision,
        }
    }
}

impl PartialEq for BodyCheck {
    /// The same closure.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for BodyCheck {}

impl fmt::Debug for BodyCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BodyCheck").finish_non_exhaustive()
    }
}

impl From<Option<Access>> for Decision {
    fn from(reader: Option<Access>) -> Self {
        reader.map_or(Self::Refused, Self::Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scope_has_a_word_and_brings_what_it_needs() {
        for scope in Scope::ALL {
            assert_eq!(Scope::from_word(scope.word()), Some(scope));
            let access = Access::new("ann").with(scope);
            assert_eq!(access.may(Scope::Read), scope != Scope::Work, "{scope:?}");
        }
        let admin = Access::new("ann").with(Scope::Admin);
        assert!(admin.may(Scope::Edit) && admin.sees_data() && !admin.may(Scope::Work));
        let run = Access::new("ann").with(Scope::Run);
        assert!(!run.may(Scope::Edit) && !run.sees_data() && !run.may(Scope::Admin));
        assert!(!Access::new("ann").may(Scope::Read));
    }

    #[test]
    fn limits_hide_names_kinds_and_the_records_of_the_scheduler() {
        let all = Access::reader("ann");
        assert!(all.may_see("a", "") && all.may_name("allora:node:a"));
        let acme = Access::reader("ann").only_prefixes(["acme/", "allora:"]);
        assert!(acme.may_see("acme/a", "") && !acme.may_see("acme", ""));
        assert!(!acme.may_name("allora:node:a"));
        let mail = Access::reader("ann").only_kinds(["mail"]);
        assert!(mail.may_see("a", "mail") && !mail.may_see("a", "") && !mail.may_see("a", "mail2"));
        let nothing = Access::reader("ann").only_prefixes([""; 0]);
        assert!(!nothing.may_see("a", "") && nothing.parts("", None).is_empty());
    }

    #[test]
    fn a_filter_is_narrowed_to_the_limits() {
        let access = Access::reader("ann").only_prefixes(["acme/", "acme/eu/", "beta/"]);
        assert_eq!(access.parts("", None), [("acme/", None), ("beta/", None)]);
        assert_eq!(access.parts("acme/eu/rome", None), [("acme/eu/rome", None)]);
        assert_eq!(access.parts("a", Some("mail")), [("acme/", Some("mail"))]);
        assert_eq!(access.parts("gamma/", None), []);
        let mail = access.only_kinds(["mail", "report"]);
        assert_eq!(mail.parts("b", None), [("beta/", Some("mail")), ("beta/", Some("report"))]);
        assert_eq!(mail.parts("b", Some("backup")), []);
        assert_eq!(Access::reader("ann").parts("b", Some("x")), [("b", Some("x"))]);
    }
}
