//! The operations of a walk, carried out on the store and on the reference.

use super::pair::{Said, same};
use crate::{
    Capability,
    random::Random,
    reference::Plain,
    world::{Node, fine, t},
};
use allora_core::{
    Error, Time,
    backend::{
        Act, Answer, Beside, Change, Cursor, Deliver, End, Ended, Ending, Find, Mark, NewSchedule,
        Next, Now, Occurrence, Page, Passed, Plan, Reschedule, Settle, Skip, State, Take,
    },
    record::Record,
    time::whole_millis,
};
use chrono::TimeDelta;
use std::{collections::BTreeSet, time::Duration};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Register,
    Redefine,
    Look,
    Take,
    TakeOnce,
    Skip,
    Reap,
    Wait,
    Settle,
    Add,
    Edit,
    Pause,
    Resume,
    Trigger,
    Rerun,
    Delete,
    List,
    Find,
    Batch,
}

/// An operation; the number decides the rest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub(super) what: What,
    pub(super) draw: u64,
}

const NAMES: &[&str] = &["a", "b", "c"];
const KINDS: &[&str] = &["mail", "sms"];

/// What was once read of a job, on both sides.
#[derive(Clone)]
struct Seen {
    store: State,
    reference: State,
}

/// A take that was sent, so that it can be sent again.
#[derive(Clone)]
struct Sent {
    name: &'static str,
    store: Take,
    reference: Take,
}

/// A run that was won: job, what runs, and its fence on both sides.
#[derive(Clone)]
struct Won {
    name: &'static str,
    run: Occurrence,
    store: i64,
    reference: i64,
}

pub(super) struct Walker {
    nodes: [Node; 2],
    plain: Plain,
    exact: bool,
    now: Time,
    claims: u128,
    seen: Vec<(&'static str, Seen)>,
    sent: Vec<Sent>,
    won: Vec<Won>,
    story: Vec<String>,
    keeps_past: bool,
}

impl Walker {
    pub(super) fn new(nodes: [Node; 2], lacks: &[Capability]) -> Self {
        Self {
            keeps_past: nodes[0].backend.history().is_some(),
            nodes,
            plain: Plain::default(),
            exact: !lacks.contains(&Capability::Microseconds),
            now: t(0),
            claims: 0,
            seen: Vec::new(),
            sent: Vec::new(),
            won: Vec::new(),
            story: Vec::new(),
        }
    }

    /// What was asked so far.
    pub(super) fn story(&self) -> String {
        self.story.join("\n")
    }

    /// Carries out an operation, compares the answers, and looks whether the record is sound.
    pub(super) async fn go(&mut self, op: &Op) -> Result<(), String> {
        self.carry_out(op).await?;
        NAMES.iter().try_for_each(|name| self.plain.record(name).map_or(Ok(()), sound))
    }

    async fn carry_out(&mut self, op: &Op) -> Result<(), String> {
        let mut random = Random::new(op.draw);
        let name = *random.pick(NAMES).expect("there are names");
        match op.what {
            What::Wait => {
                self.wait(&mut random);
                Ok(())
            }
            What::Settle => self.settle(&mut random).await,
            What::Add => self.add(&mut random, name).await,
            What::Edit | What::Pause | What::Resume | What::Trigger | What::Rerun => {
                self.modify(op.what, &mut random, name).await
            }
            What::Delete if random.one_in(3) => self.delete(name).await,
            What::List | What::Delete => self.list(&mut random).await,
            What::Find => self.find(&mut random).await,
            What::Batch => self.batch(&mut random).await,
            _ => {
                let acts = self.acts(op.what, &mut random, name).await?;
                self.ask(&mut random, vec![(name, acts)]).await
            }
        }
    }

    /// What the store and the reference wrote down on the way.
    pub(super) async fn compare_past(&self) -> Result<(), String> {
        if !self.keeps_past {
            return Ok(());
        }
        for name in NAMES {
            let store = fine(self.nodes[0].history().past(Some(name), None, 10_000).await);
            let reference = self.plain.past(Some(name), None, 10_000);
            same(Said::Past(store), Said::Past(reference), self.exact)
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
        self.now = (self.now + chrono::TimeDelta::milliseconds(millis)).max(t(0));
    }

    /// Around now, now and then in the past, never, or due later than its name says.
    fn next(&self, random: &mut Random) -> Option<Next> {
        if random.one_in(12) {
            return None;
        }
        let at = self.now + chrono::TimeDelta::seconds(random.below(90) as i64 - 30);
        let delay = if random.one_in(4) { random.below(10_000) as i64 } else { 0 };
        Some(Next { at, due_at: at + chrono::TimeDelta::milliseconds(delay) })
    }

    /// What is read now, or, now and then, what was read before.
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
        let plan = [Plan::new(name, Act::Look)];
        let (store, reference) = self.both(0, [&plan, &plan]).await?;
        let (Some(Answer::State(store)), Some(Answer::State(reference))) =
            (store.into_iter().next(), reference.into_iter().next())
        else {
            return Ok(None);
        };
        let seen = Seen { store: *store, reference: *reference };
        self.seen.push((name, seen.clone()));
        Ok(Some(seen))
    }

