//! Jobs made of definitions, by the text of the definition: many schedules share one, and each claim by
//! a query needs it.

use crate::job::JobSpec;
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// The most definitions. If there are more, the cache begins again.
const MOST: usize = 256;

/// The jobs of one handler. A clone shares them.
#[derive(Clone, Default)]
pub(super) struct SpecCache {
    specs: Arc<Mutex<HashMap<Box<str>, JobSpec>>>,
}

impl SpecCache {
    /// The job of a definition, without a kind and data.
    pub(super) fn get(&self, definition: &str) -> Option<JobSpec> {
        self.specs().get(definition).cloned()
    }

    /// Keeps a job for all schedules with this definition, unless its times may depend on more than the
    /// text: by an `H` on the name, by a named calendar on the store.
    pub(super) fn put(&self, definition: &str, spec: &JobSpec) {
        if definition.contains('H') || definition.contains("calendar:") {
            return;
        }
        let mut specs = self.specs();
        if specs.len() >= MOST {
            specs.clear();
        }
        specs.insert(definition.into(), spec.clone());
    }

    /// Nothing panics under the lock.
    fn specs(&self) -> MutexGuard<'_, HashMap<Box<str>, JobSpec>> {
        self.specs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SpecCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SpecCache").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backend::JobState,
        run::Run,
        stored::{
            Definition,
            route::{Resolved, Routed, Router},
        },
    };

    fn routed(router: &Router, name: &str, definition: &str, data: &[u8]) -> JobSpec {
        let mut state = JobState::empty(name);
        state.kind = "mail".to_owned();
        state.definition = definition.to_owned();
        state.data = data.to_vec();
        match router.route(&state, |definition| Resolved::Ready(Box::new(definition))) {
            Routed::Here(spec) => spec,
            _ => panic!("{definition} is not run"),
        }
    }

    fn router() -> Router {
        let mut router = Router::default();
        router.add("mail".into(), async |_: Run| {});
        router
    }

    #[test]
    fn schedules_with_one_definition_share_its_job_and_keep_their_data() {
        let router = router();
        let specs = [("one", b"1"), ("two", b"2")]
            .map(|(name, data)| routed(&router, name, "@every 5m; delay 3s", data));
        assert!(Arc::ptr_eq(&specs[0].job, &specs[1].job));
        let data = specs.map(|spec| spec.payload.unwrap().data.to_vec());
        assert_eq!(data, [b"1", b"2"]);
    }

    #[test]
    fn a_definition_with_times_by_name_is_not_shared() {
        let router = router();
        let specs = ["one", "two"].map(|name| routed(&router, name, "H H * * *", b""));
        let own = ["one", "two"].map(|name| Definition::parse(name, "H H * * *").unwrap().bare());
        for (spec, own) in specs.iter().zip(&own) {
            assert_eq!(spec.definition(), own.definition());
        }
        assert_ne!(specs[0].definition(), specs[1].definition());
    }

    #[test]
    fn a_definition_with_a_named_calendar_is_resolved_each_time() {
        let (cache, spec) = (SpecCache::default(), routed(&router(), "one", "@every 5m", b""));
        cache.put("@every 5m; except calendar:holidays", &spec);
        assert!(cache.get("@every 5m; except calendar:holidays").is_none());
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let (router, cache) = (router(), SpecCache::default());
        let spec = routed(&router, "one", "@every 5m", b"");
        (0..10 * MOST).for_each(|i| cache.put(&i.to_string(), &spec));
        assert!(cache.specs().len() <= MOST);
        assert!(cache.get("2559").is_some() && cache.get("0").is_none());
    }
}
