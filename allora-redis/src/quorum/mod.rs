//! A quorum of independent Redis servers.

mod acceptor;
mod ballot;
mod proposer;

#[cfg(test)]
mod model;
