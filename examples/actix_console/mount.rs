//! A service of tower inside one of actix. Both are HTTP in other types: actix has kept those of `http` 0.2.

use actix_web::{
    Error, HttpRequest, HttpResponse,
    error::ErrorBadRequest,
    http::StatusCode,
    web::{self, Bytes, ServiceConfig},
};
use axum::{
    Router,
    body::Body,
    http::{Request, header::CONTENT_LENGTH},
};
use tower::ServiceExt;

/// Mounts a router at a path, with and without a slash at its end. The router gets the whole path.
pub(crate) fn mount(path: &str, router: Router) -> impl Fn(&mut ServiceConfig) {
    let router = web::Data::new(Router::<()>::new().nest_service(path, router));
    let pattern = format!("{path}{{rest:(/.*)?}}");
    move |service| {
        let resource = web::resource(&pattern).app_data(router.clone());
        service.service(resource.default_service(web::to(pass_on)));
    }
}

async fn pass_on(
    router: web::Data<Router>,
    request: HttpRequest,
    body: Bytes,
) -> Result<HttpResponse, Error> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut asked = Request::builder().method(request.method().as_str()).uri(path);
    for (name, value) in request.headers() {
        asked = asked.header(name.as_str(), value.as_bytes());
    }
    let asked = asked.body(Body::from(body)).map_err(ErrorBadRequest)?;
    let Ok(answer) = Router::clone(&router).oneshot(asked).await;
    let (head, body) = answer.into_parts();
    let status = StatusCode::from_u16(head.status.as_u16()).map_err(ErrorBadRequest)?;
    let mut told = HttpResponse::build(status);
    // What is streamed has a length of its own.
    for (name, value) in head.headers.iter().filter(|(name, _)| *name != CONTENT_LENGTH) {
        told.append_header((name.as_str(), value.as_bytes()));
    }
    Ok(told.streaming(body.into_data_stream()))
}
