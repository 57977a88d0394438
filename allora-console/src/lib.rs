//! The console of allora, as an axum router: start at [`Console`].
//!
//! [allora]: ../allora/index.html
//!
// README links to the same page as a file; the first definition of a link counts.
#![doc = include_str!("../README.md")]

mod access;
mod actions;
mod api;
mod ask;
mod assets;
mod console;
mod context;
mod entries;
mod events;
mod failure;
mod gateway;
mod headers;
mod kept;
mod links;
mod look;
mod origin;
mod overview;
mod pages;
mod params;
mod reader;
mod shared;
mod times;
#[cfg(feature = "tokens")]
mod tokens;
mod words;

pub use access::{Access, Decision, Scope};
pub use console::Console;
pub use gateway::Gateway;
#[cfg(feature = "tokens")]
pub use tokens::{NewToken, TokenLine, Tokens};
