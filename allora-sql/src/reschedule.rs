//! Plans: the commonest ones in one statement, the others in one transaction.

use crate::{
    Sql,
    dialect::fast::{self, Asker},
    driver::Value,
    row,
    store::{AtOnce, Done, Slot, Store, again, decides},
};
use allora_core::{
    Backend, MAX_NAME, Occurrence, Result, Time,
    backend::{
        Act, Answer, Find, History, Leases, Now, Plan, Reschedule, Rescheduled, Schedules, State,
        Taken, Watch,
    },
    record::{At, Ledger, step},
};
use async_trait::async_trait;
use std::collections::HashMap;

const OP: &str = "reschedule";

#[async_trait]
impl Backend for Sql {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let store = &*self.store;
        let mut answers: Vec<Option<Answer>> = vec![None; request.plans.len()];
        let mut now = None;
        store.too_long(request.plans, &mut answers);
        if store.is_looking(request.plans) {
            now = store.look_at(request.plans, request.now, &mut answers).await?;
        } else {
            // The history is written in the same transaction as the record.
            if store.history == 0 {
                store.take_at_once(&request, &mut answers, &mut now).await?;
                store.lose_at_once(&request, &mut answers, &mut now).await?;
            }
            store.carry_out(&request, &mut answers, &mut now).await?;
        }
        let (found, next_due) = match request.find {
            Some(find) => store.found(find, request.now, &mut now).await?,
            None => (Vec::new(), None),
        };
        let now = match now {
            Some(now) => now,
            None => store.now(request.now).await?,
        };
        store.trim(OP).await?;
        let answers = answers.into_iter().map(|answer| answer.unwrap_or(Answer::Absent)).collect();
        Ok(Rescheduled::new(now, answers).found(found, next_due))
    }

    fn namespace(&self) -> &str {
        &self.store.dialect.prefix
    }

    fn caveat(&self) -> Option<&str> {
        self.caveat.as_deref()
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }

    fn schedules(&self) -> Option<&dyn Schedules> {
        Some(self)
    }

    fn history(&self) -> Option<&dyn History> {
        (self.store.history > 0).then_some(self as _)
    }

    fn watch(&self) -> Option<&dyn Watch> {
        self.store.driver.has_notifications().then_some(self as _)
    }
}

