//! Servers that are killed, frozen, emptied and cut off under two nodes: what the nodes wrote down is
//! judged by the history checker.

mod cut;
mod hang;
mod node;
mod outage;
mod topology;
