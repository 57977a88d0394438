//! The cases: one sentence each, in files by subject.

mod at_most_once;
mod breaker;
mod cancel;
mod chains;
mod changes;
mod claim;
mod contention;
mod due_claims;
mod durability;
mod emptied;
mod entries;
mod flags;
mod history;
mod keys;
mod lease;
mod lifecycle;
mod list;
mod model;
mod names;
mod notifications;
mod operators;
mod pauses;
mod redefine;
mod results;
mod stored;
mod triggers;
mod works_on;

use crate::{Capability, cluster::Cluster};
use futures::future::LocalBoxFuture;
use std::fmt;

/// One case.
pub(crate) struct Case {
    /// `file::sentence`.
    pub(crate) name: &'static str,
    /// The capabilities that the case needs from the store.
    pub(crate) needs: &'static [Capability],
    pub(crate) body: for<'a> fn(&'a Cluster) -> LocalBoxFuture<'a, ()>,
}

impl fmt::Debug for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Case").field(&self.name).finish()
    }
}

/// Makes the table of the list.
#[doc(hidden)]
#[macro_export]
macro_rules! __table {
    ([] $($file:ident { $($case:ident: [$($need:ident),*];)* })*) => {
        pub(crate) static CASES: &[Case] = &[$($(
            Case {
                name: concat!(stringify!($file), "::", stringify!($case)),
                needs: &[$(Capability::$need),*],
                body: |world| Box::pin($file::$case(world)),
            },
        )*)*];
    };
}

crate::__cases!(__table);
