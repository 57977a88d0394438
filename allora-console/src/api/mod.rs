//! The HTTP API, below `/v1`: one table of its operations, by which requests are answered and described.
//!
//! Names stand in the query, since they are any text and proxies fold `..` and `%2F` in paths. So all paths are fixed,
//! and a request is looked up by its path and its method.

mod bulk;
mod calendars;
mod call;
mod changes;
mod definition;
mod dispatch;
mod openapi;
mod operate;
mod operation;
mod operations;
mod params;
mod problem;
mod reads;
mod runs;
mod schedule;
mod service;
mod shown;
mod tags;
mod times;
mod token;
mod transfer;
mod work;

pub(crate) use dispatch::answer;
