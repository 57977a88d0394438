//! Runs that are completed by other processes than their nodes.

use super::Schedules;
use crate::{
    backend::{Completion, Operation, Reply},
    error::{Error, ErrorKind, Result},
    run_ticket::RunTicket,
};

impl Schedules {
    /// Completes a run as succeeded, with its [output](crate::Run::set_output) and its
    /// [value](crate::Run::set_value), in place of the node that runs it, which may have stopped. Repeated,
    /// it changes nothing. The node, if it lives, ends its part of the run when it next extends the lease.
    ///
    /// # Errors
    /// `LeaseLost` if the occurrence does not belong to this run any more, or an operator has cancelled
    /// the run: its work is not recorded. `Unavailable`: it may be completed; repeat the call.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have completed the run. Repeat it.
    pub async fn complete(
        &self,
        ticket: &RunTicket,
        output: Option<&str>,
        value: Option<&str>,
    ) -> Result {
        let RunTicket { name, fence, then, excluded } = ticket;
        let operation = Operation::complete(name, *fence, *then, Completion::Succeeded)
            .output(output)
            .value(value)
            .excluded(*excluded);
        match self.apply_one("complete", &operation).await?? {
            Reply::Accepted => Ok(()),
            _ => {
                let lost = format!("the run of {name:?} with the fence {fence} is over");
                Err(Error::new(ErrorKind::LeaseLost, lost).op("complete"))
            }
        }
    }
}
