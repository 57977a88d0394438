//! The reading of a request: its parameters, its zone, and its reader.

use crate::{
    access::Access, context::Context, failure::Failure, params::Params, shared::Shared, times::Zone,
};
use allora_core::Time;
use axum::{extract::FromRequestParts, http::request::Parts};
use std::sync::Arc;

/// A request for a page, by a reader who may have it.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) params: Params,
    pub(crate) access: Access,
    zone: Zone,
}

impl Ask {
    /// The values that the views of this request share.
    pub(crate) fn context(&self, now: Time) -> Context {
        Context {
            now,
            zone: self.zone.clone(),
            asked_zone: self.params.get("zone").to_owned(),
            sees_data: self.access.sees_data(),
        }
    }
}

impl FromRequestParts<Arc<Shared>> for Ask {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Shared>) -> Result<Self, Failure> {
        let query = parts.uri.query().unwrap_or_default();
        let params = Params::read(query).map_err(Failure::bad_address)?;
        let zone = match params.some("zone") {
            Some(zone) => Zone::named(zone).map_err(Failure::bad_address)?,
            None => Zone::utc(),
        };
        // The guard has put it there, before any page is asked.
        let access = parts.extensions.get::<Access>().cloned().ok_or_else(Failure::no_access)?;
        Ok(Self { params, access, zone })
    }
}
