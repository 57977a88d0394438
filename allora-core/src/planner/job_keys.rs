//! The steps of a job's work that concern its concurrency key: whether a decision waits for the
//! key, and the replies about it.

use super::{
    Planner,
    job::decide::Decision,
    job::slot::Phase,
    key::{KeyClaim, KeyEffect, KeyStep, Wanted},
    slot_id::SlotId,
    wake_up::When,
};
use crate::{
    backend::{NotRunReason, Reply},
    job::Delivery,
    record::on,
    time::{Time, whole_millis},
};

impl Planner {
    /// The key's part in a decision about a job whose head is due since `due_at`.
    pub(super) fn key_step(
        &mut self,
        id: SlotId,
        decision: &Decision,
        due_at: Option<Time>,
        now: Time,
    ) -> KeyStep {
        let Some(slot) = self.jobs.get(id) else { return KeyStep::Go };
        let settings = &slot.spec.settings;
        let Some((setting, due_at)) = settings.concurrency_key.as_ref().zip(due_at) else {
            self.keys.release(id, &mut self.effects);
            return KeyStep::Go;
        };
        // As in the record of the key.
        let due_at = whole_millis(due_at);
        let wanted = Wanted { due_at, limit: setting.limit, longest: settings.max_key_wait };
        let is_claim = matches!(decision, Decision::Claim { .. });
        if is_claim && self.keys.asks_again(id, wanted, now) {
            // One about which nothing can be asked soon keeps no other from asking.
            let asks_by = |id: SlotId, at: Time| {
                let slot = self.jobs.get(id).filter(|slot| slot.exchange.is_idle());
                slot.is_some_and(|slot| {
                    matches!(slot.phase, Phase::Known(_))
                        && slot.wake_at.is_some_and(|wake_at| wake_at.is_due(at))
                        && !self.outbox.is_failing(Some(id))
                })
            };
            if !self.keys.is_first_in_line(id, self.tick, now, asks_by) {
                return self.keys.asks_later(id, wanted, now);
            }
        }
        if let Some(step) = self.keys.step(id, decision, wanted, now, &mut self.effects) {
            return step;
        }
        // Another node may know that it has waited, which moves its window.
        let may_have_waited = matches!(
            decision,
            Decision::Advance(advance) if advance.not_run.reason == NotRunReason::Window
        );
        if !is_claim && !may_have_waited {
            return KeyStep::Go;
        }
        let claim = KeyClaim {
            record: setting.record(),
            key: setting.key.clone(),
            job: slot.name.clone(),
            holder: match &self.config.every_node {
                Some(node) => format!("{}{}", slot.name, on(node)).into(),
                None => slot.name.clone(),
            },
            claim_id: self.ids.draw(),
            limit: setting.limit,
            per: setting.per,
            lease: match settings.delivery {
                Delivery::AtLeastOnce { lease } => lease,
                Delivery::AtMostOnce => self.config.lost_after,
            },
            due_at,
            since: None,
            not_after: None,
        };
        self.keys.ask(id, claim)
    }

    /// The claim of a job's key as it is sent now.
    pub(super) fn timed_key_claim(
        &mut self,
        id: SlotId,
        claim: Box<KeyClaim>,
        now: Time,
    ) -> Box<KeyClaim> {
        let timeout = self.config.store_timeout;
        match self.jobs.get(id) {
            Some(slot) => self.keys.timed(id, claim, slot.claim_until(now, timeout), timeout),
            None => claim,
        }
    }

    /// Applies the reply to a claim of a job's key. `has_room`: there is capacity for the run.
    pub(super) fn on_key_reply(
        &mut self,
        id: SlotId,
        claim: KeyClaim,
        reply: Reply,
        has_room: bool,
        now: Time,
    ) {
        let Self { keys, ids, effects, .. } = self;
        let effect = keys.on_reply(id, claim, reply, has_room, ids, self.config.poll, now, effects);
        match effect {
            Some(KeyEffect::LookAgain) => self.look_again(id),
            Some(KeyEffect::ReadAt(at)) => self.read_at(id, When::At(at)),
            None => {}
        }
    }

    /// A place of the key with this record may be free: the first waiting jobs of this node ask for
    /// it, as many as may hold it.
    pub(super) fn on_key_free(&mut self, record: Option<&str>) {
        for (id, due_at) in self.keys.on_free(record) {
            // Not with the reads, which need no capacity.
            if self.jobs.get(id).is_some_and(|slot| matches!(slot.phase, Phase::Known(_))) {
                self.wake(id, Some(When::At(due_at)));
            }
        }
    }
}
