//! The history checker.
