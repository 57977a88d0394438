//! The console as the command serves it: for browsers on this machine, and only to read.

use allora_console::{Access, Console};
use axum::{
    Router,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use std::{net::IpAddr, sync::Arc, time::Duration};
use tokio::sync::Semaphore;

/// Why there is no console on an address that other machines reach, and what to do.
pub(crate) const NOT_LOCAL: &str = "other machines reach this address, and the console has no access \
     tokens yet; listen on a loopback address, as 127.0.0.1, and use `ssh -L` from elsewhere, or mount \
     the crate allora-console in a service that knows its users";

/// The number of pages that are made at a time. Probes are not among them.
const AT_A_TIME: usize = 4;

/// The time that a page may take.
const TIME_LIMIT: Duration = Duration::from_secs(30);

/// The console for this reader: any program of this machine that names the machine as such.
pub(crate) fn local(console: Console, access: Access) -> Router {
    console
        .access(move |_| Some(access.clone()))
        .into_router()
        .layer(middleware::from_fn_with_state(Arc::new(Semaphore::new(AT_A_TIME)), some_at_a_time))
        .layer(middleware::from_fn(local_names_only))
}

async fn some_at_a_time(
    State(turns): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    let busy = |why: &'static str| {
        (StatusCode::SERVICE_UNAVAILABLE, [(header::RETRY_AFTER, "1")], why).into_response()
    };
    let Ok(_turn) = turns.try_acquire() else { return busy("too many pages at once; try again\n") };
    let answer = tokio::time::timeout(TIME_LIMIT, next.run(request)).await;
    answer.unwrap_or_else(|_| busy("the page took longer than 30 s; is the store slow?\n"))
}

/// Refuses a page of another name. Its script could read the console: the name's owner makes it lead to
/// this machine after the page has been loaded (DNS rebinding).
async fn local_names_only(request: Request, next: Next) -> Response {
    if is_local(request.headers()) {
        return next.run(request).await;
    }
    let why =
        "this console is for browsers on its own machine: open it as localhost or 127.0.0.1\n";
    (StatusCode::MISDIRECTED_REQUEST, why).into_response()
}

/// True if the request names one host, and that is this machine.
fn is_local(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let name = host.to_str().unwrap_or_default();
    let name = match name.strip_prefix('[') {
        Some(rest) => rest.split(']').next(),
        None => name.split(':').next(),
    };
    let name = name.unwrap_or_default();
    let is_loopback = |name: &str| name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    name.eq_ignore_ascii_case("localhost") || is_loopback(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn only_names_of_this_machine_are_local() {
        let of = |hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, HeaderValue::from_static(host));
            }
            is_local(&headers)
        };
        for name in ["localhost", "LOCALHOST:9118", "127.0.0.1", "127.0.0.1:9118", "[::1]:9118"] {
            assert!(of(&[name]), "{name}");
        }
        let foreign =
            ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "", ":"];
        for name in foreign.into_iter().chain(["0.0.0.0", "192.168.0.7:9118", "[::]", "::1", "["]) {
            assert!(!of(&[name]), "{name}");
        }
        assert!(!of(&[]) && !of(&["localhost", "evil.example"]));
    }
}
