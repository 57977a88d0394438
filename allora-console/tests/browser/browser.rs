//! A headless Chromium, driven by its driver (Debian: `chromium`, `chromium-driver`) as the standard
//! *WebDriver* says: <https://www.w3.org/TR/webdriver2/>.

use base64::Engine as _;
use serde_json::{Value, json};
use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// A wait that takes longer than this has failed. It is no measure of speed: the machine may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// The width and the theme in which a page is looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) width: u32,
    pub(crate) is_dark: bool,
}

/// A desk and a telephone, by day and by night.
pub(crate) const LOOKS: [Look; 4] = [
    Look { width: 1280, is_dark: false },
    Look { width: 1280, is_dark: true },
    Look { width: 390, is_dark: false },
    Look { width: 390, is_dark: true },
];

impl Look {
    pub(crate) fn name(self) -> String {
        let theme = if self.is_dark { "dark" } else { "light" };
        if self.width < 600 { format!("phone-{theme}") } else { theme.to_owned() }
    }
}

/// A browser of its own, closed when it is dropped.
pub(crate) struct Browser {
    driver: Child,
    agent: ureq::Agent,
    session: String,
}

impl Browser {
    pub(crate) fn start() -> Self {
        Self::with_preferences(json!({}))
    }

    /// A browser in which no script of a page runs.
    pub(crate) fn without_scripts() -> Self {
        Self::with_preferences(json!({ "profile.managed_default_content_settings.javascript": 2 }))
    }

