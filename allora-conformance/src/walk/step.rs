//! The steps of a walk, carried out on the store and on the reference.

mod chains;
mod due_claims;
mod ends;
mod keys;
mod queries;

use super::{
    pair::{Exactness, Observed, same},
    sound::{sound, sound_key},
};
use crate::{
    Capability,
    cluster::{Node, fine, t},
    random::Random,
    reference::ReferenceModel,
};
use allora_core::{
    Time,
    backend::{
        Action, Advance, Author, Batch, Claim, ClaimKey, Cursor, Edit, FollowUp, HistoryQuery,
        JobState, NewSchedule, NextRun, NotRun, NotRunReason, Occurrence, Operation, Replan, Reply,
        Sharing, TimeSource,
    },
    record::MAX_CHANGES,
    time::whole_millis,
};
use chrono::TimeDelta;
use std::time::Duration;

/// The kinds of steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepKind {
    Register,
    Redefine,
    Read,
    Claim,
    /// With a lease that does not end during the walk, lost on expiry.
    ClaimOnce,
    Advance,
    Reap,
    /// An operation on a run.
    End,
    Create,
    Edit,
    Pause,
    Resume,
    Trigger,
    /// A note that a job follows, a confirmation of what was delivered, or a delivery.
    Chain,
    Cancel,
    /// The cancellation of the runs that the next occurrence replaces.
    Replace,
    /// The claim of a place of a concurrency key.
    ClaimKey,
    /// An extension or the release of such a place.
    EndKey,
    DeadLetter,
    Delete,
    /// Several operations, some on the same job.
    Batch,
    Wait,
    List,
    Find,
    /// A query that claims, if the store has it; or its repetition.
    ClaimDue,
}

/// A step; the number decides its details.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) kind: StepKind,
    pub(super) draw: u64,
}

const NAMES: &[&str] = &["a", "b", "c"];
/// The records of concurrency keys.
const KEYS: &[&str] = &["allora:key:k", "allora:key:l"];
/// The largest limit of a key.
const MAX_LIMIT: u64 = 3;
const KINDS: &[&str] = &["mail", "sms"];
const DATA: &[&[u8]] = &[b"", b"x", b"xx", b"xxx"];

const DEFINITIONS: &[&str] = &[
    "stored",
    "@daily; at-least-once 30000ms",
    "@daily; at-least-once 30s; breaker 2 9s; alert 1",
    "@daily; after a succeeded",
    AFTER_END,
];

/// The next occurrence follows the end of a run.
const AFTER_END: &str = "@after_end 20s; at-least-once 30000ms";

/// Longer than any walk.
const FOREVER: Duration = Duration::from_secs(3_650 * 86_400);

/// The state of a job as it was read once, on both sides.
#[derive(Clone)]
struct Seen {
    store: JobState,
    reference: JobState,
}

/// A claim that was sent, so that it can be sent again.
#[derive(Clone)]
struct Sent {
    name: &'static str,
    store: Claim,
    reference: Claim,
}

/// A claimed run: job, occurrence, and its fence on both sides.
#[derive(Clone)]
struct Won {
    name: &'static str,
    occurrence: Occurrence,
    store: i64,
    reference: i64,
}

/// A place of a concurrency key, and its fence on both sides.
#[derive(Clone)]
struct KeyLease {
    name: &'static str,
    store: i64,
    reference: i64,
}

