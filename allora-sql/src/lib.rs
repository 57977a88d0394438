//! allora on SQL.
