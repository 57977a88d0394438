//! The compiler errors for the most common mistakes are designed, and pinned here. All cases are built
//! in one run; most of the time is that of the dependencies, the first time.
//!
//! The texts belong to one release of the compiler: after an update of the toolchain, read the
//! new ones and accept them with `TRYBUILD=overwrite`.

#[test]
fn common_mistakes_are_named_by_the_compiler() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