    /// Sends plans to both, the same but for the fences in them.
    async fn both(
        &mut self,
        node: usize,
        plans: [&[Plan<'_>]; 2],
    ) -> Result<(Vec<Answer>, Vec<Answer>), String> {
        let node = &self.nodes[node];
        let now = Now::At(self.now);
        let store = fine(node.backend.reschedule(Reschedule::new(&node.id, now, plans[0])).await);
        let reference = self.plain.reschedule(Reschedule::new(&node.id, now, plans[1]));
        let (a, b) = (store.answers.clone(), reference.answers.clone());
        same(
            Said::Answers(store.now, store.answers),
            Said::Answers(reference.now, reference.answers),
            self.exact,
        )?;
        Ok((a, b))
    }

    /// The act for the store and for the reference.
    async fn acts(
        &mut self,
        what: What,
        random: &mut Random,
        name: &'static str,
    ) -> Result<[Act<'static>; 2], String> {
        let definition = ["one", "two", "three"][random.below(3) as usize];
        let version = random.below(3);
        let first = self.next(random);
        Ok(match what {
            What::Register => [0; 2].map(|_| Act::Register { definition, version, first }),
            What::Reap => [Act::Reap, Act::Reap],
            What::Redefine | What::Skip | What::Take | What::TakeOnce => {
                let Some(seen) = self.read(random, name).await? else {
                    return Ok([Act::Look, Act::Look]);
                };
                let editions = [seen.store.edition, seen.reference.edition];
                match what {
                    What::Redefine => editions.map(|edition| Act::Redefine {
                        edition,
                        definition,
                        version,
                        next: first,
                    }),
                    What::Skip => {
                        let expected = seen.reference.cursor.map_or(self.now, |next| next.at);
                        let last = if random.one_in(8) { self.now } else { expected };
                        let count = (!random.one_in(4)).then(|| random.below(5));
                        let passed = Passed { count, last, overlap: random.one_in(2) };
                        editions
                            .map(|edition| Act::Skip(Skip::new(edition, expected, passed, first)))
                    }
                    _ => self.take(what, random, name, &seen),
                }
            }
            _ => [Act::Look, Act::Look],
        })
    }

    /// A take of what is offered, mostly sound; or one that was sent before.
    fn take(
        &mut self,
        what: What,
        random: &mut Random,
        name: &'static str,
        seen: &Seen,
    ) -> [Act<'static>; 2] {
        if random.one_in(6) {
            let mine: Vec<&Sent> = self.sent.iter().filter(|sent| sent.name == name).collect();
            if let Some(sent) = random.pick(&mine) {
                return [Act::Take(sent.store.clone()), Act::Take(sent.reference.clone())];
            }
        }
        let offered = seen.reference.head.clone();
        let expected = offered.unwrap_or_else(|| Occurrence::from(self.now));
        let on_cursor = expected.trigger.is_none()
            && seen.reference.cursor.is_some_and(|next| next.at == expected.at);
        let then = if on_cursor && !random.one_in(12) {
            let step =
                chrono::TimeDelta::seconds(random.below(60) as i64 + i64::from(!random.one_in(12)));
            let from = if random.one_in(3) { expected.at } else { self.now.max(expected.at) };
            Cursor::To((!random.one_in(12)).then(|| (from + step).into()))
        } else {
            Cursor::Keep
        };
        let lasts = Duration::from_millis(random.below(60_000));
        let beside = if random.one_in(2) { Beside::None } else { Beside::Others };
        let deliver = match random.below(3) {
            _ if what == What::TakeOnce => Deliver::AtMostOnce { then, mark: None },
            0 => Deliver::AtMostOnce { then, mark: None },
            1 => Deliver::AtMostOnce { then, mark: Some(Mark { lasts, beside }) },
            _ => Deliver::AtLeastOnce { lease: lasts },
        };
        self.claims += 1;
        let mut take = Take::new(self.claims, seen.reference.fence, expected.clone(), deliver);
        if random.one_in(6) && expected.at < self.now {
            let between = (self.now - expected.at).num_milliseconds().max(1) as u64;
            let start = expected.at + chrono::TimeDelta::milliseconds(random.below(between) as i64);
            let passed = Passed { count: Some(random.below(9)), last: expected.at, overlap: false };
            take = take.starting(start.into(), passed);
        }
        if random.one_in(8) {
            take.fresh_until = Some(self.now - chrono::TimeDelta::seconds(random.below(2) as i64));
        }
        let mut store = take.clone();
        store.fence = seen.store.fence;
        self.sent.push(Sent { name, store: store.clone(), reference: take.clone() });
        [Act::Take(store), Act::Take(take)]
    }

    async fn ask(
        &mut self,
        random: &mut Random,
        acts: Vec<(&'static str, [Act<'static>; 2])>,
    ) -> Result<(), String> {
        let node = random.below(2) as usize;
        for (name, [_, act]) in &acts {
            self.tell(format!("{} {name}: {act:?}", self.nodes[node].id));
        }
        let plans: Vec<Plan<'_>> =
            acts.iter().map(|(name, [act, _])| Plan::new(name, act.clone())).collect();
        let reference: Vec<Plan<'_>> =
            acts.iter().map(|(name, [_, act])| Plan::new(name, act.clone())).collect();
        let (store, reference) = self.both(node, [&plans, &reference]).await?;
        for (((name, _), store), reference) in acts.iter().zip(store).zip(reference) {
            if let (Answer::Taken(mine), Answer::Taken(theirs)) = (store, reference) {
                let (store, reference) = (mine.fence, theirs.fence);
                self.won.push(Won { name, run: theirs.run, store, reference });
            }
        }
        Ok(())
    }

    async fn batch(&mut self, random: &mut Random) -> Result<(), String> {
        let mut acts = Vec::new();
        for name in NAMES {
            let what =
                [What::Register, What::Take, What::Skip, What::Reap][random.below(4) as usize];
            acts.push((*name, self.acts(what, random, name).await?));
        }
        self.ask(random, acts).await
    }

    async fn settle(&mut self, random: &mut Random) -> Result<(), String> {
        // The newest runs are the likeliest to be alive.
        let recent: Vec<Won> = self.won.iter().rev().take(4).cloned().collect();
        let all: &[Won] = if random.one_in(6) { &self.won } else { &recent };
        let Some(won) = random.pick(all).cloned() else { return Ok(()) };
        let node = random.below(2) as usize;
        let end = self.end(random, &won);
        self.tell(format!("{} {} ends {}: {end:?}", self.nodes[node].id, won.name, won.reference));
        let now = Now::At(self.now);
        let mine = [Ending::new(won.name, won.store, end.clone())];
        let theirs = [Ending::new(won.name, won.reference, end)];
        let id = self.nodes[node].id.clone();
        let store = fine(self.nodes[node].leases().settle(Settle::new(&id, now, &mine)).await);
        let reference = self.plain.settle(Settle::new(&id, now, &theirs));
        same(Said::Settled(store), Said::Settled(reference), self.exact)
    }

    fn end(&self, random: &mut Random, won: &Won) -> End<'static> {
        let later = |random: &mut Random| {
            self.now + chrono::TimeDelta::milliseconds(random.below(60_000) as i64)
        };
        let outcome = match random.below(4) {
            0 => Ended::Failed("broken"),
            1 => Ended::Dead("dead"),
            2 => Ended::Cancelled,
            _ => Ended::Ran,
        };
        match random.below(8) {
            0 | 1 => End::Extend { lasts: Duration::from_millis(random.below(60_000)) },
            2 => End::Retry { at: later(random), error: "again" },
            3 => End::Release,
            4 => End::Finish { then: Cursor::Keep, outcome },
            5 => End::Finish { then: Cursor::To(None), outcome },
            6 => End::Finish { then: Cursor::To(Some(won.run.at.into())), outcome },
            _ => End::Finish { then: Cursor::To(Some(later(random).into())), outcome },
        }
    }

