//! The rules of every page: nothing from elsewhere, nothing too wide, nothing that only some can see.

use crate::{Browser, LOOKS, Look, Served, console_of, weekend::Shop};
use std::{env, fs, path::PathBuf};

/// The pages worth looking at, each with the name of its picture.
const PAGES: [(&str, &str); 23] = [
    ("now", "/?zone=Europe/Rome"),
    ("now-month", "/?days=30&zone=Europe/Rome"),
    ("jobs", "/jobs?zone=Europe/Rome"),
    ("jobs-next", "/jobs?sort=next&zone=Europe/Rome"),
    ("jobs-failing", "/jobs?state=failing&zone=Europe/Rome"),
    ("jobs-none", "/jobs?q=zzz"),
    ("job", "/job?name=invoices"),
    ("job-why", "/job?name=invoices&at=2026-10-25+02:00"),
    ("job-twice", "/job?name=sync.crm&at=2026-10-25+02:20"),
    ("job-overdue", "/job?name=backup/db-main"),
    ("job-paused", "/job?name=mail.digest"),
    ("job-key", "/job?name=billing/export"),
    ("job-hostile", "/job?name=%3Cimg+src%3Dx+onerror%3Dalert(1)%3E"),
    ("job-unhandled", "/job?name=thumbnails"),
    ("runs", "/runs?zone=Europe/Rome"),
    ("runs-all", "/runs?outcome=all&zone=Europe/Rome"),
    ("nodes", "/nodes?zone=Europe/Rome"),
    ("audit", "/audit?zone=Europe/Rome"),
    ("try", "/schedule"),
    ("try-words", "/schedule?text=30+2+*+*+*+Europe/Rome;+jitter+5m&zone=America/New_York"),
    ("try-wrong", "/schedule?text=61+*+*+*+*"),
    ("no-job", "/job?name=nobody"),
    ("bad-address", "/?zone=Mars"),
];

