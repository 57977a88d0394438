//! The console of allora, as an axum router: start at [`Console`].
//!
//! [allora]: ../allora/index.html
//!
// README links to the same page as a file; the first definition of a link counts.
#![doc = include_str!("../README.md")]

mod access;
mod account;
mod actions;
mod api;
mod ask;
mod assets;
mod console;
mod context;
mod deleted;
mod denial;
mod entries;
mod events;
mod failure;
mod gateway;
mod headers;
mod identify;
mod kept;
mod links;
mod look;
mod origin;
mod overview;
mod pages;
mod params;
mod reader;
#[cfg(feature = "tokens")]
mod replays;
mod shared;
#[cfg(feature = "tokens")]
mod signature;
mod times;
#[cfg(feature = "tokens")]
mod token_line;
#[cfg(feature = "tokens")]
mod tokens;
mod words;

pub use access::{Access, BodyCheck, Decision, Scope};
pub use console::Console;
pub use gateway::Gateway;
#[cfg(feature = "tokens")]
pub use {
    signature::SigningKey,
    token_line::TokenLine,
    tokens::{NewToken, Tokens},
};
