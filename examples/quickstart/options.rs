//! The command line.

use allora::BoxError;
use std::time::Duration;

pub(crate) struct Options {
    /// `memory`, or the URL of a database.
    pub(crate) store: String,
    seconds: Option<Duration>,
}

const USAGE: &str = "usage: quickstart [--seconds N] [--store memory | sqlite[:FILE]]";

pub(crate) fn read(mut args: impl Iterator<Item = String>) -> Result<Options, BoxError> {
    let mut options = Options { store: "memory".into(), seconds: None };
    while let Some(arg) = args.next() {
        let value = args.next().ok_or(USAGE)?;
        match arg.as_str() {
            "--seconds" => options.seconds = Some(Duration::from_secs(value.parse()?)),
            "--store" => options.store = value,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(options)
}

impl Options {
    /// Ready at Ctrl-C, or when the time is over.
    pub(crate) async fn end(self) {
        let interrupt = tokio::signal::ctrl_c();
        match self.seconds {
            Some(seconds) => _ = tokio::time::timeout(seconds, interrupt).await,
            None => _ = interrupt.await,
        }
    }
}
