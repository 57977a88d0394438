//! The integration tests of the core: one binary, one module for each subject.

mod cron;
