//! The store as its reader may see it: the one place that filters and redacts.
//!
//! Pages have no other way to the store. So what a limit hides is in no list, count, plot, search or answer, and a
//! new page need not think of it.

mod hours;
mod lists;
mod shared;

use crate::access::Access;
use allora_core::{
    ActiveCondition, Condition, Error, ErrorKind, Handle, Health, HistoryEntry, HistoryQuery,
    NodeInfo, Outcome, Result, Schedules, Time,
    backend::{Author, Ended, HistoryCursor, JobState, NextRun, Triggered},
    check_name,
    record::{Change, ChangeResult},
    stored::{ChangeFilter, ChangePage, Definition, Fact, Why, WhyCode},
};
use std::{
    collections::{BTreeMap, HashSet},
    fmt,
    sync::Arc,
    time::Duration,
};

/// The closure that removes secrets from a text of a job.
pub(crate) type Redact = Arc<dyn Fn(&str, &str) -> String + Send + Sync>;

/// The largest number of concurrency keys that are read for due jobs.
const MOST_KEYS: usize = 50;

/// The store, for one reader.
#[derive(Clone)]
pub(crate) struct Reader {
    schedules: Schedules,
    access: Access,
    redact: Option<Redact>,
    /// The way by which the reader makes changes.
    via: &'static str,
}

/// A page of the history, without the entries that the reader may not see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entries {
    pub(crate) entries: Vec<HistoryEntry>,
    /// The number of entries that were read.
    pub(crate) read: usize,
    /// The place at which the next page begins; `None` after the last one.
    pub(crate) next: Option<HistoryCursor>,
}

impl Reader {
    pub(crate) fn new(schedules: Schedules, access: Access, redact: Option<Redact>) -> Self {
        Self { schedules, access, redact, via: "console" }
    }