/// An operation for both sides, the same but for the fences in it.
enum Planned {
    /// For the store, and for the reference.
    Pair(Box<[Action<'static>; 2]>),
    Rerun(Occurrence),
    Dismiss(Occurrence),
    Mark(Occurrence),
    /// The outboxes of the store and of the reference.
    Confirm([Vec<FollowUp>; 2]),
    Receive(FollowUp),
}

impl Planned {
    fn same(action: Action<'static>) -> Self {
        Planned::pair(action.clone(), action)
    }

    fn pair(store: Action<'static>, reference: Action<'static>) -> Self {
        Planned::Pair(Box::new([store, reference]))
    }

    fn for_store(&self) -> Action<'_> {
        match self {
            Planned::Pair(pair) => pair[0].clone(),
            Planned::Confirm([done, _]) => Action::Confirm { done, gone: &[] },
            letter => letter.for_reference(),
        }
    }

    fn for_reference(&self) -> Action<'_> {
        match self {
            Planned::Pair(pair) => pair[1].clone(),
            Planned::Rerun(occurrence) => Action::Rerun { occurrence },
            Planned::Dismiss(occurrence) => Action::Dismiss { occurrence },
            Planned::Mark(occurrence) => Action::MarkSucceeded { occurrence },
            Planned::Confirm([_, done]) => Action::Confirm { done, gone: &[] },
            Planned::Receive(follow_up) => Action::FollowUp { from: "a", follow_up },
        }
    }
}

pub(super) struct Walker {
    nodes: [Node; 2],
    reference: ReferenceModel,
    kinds: &'static [StepKind],
    exactness: Exactness,
    now: Time,
    claims: u128,
    seen: Vec<(&'static str, Seen)>,
    sent: Vec<Sent>,
    won: Vec<Won>,
    /// The last query that claimed: its node, its id and its kinds.
    queried: Option<(Node, u128, &'static [&'static str])>,
    held: Vec<KeyLease>,
    asked: Vec<(&'static str, ClaimKey<'static>)>,
    story: Vec<String>,
    has_history: bool,
    has_changes: bool,
}

impl Walker {
    pub(super) fn new(
        nodes: [Node; 2],
        kinds: &'static [StepKind],
        unsupported: &[Capability],
    ) -> Self {
        let exactness = Exactness {
            fences: !unsupported.contains(&Capability::Microseconds),
            lease_ends: !unsupported.contains(&Capability::Expiry),
        };
        Self {
            has_history: nodes[0].backend.history().is_some(),
            has_changes: !unsupported.contains(&Capability::Changes),
            nodes,
            reference: ReferenceModel::default(),
            kinds,
            exactness,
            now: t(0),
            claims: 0,
            seen: Vec::new(),
            sent: Vec::new(),
            won: Vec::new(),
            queried: None,
            held: Vec::new(),
            asked: Vec::new(),
            story: Vec::new(),
        }
    }

    /// The requests so far.
    pub(super) fn story(&self) -> String {
        self.story.join("\n")
    }

    /// Carries out a step, compares the answers, and checks that the records are sound.
    pub(super) async fn go(&mut self, step: &Step) -> Result<(), String> {
        self.carry_out(step).await?;
        NAMES.iter().try_for_each(|name| self.reference.record(name).map_or(Ok(()), sound))?;
        KEYS.iter().try_for_each(|name| {
            self.reference.record(name).map_or(Ok(()), |record| sound_key(record, MAX_LIMIT))
        })
    }

    async fn carry_out(&mut self, step: &Step) -> Result<(), String> {
        let mut random = Random::new(step.draw);
        let kinds = match step.kind {
            StepKind::Wait => {
                self.wait(&mut random);
                return Ok(());
            }
            StepKind::List => return self.list(&mut random).await,
            StepKind::Find => return self.find(&mut random).await,
            StepKind::ClaimDue => return self.claim_due(&mut random).await,
            StepKind::Batch => self.several(&mut random),
            kind => vec![kind],
        };
        let mut planned = Vec::new();
        for kind in kinds {
            let name = *random.pick(NAMES).expect("there are names");
            planned.extend(self.plan(kind, &mut random, name).await?);
        }
        self.apply(&mut random, planned).await
    }

    /// The kinds of the operations of one batch.
    fn several(&self, random: &mut Random) -> Vec<StepKind> {
        let several =
            [StepKind::Batch, StepKind::Wait, StepKind::List, StepKind::Find, StepKind::ClaimDue];
        let operations: Vec<StepKind> =
            self.kinds.iter().copied().filter(|kind| !several.contains(kind)).collect();
        (0..2 + random.below(5)).filter_map(|_| random.pick(&operations).copied()).collect()
    }

