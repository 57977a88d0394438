//! The console of allora, as an axum router: start at [`Console`].
//!
//! [allora]: ../allora/index.html
//!
// README links to the same page as a file; the first definition of a link counts.
#![doc = include_str!("../README.md")]

mod access;
mod ask;
mod assets;
mod console;
mod context;
mod failure;
mod headers;
mod links;
mod look;
mod overview;
mod pages;
mod params;
mod shared;
mod times;
mod words;

pub use access::Access;
pub use console::Console;