    /// The way by which the reader makes changes.
    pub(crate) fn way(&self) -> &'static str {
        self.via
    }

    /// The same reader, by another way than the pages.
    pub(crate) fn via(self, via: &'static str) -> Self {
        Self { via, ..self }
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// The whole store, for changes alone, which are this reader's, with this note: everything else is read through
    /// this type. A service may call its readers by anything, and the record of changes wants a name.
    pub(crate) fn whole_store(&self, note: &str) -> Schedules {
        let who = self.access.who();
        let actor = if check_name(who).is_ok() { who } else { "a reader" };
        let store = self.schedules.clone().by(Author::new(actor).via(self.via).note(note));
        match self.access.shortest_period() {
            Some(period) => store.shortest_period("", period),
            None => store,
        }
    }

    pub(crate) async fn store_now(&self) -> Result<Time> {
        self.schedules.store_now().await
    }

    /// A job; one that the reader may not see is not found.
    pub(crate) async fn get(&self, name: &str) -> Result<JobState> {
        self.unredacted(name).await.map(|state| self.shown(state))
    }

    /// As [`get`](Self::get), as the store has it: for the checks of an action, not for a page.
    pub(crate) async fn unredacted(&self, name: &str) -> Result<JobState> {
        if !self.access.may_name(name) {
            return Err(not_found(name));
        }
        let state = self.schedules.get(name).await?;
        match self.access.may_see(name, &state.kind) {
            true => Ok(state),
            false => Err(not_found(name)),
        }
    }

    /// `Ok` if the job may exist for the reader. The store is asked only if that depends on its kind.
    pub(crate) async fn check(&self, name: &str) -> Result<()> {
        match self.access.has_kinds() {
            true => self.unredacted(name).await.map(drop),
            false if self.access.may_name(name) => Ok(()),
            false => Err(not_found(name)),
        }
    }

    /// `true` if the history has no runs that succeeded.
    pub(crate) fn lacks_successes(&self) -> bool {
        self.schedules.history_limits().is_some_and(|limits| !limits.successes)
    }

    /// # Errors
    /// `Unsupported` if the store keeps no history.
    pub(crate) fn has_history(&self) -> Result<()> {
        match self.schedules.history_limits() {
            Some(_) => Ok(()),
            None => Err(Error::new(ErrorKind::Unsupported, "this store keeps no history")),
        }
    }

    /// As [`Schedules::end_of_trigger`]; `None` if it has not ended in time, or the history has its end no more.
    pub(crate) async fn end_of(
        &self,
        name: &str,
        id: &str,
        triggered: &Triggered,
        timeout: Duration,
    ) -> Result<Option<Ended>> {
        match self.schedules.end_of_trigger(name, id, triggered, timeout).await {
            Err(error) if [ErrorKind::Unavailable, ErrorKind::NotFound].contains(&error.kind()) => {
                Ok(None)
            }
            Ok(mut end) => {
                if let Some(redact) = &self.redact {
                    end.outcome = without_secrets(end.outcome, name, redact);
                    end.output = end.output.map(|output| redact(name, &output));
                    end.value = end.value.map(|value| redact(name, &value));
                }
                Ok(Some(end))
            }
            Err(error) => Err(error),
        }
    }

    /// A page of the history; its limit counts the entries that are read.
    pub(crate) async fn history(&self, mut query: HistoryQuery<'_>) -> Result<Entries> {
        if query.name.is_some_and(|name| !self.access.may_name(name)) {
            return Ok(Entries::default());
        }
        match self.access.parts(query.prefix, query.kind)[..] {
            [] => return Ok(Entries::default()),
            [(prefix, kind)] => (query.prefix, query.kind) = (prefix, kind),
            _ => {}
        }
        let limit = query.limit;
        let all = self.schedules.history(query).await?;
        let may_see = |entry: &HistoryEntry| self.access.may_see(&entry.name, &entry.kind);
        let next = all.last().filter(|_| all.len() >= limit).map(|last| match may_see(last) {
            true => last.cursor(),
            // The place has no foreign name, because it stands in a link.
            false => HistoryCursor { fence: last.fence.saturating_add(1), name: String::new() },
        });
        let read = all.len();
        let entries = all.into_iter().filter(may_see).map(|entry| self.shown_entry(entry));
        Ok(Entries { entries: entries.collect(), read, next })
    }

    /// As [`Schedules::changes`]. A page may be short, and have a next one.
    pub(crate) async fn changes(
        &self,
        filter: ChangeFilter<'_>,
        before: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<ChangePage> {
        if filter.name.is_some_and(|name| !self.access.may_name(name)) {
            return Ok(ChangePage::default());
        }
        let filter = match self.access.parts(filter.prefix, None)[..] {
            [] => return Ok(ChangePage::default()),
            [(prefix, _)] => filter.prefix(prefix),
            _ => filter,
        };
        let mut page = self.schedules.changes(filter, before, limit).await?;
        page.changes.retain(|change| self.may_see_change(change));
        if let Some(next) = page.next.take() {
            // The place has no foreign name, because it stands in a link.
            let is_own = self.access.may_name(&next.name);
            let above = HistoryCursor { fence: next.fence.saturating_add(1), name: String::new() };
            page.next = Some(if is_own { next } else { above });
        }
        page.changes = page.changes.into_iter().map(|change| self.shown_change(change)).collect();
        Ok(page)
    }

    /// The change of a job with this number; `None` if there is none that the reader may see.
    pub(crate) async fn change(&self, name: &str, sequence: i64) -> Result<Option<Change>> {
        if !self.access.may_name(name) {
            return Ok(None);
        }
        let found = self.schedules.recorded_change(name, sequence).await?;
        Ok(found.filter(|change| self.may_see_change(change)))
    }

    /// A change has the kind that its job had; one that changed nothing has none.
    fn may_see_change(&self, change: &Change) -> bool {
        match change.after.as_deref().or(change.before.as_deref()) {
            Some(record) => self.access.may_see(&change.name, &record.kind),
            None => self.may_name_any_kind(&change.name),
        }
    }

    /// A change without its secrets.
    pub(crate) fn shown_change(&self, mut change: Change) -> Change {
        if let Some(redact) = &self.redact {
            change.author.note = redact(&change.name, &change.author.note);
            if let ChangeResult::Refused(error) = &mut change.result {
                *error = redact(&change.name, error);
            }
        }
        change
    }

    /// As [`Schedules::why`].
    pub(crate) async fn why(&self, name: &str, at: Option<Time>) -> Result<Why> {
        if !self.exists(name).await? {
            return Err(not_found(name));
        }
        let why = self.schedules.why(name, at).await?;
        Ok(self.shown_why(name, why))
    }

    /// `true` if the reader may see the job. One that was deleted has the kind of its last run.
    async fn exists(&self, name: &str) -> Result<bool> {
        if !self.access.may_name(name) || !self.access.has_kinds() {
            return Ok(self.access.may_name(name));
        }
        match self.schedules.get(name).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            state => return Ok(self.access.may_see(name, &state?.kind)),
        }
        match self.schedules.history(HistoryQuery::new(1).name(name)).await {
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(false),
            entries => {
                Ok(entries?.first().is_some_and(|last| self.access.may_see(name, &last.kind)))
            }
        }
    }

    /// `true` if there is a job of this name, which the reader may see or not.
    pub(crate) async fn is_taken(&self, name: &str) -> Result<bool> {
        self.schedules.exists(name).await
    }

    /// As [`Schedules::definition`].
    pub(crate) async fn definition(&self, state: &JobState) -> Result<Definition> {
        self.schedules.definition(state).await
    }

    /// As [`Schedules::next`], of a job that the reader has been given.
    pub(crate) async fn next(&self, state: &JobState, n: usize) -> Result<Vec<NextRun>> {
        self.schedules.next(&state.name, n).await
    }

    /// The nodes. What they report names jobs, so a limit hides it.
    pub(crate) async fn nodes(&self) -> Result<Vec<NodeInfo>> {
        let mut nodes = self.schedules.nodes().await?;
        if self.access.is_limited() {
            for node in &mut nodes {
                node.problems.clear();
                node.orphan_examples.clear();
            }
        }
        // It is a text of the job, as its output is.
        for node in &mut nodes {
            node.progress
                .retain(|run| self.access.sees_data() && self.may_name_any_kind(&run.name));
            if let Some(redact) = &self.redact {
                node.progress.iter_mut().for_each(|run| run.text = redact(&run.name, &run.text));
            }
        }
        Ok(nodes)
    }

    /// The kinds that no live node handles. Their conditions name and count jobs, so a limit hides them; an overdue
    /// job of the reader is one nevertheless.
    pub(crate) async fn unhandled_kinds(&self) -> Result<Vec<Condition>> {
        match self.access.is_limited() {
            true => Ok(Vec::new()),
            false => self.schedules.unhandled_kinds().await,
        }
    }

    /// The conditions of the node of this process: with a limit, those of the reader's jobs and of the store.
    pub(crate) fn conditions(&self, handle: Option<&Handle>) -> Vec<ActiveCondition> {
        let mut all = handle.map(|handle| handle.health().conditions).unwrap_or_default();
        all.retain(|one| self.may_know(&one.condition));
        all
    }

    fn may_know(&self, condition: &Condition) -> bool {
        let of_store =
            matches!(condition, Condition::StoreDown { .. } | Condition::StoreRejects { .. });
        !self.access.is_limited()
            || of_store
            || condition.job().is_some_and(|job| self.may_name_any_kind(job))
    }

    /// The node of this process, which a limit hides.
    pub(crate) fn health(&self, handle: Option<&Handle>) -> Option<Health> {
        handle.filter(|_| !self.access.is_limited()).map(Handle::health)
    }

    /// `true` if a job of this name exists for the reader, whatever its kind is.
    pub(crate) fn may_name_any_kind(&self, name: &str) -> bool {
        self.access.may_name(name) && !self.access.has_kinds()
    }

    /// The names of those of these jobs that are due and wait for a concurrency key.
    pub(crate) async fn waiting_for_keys(
        &self,
        states: &[JobState],
        now: Time,
    ) -> Result<HashSet<String>> {
        let is_due = |state: &&JobState| {
            state.leases.is_empty() && state.due_at.is_some_and(|due| due <= now)
        };
        let mut by_record: BTreeMap<Arc<str>, Vec<(u32, &str)>> = BTreeMap::new();
        for state in states.iter().filter(is_due) {
            let Ok(definition) = Definition::parse(&state.name, &state.definition) else {
                continue;
            };
            if let Some(key) = &definition.settings().concurrency_key {
                by_record.entry(key.record()).or_default().push((key.limit, &state.name));
            }
        }
        let mut waiting = HashSet::new();
        for (record, jobs) in by_record.into_iter().take(MOST_KEYS) {
            let record = match self.schedules.get(&record).await {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                record => record?,
            };
            let holders = record.leases.iter().filter(|lease| lease.until > now).count();
            let wait = jobs.into_iter().filter(|(limit, _)| holders >= *limit as usize);
            waiting.extend(wait.map(|(_, name)| name.to_owned()));
        }
        Ok(waiting)
    }

    /// A text of a job without its secrets.
    pub(crate) fn redacted(&self, name: &str, text: &str) -> String {
        self.redact.as_ref().map_or_else(|| text.to_owned(), |redact| redact(name, text))
    }

    /// A job without its secrets.
    pub(crate) fn shown(&self, mut state: JobState) -> JobState {
        let Some(redact) = &self.redact else { return state };
        let name = state.name.clone();
        let values = state.checkpoints.iter_mut().map(|one| &mut one.value);
        for bytes in values.chain([&mut state.data]) {
            if let Ok(text) = std::str::from_utf8(bytes) {
                *bytes = redact(&name, text).into_bytes();
            }
        }
        state.last = state.last.map(|last| without_secrets(last, &name, redact));
        for letter in &mut state.dead {
            letter.error = redact(&name, &letter.error);
        }
        if let Some(pause) = &mut state.paused {
            pause.note = redact(&name, &pause.note);
        }
        state.unreadable = state.unreadable.map(|text| redact(&name, &text));
        state
    }

    fn shown_entry(&self, mut entry: HistoryEntry) -> HistoryEntry {
        let Some(redact) = &self.redact else { return entry };
        entry.outcome = without_secrets(entry.outcome, &entry.name, redact);
        entry.output = entry.output.map(|output| redact(&entry.name, &output));
        entry.value = entry.value.map(|value| redact(&entry.name, &value));
        entry
    }

    /// An answer without the names of jobs that the reader may not see, and without secrets.
    fn shown_why(&self, name: &str, mut why: Why) -> Why {
        let may_name = |job: &str| job == name || self.may_name_any_kind(job);
        let is_foreign = |fact: &Fact| match fact {
            Fact::Holders(holders) => holders.iter().any(|one| !may_name(&one.job)),
            _ => false,
        };
        if !self.access.sees_data()
            && let Some(i) = why.evidence.iter().position(|(name, _)| *name == "progress")
        {
            why.evidence.remove(i);
            // It ends the sentence.
            let end = why.sentence.find("; its progress: ").unwrap_or(why.sentence.len());
            why.sentence.truncate(end);
        }
        let is_told = self.access.is_limited() && why.code == WhyCode::KeyBusy;
        if is_told && why.evidence.iter().any(|(_, fact)| is_foreign(fact)) {
            why.sentence = "it waits for its concurrency key, which runs of other jobs hold".into();
            why.remedy = Some("wait, or ask somebody who may see those jobs".into());
            why.evidence.retain(|(_, fact)| !is_foreign(fact));
        }
        if let Some(redact) = &self.redact {
            why.sentence = redact(name, &why.sentence);
            why.remedy = why.remedy.map(|remedy| redact(name, &remedy));
            for (_, fact) in &mut why.evidence {
                if let Fact::Text(text) = fact {
                    *text = redact(name, text);
                }
            }
        }
        why.also = std::mem::take(&mut why.also)
            .into_iter()
            .map(|other| self.shown_why(name, other))
            .collect();
        why
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("access", &self.access).finish_non_exhaustive()
    }
}

