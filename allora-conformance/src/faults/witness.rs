//! A store that writes down, for the history checker, what it was asked and what it answered.

use crate::history::{self, Claims, Outcome, What};
use allora_core::{
    Backend, Error, Kind, Result, Time,
    backend::{
        Act, Answer, Deliver, End, Ended, Ending, History, Leases, Reschedule, Rescheduled,
        Schedules, Settle, Settled, Watch,
    },
};
use async_trait::async_trait;
use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::{Arc, Mutex},
    time::SystemTime,
};

/// A file that several processes append to.
#[derive(Clone, Debug)]
pub struct Log(Arc<File>);

impl Log {
    /// Appends to this file, which is made if it is not there.
    ///
    /// # Panics
    /// If the file cannot be opened.
    pub fn append(path: &Path) -> Self {
        Self(Arc::new(OpenOptions::new().create(true).append(true).open(path).unwrap()))
    }

    /// Writes one event down.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn write(&self, job: &str, node: &str, at: i64, what: What) {
        let event = history::Event { job: job.into(), node: node.into(), at, what };
        history::write(&mut &*self.0, &event).unwrap();
    }

    /// What the scheduler says about itself, a line each, for people and tests.
    ///
    /// # Panics
    /// If the file cannot be written.
    pub fn say(&self, event: &allora_core::Event) {
        (&*self.0).write_all(format!("{event:?}\n").as_bytes()).unwrap();
    }
}

/// The machine's clock, in milliseconds.
#[expect(clippy::disallowed_methods, reason = "what several processes write down has one clock")]
pub fn wall() -> i64 {
    Time::from(SystemTime::now()).timestamp_millis()
}

/// A store that writes down what it was asked and what it answered.
#[derive(Debug)]
pub struct Witness<B> {
    store: B,
    log: Log,
    /// What the runs of this node are of, by fence.
    taken: Mutex<HashMap<(String, i64), i64>>,
    /// When something was asked for the first time. An answer that was lost came somewhere between
    /// then and the answer to the repetition.
    asked: Mutex<HashMap<(String, u128), i64>>,
}

impl<B: Backend> Witness<B> {
    /// Writes down what this store is asked and answers.
    pub fn new(store: B, log: Log) -> Self {
        Self { store, log, taken: Mutex::default(), asked: Mutex::default() }
    }

    /// When this was asked first, if not now.
    fn asked(&self, name: &str, number: u128) -> (i64, bool) {
        let now = wall();
        let mut asked = self.asked.lock().unwrap();
        let first = *asked.entry((name.to_owned(), number)).or_insert(now);
        (first, first != now)
    }

    fn answered(&self, node: &str, now: Time, name: &str, act: &Act<'_>, answer: &Answer) {
        match (act, answer) {
            (Act::Take(take), Answer::Taken(taken)) if taken.run.trigger.is_none() => {
                let occurrence = taken.run.at.timestamp_millis();
                let lasts = match take.deliver {
                    Deliver::AtMostOnce { mark, .. } => mark.map(|mark| mark.lasts),
                    Deliver::AtLeastOnce { lease } => Some(lease),
                };
                let now = now.timestamp_millis();
                let at = match (taken.until, lasts) {
                    // When it was granted, also if that answer was lost. A claim that was asked
                    // first long before may have won nothing then.
                    (Some(until), Some(lasts)) => {
                        let lasts = i64::try_from(lasts.as_millis()).unwrap();
                        (until.timestamp_millis() - lasts).min(now)
                    }
                    _ => match self.asked(name, take.claim) {
                        (first, true) => first.max(occurrence).min(now),
                        (_, false) => now,
                    },
                };
                self.taken.lock().unwrap().insert((name.to_owned(), taken.fence), occurrence);
                if let Some(passed) = take.passed {
                    let first = take.expected.at.timestamp_millis();
                    let last = passed.last.timestamp_millis();
                    self.log.write(name, node, at, What::Skip { first, last });
                }
                let until = match take.deliver {
                    Deliver::AtLeastOnce { .. } => taken.until,
                    // A mark is no lease: the cursor has moved.
                    Deliver::AtMostOnce { .. } => None,
                };
                let until = until.map(|until| until.timestamp_millis());
                let (fence, attempt) = (taken.fence, taken.attempt);
                let claims = Claims { occurrence, fence, attempt, until };
                self.log.write(name, node, at, What::Claim(claims));
            }
            (Act::Skip(skip), Answer::State(state)) if state.cursor == skip.then => {
                let first = skip.expected.timestamp_millis();
                let last = skip.passed.last.timestamp_millis();
                self.log.write(name, node, now.timestamp_millis(), What::Skip { first, last });
            }
            _ => {}
        }
    }

    fn settled(&self, node: &str, asked: i64, ending: &Ending<'_>, settled: Settled) {
        let Ending { name, fence, .. } = *ending;
        let taken = self.taken.lock().unwrap().get(&(name.to_owned(), fence)).copied();
        let (Some(occurrence), true) =
            (taken, matches!(settled, Settled::Done | Settled::Until(_)))
        else {
            return;
        };
        let outcome = match ending.end {
            End::Extend { .. } => {
                if let Settled::Until(until) = settled {
                    let until = until.timestamp_millis();
                    self.log.write(name, node, asked, What::Extend { fence, until });
                }
                return;
            }
            End::Finish { outcome: Ended::Ran, .. } => Outcome::Ran,
            End::Finish { outcome: Ended::Cancelled, .. } => Outcome::Cancelled,
            End::Finish { .. } => Outcome::Failed,
            End::Retry { .. } => Outcome::Retry,
            End::Release => Outcome::Released,
        };
        let what = What::End { occurrence, fence, outcome };
        self.log.write(name, node, asked, what);
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: Backend> Backend for Witness<B> {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        for plan in request.plans {
            if let Act::Take(take) = &plan.act {
                self.asked(plan.name, take.claim);
            }
        }
        let answer = self.store.reschedule(request).await?;
        for (plan, told) in request.plans.iter().zip(&answer.answers) {
            self.answered(request.node, answer.now, plan.name, &plan.act, told);
        }
        Ok(answer)
    }

    fn namespace(&self) -> &str {
        self.store.namespace()
    }

    fn caveat(&self) -> Option<&str> {
        self.store.caveat()
    }

    fn leases(&self) -> Option<&dyn Leases> {
        self.store.leases().map(|_| self as _)
    }

    fn schedules(&self) -> Option<&dyn Schedules> {
        self.store.schedules()
    }

    fn history(&self) -> Option<&dyn History> {
        self.store.history()
    }

    fn watch(&self) -> Option<&dyn Watch> {
        self.store.watch()
    }
}

#[async_trait]
impl<B: Backend> Leases for Witness<B> {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        let asked: Vec<i64> = request
            .endings
            .iter()
            .map(|ending| match ending.end {
                End::Extend { .. } => wall(),
                // Fences of takes and claims do not meet: claims are random.
                _ => self.asked(ending.name, ending.fence.cast_unsigned().into()).0,
            })
            .collect();
        let Some(leases) = self.store.leases() else {
            return Err(Error::new(Kind::Unsupported, "there are no leases to settle"));
        };
        let answers = leases.settle(request).await?;
        for ((ending, settled), asked) in request.endings.iter().zip(&answers).zip(asked) {
            self.settled(request.node, asked, ending, *settled);
        }
        Ok(answers)
    }
}
