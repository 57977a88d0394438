//! The entry of a change by a client: decided with the change, and made of the record before and after.

use super::{
    HistoryBuffer, OpContext, Record,
    change::{Change, ChangeAction, ChangeResult, MAX_CHANGE_DATA},
    complete::bounded,
};
use crate::{
    backend::{Action, Author, Operation, Reply},
    error::Result,
    time::whole_millis,
};

/// The function that decides an operation.
type Decide =
    fn(&mut Option<Record>, &Operation<'_>, OpContext<'_>, &mut HistoryBuffer) -> Result<Reply>;

/// Applies an operation with an author, and notes the change.
pub(super) fn noted(
    record: &mut Option<Record>,
    operation: &Operation<'_>,
    author: &Author,
    context: OpContext<'_>,
    history: &mut HistoryBuffer,
    decide: Decide,
) -> Result<Reply> {
    let Some((action, detail)) = ChangeAction::of(&operation.action) else {
        return decide(record, operation, context, history);
    };
    author.check()?;
    // Before the decision, whose reply shows the record as it is written.
    let is_creation = action == ChangeAction::Create;
    let drawn = record.as_mut().filter(|record| record.is_live() && !is_creation);
    let drawn = drawn.map(|record| record.draw_fence(context.now));
    let before = record.clone();
    let reply = decide(record, operation, context, history);
    let result = match &reply {
        Err(error) => ChangeResult::Refused(bounded(&error.to_string())),
        Ok(_) if *record == before => ChangeResult::Unchanged,
        Ok(_) => ChangeResult::Applied,
    };
    let is_applied = result == ChangeResult::Applied;
    let created = record.as_ref().filter(|_| is_applied).map(|record| record.fence);
    // A refused creation, or a refused operation on a name without a job.
    let Some(sequence) = drawn.or(created) else { return reply };
    let shown = |record: &Option<Record>| record.clone().filter(|it| is_applied && it.is_live());
    let (mut before, mut after) = (shown(&before), shown(record));
    if let (Some(before), Some(after)) = (&mut before, &mut after) {
        leave_out_equal(before, after);
    }
    let is_large = |record: &Record| record.data.len() > MAX_CHANGE_DATA;
    let lacks_data = [&before, &after].into_iter().flatten().any(is_large);
    let [before, after] = [before, after].map(|record| record.map(|it| Box::new(kept(it))));
    let mut author = author.clone();
    if let (true, Action::Pause { note, .. }) = (author.note.is_empty(), &operation.action) {
        author.note = bounded(note);
    }
    let (name, at) = (operation.name.to_owned(), whole_millis(context.now));
    history.note(Change {
        name,
        sequence,
        at,
        author,
        action,
        detail,
        before,
        after,
        lacks_data,
        result,
    });
    reply
}

/// The parts of a record that a change keeps.
fn kept(record: Record) -> Record {
    let has_room = record.data.len() <= MAX_CHANGE_DATA;
    Record {
        kind: record.kind,
        definition: record.definition,
        version: record.version,
        incarnation: record.incarnation,
        generation: record.generation,
        data: if has_room { record.data } else { Vec::new() },
        cursor: record.cursor,
        last_started: record.last_started,
        fence: record.fence,
        dead: record.dead,
        paused: record.paused,
        counters: record.counters,
        ..Record::default()
    }
}