    fn with_preferences(preferences: Value) -> Self {
        // One may end at once: a port that is free for IPv4 can be another driver's for IPv6.
        let (driver, port) = (0..5).find_map(|_| driver()).expect("a driver that names its port");
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE));
        let session = format!("http://127.0.0.1:{port}/session");
        let mut browser = Self { driver, agent: config.build().new_agent(), session };
        // The sandbox refuses to start for root; what is loaded here are pages of this test alone.
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"];
        let opened = browser.post(
            "",
            &json!({ "capabilities": { "alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": { "args": arguments, "prefs": preferences },
                "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
            }}}),
        );
        browser.session += &format!("/{}", opened["sessionId"].as_str().unwrap());
        browser
    }

    fn send(&self, path: &str, body: &Value) -> Sent {
        let address = format!("{}{path}", self.session);
        let request = self.agent.post(&address).header("content-type", "application/json");
        request.send(body.to_string())
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        self.value(path, self.send(path, body))
    }

    fn get(&self, path: &str) -> Value {
        self.value(path, self.agent.get(format!("{}{path}", self.session)).call())
    }

    fn value(&self, path: &str, sent: Sent) -> Value {
        answer(path, sent).unwrap_or_else(|refusal| panic!("{path}: {refusal}"))
    }

    /// Sends a command until it is done, while the driver refuses it for one of these reasons, which pass.
    fn insist(&self, path: impl Fn() -> String, body: &Value, passing: &[&str]) -> Value {
        let begun = Instant::now();
        loop {
            let path = path();
            match answer(&path, self.send(&path, body)) {
                Ok(value) => return value,
                Err(refusal) => {
                    let refusal = refusal.to_string();
                    let is_passing = passing.iter().any(|reason| refusal.contains(reason));
                    assert!(is_passing && begun.elapsed() < PATIENCE, "{path}: {refusal}");
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    }

    /// A command of Chromium's own protocol.
    fn command(&self, command: &str, parameters: &Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": parameters }))
    }

    pub(crate) fn look(&self, look: Look) {
        let theme = if look.is_dark { "dark" } else { "light" };
        self.command(
            "Emulation.setEmulatedMedia",
            &json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] }),
        );
        let (height, is_phone) = if look.width < 600 { (844, true) } else { (900, false) };
        self.command(
            "Emulation.setDeviceMetricsOverride",
            &json!({
                "width": look.width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone,
            }),
        );
    }

    pub(crate) fn open(&self, address: &str) {
        self.post("/url", &json!({ "url": address }));
    }

    pub(crate) fn back(&self) {
        self.post("/back", &json!({}));
    }

    pub(crate) fn title(&self) -> String {
        self.get("/title").as_str().unwrap().to_owned()
    }

    pub(crate) fn source(&self) -> String {
        self.get("/source").as_str().unwrap().to_owned()
    }

    /// The value of a script's `return`. It runs also where those of pages do not.
    pub(crate) fn eval(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] }))
    }

    pub(crate) fn text(&self, script: &str) -> String {
        let value = self.eval(script);
        value.as_str().unwrap_or_else(|| panic!("{script}: {value}")).to_owned()
    }

    /// Waits until a page is whole and a script returns `true`. A page that is still being read has an
    /// address, and perhaps no body or heading.
    pub(crate) fn wait_for(&self, script: &str) {
        let whole = format!("if (document.readyState !== 'complete') return false; {script}");
        let begun = Instant::now();
        while self.eval(&whole) != true {
            assert!(begun.elapsed() < PATIENCE, "not in {PATIENCE:?}: {script}\n{}", self.source());
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn element(&self, selector: &str) -> String {
        let found = self.post("/element", &json!({ "using": "css selector", "value": selector }));
        let id = found.as_object().and_then(|found| found.values().next()).and_then(Value::as_str);
        format!("/element/{}", id.unwrap())
    }

    /// Clicks as a mouse does: what is hidden or covered cannot be clicked. A part that the page exchanges
    /// meanwhile is looked for again.
    pub(crate) fn click(&self, selector: &str) {
        let is_moving = ["element click intercepted", "stale element reference"];
        self.insist(|| format!("{}/click", self.element(selector)), &json!({}), &is_moving);
    }

    /// Clicks what asks for another page, and waits until that one is whole: the driver may say that a click is
    /// done before the browser asks.
    pub(crate) fn follow(&self, selector: &str) {
        let page = "String(performance.timeOrigin)";
        let left = self.text(&format!("return {page}"));
        self.click(selector);
        self.wait_for(&format!("return {page} !== '{left}'"));
    }

    /// Types into a field, behind what is in it. A line break sends its form.
    pub(crate) fn type_into(&self, selector: &str, text: &str) {
        self.post(&format!("{}/value", self.element(selector)), &json!({ "text": text }));
    }

    /// Replaces what is in a field.
    pub(crate) fn fill(&self, selector: &str, text: &str) {
        self.post(&format!("{}/clear", self.element(selector)), &json!({}));
        self.type_into(selector, text);
    }

    /// Presses a key without a field.
    pub(crate) fn press(&self, key: &str) {
        self.post(
            "/actions",
            &json!({ "actions": [{ "type": "key", "id": "keys", "actions": [
                { "type": "keyDown", "value": key }, { "type": "keyUp", "value": key },
            ]}]}),
        );
    }

    /// The lines of the browser's log since the last call: errors, refused scripts, missing files.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "browser" }));
        log.as_array().unwrap().iter().map(|entry| entry["message"].to_string()).collect()
    }

    /// The addresses that were asked for since the last call.
    pub(crate) fn requests(&self) -> Vec<String> {
        let log = self.post("/se/log", &json!({ "type": "performance" }));
        let sent = log.as_array().unwrap().iter().filter_map(|entry| {
            let event: Value = serde_json::from_str(entry["message"].as_str()?).ok()?;
            let event = &event["message"];
            let is_sent = event["method"] == "Network.requestWillBeSent";
            is_sent.then(|| event["params"]["request"]["url"].as_str().map(str::to_owned))?
        });
        sent.collect()
    }

    /// The picture of the whole page, as a PNG file.
    pub(crate) fn picture(&self) -> Vec<u8> {
        let size =
            self.eval("return [document.documentElement.clientWidth, document.body.scrollHeight]");
        let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": size[1], "scale": 1 });
        let body = json!({ "cmd": "Page.captureScreenshot", "params": {
            "format": "png", "captureBeyondViewport": true, "clip": clip,
        }});
        // A busy machine may not draw it in the driver's own time.
        let is_late = ["capture screenshot", "Timed out receiving message"];
        let taken = self.insist(|| "/goog/cdp/execute".into(), &body, &is_late);
        let text = taken["data"].as_str().unwrap();
        base64::engine::general_purpose::STANDARD.decode(text).unwrap()
    }
}

type Sent = Result<ureq::http::Response<ureq::Body>, ureq::Error>;

/// A driver with its port; `None` if it ended before it named one.
fn driver() -> Option<(Child, String)> {
    let mut driver = Command::new("chromedriver")
        .arg("--port=0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|cause| {
            panic!(
                "chromedriver did not start ({cause}): install chromium and chromium-driver, or let \
                 `cargo xtask test` do it"
            )
        });
    let said = BufReader::new(driver.stdout.take().unwrap()).lines();
    let port = said.map_while(Result::ok).find_map(|line| {
        let (_, port) = line.rsplit_once("started successfully on port ")?;
        Some(port.trim_end_matches('.').to_owned())
    });
    let Some(port) = port else {
        driver.wait().unwrap();
        return None;
    };
    Some((driver, port))
}

/// The value, or what the driver says instead.
fn answer(path: &str, sent: Sent) -> Result<Value, Value> {
    let mut answer = sent.unwrap_or_else(|error| panic!("{path}: {error}"));
    // A picture of a long page is larger than the client's limit.
    let body = answer.body_mut().with_config().limit(1 << 26).read_to_string().unwrap();
    let mut value: Value = serde_json::from_str(&body).unwrap();
    let value = value["value"].take();
    if answer.status().is_success() { Ok(value) } else { Err(value) }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The driver closes the browser with its session; an error leaves nothing to do.
        let _ = self.agent.delete(&self.session).call();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}
