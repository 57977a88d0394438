//! The files that the pages load: one style sheet, one script, one icon.

use axum::{
    http::header,
    response::{IntoResponse, Response},
};

const STYLE: &str = include_str!("../assets/console.css");
const SCRIPT: &str = include_str!("../assets/console.js");
const ICON: &str = include_str!("../assets/icon.svg");
/// Search engines have no business here.
const ROBOTS: &str = "User-agent: *\nDisallow: /\n";

pub(crate) async fn style() -> Response {
    file("text/css; charset=utf-8", STYLE)
}

pub(crate) async fn script() -> Response {
    file("text/javascript; charset=utf-8", SCRIPT)
}

pub(crate) async fn icon() -> Response {
    file("image/svg+xml", ICON)
}

pub(crate) async fn robots() -> Response {
    file("text/plain; charset=utf-8", ROBOTS)
}

/// A file of this build. Its name does not change with the build, so browsers keep it for a short time.
fn file(kind: &'static str, text: &'static str) -> Response {
    let headers = [(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "private, max-age=300")];
    (headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_makes_no_html_of_text_and_stays_small() {
        for sink in ["innerHTML", "outerHTML =", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(sink), "{sink}");
        }
        assert!(SCRIPT.len() < 4_000 && STYLE.len() < 10_500);
    }

    #[test]
    fn nothing_is_loaded_from_elsewhere() {
        for text in [STYLE, SCRIPT] {
            assert!(
                !text.contains("http://")
                    && !text.contains("https://")
                    && !text.contains("@import")
            );
        }
    }
}
