//! Servers that are killed, frozen, emptied and cut off under two nodes: what the nodes wrote down is
//! judged by the history checker.

mod cut;
mod fleet;
mod outage;
mod topology;
