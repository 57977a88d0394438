//! The reader of a request, as the closure of the host decides, with the body of the request if the decision needs it.

use crate::{
    access::{Access, Decision},
    denial::Denial,
    shared::Shared,
};
use axum::{
    body::{Body, to_bytes},
    extract::Request,
};

/// The longest body that is read for a decision, in bytes, unless an operation takes a longer one.
pub(crate) const LONGEST: usize = 1 << 20;

/// The reader of a request, and the request, which has the reader among its extensions. The body, of up to so many
/// bytes, is read only if the decision needs it; otherwise it is still to come.
pub(crate) async fn identified(
    shared: &Shared,
    request: Request,
    longest: usize,
) -> Result<(Access, Request), Denial> {
    let (mut parts, mut body) = request.into_parts();
    let access = shared.access.as_ref().ok_or(Denial::Closed)?;
    let mut decision = access(&parts);
    if let Decision::ByBody(check) = decision {
        let whole = to_bytes(body, longest).await.map_err(|_| Denial::NoBody)?;
        decision = check.decide(&whole);
        body = Body::from(whole);
    }
    let reader = match decision {
        Decision::Reader(reader) => reader,
        Decision::Refused | Decision::ByBody(_) => return Err(Denial::Refused),
        Decision::Unknown => return Err(Denial::Unknown),
        Decision::Unproven(why) => return Err(Denial::Unproven(why)),
        Decision::Busy => return Err(Denial::Busy),
    };
    parts.extensions.insert(reader.clone());
    Ok((reader, Request::from_parts(parts, body)))
}
