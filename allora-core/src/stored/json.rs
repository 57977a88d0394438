//! Data as JSON: any value that serde knows, in schedules and for handlers.

use super::{Handler, Stored};
use crate::{
    error::{BoxError, Error, Result},
    job::IntoOutcome,
    run::Run,
};
use futures::future::{BoxFuture, FutureExt};
use serde::{Serialize, de::DeserializeOwned};

impl Stored {
    /// What its runs are given: any value, kept as JSON.
    pub fn data<T: Serialize + ?Sized>(mut self, data: &T) -> Self {
        self.data = serde_json::to_vec(data).map_err(|why| why.to_string());
        self
    }

    /// What its runs are given, as a value.
    ///
    /// # Errors
    /// `Invalid` if it is not JSON of that shape.
    pub fn data_as<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(self.bytes()?)
            .map_err(|why| Error::invalid(format!("the data of {:?}: {why}", self.name())))
    }
}

impl Run {
    /// The payload as a value; no payload is `null`.
    ///
    /// # Errors
    /// `Invalid` if it is not JSON of that shape; names the line and the column.
    pub fn data_as<T: DeserializeOwned>(&self) -> Result<T> {
        let data = match self.data() {
            [] => b"null",
            data => data,
        };
        serde_json::from_slice(data)
            .map_err(|why| Error::invalid(format!("the data of {:?}: {why}", self.name())))
    }
}

/// A closure that is given the payload as a value. One that cannot be read is a dead letter at
/// once: trying again would not mend it.
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
                run.give_up();
                async move { Err(error.into()) }.boxed()
            }
        }
    }
}
