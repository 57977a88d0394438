//! The records of jobs that run on every node: this node's own, in no store.

use crate::{
    backend::{Answer, Ending, Plan, Settled},
    record::{At, Ledger, Record, settle, step},
};
use std::{collections::HashMap, sync::Arc};

#[derive(Debug, Default)]
pub(crate) struct Local {
    records: HashMap<Arc<str>, Option<Record>>,
}

impl Local {
    pub(crate) fn step(&mut self, name: &Arc<str>, plan: &Plan<'_>, at: At<'_>) -> Answer {
        let record = self.records.entry(name.clone()).or_default();
        step(record, plan, at, &mut Ledger::off())
    }

    pub(crate) fn settle(&mut self, ending: &Ending<'_>, at: At<'_>) -> Settled {
        match self.records.get_mut(ending.name) {
            Some(record) => settle(record, ending, at, &mut Ledger::off()),
            None => Settled::Removed,
        }
    }
}
