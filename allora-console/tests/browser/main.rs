//! The pages in a real browser.

#![allow(clippy::unwrap_used, reason = "a test that unwraps says where")]
#![expect(clippy::disallowed_methods, reason = "a browser is waited for by the clock")]

mod browser;
mod forms;
mod live;
mod looks;
mod mounted;
mod names;
mod served;
#[path = "../../examples/shop/weekend.rs"]
mod weekend;

use browser::{Browser, LOOKS, Look};
use served::{RUNTIME, Served, console_of};
