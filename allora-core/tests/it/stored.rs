//! Stored schedules and the nodes that run them, on simulated machines.

mod breaker;
mod bulk;
mod calendars;
mod changes;
mod client;
mod concurrent;
mod control;
mod files;
mod kinds;
mod limits;
mod mark;
mod moved;
mod pauses;
mod routing;
mod trigger_data;
mod why;

use crate::support::{Lab, Member};
use allora_core::{Run, Schedules, StoredSchedule, runtime::Sim};
use std::sync::{Arc, Mutex};

/// The stored schedules of the laboratory's store.
fn schedules(lab: &Lab) -> Schedules {
    Schedules::on(lab.store.clone(), lab.clock()).unwrap()
}

fn add(lab: &Lab, stored: StoredSchedule) {
    lab.sim.block_on(schedules(lab).add(&stored)).unwrap();
}

/// The runs, as `name at`: seconds after the start.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    fn tell(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    fn run(&self, run: &Run) {
        let at = (run.scheduled_at() - crate::support::at(0.0)).num_seconds();
        self.tell(format!("{} {at}", run.name()));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn sorted(&self) -> Vec<String> {
        let mut seen = self.take();
        seen.sort();
        seen
    }
}

/// A store without stored schedules cannot be asked for any.
#[test]
fn what_a_backend_cannot_do_is_refused_when_it_is_built() {
    let sim = Sim::new(1);
    let bare = || crate::support::bare(allora_memory::Memory::new());
    let error = Schedules::on(bare(), sim.node()).unwrap_err();
    assert_eq!(error.kind(), allora_core::ErrorKind::Unsupported);
    let built = allora_core::Scheduler::builder(bare())
        .runtime(sim.node())
        .kind("mail", async |_: Run| {})
        .build();
    assert_eq!(built.unwrap_err().kind(), allora_core::ErrorKind::Unsupported);
}

/// The members' news of one kind.
fn news(member: &Member, kind: &str) -> usize {
    member.news().iter().filter(|news| *news == kind).count()
}