    async fn add(&mut self, random: &mut Random, name: &'static str) -> Result<(), String> {
        let kind = *random.pick(KINDS).expect("there are kinds");
        let data = [b"x".repeat(random.below(4) as usize)];
        let new = NewSchedule::new(name, kind, "stored", self.next(random)).data(&data[0]);
        self.tell(format!("add {new:?}"));
        let store = self.nodes[0].add_one(self.now, new).await;
        let reference = self.plain.add(new, self.now);
        same(said(store), said(reference), self.exact)
    }

    async fn modify(
        &mut self,
        what: What,
        random: &mut Random,
        name: &'static str,
    ) -> Result<(), String> {
        let next = self.next(random);
        let id = ["x", "y", "z"][random.below(3) as usize];
        let letter: Occurrence;
        let changes = match what {
            What::Pause => [0; 2].map(|_| Change::Pause { note: "note" }),
            What::Resume => {
                let record = self.plain.record(name).filter(|_| random.one_in(2));
                let skip = record.and_then(|record| {
                    let at = record.cursor?.at + TimeDelta::seconds(random.below(3) as i64 / 2);
                    let count = random.one_in(2).then_some(3);
                    let last = whole_millis(self.now).max(at);
                    let passed = Passed { count, last, overlap: false };
                    Some(Skip::new(record.edition, at, passed, next))
                });
                [0; 2].map(|_| Change::Resume { skip })
            }
            What::Trigger => {
                let at = next.map(|next| next.at).filter(|_| random.one_in(3));
                [0; 2].map(|_| Change::Trigger { id, at })
            }
            What::Rerun => {
                let record = self.plain.record(name);
                let dead = record.and_then(|record| random.pick(&record.dead));
                letter = dead.map_or_else(|| self.now.into(), |letter| letter.run.clone());
                let dismisses = random.one_in(3);
                [0; 2].map(|_| match dismisses {
                    true => Change::Dismiss { run: &letter },
                    false => Change::Rerun { run: &letter },
                })
            }
            _ => {
                let seen = self.read(random, name).await?;
                let editions =
                    seen.map_or([0; 2], |seen| [seen.store.edition, seen.reference.edition]);
                let definition = (!random.one_in(3)).then_some(("edited", next));
                let data = random.one_in(2).then_some(&b"data"[..]);
                let kind = random.one_in(3).then(|| *random.pick(KINDS).expect("there are kinds"));
                editions.map(|edition| Change::Edit { edition, kind, definition, data })
            }
        };
        self.tell(format!("modify {name}: {:?}", changes[1]));
        let store = self.nodes[1].modify(self.now, name, changes[0]).await;
        let reference = self.plain.modify(name, changes[1], self.now);
        same(said(store), said(reference), self.exact)
    }

