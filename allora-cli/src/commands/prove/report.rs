//! The page of a verdict: its figures, and a plot of the lateness over time with the faults in it.

use super::{shown, verdict::Verdict};
use allora_conformance::history::percentile;
use std::{collections::BTreeMap, fmt::Write};

/// The size of the plot, and the space at its left and its foot for the words of the axes.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 320.0;
const LEFT: f64 = 56.0;
const FOOT: f64 = 28.0;

/// The most columns of points.
const COLUMNS: i64 = 600;

/// The page, in HTML without anything from elsewhere.
pub(super) fn page(verdict: &Verdict) -> String {
    let (class, said) = match verdict.holds() {
        true => ("holds", "Nothing ran twice, and nothing was lost."),
        false => ("broken", "The store did not keep a promise."),
    };
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>allora prove</title><style>{STYLE}</style>\
         <h1>{store}</h1><p class=\"{class}\">{said}</p><p>{time}, {workers} workers, {rate} occurrences each \
         second, seed {seed}.</p><table>",
        store = escaped(&verdict.shown),
        time = shown(verdict.time),
        workers = verdict.workers,
        rate = verdict.rate,
        seed = verdict.seed,
    );
    for (name, text) in verdict.figures() {
        let _ = write!(page, "<tr><th>{name}<td>{}", escaped(&text));
    }
    page += "</table><h2>Lateness of each second's occurrences</h2>";
    page += &plot(verdict);
    page += "<p class=\"key\"><i class=\"worst\"></i> the latest one <i class=\"middle\"></i> the one in the middle \
             <i class=\"fault\"></i> a fault</p>";
    if !verdict.marks.is_empty() {
        page += "<table><tr><th>at<th>fault<th>latest after it";
        for mark in &verdict.marks {
            let (at, late) = (shown_time(mark.at - verdict.from), verdict.longest_after(mark));
            let _ = write!(page, "<tr><td>{at}<td>{}<td>{late} ms", escaped(&mark.what));
        }
        page += "</table>";
    }
    for (name, message) in &verdict.cases.failed {
        let _ = write!(page, "<h2>{}</h2><pre>{}</pre>", escaped(name), escaped(message));
    }
    if !verdict.violations.is_empty() {
        page += "<h2>Broken promises</h2><ul>";
        for violation in verdict.violations.iter().take(200) {
            let _ = write!(page, "<li>{}", escaped(&format!("{violation:?}")));
        }
        page += "</ul>";
    }
    page + "</html>\n"
}

/// The latest and the middle lateness of each column of time, on a logarithmic scale.
fn plot(verdict: &Verdict) -> String {
    let span = (verdict.to - verdict.from).max(1);
    let each = (span / COLUMNS).max(1_000);
    let mut columns: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for (at, late) in &verdict.summary.started {
        columns.entry((at - verdict.from).div_euclid(each)).or_default().push(*late);
    }
    let worst = verdict.late(1.0).max(1_000);
    let x = |at: i64| LEFT + (WIDTH - LEFT) * share(at, span);
    let y = |late: i64| (HEIGHT - FOOT) * (1.0 - logarithm(late) / logarithm(worst)).max(0.0) + 4.0;
    let mut plot = format!(
        "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"lateness over time\">"
    );
    for (late, words) in [
        (1, "1 ms"),
        (10, "10 ms"),
        (100, "100 ms"),
        (1_000, "1 s"),
        (10_000, "10 s"),
        (100_000, "100 s"),
    ] {
        if late <= worst {
            let y = y(late);
            let _ = write!(
                plot,
                "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{WIDTH}\"/><text x=\"{}\" y=\"{:.1}\" \
                 text-anchor=\"end\">{words}</text>",
                LEFT - 6.0,
                y + 4.0
            );
        }
    }
    for mark in &verdict.marks {
        let _ = write!(
            plot,
            "<path class=\"fault\" d=\"M{:.1} 4V{}\"><title>{} {}</title></path>",
            x(mark.at - verdict.from),
            HEIGHT - FOOT + 4.0,
            shown_time(mark.at - verdict.from),
            escaped(&mark.what)
        );
    }
    let mut middle = String::new();
    for (column, late) in &mut columns {
        late.sort_unstable();
        let at = x(column * each);
        let (mid, max) = (percentile(late, 0.5), percentile(late, 1.0));
        let _ =
            write!(middle, "{}{at:.1} {:.1}", if middle.is_empty() { 'M' } else { 'L' }, y(mid));
        let _ =
            write!(plot, "<circle class=\"worst\" cx=\"{at:.1}\" cy=\"{:.1}\" r=\"2\"/>", y(max));
    }
    let _ = write!(plot, "<path class=\"middle\" d=\"{middle}\"/>");
    for quarter in 0..=4 {
        let at = span * quarter / 4;
        let anchor = if quarter == 4 { "end" } else { "middle" };
        let _ = write!(
            plot,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"{anchor}\">{}</text>",
            x(at),
            HEIGHT - 6.0,
            shown_time(at)
        );
    }
    plot + "</svg>"
}

#[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
fn share(part: i64, of: i64) -> f64 {
    part as f64 / of as f64
}

#[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
fn logarithm(late: i64) -> f64 {
    (late.max(1) as f64).log10()
}

/// Minutes and seconds.
fn shown_time(ms: i64) -> String {
    format!("{}:{:02}", ms / 60_000, ms / 1_000 % 60)
}

fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            c => safe.push(c),
        }
    }
    safe
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1d2329;--soft:#68727c;--line:#dfe3e7;--good:#16713c;--bad:#b3261e;--worst:#8a4b08;--middle:#1f5fa8}\
@media(prefers-color-scheme:dark){:root{--ink:#e4e8eb;--soft:#98a2ab;--line:#333a41;--good:#5fc48a;--bad:#ff8a80;--worst:#e2a14f;--middle:#7db4f0}}\
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);max-width:960px;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.3rem;overflow-wrap:anywhere}h2{font-size:1.05rem;margin-top:2rem}\
.holds{color:var(--good);font-weight:600}.broken{color:var(--bad);font-weight:600}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top;font-variant-numeric:tabular-nums}\
svg{width:100%;height:auto}text{font-size:11px;fill:var(--soft)}.grid{stroke:var(--line)}\
path.fault{stroke:var(--bad);stroke-dasharray:2 3}circle.worst{fill:var(--worst)}path.middle{fill:none;stroke:var(--middle);stroke-width:1.5}\
.key{color:var(--soft)}.key i{display:inline-block;width:.8rem;height:.8rem;margin:0 .3rem 0 1rem;vertical-align:-.1rem;border-radius:2px}\
i.worst{background:var(--worst)}i.middle{background:var(--middle)}i.fault{background:var(--bad)}";
