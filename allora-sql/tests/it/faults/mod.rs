//! Nodes and servers that are killed, frozen and cut off: what they wrote down is judged by the
//! history checker.

mod cut;
mod frozen;
mod full;
mod kill;
mod node;
mod outage;
mod packets;
mod pooler;
mod read_only;
mod server;
mod settings;
mod silence;
mod tls;
