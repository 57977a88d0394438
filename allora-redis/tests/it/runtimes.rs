//! Redis works from every runtime, however it is run.

use crate::stores::Kind;

allora_conformance::two_nodes_on_every_runtime! {
    one: Kind::One.place();
    cluster: Kind::Cluster.place();
    sentinel: Kind::Sentinel.place();
}
