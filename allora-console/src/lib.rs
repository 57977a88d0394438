//! The console of allora: pages that show what runs, what does not, and why.
//!
//! [`Console`] is an axum [`Router`](axum::Router) that a service mounts, or that a program serves by
//! itself. Its pages are HTML, made on the server; they work without JavaScript, load nothing from
//! elsewhere, and only read.
//!
//! ```
//! use allora::{Memory, Schedules};
//! use allora_console::{Access, Console};
//! use axum::Router;
//!
//! # fn main() -> allora::Result {
//! # let sim = allora::runtime::Sim::new(1);
//! let schedules = Schedules::on(Memory::new(), sim.node())?;
//! let console = Console::new(schedules)
//!     .title("billing")
//!     // The service has authenticated the request before; here it says who may read.
//!     .access(|request| {
//!         let user = request.headers.get("x-user")?.to_str().ok()?;
//!         Some(Access::reader(user))
//!     });
//! let service: Router = Router::new().nest_service("/ops/allora", console.into_router());
//! # drop(service);
//! # Ok(())
//! # }
//! ```
//!
//! # Who may read it?
//! Nobody, until [`Console::access`] is set: without it, every page answers 403 and says so.
//!
//! # Does it work below a path, behind a proxy?
//! Yes. Every link is relative, so neither the router nor the proxy needs to know the path. Mount it with
//! `nest_service`, which serves the path with and without a slash at its end; `nest` refuses the one with
//! the slash, to which the console redirects.
//!
//! # What does a page cost the store?
//! A handful of requests. *Now* reads the list of the jobs, at most 10,000 of them.

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
