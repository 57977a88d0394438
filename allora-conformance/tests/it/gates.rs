//! The gates of the suite: a missing capability is declared and denied, the cases that need it are
//! not run, and a failure is reported.

use crate::{broken::Broken, defects::*};
use allora_conformance::{
    Capability, Fixture, Passed, check,
    faults::{Bare, Wrapped},
    names,
};
use allora_core::{Backend, Error, ErrorKind, Result};
use async_trait::async_trait;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

struct Declared;

#[async_trait]
impl Fixture for Declared {
    async fn set_up(_: &str) -> Result<Self> {
        Ok(Self)
    }
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        let one = Broken::<Sound>::set_up("").await?;
        Ok(Arc::new(Wrapped::around(one.connect().await?, Bare)))
    }
    fn unsupported() -> &'static [Capability] {
        &[
            Capability::Queries,
            Capability::History,
            Capability::Changes,
            Capability::Notifications,
            Capability::Durability,
        ]
    }
}

struct Undeclared;

#[async_trait]
impl Fixture for Undeclared {
    async fn set_up(_: &str) -> Result<Self> {
        Ok(Self)
    }
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Declared.connect().await
    }
}

struct TooModest(Broken<Sound>);

#[async_trait]
impl Fixture for TooModest {
    async fn set_up(namespace: &str) -> Result<Self> {
        Ok(Self(Broken::set_up(namespace).await?))
    }
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        self.0.connect().await
    }
    fn unsupported() -> &'static [Capability] {
        &[Capability::Notifications]
    }
}

const DENIED: &str = "lifecycle::unsupported_capabilities_are_denied_and_the_others_work";

#[test]
fn an_unsupported_capability_is_denied() {
    assert_eq!(check::<Declared>(DENIED), Ok(Passed::Holds));
    assert_eq!(check::<Broken<Sound>>(DENIED), Ok(Passed::Holds));
    for wrong in [check::<Undeclared>(DENIED), check::<TooModest>(DENIED)] {
        assert!(wrong.unwrap_err().contains("the backend says"));
    }
}

#[test]
fn cases_that_need_it_are_not_run() {
    let list = "stored::stored_jobs_and_jobs_in_code_are_listed_page_by_page";
    assert_eq!(check::<Declared>(list), Ok(Passed::Denied(Capability::Queries)));
    assert!(check::<Undeclared>(list).is_err());
    // Each node is a store of its own.
    let alone = "stored::an_edit_changes_only_the_generation_that_was_read";
    assert_eq!(check::<Declared>(alone), Ok(Passed::Holds));
    let run = names().filter(|name| {
        !matches!(check::<Broken<Sound>>(name), Ok(Passed::Denied(_) | Passed::Skipped(_)))
    });
    assert_eq!(run.count(), names().count(), "all of it, where nothing is lacking");
}

struct Absent;

#[async_trait]
impl Fixture for Absent {
    async fn set_up(_: &str) -> Result<Self> {
        Err(Error::new(ErrorKind::Unsupported, "no server is to be found; start one"))
    }
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        Declared.connect().await
    }
}

#[test]
fn a_store_that_is_not_here_is_skipped_with_its_reason() {
    let skipped = check::<Absent>("claim::an_occurrence_due_exactly_now_is_claimed");
    assert_eq!(skipped, Ok(Passed::Skipped("no server is to be found; start one".into())));
}

static TORN: AtomicUsize = AtomicUsize::new(0);

struct Counted(Broken<GrantsTwice>);

#[async_trait]
impl Fixture for Counted {
    async fn set_up(namespace: &str) -> Result<Self> {
        Ok(Self(Broken::set_up(namespace).await?))
    }
    async fn connect(&self) -> Result<Arc<dyn Backend>> {
        self.0.connect().await
    }
    async fn tear_down(self) -> Result<()> {
        TORN.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_failed_case_is_reported_and_its_store_removed() {
    let case = "claim::one_of_two_nodes_claims_and_the_other_receives_the_current_state";
    let message = check::<Counted>(case).unwrap_err();
    assert!(
        message.starts_with("the claim must be rejected, but it succeeded: Claimed"),
        "{message}"
    );
    assert_eq!(TORN.load(Ordering::Relaxed), 1);
}

#[test]
fn a_failed_walk_reports_its_seed_and_a_short_list() {
    if std::env::var_os("ALLORA_SEED").is_some() {
        return;
    }
    let message =
        check::<Broken<ShrinksLeases>>("model::a_random_walk_agrees_with_the_pure_functions")
            .unwrap_err();
    let lines = message.lines().count();
    assert!(message.contains("ALLORA_SEED="), "{message}");
    assert!(message.contains("Extend") && lines < 20, "{lines} lines:\n{message}");
}