/// The texts whose contrast with what is behind them is below 4.5 to 1, and the marks below 3 to 1, as the
/// *Web Content Accessibility Guidelines* 2.2 (1.4.3, 1.4.11) compute it.
const PALE: &str = r"
    const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const known = new Map();
    const rgba = (color) => {
        if (!known.has(color)) {
            canvas.clearRect(0, 0, 1, 1);
            canvas.fillStyle = color;
            canvas.fillRect(0, 0, 1, 1);
            const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
            known.set(color, [r, g, b, a / 255]);
        }
        return known.get(color);
    };
    const over = (top, under) => [0, 1, 2].map((i) => top[i] * top[3] + under[i] * (1 - top[3]));
    const ground = (element) => {
        if (!element) return rgba('Canvas');
        const own = rgba(getComputedStyle(element).backgroundColor);
        return own[3] === 1 ? own : over(own, ground(element.parentElement));
    };
    const light = (color) => {
        const [r, g, b] = color.slice(0, 3).map((part) => {
            part /= 255;
            return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const contrast = (color, element) => {
        const under = ground(element);
        const [low, high] = [light(over(color, under)), light(under)].sort((a, b) => a - b);
        return (high + 0.05) / (low + 0.05);
    };
    const pale = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
        const text = walker.currentNode.textContent.trim();
        const element = walker.currentNode.parentElement;
        if (!text || element.closest('title, option, script') || !element.checkVisibility()) continue;
        const style = getComputedStyle(element);
        const color = element.closest('svg') ? style.fill : style.color;
        const found = contrast(rgba(color), element);
        if (found < 4.5) pale.push(`${text.slice(0, 40)}: ${found.toFixed(2)}`);
    }
    for (const mark of document.querySelectorAll('svg.glyph path:first-child')) {
        if (!mark.checkVisibility()) continue;
        const style = getComputedStyle(mark);
        const colors = [style.fill, style.stroke].filter((color) => color !== 'none');
        const found = Math.max(...colors.map((color) => contrast(rgba(color), mark)));
        if (found < 3) pale.push(`a mark of ${mark.getAttribute('class')}: ${found.toFixed(2)}`);
    }
    return [...new Set(pale)];";

/// The things that a reader misses who cannot see the page, or has no mouse.
const UNCLEAR: &str = r"
    const wrong = [];
    const label = (element) => element.getAttribute('aria-label') || element.labels?.[0]?.textContent
        || element.textContent;
    const all = (selector) => [...document.querySelectorAll(selector)];
    for (const one of ['main', 'header', 'nav', 'h1']) {
        if (all(one).length !== 1) wrong.push(`${all(one).length} ${one}`);
    }
    if (!document.documentElement.lang) wrong.push('no language');
    for (const element of all('a[href], button, input:not([type=hidden]), select, summary')) {
        const isMark = element.closest('svg') && element.querySelector('title');
        if (!label(element)?.trim() && !isMark) wrong.push('no label: ' + element.outerHTML.slice(0, 90));
        if (element.tabIndex < 0) wrong.push('not reached by the keyboard: ' + element.outerHTML.slice(0, 90));
        if (element.tabIndex > 0) wrong.push('out of its order: ' + element.outerHTML.slice(0, 90));
    }
    let level = 1;
    for (const heading of all('h1, h2, h3, h4')) {
        const own = Number(heading.tagName[1]);
        if (own > level + 1) wrong.push(`h${own} below h${level}: ${heading.textContent}`);
        level = own;
    }
    for (const table of all('table')) {
        if (!table.querySelector('th')) wrong.push('a table without headings');
    }
    for (const svg of all('svg')) {
        const isSaid = svg.getAttribute('aria-label') || svg.getAttribute('aria-hidden');
        if (!isSaid) wrong.push('a picture without words: ' + svg.outerHTML.slice(0, 90));
    }
    for (const mark of all('svg.glyph')) {
        if (!mark.parentElement.textContent.trim()) wrong.push('a mark without its word');
    }
    const ids = all('[id]').map((element) => element.id);
    for (const id of new Set(ids.filter((id, at) => ids.indexOf(id) !== at))) wrong.push('twice: #' + id);
    return [...new Set(wrong)];";

/// The elements that make a page wider than the window. A telephone shows such a page smaller, so that its own width
/// says nothing.
const WIDE: &str = r"
    if (document.documentElement.scrollWidth <= WIDTH) return [];
    const wide = [...document.querySelectorAll('body *')].filter((element) =>
        element.getBoundingClientRect().right > WIDTH && !element.closest('.wrap'));
    return wide.map((element) => element.outerHTML.slice(0, 120));";

fn wide(browser: &Browser, look: Look) -> Vec<String> {
    list(browser, &WIDE.replace("WIDTH", &look.width.to_string()))
}

/// The defects of the page as it is shown now.
pub(crate) fn defects(browser: &Browser, look: Look) -> Vec<String> {
    [list(browser, PALE), list(browser, UNCLEAR), wide(browser, look)].concat()
}

/// Keeps the picture of the page as it is shown now, if somebody asked for pictures.
pub(crate) fn keep_picture(browser: &Browser, name: &str, look: Look) {
    let picture = browser.picture();
    assert!(picture.starts_with(b"\x89PNG") && picture.len() > 10_000, "{}", picture.len());
    if let Some(folder) = env::var_os("ALLORA_PICTURES").map(PathBuf::from) {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}-{}.png", look.name())), picture).unwrap();
    }
}

fn list(browser: &Browser, script: &str) -> Vec<String> {
    let found = browser.eval(script);
    found.as_array().unwrap().iter().map(ToString::to_string).collect()
}

#[test]
fn every_page_is_whole_in_each_look() {
    let shop = Shop::after_its_weekend().unwrap();
    let served = Served::new(shop.console.clone());
    let empty = Served::new(console_of(&[]).1);
    let browser = Browser::start();
    browser.open(&served.page("/job?name=invoices"));
    let run = browser.text("return document.querySelector('table a[href^=\"run?\"]').href");
    let mut pages: Vec<(&str, String)> =
        PAGES.iter().map(|(name, path)| (*name, served.page(path))).collect();
    pages.extend([("run", run), ("empty", empty.page("/"))]);
    let mut wrong = Vec::new();
    let (_, _) = (browser.complaints(), browser.requests());
    for look in LOOKS {
        browser.look(look);
        for (name, address) in &pages {
            browser.open(address);
            let mut found = defects(&browser, look);
            // The answers to addresses that are wrong on purpose are in the log.
            let is_refusal =
                |line: &String| line.contains("Failed to load") && line.contains(address);
            found.extend(browser.complaints().into_iter().filter(|line| !is_refusal(line)));
            let is_own = |url: &String| {
                url.starts_with(&served.page("/")) || url.starts_with(&empty.page("/"))
            };
            found.extend(browser.requests().into_iter().filter(|url| !is_own(url)));
            wrong.extend(found.into_iter().map(|what| format!("{name}, {}: {what}", look.name())));
        }
    }
    assert!(wrong.is_empty(), "{} defects:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn the_keyboard_reaches_everything_in_order_and_the_focus_is_seen() {
    let shop = Shop::after_its_weekend().unwrap();
    let served = Served::new(shop.console.clone());
    let browser = Browser::start();
    browser.look(LOOKS[0]);
    for path in ["/job?name=invoices", "/jobs?q=backup/", "/schedule?text=@daily"] {
        browser.open(&served.page(path));
        let wanted = browser.eval(
            "window.all = [...document.querySelectorAll('a[href], button, input:not([type=hidden]), \
             select, summary')].filter((element) => element.checkVisibility()); return all.length;",
        );
        for at in 0..wanted.as_u64().unwrap() {
            browser.press("\u{e004}");
            let seen = browser.eval(
                "const now = document.activeElement, style = getComputedStyle(now); \
                 return [all.indexOf(now), style.outlineStyle !== 'none' && style.outlineWidth !== '0px'];",
            );
            assert_eq!((seen[0].as_u64(), seen[1].as_bool()), (Some(at), Some(true)), "{path}");
        }
    }
}

/// The pictures of the documentation: `cargo xtask screenshots` calls it with a folder.
#[test]
fn pictures_can_be_taken() {
    const TAKEN: [(&str, Look); 6] = [
        ("now", LOOKS[0]),
        ("now", LOOKS[1]),
        ("now", LOOKS[2]),
        ("job-why", LOOKS[0]),
        ("job-why", LOOKS[1]),
        ("job-why", LOOKS[3]),
    ];
    let shop = Shop::after_its_weekend().unwrap();
    let served = Served::new(shop.console.clone());
    let browser = Browser::start();
    for (name, look) in TAKEN {
        let (_, path) = PAGES.iter().find(|(page, _)| *page == name).unwrap();
        browser.look(look);
        browser.open(&served.page(path));
        keep_picture(&browser, name, look);
    }
}

#[test]
fn the_checks_find_what_is_wrong() {
    let browser = Browser::start();
    browser.look(LOOKS[2]);
    browser.open(
        "data:text/html,<meta name=viewport content='width=device-width'><h1>a</h1><h3>b</h3>\
         <p style='color:%23aaa'>pale</p><input><a href='x' tabindex=-1>hidden</a><table></table>\
         <div style='width:900px;height:9px'></div>",
    );
    assert_eq!(list(&browser, PALE), [r#""pale: 2.32""#]);
    let unclear = list(&browser, UNCLEAR).join("\n");
    for what in
        ["0 main", "no language", "no label", "not reached", "h3 below h1", "without headings"]
    {
        assert!(unclear.contains(what), "{what}: {unclear}");
    }
    assert_eq!(wide(&browser, LOOKS[2]).len(), 1);
}