impl Store {
    /// Names that no column has room for are nobody's.
    fn too_long(&self, plans: &[Plan<'_>], answers: &mut [Option<Answer>]) {
        for (plan, answer) in plans.iter().zip(answers) {
            if plan.name.len() > MAX_NAME {
                let reason = format!(
                    "its name has {} bytes, at most {MAX_NAME} can be stored",
                    plan.name.len()
                );
                *answer = Some(match plan.act {
                    Act::Register { .. } => {
                        Answer::State(Box::new(State::parked(plan.name, reason)))
                    }
                    _ => Answer::Absent,
                });
            }
        }
    }

    fn is_looking(&self, plans: &[Plan<'_>]) -> bool {
        !plans.is_empty() && plans.iter().all(|plan| matches!(plan.act, Act::Look))
    }

    /// Looks without locking anything.
    async fn look_at(
        &self,
        plans: &[Plan<'_>],
        now: Now,
        answers: &mut [Option<Answer>],
    ) -> Result<Option<Time>> {
        let names: Vec<&str> = plans.iter().map(|plan| plan.name).collect();
        let mut known = HashMap::new();
        let mut clock = None;
        for names in names.chunks(crate::dialect::CHUNK) {
            let (read_at, rows) = self.look(OP, self.dialect.rows(names)).await?;
            clock = clock.max(read_at);
            known.extend(rows.into_iter().map(|row| (row.name.clone(), row)));
        }
        if known.is_empty() && matches!(now, Now::Store { .. }) {
            clock = self.time(OP).await?;
        }
        let now = decides(now, clock);
        for (plan, answer) in plans.iter().zip(answers) {
            let row = known.get(plan.name).filter(|row| !row.is_forgotten(now));
            answer.get_or_insert_with(|| match row.map(|row| row.state()) {
                None => Answer::Absent,
                Some(None) => Answer::Gone,
                Some(Some(state)) => Answer::State(Box::new(state)),
            });
        }
        Ok(Some(now))
    }

    /// Takes of the commonest shape, in one statement. What it does not win is looked at again.
    async fn take_at_once(
        &self,
        request: &Reschedule<'_>,
        answers: &mut [Option<Answer>],
        now: &mut Option<Time>,
    ) -> Result {
        if !is_whole(request.now) {
            return Ok(());
        }
        let asker = Asker { node: request.node, now: micros(request.now) };
        let mut won = HashMap::new();
        for takes in fast::takes(request.plans).chunks(fast::CHUNK) {
            let statement = self.dialect.flavour.takes(&self.dialect, &asker, takes);
            let AtOnce::Rows(rows) = self.at_once(OP, statement).await? else { continue };
            for row in rows {
                let Some((name, clock, taken)) = granted(row) else { continue };
                *now = (*now).max(Some(decides(request.now, Some(clock))));
                won.insert(name, taken);
            }
        }
        for (plan, answer) in request.plans.iter().zip(answers) {
            if let Some(taken) = won.remove(plan.name) {
                *answer = Some(Answer::Taken(taken));
            }
        }
        Ok(())
    }

    /// Takes that another node has won, told from what the rows are, without locking them. A take
    /// that would change its record, or that might win after all, is left to
    /// [`carry_out`](Self::carry_out).
    async fn lose_at_once(
        &self,
        request: &Reschedule<'_>,
        answers: &mut [Option<Answer>],
        now: &mut Option<Time>,
    ) -> Result {
        let is_open =
            |i: &usize| answers[*i].is_none() && matches!(request.plans[*i].act, Act::Take(_));
        let open: Vec<usize> = (0..answers.len()).filter(is_open).collect();
        for open in open.chunks(crate::dialect::CHUNK) {
            let names: Vec<&str> = open.iter().map(|i| request.plans[*i].name).collect();
            let (clock, rows) = self.look(OP, self.dialect.rows(&names)).await?;
            let read_at = decides(request.now, clock);
            let rows: HashMap<&str, &row::Stored> =
                rows.iter().map(|row| (row.name.as_str(), row)).collect();
            for i in open {
                let plan = &request.plans[*i];
                let row = rows.get(plan.name).filter(|row| !row.is_forgotten(read_at));
                let Some(Ok(before)) = row.map(|row| &row.record) else { continue };
                let mut after = Some(before.clone());
                let at = At::new(request.node, read_at);
                let answer = step(&mut after, plan, at, &mut Ledger::off());
                if after.as_ref() == Some(before) {
                    answers[*i] = Some(answer);
                    *now = (*now).max(Some(read_at));
                }
            }
        }
        Ok(())
    }

    /// Everything that has no answer yet, in one transaction.
    async fn carry_out(
        &self,
        request: &Reschedule<'_>,
        answers: &mut [Option<Answer>],
        now: &mut Option<Time>,
    ) -> Result {
        let open: Vec<usize> = (0..answers.len()).filter(|i| answers[*i].is_none()).collect();
        if open.is_empty() {
            return Ok(());
        }
        let names: Vec<&str> = open.iter().map(|i| request.plans[*i].name).collect();
        let work = |i: usize, slot: Slot<'_>, at: At<'_>, ledger: &mut _| {
            let plan: &Plan<'_> = &request.plans[open[i]];
            match slot {
                Slot::Sound(record) => step(record, plan, at, ledger),
                Slot::Parked { reason, .. } => {
                    Answer::State(Box::new(State::parked(plan.name, reason)))
                }
            }
        };
        let done: Done<Answer> = self.with(OP, &names, request.node, request.now, work).await?;
        for (i, answer) in open.iter().zip(done.answers) {
            answers[*i] = Some(answer);
        }
        *now = (*now).max(Some(done.now));
        Ok(())
    }

    /// The stored schedules looked for, the earliest first, and when the next one wants attention.
    async fn found(
        &self,
        find: Find<'_>,
        asked: Now,
        now: &mut Option<Time>,
    ) -> Result<(Vec<State>, Option<Time>)> {
        let mut kinds = find.kinds.to_vec();
        kinds.sort_unstable();
        kinds.dedup();
        if kinds.is_empty() {
            return Ok((Vec::new(), None));
        }
        let statement = self.dialect.find(&kinds, find.skip, find.limit.saturating_add(1));
        let (clock, rows) = self.look(OP, statement).await?;
        now.get_or_insert_with(|| decides(asked, clock));
        let mut found = Vec::new();
        for row in rows {
            match &row.record {
                Ok(record) => {
                    let Some(at) = record.notice_at() else { continue };
                    found.push((at, row));
                }
                Err(_) => {
                    // Shown once here, first, and from then on by lists: it must not stand before
                    // others for ever.
                    self.park(&row.name).await?;
                    found.push((Time::UNIX_EPOCH, row));
                }
            }
        }
        found.sort_by(|(at, a), (bt, b)| (at, &a.name).cmp(&(bt, &b.name)));
        let ready = |at: Time, row: &row::Stored| at < find.until || row.record.is_err();
        let ready = found.iter().take(find.limit).take_while(|(at, row)| ready(*at, row)).count();
        let next_due = found.get(ready).map(|(at, _)| *at);
        found.truncate(ready);
        Ok((found.iter().filter_map(|(_, row)| row.state()).collect(), next_due))
    }

    async fn park(&self, name: &str) -> Result {
        again!(self, OP, async {
            let mut tx = self.driver.begin().await?;
            tx.conn().run(self.dialect.park(name)).await?;
            tx.commit().await
        })
    }

    async fn now(&self, now: Now) -> Result<Time> {
        match now {
            Now::At(at) => Ok(at),
            Now::Store { .. } => Ok(decides(now, self.time(OP).await?)),
        }
    }
}

/// Whether the instant of the request is whole microseconds, as the database's are.
pub(crate) fn is_whole(now: Now) -> bool {
    match now {
        Now::At(at) => at.timestamp_subsec_nanos().is_multiple_of(1_000),
        Now::Store { .. } => true,
    }
}

/// The instant of the request in microseconds; `None` if the database's clock decides.
pub(crate) fn micros(now: Now) -> Option<i64> {
    match now {
        Now::At(at) => Some(at.timestamp_micros()),
        Now::Store { .. } => None,
    }
}

/// A row of a fast take: clock, name, occurrence, fence, incarnation, end of the hold.
fn granted(row: Vec<Value>) -> Option<(String, i64, Taken)> {
    let mut cells = row.into_iter();
    let clock = cells.next()?.into_int()?;
    let name = String::from_utf8(cells.next()?.into_bytes()?).ok()?;
    let run = Occurrence::from(row::time(cells.next()?.into_int()?).ok()?);
    let fence = cells.next()?.into_int()?;
    let incarnation = cells.next()?.into_int()?;
    let until = row::time(cells.next()?.into_int()?).ok()?;
    let mut taken = Taken::new(run, fence, incarnation);
    taken.until = Some(until);
    Some((name, clock, taken))
}
