//! An account: a reader with a limit on the number of its jobs.

use crate::reader::Reader;
use allora_core::{Error, Result, stored::Filter};

/// The jobs that one request reads to count them.
const PAGE: usize = 500;

impl Reader {
    /// As [`admits_new`](Self::admits_new), for the jobs of these names that do not exist yet.
    pub(crate) async fn admits_all(&self, names: impl Iterator<Item = &str>) -> Result<()> {
        if self.access().max_jobs().is_none() {
            return Ok(());
        }
        let mut new = 0;
        for name in names {
            new += usize::from(!self.is_taken(name).await?);
        }
        self.admits_new(new).await
    }

    /// Refuses so many new jobs if more would exist for the reader than it may have. It lists the jobs that exist, up
    /// to that number. Two requests at the same time may both be let through.
    ///
    /// # Errors
    /// `Invalid`: the limit would be exceeded. `Unavailable`.
    pub(crate) async fn admits_new(&self, more: usize) -> Result<()> {
        let Some(most) = self.access().max_jobs().filter(|_| more > 0) else { return Ok(()) };
        let (mut own, mut after) = (0, None);
        while own < most {
            let page = self.list(Filter::default(), after.as_deref(), PAGE).await?;
            own += page.len();
            let is_last = page.len() < PAGE;
            after = page.into_iter().next_back().map(|last| last.name);
            if is_last {
                break;
            }
        }
        if own.saturating_add(more) <= most {
            return Ok(());
        }
        let (who, added) =
            (self.access().who(), if more == 1 { "one".into() } else { more.to_string() });
        let text = format!(
            "account {who:?} has {} of at most {most} schedules, and cannot add {added} more; delete some, or ask the \
             operator",
            own.min(most)
        );
        Err(Error::invalid(text).op("add"))
    }
}

#[cfg(test)]
mod tests {
    use crate::{access::Access, reader::Reader};
    use allora::{ErrorKind, Memory, Schedules, StoredSchedule, runtime::Sim};

    #[test]
    fn an_account_adds_jobs_up_to_its_limit_and_those_of_others_do_not_count() {
        let sim = Sim::new(1);
        let schedules = Schedules::on(Memory::new(), sim.node()).unwrap();
        sim.block_on(async {
            for name in ["acme/a", "acme/b", "beta/a", "beta/b"] {
                schedules.add(&StoredSchedule::new(name, "mail", "@daily")).await.unwrap();
            }
            for (most, more, is_admitted) in
                [(3, 1, true), (3, 2, false), (2, 1, false), (1, 1, false), (0, 0, true)]
            {
                let access = Access::reader("acme").only_prefixes(["acme/"]).with_max_jobs(most);
                let reader = Reader::new(schedules.clone(), access, None);
                let admitted = reader.admits_new(more).await;
                assert_eq!(admitted.is_ok(), is_admitted, "{more} more of {most}");
                let Err(error) = admitted else { continue };
                let says = format!("of at most {most} schedules");
                assert!(
                    error.kind() == ErrorKind::Invalid && error.to_string().contains(&says),
                    "{error}"
                );
            }
            let unlimited = Reader::new(schedules.clone(), Access::reader("ann"), None);
            unlimited.admits_new(usize::MAX).await.unwrap();
        });
    }

    #[test]
    fn a_count_goes_over_pages() {
        let sim = Sim::new(1);
        let schedules = Schedules::on(Memory::new(), sim.node()).unwrap();
        sim.block_on(async {
            let all: Vec<_> = (0..501)
                .map(|i| StoredSchedule::new(format!("acme/{i}"), "mail", "@daily"))
                .collect();
            schedules.add_all(&all).await.unwrap();
            let with = |most| {
                let access = Access::reader("acme").only_prefixes(["acme/"]).with_max_jobs(most);
                Reader::new(schedules.clone(), access, None)
            };
            with(502).admits_new(1).await.unwrap();
            with(501).admits_new(1).await.unwrap_err();
        });
    }
}