    /// Compares the histories and the changes that the walk has left.
    pub(super) async fn compare_history(&self) -> Result<(), String> {
        if self.has_changes {
            // A store may keep no more of each job.
            let query = HistoryQuery::new(MAX_CHANGES).name(NAMES[1]);
            let store = fine(self.nodes[0].queries().changes(query).await);
            let reference = self.reference.changes(query);
            same(Observed::Changes(store), Observed::Changes(reference), self.exactness)
                .map_err(|difference| format!("the changes\n{difference}"))?;
        }
        if !self.has_history {
            return Ok(());
        }
        for name in NAMES {
            let store =
                fine(self.nodes[0].history().entries(HistoryQuery::new(10_000).name(name)).await);
            let reference = self.reference.entries(HistoryQuery::new(10_000).name(name));
            same(Observed::History(store), Observed::History(reference), self.exactness)
                .map_err(|difference| format!("the history of {name}\n{difference}"))?;
        }
        Ok(())
    }

    fn tell(&mut self, line: String) {
        self.story.push(format!("{} {line}", self.now.format("%H:%M:%S%.3f")));
    }

    /// Mostly a little; sometimes a node's clock is behind.
    fn wait(&mut self, random: &mut Random) {
        let millis = match random.below(10) {
            0 => -(random.below(5_000) as i64),
            1..=3 => random.below(2_000) as i64,
            4..=6 => random.below(30_000) as i64,
            7 | 8 => random.below(120_000) as i64,
            _ => random.below(3_600_000) as i64,
        };
        self.now = (self.now + TimeDelta::milliseconds(millis)).max(t(0));
    }

    /// Around now, now and then in the past, never, or due at another time: later by delay and jitter, or
    /// earlier or later because a calendar moves it to another day.
    fn next(&self, random: &mut Random) -> Option<NextRun> {
        if random.one_in(12) {
            return None;
        }
        let at = self.now + TimeDelta::seconds(random.below(90) as i64 - 30);
        let later = if random.one_in(4) { random.below(20_000) as i64 - 8_000 } else { 0 };
        Some(NextRun { scheduled_at: at, due_at: at + TimeDelta::milliseconds(later) })
    }

    /// The state now, or, now and then, one that was read before.
    async fn read(
        &mut self,
        random: &mut Random,
        name: &'static str,
    ) -> Result<Option<Seen>, String> {
        if random.one_in(8) {
            let mine: Vec<&Seen> =
                self.seen.iter().filter(|(of, _)| *of == name).map(|(_, seen)| seen).collect();
            return Ok(random.pick(&mine).map(|seen| (*seen).clone()));
        }
        let read = [Operation::read(name)];
        let replies = self.both(0, [&read, &read]).await?;
        let Some(Some((Reply::State(store), Reply::State(reference)))) = replies.into_iter().next()
        else {
            return Ok(None);
        };
        let seen = Seen { store: *store, reference: *reference };
        self.seen.push((name, seen.clone()));
        Ok(Some(seen))
    }

