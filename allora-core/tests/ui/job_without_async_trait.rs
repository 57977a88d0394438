// `run` of a job type is async through `async_trait`.
use allora_core::{BoxError, Job, Run, Time};

struct Nightly;

impl Job for Nightly {
    fn next_at(&self, _: Time) -> Option<Time> {
        None
    }

    async fn run(&self, _: Run) -> Result<(), BoxError> {
        Ok(())
    }
}

fn main() {}
