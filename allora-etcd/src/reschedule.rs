//! Plans.

use crate::{
    Etcd,
    store::{Asker, Done, Slot},
};
use allora_core::{
    Backend, Result,
    backend::{
        Act, Answer, Deliver, History, Leases, Now, Plan, Reschedule, Rescheduled, Schedules,
        State, Watch,
    },
    record::step,
};
use async_trait::async_trait;
use std::time::Duration;

const OP: &str = "reschedule";

#[async_trait]
impl Backend for Etcd {
    async fn reschedule(&self, request: Reschedule<'_>) -> Result<Rescheduled> {
        let store = &self.store;
        let asker = Asker { op: OP, node: request.node, now: request.now };
        if let Now::Store { node: wall } = request.now {
            store.marks.seen(request.node, wall);
            if let Some(promise) = request.plans.iter().filter_map(promise).max() {
                store.promise(OP, request.node, promise).await?;
            }
        }
        let names: Vec<&str> = request.plans.iter().map(|plan| plan.name).collect();
        let work = |i: usize, slot: Slot<'_>, at: allora_core::record::At<'_>, ledger: &mut _| {
            let plan: &Plan<'_> = &request.plans[i];
            let answer = match slot {
                Slot::Sound(record) => step(record, plan, at, ledger),
                Slot::Parked { reason, .. } => {
                    Answer::State(Box::new(State::parked(plan.name, reason)))
                }
            };
            let is_proved = matches!(answer, Answer::Taken(_));
            Done { answer, hint: None, is_proved }
        };
        let answers = store.with(asker, &names, true, work).await?;
        store.trim(OP).await?;
        let (found, next_due) = match request.find {
            Some(find) => store.find(asker, find).await?,
            None => (Vec::new(), None),
        };
        Ok(Rescheduled::new(request.now.here(), answers).found(found, next_due))
    }

    fn namespace(&self) -> &str {
        &self.store.namespace
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
        Some(self)
    }
}

/// For how long the run of this plan is promised to be kept, if it is.
fn promise(plan: &Plan<'_>) -> Option<Duration> {
    match &plan.act {
        Act::Take(take) => match take.deliver {
            Deliver::AtLeastOnce { lease } => Some(lease),
            Deliver::AtMostOnce { mark, .. } => mark.map(|mark| mark.lasts),
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use allora_core::backend::{Beside, Cursor, Mark, Occurrence, Take};

    #[test]
    fn a_take_promises_what_its_lease_or_mark_lasts() {
        let lasts = Duration::from_secs(7);
        let of = |deliver| {
            let at = Occurrence::from(allora_core::time::end_of_time());
            promise(&Plan::new("job", Act::Take(Take::new(1, 1, at, deliver))))
        };
        let mark = Some(Mark { lasts, beside: Beside::Others });
        assert_eq!(of(Deliver::AtLeastOnce { lease: lasts }), Some(lasts));
        assert_eq!(of(Deliver::AtMostOnce { then: Cursor::Keep, mark }), Some(lasts));
        assert_eq!(of(Deliver::AtMostOnce { then: Cursor::Keep, mark: None }), None);
        assert_eq!(promise(&Plan::new("job", Act::Look)), None);
    }
}
