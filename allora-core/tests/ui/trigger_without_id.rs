// A trigger has an id, so that a repeated call triggers nothing twice.
use allora_core::{Handle, Result};

async fn now(handle: &Handle) -> Result {
    handle.trigger("report").await?;
    Ok(())
}

fn main() {}
