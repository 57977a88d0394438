//! Endings: the commonest ones in the script that reads, everything else between reading and
//! writing.

use crate::{
    Redis,
    hash::ms,
    keys::Shard,
    reschedule::{clock, micros, whole},
    script::Call,
    store::{Slot, Store, Work},
};
use allora_core::{
    Result,
    backend::{Cursor, End, Ended, Ending, Hint, Leases, Settle, Settled},
    record::{At, Ledger, settle},
    time::{end_of_time, from_millis},
};
use async_trait::async_trait;

const OP: &str = "settle";

#[async_trait]
impl Leases for Redis {
    async fn settle(&self, request: Settle<'_>) -> Result<Vec<Settled>> {
        let store = &*self.store;
        let names: Vec<&str> = request.endings.iter().map(|ending| ending.name).collect();
        let endings = Endings { request: &request, keeps_history: store.history > 0 };
        let done = store.with(OP, &names, request.node, request.now, &endings).await?;
        // Somebody may be waiting for these runs' ends.
        let waiting: Vec<&str> = names
            .iter()
            .zip(&done.answers)
            .filter_map(|(name, (_, due))| due.then_some(*name))
            .collect();
        match waiting.as_slice() {
            [] => {}
            [name] => store.tell(Hint::Job((*name).to_owned())).await,
            _ => store.tell(Hint::Look).await,
        }
        Ok(done.answers.into_iter().map(|(settled, _)| settled).collect())
    }
}

struct Endings<'a> {
    request: &'a Settle<'a>,
    keeps_history: bool,
}

impl Work for Endings<'_> {
    /// What came of it, and whether the job is due again.
    type Answer = (Settled, bool);

    fn decide(&self, i: usize, slot: Slot<'_>, at: At<'_>, ledger: &mut Ledger) -> Self::Answer {
        // Whether a run of a record that cannot be read still holds it, nobody can say.
        let Slot::Sound(record) = slot else { return (Settled::Lost, false) };
        let settled = settle(record, &self.request.endings[i], at, ledger);
        let head = record.as_ref().and_then(|record| record.head());
        let due = head.is_some_and(|head| head.due_at <= at.now);
        (settled, due && settled == Settled::Done)
    }

    fn at_once<'s>(
        &self,
        store: &'s Store,
        shard: &Shard,
        jobs: &[Vec<usize>],
    ) -> Option<Call<'s>> {
        if self.keeps_history {
            return None;
        }
        let clock = clock(self.request.now)?;
        let ends = jobs.iter().map(|positions| match positions.as_slice() {
            [i] => Simple::of(&self.request.endings[*i]),
            // Two endings of one job are applied one after the other.
            _ => None,
        });
        let ends: Vec<Option<Simple>> = ends.collect();
        if ends.iter().all(Option::is_none) {
            return None;
        }
        let names = jobs.iter().map(|positions| self.request.endings[positions[0]].name);
        let keys: Vec<String> =
            std::iter::once(shard.state()).chain(names.map(|name| shard.job(name))).collect();
        let mut call = Call::new(&store.scripts.settle, &keys);
        call.arg(clock).arg(store.token());
        call.arg(shard.due("")).arg(shard.job("").len()).arg(ms(end_of_time()));
        for end in ends {
            match end {
                Some(end) => end.args(&mut call),
                None => call.empty(5),
            }
        }
        Some(call)
    }

    fn was_done(&self, _: usize, said: &str) -> Option<Self::Answer> {
        match said {
            "done" => Some((Settled::Done, false)),
            "due" => Some((Settled::Done, true)),
            _ => {
                let until = said.strip_prefix("until ")?.parse().ok().and_then(from_millis)?;
                Some((Settled::Until(until), false))
            }
        }
    }
}

/// A finish that went well, or an extension.
struct Simple {
    fence: i64,
    /// Microseconds; of a finish, none.
    lasts: Option<i64>,
    moves: bool,
    then: Option<(i64, i64)>,
}

impl Simple {
    fn of(ending: &Ending<'_>) -> Option<Self> {
        let (lasts, moves, then) = match ending.end {
            End::Extend { lasts } => (Some(micros(lasts)?), false, None),
            End::Finish { then: Cursor::Keep, outcome: Ended::Ran } => (None, false, None),
            End::Finish { then: Cursor::To(None), outcome: Ended::Ran } => (None, true, None),
            End::Finish { then: Cursor::To(Some(then)), outcome: Ended::Ran } => {
                (None, true, Some((whole(then.at)?, whole(then.due_at)?)))
            }
            _ => return None,
        };
        Some(Self { fence: ending.fence, lasts, moves, then })
    }

    fn args(&self, call: &mut Call<'_>) {
        call.arg(self.fence);
        match self.lasts {
            Some(lasts) => call.arg(lasts),
            None => call.arg(""),
        };
        call.arg(u8::from(self.moves));
        match self.then {
            Some((at, due_at)) => call.arg(at).arg(due_at),
            None => call.arg("-").arg("-"),
        };
    }
}
