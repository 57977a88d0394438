//! The steps about jobs that run after others.

use super::{Planned, Seen, Walker};
use crate::random::Random;
use allora_core::{
    backend::{Action, FollowUp, JobState, On},
    time::whole_millis,
};

impl Walker {
    /// A note that a job follows, a confirmation of what was delivered, or a delivery.
    pub(super) async fn chain(
        &mut self,
        random: &mut Random,
        name: &'static str,
    ) -> Result<(&'static str, Planned), String> {
        let planned = match random.below(5) {
            0 | 1 => {
                let on = *random.pick(&On::ALL).expect("there are ends");
                Planned::same(Action::Follow { job: "b", on })
            }
            2 => {
                let number = random.below(6) as i64;
                let id = format!("allora:after:1:a/{number}");
                Planned::Receive(FollowUp::new(name, id, number, whole_millis(self.now)))
            }
            _ => match self.read(random, name).await? {
                Some(Seen { store, reference }) => {
                    let outbox = |state: JobState| state.chain.unwrap_or_default().outbox;
                    Planned::Confirm([store, reference].map(outbox))
                }
                None => Planned::same(Action::Confirm { done: &[], gone: &[] }),
            },
        };
        Ok((name, planned))
    }
}
