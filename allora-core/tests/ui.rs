//! The compiler errors for the most common mistakes with closures are designed, and pinned here.
//!
//! The texts belong to one release of the compiler: after an update of the toolchain, read the
//! new ones and accept them with `TRYBUILD=overwrite`.

#[test]
fn common_mistakes_with_closures_are_named_by_the_compiler() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
