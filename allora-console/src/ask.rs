//! The reading of a request: its parameters, its zone, and its reader.

use crate::{
    access::{Access, Scope},
    context::Context,
    denial::Denial,
    failure::Failure,
    params::Params,
    reader::Reader,
    shared::Shared,
    times::Zone,
};
use allora_core::Time;
use axum::{extract::FromRequestParts, http::request::Parts};
use std::sync::Arc;

/// A request for a page, by a reader who may have it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) params: Params,
    /// The store, as the reader may see it.
    pub(crate) reader: Reader,
    allows_actions: bool,
    zone: Zone,
}

impl Ask {
    /// The same request with these parameters, which have come as a form.
    ///
    /// # Errors
    /// The zone does not exist.
    pub(crate) fn with_form(mut self, params: Params) -> Result<Self, Failure> {
        (self.zone, self.params) = (zone(&params)?, params);
        Ok(self)
    }

    /// The values that the views of this request share.
    pub(crate) fn context(&self, now: Time) -> Context {
        let access = self.reader.access();
        Context {
            now,
            zone: self.zone.clone(),
            asked_zone: self.params.get("zone").to_owned(),
            sees_data: access.sees_data(),
            is_limited: access.is_limited(),
            may_run: self.may(Scope::Run),
            may_edit: self.may(Scope::Edit),
        }
    }

    /// `true` if the reader may act in this scope here.
    fn may(&self, scope: Scope) -> bool {
        self.allows_actions && self.reader.access().may(scope)
    }
}

fn zone(params: &Params) -> Result<Zone, Failure> {
    match params.some("zone") {
        Some(zone) => Zone::named(zone).map_err(Failure::bad_address),
        None => Ok(Zone::utc()),
    }
}

impl FromRequestParts<Arc<Shared>> for Ask {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Self, Failure> {
        let query = parts.uri.query().unwrap_or_default();
        let params = Params::read(query).map_err(Failure::bad_address)?;
        let zone = zone(&params)?;
        // The guard has put it there, before any page is asked.
        let access = parts.extensions.get::<Access>().cloned().ok_or(Denial::Refused)?;
        let reader = shared.reader(access);
        Ok(Self { params, reader, allows_actions: shared.allows_actions, zone })
    }
}
