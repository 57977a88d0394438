// `stop` returns at once; the end is that of `run`.
use allora_core::Handle;

async fn end(handle: Handle) {
    handle.stop().await;
}

fn main() {}