    async fn delete(&mut self, name: &'static str) -> Result<(), String> {
        self.tell(format!("delete {name}"));
        let kind = |error: Error| error.kind();
        let store = self.nodes[0].schedules().delete(name, Now::At(self.now)).await;
        let reference = self.plain.delete(name, self.now);
        same(Said::Done(store.map_err(kind)), Said::Done(reference.map_err(kind)), self.exact)
    }

    async fn list(&mut self, random: &mut Random) -> Result<(), String> {
        let mut page = Page::first(1 + random.below(3) as usize);
        if random.one_in(2) {
            page = page.after(NAMES[random.below(2) as usize]);
        }
        if random.one_in(3) {
            page = page.kind("mail");
        }
        self.tell(format!("list {page:?}"));
        let store = fine(self.nodes[0].schedules().list(page).await);
        let reference = self.plain.list(page);
        same(Said::States(store, None), Said::States(reference, None), self.exact)
    }

    async fn find(&mut self, random: &mut Random) -> Result<(), String> {
        let kinds: &[&str] =
            [&["mail"][..], &["mail", "sms", ""], &["", "sms"]][random.below(3) as usize];
        let until = self.now + chrono::TimeDelta::milliseconds(random.below(90_000) as i64);
        let find = Find::new(kinds, until, random.below(4) as usize);
        self.tell(format!("find {find:?}"));
        let request = Reschedule::new("node-a", Now::At(self.now), &[]).find(find);
        let store = fine(self.nodes[0].backend.reschedule(request).await);
        let reference = self.plain.reschedule(request);
        same(
            Said::States(store.found, store.next_due),
            Said::States(reference.found, reference.next_due),
            self.exact,
        )
    }
}

fn said(result: allora_core::Result<State>) -> Said {
    Said::State(result.map(Box::new).map_err(|error| error.kind()))
}

/// What must hold of every record, whatever was asked.
fn sound(record: &Record) -> Result<(), String> {
    let runs = record.holds.iter().map(|hold| &hold.run);
    let runs: Vec<&Occurrence> = runs.chain(record.again.iter().map(|again| &again.run)).collect();
    let unique = runs.iter().collect::<BTreeSet<_>>().len() == runs.len();
    let leases = record.holds.iter().filter(|hold| hold.at_least_once).count();
    let grow = record.holds.windows(2).all(|pair| pair[0].fence < pair[1].fence);
    let below = record.holds.iter().all(|hold| hold.fence <= record.fence);
    let cursor = record.cursor.map(|next| Occurrence::from(next.at));
    let begun = record.cursor.is_some_and(|next| record.last_started >= Some(next.at));
    let stuck = begun && cursor.is_some_and(|cursor| !runs.contains(&&cursor));
    for (wrong, what) in [
        (!unique, "an occurrence is held or waits twice"),
        (leases > 1, "two leases"),
        (!grow || !below, "the fences of the runs are not in order"),
        (stuck, "the cursor is on an occurrence that nobody runs or offers"),
    ] {
        if wrong {
            return Err(format!("  {what}: {record:?}"));
        }
    }
    Ok(())
}
