//! A random walk.
use crate::world::World;
pub(super) async fn a_random_walk_agrees_with_the_pure_functions(_w: &World) {}
pub(super) async fn a_random_walk_at_most_once_agrees_with_the_pure_functions(_w: &World) {}
