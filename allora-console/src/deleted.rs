//! The jobs that were deleted and can still be brought back.

use crate::reader::Reader;
use allora_core::{
    Result,
    backend::HistoryCursor,
    record::{Change, ChangeAction, ChangeResult},
    stored::ChangeFilter,
};
use futures::{StreamExt, TryStreamExt, stream};
use std::collections::HashSet;

/// The names that are looked up at a time.
const AT_A_TIME: usize = 8;

/// A page of deletions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Deletions {
    /// The newest first, each name once. `Schedules::undo` takes one back.
    pub(crate) deletions: Vec<Change>,
    /// The place at which the next page begins; `None` after the last one. A page may be short, or empty, and have a
    /// next one, which may have an earlier deletion of a name on this one.
    pub(crate) next: Option<HistoryCursor>,
}

impl Reader {
    /// The deletions of the reader's jobs with this prefix that can be undone: the name is free, the data was small
    /// enough to be kept, and the change is still on record. One call reads at most 10 000 changes, and looks up at
    /// most `limit` names.
    ///
    /// # Errors
    /// `Unsupported` if the store keeps no changes; `Unavailable`.
    pub(crate) async fn deleted(
        &self,
        prefix: &str,
        before: Option<&HistoryCursor>,
        limit: usize,
    ) -> Result<Deletions> {
        let filter = ChangeFilter::default().prefix(prefix).actions(&[ChangeAction::Delete]);
        let page = self.changes(filter, before, limit).await?;
        let mut names = HashSet::new();
        let mut deletions = page.changes;
        deletions.retain(|change| {
            let is_kept = change.before.is_some() && !change.lacks_data;
            change.result == ChangeResult::Applied && is_kept && names.insert(change.name.clone())
        });
        let with_job = stream::iter(deletions).map(async |change| {
            let is_taken = self.is_taken(&change.name).await;
            is_taken.map(|is_taken| (!is_taken).then_some(change))
        });
        let free: Vec<Option<Change>> = with_job.buffered(AT_A_TIME).try_collect().await?;
        Ok(Deletions { deletions: free.into_iter().flatten().collect(), next: page.next })
    }
}

#[cfg(test)]
mod tests {
    use crate::{access::Access, reader::Reader};
    use allora::{Memory, Schedules, StoredSchedule, runtime::Sim};
    use allora_core::backend::Author;

    #[test]
    fn a_reader_sees_the_deletions_of_its_own_jobs_that_can_be_undone() {
        let sim = Sim::new(1);
        let store = Memory::new();
        let schedules = Schedules::on(store, sim.node()).unwrap().by(Author::new("ann"));
        sim.block_on(async {
            let large = format!("{:?}", "x".repeat(70_000));
            for (name, data) in
                [("acme/a", "1"), ("acme/b", "1"), ("acme/large", &large), ("beta/a", "1")]
            {
                let stored = StoredSchedule::new(name, "mail", "@daily");
                let stored = stored.data_bytes(data.as_bytes().to_vec());
                schedules.add(&stored).await.unwrap();
                schedules.delete(name).await.unwrap();
            }
            let again = StoredSchedule::new("acme/b", "mail", "@daily");
            schedules.add(&again).await.unwrap();
            let access = Access::reader("ann").only_prefixes(["acme/"]);
            let reader = Reader::new(schedules.clone(), access, None);
            let found = async || {
                let page = reader.deleted("", None, 10).await.unwrap();
                assert_eq!(page.next, None);
                page.deletions
            };
            let first = found().await;
            let names: Vec<&str> = first.iter().map(|change| change.name.as_str()).collect();
            assert_eq!(names, ["acme/a"]);
            schedules.delete("acme/b").await.unwrap();
            let names: Vec<String> = found().await.into_iter().map(|change| change.name).collect();
            assert_eq!(names, ["acme/b", "acme/a"]);
            assert!(reader.deleted("beta/", None, 10).await.unwrap().deletions.is_empty());
            schedules.undo(&first[0]).await.unwrap();
            assert_eq!(found().await.len(), 1);
        });
    }
}
