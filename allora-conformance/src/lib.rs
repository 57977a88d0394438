//! One contract, one suite: what every allora backend must prove.
mod cases;
mod fixture;
pub mod history;
mod random;
pub mod reference;
mod suite;
mod walk;
mod world;

pub use fixture::{Capability, Fixture};
pub use suite::{Passed, check, names, run};

/// Stamps a named test for each case.
#[macro_export]
macro_rules! suite {
    ($fixture:ty) => {
        #[doc(hidden)]
        type ConformanceFixture = $fixture;
        $crate::__cases!(__stamp);
    };
}

/// Makes the tests of the list.
#[doc(hidden)]
#[macro_export]
macro_rules! __stamp {
    ([] $($file:ident { $($case:ident: [$($need:ident),*];)* })*) => {
        $(mod $file {
            $(#[test]
            fn $case() {
                $crate::run::<super::ConformanceFixture>(
                    concat!(stringify!($file), "::", stringify!($case)),
                );
            })*
        })*
    };
}
