//! A browser without a window, driven over a pipe: messages of JSON, each ended by NUL.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
#[cfg(unix)]
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Programs that are looked for, after `$MAVERL_BROWSER`.
const PROGRAMS: [&str; 4] =
    ["chromium-headless-shell", "chromium", "google-chrome", "chromium-browser"];
/// Time after which a page that does not show what is expected has failed.
const PATIENCE: Duration = Duration::from_secs(600);

/// A browser with one page.
pub(super) struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: String,
    next: u64,
    /// Errors of the console, uncaught exceptions, violations of the policy, and foreign requests.
    pub(super) complaints: Vec<String>,
    /// Requests that are not answered yet.
    pending: BTreeSet<String>,
    /// True if the page listens to changes, and has heard of none yet.
    listens: bool,
    /// Address before whose start no request is foreign.
    home: String,
    _profile: tempfile::TempDir,
}

/// Returns the program of a browser; `None` if there is none and none is required.
fn program() -> Option<PathBuf> {
    let wanted = std::env::var("MAVERL_BROWSER").unwrap_or_default();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        |name: &str| std::env::split_paths(&path).map(|dir| dir.join(name)).find(|p| p.is_file());
    if !wanted.is_empty() && wanted != "required" {
        return Some(found(&wanted).unwrap_or_else(|| PathBuf::from(wanted)));
    }
    let program = PROGRAMS.iter().find_map(|name| found(name));
    assert!(
        program.is_some() || wanted != "required",
        "MAVERL_BROWSER=required, and there is no browser"
    );
    program
}

impl Browser {
    /// Opens a page of a size; `None` if there is no browser, which is printed.
    pub(super) fn open(home: &str, width: u32, height: u32) -> Option<Self> {
        let Some(program) = program() else {
            eprintln!("skipped: no browser (apt install chromium-headless-shell)");
            return None;
        };
        // Chromium itself crashes now and then while it starts.
        let start = |_| Self::start(&program, home).inspect_err(|error| eprintln!("{error}")).ok();
        let mut browser = (0..3).find_map(start).expect("a browser that starts");
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser.resize(width, height);
        Some(browser)
    }

    /// Starts a browser with a page; an error if it ended meanwhile.
    fn start(program: &Path, home: &str) -> Result<Self, Value> {
        let profile = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        // Its own processes would write into the profile after it was removed.
        #[cfg(unix)]
        shell.process_group(0);
        let mut child = shell
            // The browser reads descriptor 3 and writes descriptor 4.
            .args(["-c", "exec \"$@\" 3<&0 4>&1 0</dev/null 1>&2", "sh"])
            .arg(program)
            .args(["--headless", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu"])
            .args(["--no-first-run", "--disable-extensions", "--disable-background-networking"])
            .args(["--force-color-profile=srgb", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut browser = Self {
            child,
            input,
            output: BufReader::new(output),
            session: String::new(),
            next: 0,
            complaints: Vec::new(),
            pending: BTreeSet::new(),
            listens: false,
            home: home.to_owned(),
            _profile: profile,
        };
        let target = browser.try_call("Target.createTarget", &json!({ "url": "about:blank" }))?;
        let attached = json!({ "targetId": target["targetId"], "flatten": true });
        let session = browser.try_call("Target.attachToTarget", &attached)?;
        browser.session = session["sessionId"].as_str().unwrap().to_owned();
        Ok(browser)
    }

    /// Sends a command and returns its result.
    #[expect(clippy::needless_pass_by_value, reason = "calls build their parameters in place")]
    pub(super) fn call(&mut self, method: &str, parameters: Value) -> Value {
        let result = self.try_call(method, &parameters);
        result.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Sends a command and returns its result or its error. Events that arrive before it are taken in.
    fn try_call(&mut self, method: &str, parameters: &Value) -> Result<Value, Value> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        if let Err(error) = self.input.write_all(format!("{message}\0").as_bytes()) {
            return Err(json!(format!("the browser ended: {error}")));
        }
        loop {
            let mut bytes = Vec::new();
            if self.output.read_until(0, &mut bytes).unwrap() == 0 {
                return Err(json!("the browser ended"));
            }
            bytes.pop();
            let found: Value = serde_json::from_slice(&bytes).unwrap();
            if found["id"] != self.next {
                self.event(&found);
            } else if found["error"].is_null() {
                return Ok(found["result"].clone());
            } else {
                return Err(found["error"].clone());
            }
        }
    }

    /// Records what must not happen on a page, and what it waits for.
    fn event(&mut self, event: &Value) {
        let parameters = &event["params"];
        let request = parameters["requestId"].as_str().unwrap_or_default();
        match event["method"].as_str() {
            Some("Network.requestWillBeSent") if parameters["type"] == "EventSource" => {
                self.listens = true;
            }
            Some("Network.requestWillBeSent") => drop(self.pending.insert(request.to_owned())),
            Some("Network.loadingFinished" | "Network.loadingFailed") => {
                self.pending.remove(request);
            }
            Some("Network.eventSourceMessageReceived") => self.listens = false,
            _ => {}
        }
        let complaint = match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => parameters["exceptionDetails"].to_string(),
            Some("Runtime.consoleAPICalled") if parameters["type"] == "error" => {
                parameters["args"].to_string()
            }
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                parameters["entry"]["text"].to_string() + &parameters["entry"]["url"].to_string()
            }
            Some("Page.javascriptDialogOpening") => "a dialog opened".to_owned(),
            Some("Network.requestWillBeSent") => {
                let url = parameters["request"]["url"].as_str().unwrap_or_default();
                let own = ["data:", "about:", self.home.as_str()];
                if own.iter().any(|start| url.starts_with(start)) {
                    return;
                }
                format!("a request to {url}")
            }
            _ => return,
        };
        self.complaints.push(complaint);
    }

    /// Changes the size of the page.
    pub(super) fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Switches to a theme.
    pub(super) fn theme(&mut self, theme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] });
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// Waits until the page has heard what has changed before it was opened, and every request is answered.
    pub(super) fn rest(&mut self) {
        let start = Instant::now();
        let mut quiet = 0;
        while quiet < 3 {
            std::thread::sleep(Duration::from_millis(20));
            self.value("new Promise(requestAnimationFrame)");
            // A server without a run has nothing to tell.
            let listens = self.listens && start.elapsed() < Duration::from_secs(3);
            quiet = if listens || !self.pending.is_empty() { 0 } else { quiet + 1 };
            assert!(start.elapsed() < PATIENCE, "never answered: {:?}", self.pending);
        }
    }

