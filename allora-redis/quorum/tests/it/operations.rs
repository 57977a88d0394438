//! Batches of different operations, and records that cannot be read.

use super::{ask, ask_one, join, read, register, runtime, servers, t, urls};
use allora_core::{
    ErrorKind, Result,
    backend::{Action, Completion, Cursor, NewSchedule, Operation, Reply},
};
use std::time::Duration;

fn create(name: &str) -> Operation<'_> {
    Operation::new(name, Action::Create(NewSchedule::new("kind", "every 1m", None)))
}

fn kind(reply: &Result<Reply>) -> Option<ErrorKind> {
    reply.as_ref().err().map(allora_core::Error::kind)
}

#[test]
fn operations_of_one_batch_are_applied_each_alone_and_those_of_one_name_in_their_order() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let node = join(&urls(&servers), "allora").await;
        let long = "x".repeat(100_000);
        let trigger = Action::trigger("now");
        let operations = [
            create("a"),
            Operation::read(&long),
            Operation::new("nothing", Action::Delete),
            Operation::new("a", trigger),
            create(&long),
            Operation::read("b"),
            create("a"),
            Operation::new("a", Action::Delete),
            Operation::read("a"),
        ];
        let replies = ask(&node, "n", &operations, t(0)).await.unwrap().replies;
        let errors: Vec<Option<ErrorKind>> = replies.iter().map(kind).collect();
        let (none, missing, taken) =
            (None, Some(ErrorKind::NotFound), Some(ErrorKind::AlreadyExists));
        let invalid = Some(ErrorKind::Invalid);
        assert_eq!(errors, [none, none, missing, none, invalid, none, taken, none, none]);
        let mut fine: Vec<Reply> = replies.into_iter().flatten().collect();
        assert_eq!(fine.split_off(3), [Reply::Absent, Reply::Deleted, Reply::Deleted]);
        let triggered = fine.pop().and_then(Reply::state).unwrap();
        assert_eq!(triggered.head.unwrap().trigger.as_deref(), Some("now"));
        assert_eq!(fine.pop(), Some(Reply::Absent));
        assert!(matches!(fine.pop(), Some(Reply::State(state)) if state.head.is_none()));
    });
}

#[test]
fn a_record_that_cannot_be_read_stays_until_it_is_deleted() {
    runtime().block_on(async {
        let Some(servers) = servers(3).await else { return };
        let urls = urls(&servers);
        let node = join(&urls, "allora").await;
        let before = register(&node, "job", 60).await;
        for url in &urls {
            let client = redis::Client::open(url.as_str()).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let mut get = redis::cmd("HGET");
            get.arg("allora:quorum").arg("a:job");
            // The third server gets the write after the reply.
            let accepted = loop {
                let accepted: Vec<u8> = get.query_async(&mut connection).await.unwrap();
                if !accepted.is_empty() {
                    break accepted;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            };
            // The digits of its ballot stay.
            let garbled = [&accepted[..40], b"from another version"].concat();
            let mut set = redis::cmd("HSET");
            set.arg("allora:quorum").arg("a:job").arg(garbled);
            set.exec_async(&mut connection).await.unwrap();
        }
        assert!(read(&node, "job").await.unreadable.is_some());
        let complete = Operation::complete("job", 1, Cursor::Keep, Completion::Succeeded);
        assert_eq!(ask_one(&node, "n", complete, t(0)).await.unwrap(), Reply::LeaseLost);
        let pause = Operation::new("job", Action::Pause { note: "", until: None });
        let refused = ask_one(&node, "n", pause, t(0)).await;
        assert_eq!(kind(&refused), Some(ErrorKind::Other), "{refused:?}");
        assert!(read(&node, "job").await.unreadable.is_some());
        let delete = Operation::new("job", Action::Delete);
        assert_eq!(ask_one(&node, "n", delete, t(1)).await.unwrap(), Reply::Deleted);
        let after = ask_one(&node, "n", create("job"), t(1)).await.unwrap().state().unwrap();
        assert!(after.fence > before.fence && after.unreadable.is_none(), "{after:?}");
    });
}