    /// Sends operations to both, and returns the replies by position; `None` for errors.
    async fn both(
        &mut self,
        node: usize,
        operations: [&[Operation<'_>]; 2],
    ) -> Result<Vec<Option<(Reply, Reply)>>, String> {
        let node = &self.nodes[node];
        let time = TimeSource::Fixed(self.now);
        let store = node.backend.reschedule(Batch::new(&node.id, time, operations[0])).await;
        let store = Observed::from(fine(store));
        let reference = self.reference.reschedule(Batch::new(&node.id, time, operations[1]));
        let reference = Observed::from(reference);
        same(store.clone(), reference.clone(), self.exactness)?;
        let (Observed::Replies(_, store), Observed::Replies(_, reference)) = (store, reference)
        else {
            return Ok(Vec::new());
        };
        let pairs = store.into_iter().zip(reference);
        Ok(pairs.map(|(store, reference)| Some((store.ok()?, reference.ok()?))).collect())
    }

    async fn apply(
        &mut self,
        random: &mut Random,
        planned: Vec<(&'static str, Planned)>,
    ) -> Result<(), String> {
        let node = random.below(2) as usize;
        let author = Author::new("ann").via("a walk");
        let mut operations = [Vec::new(), Vec::new()];
        for (name, planned) in &planned {
            let action = planned.for_reference();
            self.tell(format!("{} {name}: {action:?}", self.nodes[node].id));
            // The changes of one job have an author.
            let author = (*name == NAMES[1]).then_some(&author);
            // Some operations on runs leave one; others ignore it.
            let moment = self.now.timestamp_millis();
            let left =
                (moment % 4 == 0).then_some(if moment % 8 == 0 { &b"\0a"[..] } else { b"b" });
            // So do some completions, after which the run works on.
            let with = |action| {
                let mut operation = Operation::new(name, action).checkpoint(left).by(author);
                operation.works_on = moment % 3 == 0;
                operation
            };
            operations[0].push(with(planned.for_store()));
            operations[1].push(with(action));
        }
        let replies = self.both(node, [&operations[0], &operations[1]]).await?;
        for ((name, _), reply) in planned.iter().zip(replies) {
            if let Some((Reply::Claimed(store), Reply::Claimed(reference))) = reply {
                let (store, reference, occurrence) =
                    (store.fence, reference.fence, reference.occurrence);
                if KEYS.contains(name) {
                    self.held.push(KeyLease { name, store, reference });
                    continue;
                }
                self.won.push(Won { name, occurrence, store, reference });
            }
        }
        Ok(())
    }

    /// The operation of this kind for a job; none if there is nothing to operate on.
    async fn plan(
        &mut self,
        kind: StepKind,
        random: &mut Random,
        name: &'static str,
    ) -> Result<Option<(&'static str, Planned)>, String> {
        let planned = match kind {
            StepKind::Register => {
                let first = self.next(random);
                let version = random.below(3);
                Planned::same(Action::Register { definition: "code", version, first })
            }
            StepKind::Reap => Planned::same(Action::Reap),
            StepKind::Create => {
                let kind = *random.pick(KINDS).expect("there are kinds");
                let data = *random.pick(DATA).expect("there are data");
                let definition = *random.pick(DEFINITIONS).expect("there are definitions");
                let new = NewSchedule::new(kind, definition, self.next(random)).data(data);
                Planned::same(Action::Create(new))
            }
            StepKind::Pause => {
                let until = random.one_in(2).then(|| self.next(random)).flatten();
                let until = until.map(|next| next.due_at);
                Planned::same(Action::Pause { note: "note", until })
            }
            StepKind::Trigger => {
                let id = ["x", "y", "z"][random.below(3) as usize];
                let next = self.next(random);
                let scheduled_at = next.map(|next| next.scheduled_at).filter(|_| random.one_in(3));
                let retention = Duration::from_secs([0, 60, 3_600][random.below(3) as usize]);
                Planned::same(Action::Trigger { id, scheduled_at, retention, data: None })
            }
            StepKind::Chain => return self.chain(random, name).await.map(Some),
            StepKind::Delete if random.one_in(3) => Planned::same(Action::Delete),
            StepKind::Cancel => return Ok(Some((name, self.cancel(random, name)))),
            StepKind::ClaimKey => return Ok(Some(self.claim_key(random))),
            StepKind::EndKey => return Ok(self.end_key(random)),
            StepKind::DeadLetter => {
                let record = self.reference.record(name);
                let letter = record.and_then(|record| random.pick(&record.dead));
                let occurrence =
                    letter.map_or_else(|| self.now.into(), |letter| letter.occurrence.clone());
                match random.below(6) {
                    0 | 1 => Planned::Dismiss(occurrence),
                    2 => Planned::Mark(occurrence),
                    _ => Planned::Rerun(occurrence),
                }
            }
            StepKind::End => return Ok(self.end(random)),
            StepKind::Redefine
            | StepKind::Edit
            | StepKind::Resume
            | StepKind::Advance
            | StepKind::Replace
            | StepKind::Claim
            | StepKind::ClaimOnce => match self.read(random, name).await? {
                Some(seen) => self.conditional(kind, random, name, &seen),
                None => Planned::same(Action::Read),
            },
            _ => Planned::same(Action::Read),
        };
        Ok(Some((name, planned)))
    }

    /// Mostly for the cursor that was read, sometimes with a range that is not run.
    fn replan(&self, random: &mut Random, seen: &Seen, then: Option<NextRun>) -> Replan {
        let cursor = seen.reference.next;
        let mut plan = Replan::new(cursor.filter(|_| !random.one_in(6)), then);
        if let (true, Some(cursor)) = (random.one_in(2), cursor) {
            let first = cursor.scheduled_at + TimeDelta::seconds(random.below(3) as i64 / 2);
            let last = first + TimeDelta::seconds(random.below(90) as i64);
            let count = random.one_in(2).then_some(2);
            let reason = NotRunReason::CatchUp;
            plan.not_run = Some((first, NotRun { count, last, reason }));
        }
        plan
    }

    /// An operation on the state that was read.
    fn conditional(
        &mut self,
        kind: StepKind,
        random: &mut Random,
        name: &'static str,
        seen: &Seen,
    ) -> Planned {
        let generations = (seen.store.generation, seen.reference.generation);
        let pair = |action: &dyn Fn(i64) -> Action<'static>| {
            Planned::pair(action(generations.0), action(generations.1))
        };
        let next = self.next(random);
        match kind {
            StepKind::Redefine => {
                let is_after_end = random.one_in(3);
                let version = random.below(3);
                let plan = self.replan(random, seen, next);
                pair(&|generation| Action::Redefine {
                    generation,
                    definition: if is_after_end { AFTER_END } else { "code again" },
                    version,
                    plan,
                })
            }
            StepKind::Edit => {
                let plan = self.replan(random, seen, next);
                let definition = (!random.one_in(3))
                    .then_some((if random.one_in(3) { AFTER_END } else { "edited" }, plan));
                let data = random.one_in(2).then_some(&b"data"[..]);
                let kind = random.one_in(3).then(|| *random.pick(KINDS).expect("there are kinds"));
                pair(&|generation| {
                    let mut edit = Edit::of(generation);
                    (edit.kind, edit.definition, edit.data) = (kind, definition, data);
                    Action::Modify(edit)
                })
            }
            StepKind::Resume => {
                let cursor = seen.reference.next.filter(|_| random.one_in(2));
                let late = TimeDelta::seconds(random.below(3) as i64 / 2);
                let count = random.one_in(2).then_some(3);
                let now = whole_millis(self.now);
                let reason = match random.one_in(2) {
                    true => NotRunReason::CatchUp,
                    false => NotRunReason::Operator,
                };
                pair(&|generation| {
                    let Some(cursor) = cursor else { return Action::Resume };
                    let expected = cursor.scheduled_at + late;
                    let last = now.max(expected);
                    Action::Skip(Advance::new(
                        generation,
                        expected,
                        NotRun { count, last, reason },
                        next,
                    ))
                })
            }
            StepKind::Advance => {
                let cursor = seen.reference.next;
                let expected = cursor.map_or(self.now, |next| next.scheduled_at);
                let count = random.one_in(2).then(|| random.below(9));
                let last = expected + TimeDelta::seconds(random.below(30) as i64);
                let reason = match random.below(3) {
                    0 => NotRunReason::CatchUp,
                    1 => NotRunReason::Window,
                    _ => NotRunReason::Overlap,
                };
                let not_run = NotRun { count, last, reason };
                let leased = |state: &JobState| state.leases.first().map(|lease| lease.fence);
                let holders = leased(&seen.store).zip(leased(&seen.reference));
                let advance = |generation| Advance::new(generation, expected, not_run, next);
                match holders.filter(|_| !random.one_in(4)) {
                    Some((store, reference)) => Planned::pair(
                        Action::Advance(advance(generations.0).by_holder(store)),
                        Action::Advance(advance(generations.1).by_holder(reference)),
                    ),
                    None => pair(&|generation| Action::Advance(advance(generation))),
                }
            }
            StepKind::Replace => {
                let cursor = seen.reference.next;
                let expected = cursor.map_or(self.now, |next| next.scheduled_at);
                let by = expected + TimeDelta::seconds(random.below(4) as i64 - 1);
                pair(&|generation| Action::Replace { generation, expected, by })
            }
            _ => self.claim(kind, random, name, seen),
        }
    }

    /// A claim of what is offered, mostly sound; or one that was sent before.
    fn claim(
        &mut self,
        kind: StepKind,
        random: &mut Random,
        name: &'static str,
        seen: &Seen,
    ) -> Planned {
        if random.one_in(6) {
            let mine: Vec<&Sent> = self.sent.iter().filter(|sent| sent.name == name).collect();
            if let Some(sent) = random.pick(&mine) {
                let (store, reference) = (sent.store.clone(), sent.reference.clone());
                return Planned::pair(Action::Claim(store), Action::Claim(reference));
            }
        }
        let offered = seen.reference.head.clone();
        let expected = offered.unwrap_or_else(|| Occurrence::from(self.now));
        self.claims += 1;
        let (id, fence) = (self.claims, seen.reference.fence);
        let mut claim = if kind == StepKind::Claim && random.one_in(2) {
            let duration = Duration::from_millis(random.below(60_000));
            let mut claim = Claim::at_least_once(id, fence, expected.clone(), duration);
            if random.one_in(12) {
                claim.then = Cursor::To(None);
            }
            claim
        } else {
            let duration = match kind {
                StepKind::ClaimOnce => FOREVER,
                _ => Duration::from_millis(random.below(60_000)),
            };
            let sharing = if random.one_in(2) { Sharing::Exclusive } else { Sharing::Shared };
            let then = self.cursor_move(random, seen, &expected);
            Claim::at_most_once(id, fence, expected.clone(), then, duration, sharing)
        };
        if random.one_in(6) && expected.scheduled_at < self.now {
            let between = (self.now - expected.scheduled_at).num_milliseconds().max(1) as u64;
            let start =
                expected.scheduled_at + TimeDelta::milliseconds(random.below(between) as i64);
            let not_run = NotRun {
                count: Some(random.below(9)),
                last: expected.scheduled_at,
                reason: NotRunReason::CatchUp,
            };
            claim = claim.starting(start.into(), not_run);
        }
        if random.one_in(8) {
            claim.not_after = Some(self.now - TimeDelta::seconds(random.below(2) as i64));
        }
        let mut store = claim.clone();
        store.fence = seen.store.fence;
        self.sent.push(Sent { name, store: store.clone(), reference: claim.clone() });
        Planned::pair(Action::Claim(store), Action::Claim(claim))
    }

    /// The cursor's move of an at-most-once claim, mostly the right one.
    fn cursor_move(&self, random: &mut Random, seen: &Seen, expected: &Occurrence) -> Cursor {
        let is_at_cursor = expected.trigger.is_none()
            && seen.reference.next.is_some_and(|next| next.scheduled_at == expected.scheduled_at);
        if !is_at_cursor || random.one_in(12) {
            return Cursor::Keep;
        }
        // Only such a definition lets it be granted.
        let follows_end = seen.reference.definition == AFTER_END;
        if random.one_in(if follows_end { 2 } else { 12 }) {
            return Cursor::AfterEnd;
        }
        if random.one_in(10) {
            // Not forward.
            return Cursor::To(Some(expected.scheduled_at.into()));
        }
        let from = if random.one_in(3) {
            expected.scheduled_at
        } else {
            self.now.max(expected.scheduled_at)
        };
        let step = TimeDelta::seconds(1 + random.below(60) as i64);
        Cursor::To((!random.one_in(12)).then(|| (from + step).into()))
    }
}
