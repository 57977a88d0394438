//! Data as JSON: serde values in schedules and handlers.

use super::{Handler, StoredSchedule};
use crate::{
    error::{BoxError, Error, Result},
    job::IntoOutcome,
    run::Run,
};
use futures::future::{BoxFuture, FutureExt};
use serde::{Serialize, de::DeserializeOwned};

impl StoredSchedule {
    /// Sets the data of its runs: any value, stored as JSON.
    pub fn data<T: Serialize + ?Sized>(mut self, data: &T) -> Self {
        self.data = serde_json::to_vec(data).map_err(|why| why.to_string());
        self
    }

    /// The data of its runs, as a value.
    ///
    /// # Errors
    /// `Invalid` if the data is not JSON of that type.
    pub fn data_as<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(self.bytes()?)
            .map_err(|why| Error::invalid(format!("the data of {:?}: {why}", self.name())))
    }
}

impl Run {
    /// The data of the schedule as a value; no data is `null`.
    ///
    /// # Errors
    /// `Invalid`, with line and column, if the data is not JSON of that type.
    pub fn data_as<T: DeserializeOwned>(&self) -> Result<T> {
        let data = match self.data() {
            [] => b"null",
            data => data,
        };
        serde_json::from_slice(data)
            .map_err(|why| Error::invalid(format!("the data of {:?}: {why}", self.name())))
    }
}

/// A closure that receives the data as a value. If the data does not fit its type, other nodes have the
/// occurrence first: they may have another build. After that, the run has failed.
impl<T, F, Fut> Handler<(Run, T)> for F
where
    T: DeserializeOwned + Send + 'static,
    F: FnOnce(Run, T) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    fn handle(&self, run: Run) -> BoxFuture<'static, Result<(), BoxError>> {
        match run.data_as() {
            Ok(data) => {
                let work = (self.clone())(run, data);
                async move { work.await.into_outcome() }.boxed()
            }
            Err(error) => {
                run.data_does_not_fit(&error);
                async move { Err(error.into()) }.boxed()
            }
        }
    }
}
