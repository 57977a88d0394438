//! Jobs that run after others: how the job before learns of them, and the delivery of its outbox.
//!
//! A job is noted with the job before it first, and stored then. So the notes are never fewer than the
//! jobs that follow, whatever dies in between. A note too many does no harm: the follow-up is refused by
//! the job that it is for, and the note is removed.

use super::{Schedules, requests::BATCH};
use crate::{
    backend::{Action, After, Chain, Flag, FollowUp, Follower, MAX_CHAIN, Operation, Page, Reply},
    error::{Error, ErrorKind, Result},
    job::after_in,
    time::Time,
};
use chrono::TimeDelta;

/// The age from which on a note is removed of a job that does not follow any more. A job that is being
/// added is noted before it is stored.
const STALE: TimeDelta = TimeDelta::hours(1);

/// The number of outboxes that one search finds.
const FOUND: usize = 100;

impl Schedules {
    /// Notes the jobs that these operations store, with the jobs after which they run. Sends nothing for
    /// others.
    ///
    /// # Errors
    /// Of each operation: `Invalid` if its job would run after itself, over other jobs or at once.
    pub(super) async fn note_followers<'a>(
        &self,
        stored: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Vec<Result>> {
        let mut results = Vec::new();
        for (name, definition) in stored {
            results.push(match after_in(definition) {
                None => Ok(()),
                Some(after) => match self.check_chain(name, &after).await {
                    Ok(()) => self.follow(name, &after).await,
                    // The store did not answer.
                    Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
                    refused => refused,
                },
            });
        }
        Ok(results)
    }

    /// Checks that the jobs before this one end somewhere.
    async fn check_chain(&self, name: &str, after: &After) -> Result {
        let mut chain = vec![name.to_owned()];
        let mut before = after.clone();
        loop {
            let told = || format!("{} -> {}", before.job, chain.join(" -> "));
            if before.job == name {
                return Err(Error::invalid(format!(
                    "{name:?} would run after itself ({}); let the first job of the chain run at times \
                     of its own",
                    told()
                )));
            }
            if chain.len() >= MAX_CHAIN as usize {
                return Err(Error::invalid(format!(
                    "{name:?} would be the last of more than {MAX_CHAIN} jobs that run one after the \
                     other; let fewer jobs do it"
                )));
            }
            chain.insert(0, std::mem::take(&mut before.job));
            let state = match self.get(&chain[0]).await {
                Ok(state) => state,
                // It may be added later.
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            };
            match after_in(&state.definition) {
                Some(next) => before = next,
                None => return Ok(()),
            }
        }
    }

    async fn follow(&self, name: &str, after: &After) -> Result {
        let note = Operation::new(&after.job, Action::Follow { job: name, on: after.on });
        self.within("add", self.requests.send(&[note])).await?.single().map(drop)
    }

    /// Looks at the jobs before these, whether they know them and have an outbox. Returns the names of
    /// those that have one.
    pub(crate) async fn look_before(&self, jobs: &[(&str, &After)]) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for jobs in jobs.chunks(BATCH) {
            let look = |(_, after): &(&str, &'_ After)| after.job.clone();
            let before: Vec<String> = jobs.iter().map(look).collect();
            let read = before.iter().map(|job| Operation::new(job, READ));
            let read: Vec<Operation<'_>> = read.collect();
            let applied = self.within("chain", self.requests.send(&read)).await?;
            found.extend(applied.outboxes);
            for ((name, after), reply) in jobs.iter().zip(applied.replies) {
                let knows = |chain: &Chain| {
                    chain.followers.iter().any(|it| it.job == *name && it.on == after.on)
                };
                if !matches!(&reply?, Reply::Outbox(chain) if knows(chain)) {
                    self.follow(name, after).await?;
                }
            }
        }
        Ok(found)
    }

    /// The names of jobs with an outbox, as far as one search finds them.
    pub(crate) async fn outboxes(&self) -> Result<Vec<String>> {
        let queries = self.queries()?;
        let page = queries.flagged(Flag::Outbox, Page::first(FOUND), self.now());
        let page = self.within("flagged", page).await?;
        Ok(page.found.into_iter().map(|state| state.name).collect())
    }

    /// Triggers what the outbox of this job has, and confirms it. `false` if something is left: its job
    /// cannot be read.
    ///
    /// # Cancel safety
    /// A dropped call may have triggered a part. Call it again.
    pub(crate) async fn deliver(&self, name: &str) -> Result<bool> {
        let (mut done, mut gone) = (Vec::new(), Vec::new());
        loop {
            let confirm = Operation::new(name, Action::Confirm { done: &done, gone: &gone });
            let applied = self.within("chain", self.requests.send(&[confirm])).await?;
            let Reply::Outbox(chain) = applied.single()? else { return Ok(true) };
            let Chain { followers, mut outbox, .. } = *chain;
            if outbox.is_empty() {
                return Ok(true);
            }
            outbox.truncate(BATCH);
            (done, gone) = self.trigger_all(name, outbox, &followers).await?;
            if done.is_empty() {
                return Ok(false);
            }
        }
    }

    /// Sends follow-ups in their order. Returns those that need not be sent again, and the followers that
    /// follow no more.
    async fn trigger_all(
        &self,
        from: &str,
        outbox: Vec<FollowUp>,
        followers: &[Follower],
    ) -> Result<(Vec<FollowUp>, Vec<Follower>)> {
        let operations = outbox
            .iter()
            .map(|follow_up| Operation::new(&follow_up.job, Action::FollowUp { from, follow_up }));
        let operations: Vec<Operation<'_>> = operations.collect();
        let applied = self.within("chain", self.requests.send(&operations)).await?;
        Ok(delivered(&outbox, applied.replies, followers, applied.now))
    }

    /// Deletes a job whose outbox must be delivered before.
    pub(super) async fn delete_after_delivery(&self, name: &str) -> Result<Reply> {
        let delete = Operation::new(name, Action::Delete);
        for _ in 0..3 {
            match self.apply_one("delete", &delete).await? {
                // Nothing else of a deletion is invalid.
                Err(error) if error.kind() == ErrorKind::Invalid => {
                    if !self.deliver(name).await? {
                        return Err(error);
                    }
                }
                reply => return reply,
            }
        }
        self.apply_one("delete", &delete).await?
    }
}

/// Of these follow-ups, with their replies: those that need not be sent again, and the followers that follow
/// no more.
pub(crate) fn delivered(
    outbox: &[FollowUp],
    replies: impl IntoIterator<Item = Result<Reply>>,
    followers: &[Follower],
    now: Time,
) -> (Vec<FollowUp>, Vec<Follower>) {
    let is_stale = |since: Time| since + STALE <= now;
    let (mut done, mut gone) = (Vec::new(), Vec::new());
    for (follow_up, reply) in outbox.iter().zip(replies) {
        match reply {
            Ok(Reply::Accepted) => {}
            // Nothing has been lost: there is no such job, or it does not run after this one.
            Ok(Reply::Absent | Reply::Deleted | Reply::Invalid) => {
                let its = followers.iter().filter(|it| it.job == follow_up.job);
                gone.extend(its.filter(|it| is_stale(it.since)).cloned());
            }
            _ => continue,
        }
        done.push(follow_up.clone());
    }
    (done, gone)
}

/// Reads an outbox.
const READ: Action<'static> = Action::Confirm { done: &[], gone: &[] };