    /// Opens an address.
    pub(super) fn visit(&mut self, url: &str) {
        self.pending.clear();
        self.listens = false;
        self.call("Page.navigate", json!({ "url": url }));
    }

    /// Returns the value of an expression, awaited.
    pub(super) fn value(&mut self, expression: &str) -> Value {
        let parameters =
            json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let result = self.call("Runtime.evaluate", parameters);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {}",
            result["exceptionDetails"]
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression is true. While a page is loaded, it may have no value.
    pub(super) fn wait(&mut self, expression: &str) {
        let start = Instant::now();
        loop {
            let parameters = json!({ "expression": expression, "returnByValue": true });
            let found = self.try_call("Runtime.evaluate", &parameters);
            if found.is_ok_and(|found| found["result"]["value"] == true) {
                return;
            }
            if start.elapsed() > PATIENCE {
                let text = self.value("document.body.innerText");
                panic!("never true: {expression}\n{text}\n{:?}", self.complaints);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the text of the first element of a selector.
    pub(super) fn text(&mut self, selector: &str) -> String {
        let selector = json!(selector);
        let found = self.value(&format!("document.querySelector({selector})?.textContent ?? ''"));
        found.as_str().unwrap_or_default().to_owned()
    }

    /// Presses a key.
    pub(super) fn press(&mut self, key: &str) {
        let text = if key.chars().count() == 1 { key } else { "" };
        let enter = if key == "Enter" { "\r" } else { text };
        for kind in ["keyDown", "keyUp"] {
            let code = if key == "Enter" {
                13
            } else if key == "Tab" {
                9
            } else {
                0
            };
            let event = json!({
                "type": kind, "key": key, "windowsVirtualKeyCode": code,
                "text": if kind == "keyDown" { enter } else { "" },
            });
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    /// Writes a picture of the visible part of the page, of at most 60 kB unless it is lossless.
    pub(super) fn picture(&mut self, path: &Path, format: &str) {
        use base64::Engine as _;
        let mut shot = |quality: u32| {
            let shot = self.call(
                "Page.captureScreenshot",
                match format {
                    "png" => json!({ "format": "png" }),
                    format => json!({ "format": format, "quality": quality }),
                },
            );
            let data = shot["data"].as_str().unwrap();
            base64::engine::general_purpose::STANDARD.decode(data).unwrap()
        };
        let fits = |bytes: &Vec<u8>| format == "png" || bytes.len() <= 60_000;
        let bytes = (5..=45).rev().step_by(5).map(&mut shot).find(fits).unwrap();
        std::fs::write(path, bytes).unwrap();
    }

    /// Returns the controls of the page that have no name in the accessibility tree.
    pub(super) fn unnamed(&mut self) -> Vec<String> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let controls =
            ["button", "link", "textbox", "combobox", "checkbox", "searchbox", "spinbutton"];
        let nodes = tree["nodes"].as_array().cloned().unwrap_or_default();
        let unnamed = nodes.iter().filter(|node| {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            controls.contains(&role) && node["name"]["value"].as_str().unwrap_or("").is_empty()
        });
        unnamed.map(|node| node["role"]["value"].to_string()).collect()
    }

    /// Fails if the browser complained about anything since the last call.
    #[track_caller]
    pub(super) fn assert_quiet(&mut self) {
        self.value("0");
        assert!(self.complaints.is_empty(), "{:#?}", self.complaints);
    }

    /// Returns the contrast of every visible text with its background that is below a threshold.
    pub(super) fn low_contrast(&mut self, least: f64) -> BTreeMap<String, f64> {
        let found = self.value(&CONTRAST.replace("LEAST", &least.to_string()));
        serde_json::from_value(found).unwrap()
    }
}

/// Computes the contrast of texts by WCAG 2.1.
const CONTRAST: &str = r"(() => {
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return [m[0], m[1], m[2], m[3] ?? 1]; };
  const light = (c) => { const f = c.slice(0, 3).map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2]; };
  const found = {};
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.textContent.trim() || !element.checkVisibility({ opacityProperty: true }) || element.closest('button:disabled, .skip')) continue;
    let back = null;
    for (let at = element; at && !back; at = at.parentElement) { const c = parse(getComputedStyle(at).backgroundColor); if (c[3] > 0) back = c; }
    const style = getComputedStyle(element);
    const fore = parse(element.closest('svg') ? style.fill : style.color);
    const [a, b] = [light(fore), light(back ?? [255, 255, 255])];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < LEAST) found[element.tagName + '.' + element.className + ' ' + node.textContent.trim().slice(0, 30)] = ratio;
  }
  return found;
})()";

impl Drop for Browser {
    fn drop(&mut self) {
        // The test has its result already; the browser must not outlive it.
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}