/// As of a job that does not exist.
fn not_found(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("there is no job named {name:?}"))
}

fn without_secrets(outcome: Outcome, name: &str, redact: &Redact) -> Outcome {
    let word = outcome.word();
    let error = outcome.error();
    match error.is_empty() {
        true => outcome,
        false => Outcome::from_word(word, &redact(name, error)).unwrap_or(outcome),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::at;
    use allora_core::backend::{Checkpoint, Pause};

    fn reader(access: Access) -> Reader {
        let sim = allora::runtime::Sim::new(1);
        let schedules = Schedules::on(allora::Memory::new(), sim.node()).unwrap();
        let redact: Redact = Arc::new(|_, text| text.replace("hunter2", "***"));
        Reader::new(schedules, access, Some(redact))
    }

    #[test]
    fn secrets_are_removed_from_everything_that_a_job_says() {
        let mut job = JobState::empty("report");
        job.data = b"{\"key\":\"hunter2\"}".to_vec();
        let (occurrence, saved_at) =
            (at("2026-10-26T01:00:00Z").into(), at("2026-10-26T01:00:00Z"));
        job.checkpoints = vec![Checkpoint { occurrence, saved_at, value: job.data.clone() }];
        job.last = Some(Outcome::Failed("hunter2 was refused".into()));
        job.paused = Some(Pause {
            since: at("2026-10-26T01:00:00Z"),
            until: None,
            note: "not hunter2".into(),
        });
        let reader = reader(Access::reader("ann"));
        let shown = reader.shown(job);
        assert!(!format!("{shown:?}").contains("hunter2"), "{shown:?}");
        for bytes in [&shown.data, &shown.checkpoints[0].value] {
            assert!(!String::from_utf8_lossy(bytes).contains("hunter2"));
        }
        let why = Why::new(WhyCode::Failed, "it failed: hunter2").with("error", "hunter2");
        assert!(!format!("{:?}", reader.shown_why("report", why)).contains("hunter2"));
    }

    #[test]
    fn progress_is_for_those_who_see_data() {
        let shown = |access: Access| {
            let why = Why::new(WhyCode::Running, "it runs now; its progress: 40 %");
            let why = reader(access).shown_why("report", why.with("progress", "40 %"));
            (why.sentence, why.evidence.len())
        };
        let whole = "it runs now; its progress: 40 %".to_owned();
        assert_eq!(shown(Access::reader("ann").with_data()), (whole, 1));
        assert_eq!(shown(Access::reader("ann")), ("it runs now".to_owned(), 0));
    }

    #[test]
    fn a_condition_is_known_to_those_who_may_see_its_jobs() {
        let limited = reader(Access::reader("ann").only_prefixes(["acme/"]));
        assert!(limited.may_name_any_kind("acme/a") && !limited.may_name_any_kind("beta/a"));
        let kinds = reader(Access::reader("ann").only_kinds(["mail"]));
        assert!(!kinds.may_name_any_kind("acme/a"));
    }
}
