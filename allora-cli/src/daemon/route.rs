//! The code that runs the daemon's kinds of stored schedules.

use super::{context::CommandContext, process::execute};
use crate::kinds::{self, COMMAND, HTTP, command, http};
use allora_core::{BoxError, Pattern, Run, SchedulerBuilder};
use std::sync::Arc;

/// Has the scheduler run these kinds, and those for nodes with the labels of this node.
pub(super) fn route(
    mut builder: SchedulerBuilder,
    kinds: &[String],
    labels: &[String],
    context: &Arc<CommandContext>,
) -> SchedulerBuilder {
    let has = |kind: &str| kinds.iter().any(|one| one == kind);
    if has(COMMAND) {
        let context = context.clone();
        let pattern = Pattern::labelled(COMMAND, labels);
        builder = builder.kind(pattern, async move |run: Run| -> Result<(), BoxError> {
            let work = kinds::read(&run, command::work, context.secrets.as_deref())?;
            execute(Arc::new(work), run, context).await
        });
    }
    if has(HTTP) {
        let (client, context) = (Arc::new(http::Client::new()), context.clone());
        let pattern = Pattern::labelled(HTTP, labels);
        builder = builder.kind(pattern, async move |run: Run| -> Result<(), BoxError> {
            let request = kinds::read(&run, http::request, context.secrets.as_deref())?;
            client.deliver(request, &run).await
        });
    }
    builder
}
