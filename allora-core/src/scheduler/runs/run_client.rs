//! The client by which the code of a job reaches the store of its scheduler.

use crate::{
    error::{Error, ErrorKind, Result},
    run::Run,
    scheduler::node::Node,
    stored::Schedules,
};

impl Run {
    /// The schedules of the store on which this run's scheduler works: a job triggers another one, or
    /// adds, changes and removes schedules. All runs of a node have the same client, and their
    /// concurrent calls [share requests](Schedules#concurrent-calls).
    ///
    /// ```
    /// use allora::{BoxError, Run, every, job};
    /// use std::time::Duration;
    ///
    /// let import = job(every(Duration::from_secs(3_600)), async |run: Run| -> Result<(), BoxError> {
    ///     // The same occurrence triggers the report once, even if it is attempted again.
    ///     run.schedules()?.trigger("report", &run.occurrence_key()).await?;
    ///     Ok(())
    /// });
    /// # let _ = import;
    /// ```
    ///
    /// # Errors
    /// `Unsupported` if the backend has no [queries](crate::Backend::queries); `Other` if the scheduler
    /// has ended.
    pub fn schedules(&self) -> Result<Schedules> {
        let node = self.host().and_then(|host| host.downcast::<Node>().ok());
        let node = node.ok_or_else(|| {
            Error::new(ErrorKind::Other, "the scheduler of this run has ended").op("schedules")
        })?;
        node.schedules.clone().checked().map_err(|error| error.op("schedules"))
    }
}