/// Empties what is large and the same on both sides.
fn leave_out_equal(before: &mut Record, after: &mut Record) {
    if before.definition == after.definition {
        (before.definition, after.definition) = Default::default();
    }
    if before.data == after.data {
        (before.data, after.data) = Default::default();
    }
    if before.counters == after.counters {
        (before.counters, after.counters) = Default::default();
    }
    let was = std::mem::take(&mut before.dead);
    before.dead = was.iter().filter(|letter| !after.dead.contains(letter)).cloned().collect();
    after.dead.retain(|letter| !was.contains(letter));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::{Edit, Lease, NewSchedule, OnExpiry, Replan},
        error::ErrorKind,
        record::{MAX_NOTE, PendingRetry, apply},
        time::from_millis,
    };

    /// A job on which changes are made, one in each second.
    struct World {
        record: Option<Record>,
        history: HistoryBuffer,
        second: i64,
    }

    impl World {
        fn new() -> Self {
            Self { record: None, history: HistoryBuffer::off(), second: 0 }
        }

        fn by(&mut self, author: &Author, action: Action<'_>) -> Result<Reply> {
            self.second += 1;
            let context = OpContext::new("operator", from_millis(self.second * 1_000).unwrap());
            let operation = Operation::new("job", action).by(Some(author));
            apply(&mut self.record, &operation, context, &mut self.history)
        }

        fn ann(&mut self, action: Action<'_>) -> Result<Reply> {
            self.by(&Author::new("ann").via("console"), action)
        }

        /// The only entry since the last call.
        fn noted(&mut self) -> Change {
            let mut changes = self.history.take_changes();
            assert_eq!(changes.len(), 1, "{changes:?}");
            changes.remove(0)
        }

        fn created(data: &[u8]) -> Self {
            let mut world = Self::new();
            let new = NewSchedule::new("mail", "every 60s", None).data(data);
            world.ann(Action::Create(new)).unwrap();
            world.noted();
            world
        }

        fn record(&mut self) -> &mut Record {
            self.record.as_mut().unwrap()
        }
    }

    #[test]
    fn a_change_says_who_by_which_way_what_and_when() {
        let mut world = World::created(b"");
        let last_started = from_millis(1_000);
        world.record().last_started = last_started;
        world.ann(Action::Pause { note: "the mail server is down", until: None }).unwrap();
        let change = world.noted();
        assert_eq!((&*change.name, change.action), ("job", ChangeAction::Pause));
        assert_eq!((&*change.author.actor, &*change.author.via), ("ann", "console"));
        assert_eq!(change.author.note, "the mail server is down");
        assert_eq!((change.at, change.sequence), (from_millis(2_000).unwrap(), 2_000_000));
        assert_eq!(change.result, ChangeResult::Applied);
        let [before, after] = [change.before, change.after].map(Option::unwrap);
        assert_eq!([before.last_started, after.last_started], [last_started; 2]);
        assert_eq!(before.paused, None);
        assert_eq!(after.paused.unwrap().note, "the mail server is down");
    }

    #[test]
    fn the_reply_shows_the_record_as_it_is_written() {
        let mut world = World::created(b"");
        let reply = world.ann(Action::Resume).unwrap();
        assert_eq!(reply.state(), Some(world.record().state("job")));
    }

    #[test]
    fn without_an_author_nothing_is_noted_and_no_fence_is_drawn() {
        let mut world = World::created(b"");
        let fence = world.record().fence;
        let context = OpContext::new("operator", from_millis(9_000).unwrap());
        let pause = Operation::new("job", Action::Pause { note: "", until: None });
        apply(&mut world.record, &pause, context, &mut world.history).unwrap();
        assert_eq!(world.history.take_changes(), []);
        assert_eq!(world.record().fence, fence);
    }

    #[test]
    fn a_read_and_what_nodes_do_are_no_changes() {
        let mut world = World::created(b"");
        let before = world.record.clone();
        world.ann(Action::Read).unwrap();
        world.ann(Action::Reap).unwrap();
        assert_eq!((world.history.take_changes(), &world.record), (vec![], &before));
    }

    #[test]
    fn a_refused_change_and_one_that_changes_nothing_are_noted() {
        let mut world = World::created(b"");
        let error = world.ann(Action::Modify(Edit::of(7))).unwrap_err();
        let refused = world.noted();
        assert_eq!(refused.result, ChangeResult::Refused(error.to_string()));
        assert_eq!((refused.before, refused.after), (None, None));
        world.ann(Action::Resume).unwrap();
        let unchanged = world.noted();
        assert_eq!(unchanged.result, ChangeResult::Unchanged);
        assert!(unchanged.sequence > refused.sequence);
    }

    #[test]
    fn a_pause_that_ended_by_itself_was_ended_by_no_author() {
        let paused = || {
            let mut world = World::created(b"");
            let until = from_millis(3_500);
            world.ann(Action::Pause { note: "", until }).unwrap();
            assert_eq!(world.noted().detail, "until 1970-01-01T00:00:03.500Z");
            world.second = 10;
            world
        };
        let mut world = paused();
        world.ann(Action::Resume).unwrap();
        assert_eq!(
            (world.noted().result, &world.record().paused),
            (ChangeResult::Unchanged, &None)
        );
        let mut world = paused();
        let generation = world.record().generation;
        world.ann(Action::Modify(Edit { data: Some(b"x"), ..Edit::of(generation) })).unwrap();
        let change = world.noted();
        assert_eq!((change.before.unwrap().paused, change.after.unwrap().paused), (None, None));
        let mut world = paused();
        world.ann(Action::Modify(Edit::of(7))).unwrap_err();
        let kept = world.record().paused.clone();
        assert_eq!((world.noted().before, kept.unwrap().until), (None, from_millis(3_500)));
    }

    #[test]
    fn a_name_without_a_job_is_left_as_it_is() {
        let mut world = World::new();
        for _ in 0..2 {
            let error = world.ann(Action::Delete).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotFound);
            assert_eq!(world.history.take_changes(), []);
            let before = world.record.clone();
            world.ann(Action::Create(NewSchedule::new("", "d", None))).unwrap_err();
            assert_eq!((world.history.take_changes(), &world.record), (vec![], &before));
            // The same with a tombstone.
            world = World::created(b"");
            world.ann(Action::Delete).unwrap();
            world.noted();
        }
    }

    #[test]
    fn a_creation_under_a_taken_name_is_no_change_of_its_job() {
        let mut world = World::created(b"");
        let before = world.record.clone();
        let error = world.ann(Action::Create(NewSchedule::new("mail", "d", None))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyExists);
        assert_eq!((world.history.take_changes(), &world.record), (vec![], &before));
    }

    #[test]
    fn what_an_edit_leaves_as_it_was_is_not_kept() {
        let mut world = World::created(b"data");
        let generation = world.record().generation;
        world.ann(Action::Modify(Edit { data: Some(b"other"), ..Edit::of(generation) })).unwrap();
        let change = world.noted();
        let [before, after] = [change.before, change.after].map(Option::unwrap);
        assert_eq!((&*before.definition, &*after.definition), ("", ""));
        assert_eq!((&*before.data, &*after.data), (&b"data"[..], &b"other"[..]));
        assert_eq!((before.generation, after.generation), (generation, world.record().generation));
        let definition = Some(("every 90s", Replan::default()));
        let edit = Edit { definition, ..Edit::of(world.record().generation) };
        world.ann(Action::Modify(edit)).unwrap();
        let change = world.noted();
        let [before, after] = [change.before, change.after].map(Option::unwrap);
        assert_eq!((&*before.definition, &*after.definition), ("every 60s", "every 90s"));
        assert_eq!((&*before.data, &*after.data), (&b""[..], &b""[..]));
    }

    #[test]
    fn a_deletion_keeps_the_progress_and_no_run() {
        let mut world = World::created(b"data");
        let at = from_millis(5).unwrap();
        let record = world.record();
        record.counters.started = 3;
        record.leases.push(Lease::new("n", 1, 9, at.into(), at, OnExpiry::Retry));
        record.retries.push(PendingRetry { occurrence: at.into(), attempts: 1, not_before: at });
        world.ann(Action::Delete).unwrap();
        let change = world.noted();
        let before = change.before.unwrap();
        assert_eq!((before.counters.started, &*before.data), (3, &b"data"[..]));
        assert_eq!((before.leases.len(), before.retries.len()), (0, 0));
        assert_eq!(change.after, None);
        assert!(change.sequence < world.record().fence);
    }

    #[test]
    fn large_data_is_left_out_only_where_it_would_have_to_be_kept() {
        let large = vec![b'x'; MAX_CHANGE_DATA + 1];
        let mut world = World::created(&large);
        world.ann(Action::Pause { note: "", until: None }).unwrap();
        assert!(!world.noted().lacks_data, "it is the same before and after");
        let generation = world.record().generation;
        world.ann(Action::Modify(Edit { data: Some(b""), ..Edit::of(generation) })).unwrap();
        let change = world.noted();
        assert!(change.lacks_data);
        assert_eq!(change.before.unwrap().data.len(), 0);
        let mut world = World::created(&large[1..]);
        world.ann(Action::Delete).unwrap();
        let change = world.noted();
        assert!(!change.lacks_data);
        assert_eq!(change.before.unwrap().data.len(), MAX_CHANGE_DATA);
    }

    #[test]
    fn sequences_grow_through_deletion_and_when_the_clock_is_set_back() {
        let mut world = World::created(b"");
        let mut last = 0;
        for turn in 0..3 {
            world.second -= 2;
            world.ann(Action::Pause { note: "", until: None }).unwrap();
            world.ann(Action::Delete).unwrap();
            world.ann(Action::Create(NewSchedule::new("mail", "d", None))).unwrap();
            for change in world.history.take_changes() {
                assert!(change.sequence > last, "turn {turn}: {change:?}");
                last = change.sequence;
            }
        }
    }

    #[test]
    fn a_bad_author_changes_nothing() {
        let mut world = World::created(b"");
        let before = world.record.clone();
        for (author, says) in [
            (Author::new(""), "actor"),
            (Author::new("ann\n"), "actor"),
            (Author::new("ann").via("\u{202e}"), "way"),
            (Author::new("ann").note("x".repeat(MAX_NOTE + 1)), "note"),
        ] {
            let error = world.by(&author, Action::Delete).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains(says), "{error}");
            assert_eq!((world.history.take_changes(), &world.record), (vec![], &before));
        }
    }

    #[test]
    fn a_record_keeps_the_last_changes_and_does_not_outgrow_its_store() {
        let mut world = World::created(b"");
        let mut kept = Record::default();
        for _ in 0..30 {
            world.ann(Action::Pause { note: "", until: None }).unwrap();
            kept.keep_changes(vec![world.noted()]);
        }
        let last = kept.changes.last().cloned();
        assert_eq!((kept.changes.len(), &kept.changes[19].cursor()), (20, &last.unwrap().cursor()));
        for byte in 0..10 {
            let data = [byte; MAX_CHANGE_DATA];
            let edit = Edit { data: Some(&data), ..Edit::of(world.record().generation) };
            world.ann(Action::Modify(edit)).unwrap();
            kept.keep_changes(vec![world.noted()]);
        }
        // Each has the data before and after; a size counts the digits of bytes that are no text.
        assert_eq!(kept.changes.len(), 1);
        assert_eq!(kept.changes[0].after.as_ref().unwrap().data[0], 9);
    }

    #[test]
    fn words_are_read_back() {
        for action in ChangeAction::ALL {
            assert_eq!(ChangeAction::from_word(action.word()), Some(action));
        }
        let refused = ChangeResult::Refused("why".to_owned());
        for result in [ChangeResult::Applied, ChangeResult::Unchanged, refused] {
            assert_eq!(ChangeResult::from_word(result.word(), result.error()), Some(result));
        }
    }
}
