//! Chromium, for the pages.

use std::{
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{LIMIT, wait_until};

/// How long a browser may take to end.
const END: Duration = Duration::from_secs(10);

/// Returns Chromium, under any of its names on PATH.
#[must_use]
pub fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap();
    let names = ["chromium", "chromium-browser", "google-chrome"];
    std::env::split_paths(&path)
        .flat_map(|folder| names.map(|name| folder.join(name)))
        .find(|program| program.exists())
}

/// Returns Chromium without a window, which prints the final document of a page and its messages; its profile is in this folder.
///
/// # Panics
/// If there is no Chromium.
#[must_use]
pub fn headless(profile: &Path) -> Command {
    let mut command = Command::new(browser().expect("Chromium is on PATH"));
    silence(&mut command, profile);
    command.args(["--enable-logging=stderr", "--v=0", "--dump-dom"]);
    command
}

fn silence(command: &mut Command, profile: &Path) {
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
        ])
        .args([
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
        ])
        .arg(format!("--user-data-dir={}", profile.display()));
}

/// A page that is used through the browser's own protocol (Chrome DevTools Protocol) over pipes.
pub struct OpenPage {
    browser: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    calls: u64,
    session: Option<String>,
    messages: Vec<String>,
    requests: Vec<String>,
    _profile: TempDir,
}

impl OpenPage {
    /// Opens a page in a browser of its own, whose profile is in this folder.
    ///
    /// # Panics
    /// If there is no Chromium, or the page does not open.
    #[must_use]
    pub fn open(address: &str, folder: &Path) -> Self {
        let mut page = Self::empty(folder);
        page.visit(address);
        page
    }

    /// Opens an empty page in a browser of its own, whose profile is in this folder.
    ///
    /// # Panics
    /// If there is no Chromium, or the page does not open.
    #[must_use]
    pub fn empty(folder: &Path) -> Self {
        let profile = tempfile::tempdir_in(folder).unwrap();
        let mut command = Command::new("sh");
        // The protocol has file descriptors 3 and 4.
        command
            .args(["-c", r#"exec "$@" 3<&0 4>&1 </dev/null >/dev/null"#, "sh"])
            .arg(browser().expect("Chromium is on PATH"))
            .arg("--remote-debugging-pipe");
        silence(&mut command, profile.path());
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut browser = pipes.stderr(Stdio::null()).spawn().unwrap();
        let mut page = Self {
            to: browser.stdin.take().unwrap(),
            from: BufReader::new(browser.stdout.take().unwrap()),
            browser,
            calls: 0,
            session: None,
            messages: Vec::new(),
            requests: Vec::new(),
            _profile: profile,
        };
        let target = page.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = page.call("Target.attachToTarget", attach);
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            let _ = page.call(&format!("{domain}.enable"), json!({}));
        }
        page
    }

    /// Replaces the page by another.
    ///
    /// # Panics
    /// If it does not open.
    pub fn visit(&mut self, address: &str) {
        self.messages.clear();
        self.requests.clear();
        let opened = self.call("Page.navigate", json!({ "url": address }));
        assert_eq!(opened["errorText"], Value::Null, "{address}");
        let state = "document.readyState + ' ' + document.URL";
        self.await_text(state, &format!("complete {address}"));
    }

    /// Sets the size of the window in pixels.
    ///
    /// # Panics
    /// If the browser has ended.
    pub fn resize(&mut self, width: u32, height: u32) {
        let size =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let _ = self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// Returns the errors, warnings and messages of the page since it was visited.
    #[must_use]
    pub fn messages(&self) -> &[String] {
        &self.messages
    }

    /// Returns the addresses that the page requested over a network since it was visited.
    #[must_use]
    pub fn requests(&self) -> &[String] {
        &self.requests
    }

    /// Calls a method of the protocol.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        let mut answer = self.answer(method, parameters);
        assert_eq!(answer["error"], Value::Null, "{method}");
        answer["result"].take()
    }

    /// Returns the answer to a call; notes the events before it.
    fn answer(&mut self, method: &str, parameters: Value) -> Value {
        self.send(method, parameters).unwrap();
        loop {
            let mut answer = Vec::new();
            self.from.read_until(0, &mut answer).unwrap();
            answer.pop();
            let answer: Value = serde_json::from_slice(&answer).unwrap();
            if answer["id"] == self.calls {
                return answer;
            }
            self.note(&answer);
        }
    }

    /// Notes a message or a request of the page.
    fn note(&mut self, event: &Value) {
        let parameters = &event["params"];
        let request = match event["method"].as_str() {
            Some("Runtime.consoleAPICalled" | "Runtime.exceptionThrown") => {
                return self.messages.push(parameters.to_string());
            }
            Some("Log.entryAdded") => {
                // Advice for developers.
                if parameters["entry"]["level"] != "verbose" {
                    self.messages.push(parameters.to_string());
                }
                return;
            }
            Some("Network.requestWillBeSent") => &parameters["request"]["url"],
            Some("Network.webSocketCreated") => &parameters["url"],
            _ => return,
        };
        let request = request.as_str().unwrap_or_default();
        // A page of a file, and data in it, need no network.
        if !["file:", "data:", "blob:", "about:"]
            .iter()
            .any(|scheme| request.starts_with(scheme))
        {
            self.requests.push(request.to_owned());
        }
    }

    /// Sends a call, to the page once there is one.
    fn send(&mut self, method: &str, parameters: Value) -> io::Result<()> {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            call["sessionId"] = json!(session);
        }
        let mut message = call.to_string().into_bytes();
        message.push(0);
        self.to.write_all(&message)
    }

    /// Returns the text that an expression has in the page; empty while the page is replaced by another.
    ///
    /// # Panics
    /// If the browser has ended.
    pub fn text(&mut self, expression: &str) -> String {
        let parameters = json!({ "expression": format!("String({expression})") });
        let found = self.answer("Runtime.evaluate", parameters);
        found["result"]["result"]["value"]
            .as_str()
            .unwrap_or("")
            .to_owned()
    }

    /// Runs a script in the page.
    ///
    /// # Panics
    /// If the browser has ended, or the script fails.
    pub fn run(&mut self, script: &str) {
        let ended = self.call("Runtime.evaluate", json!({ "expression": script }));
        assert_eq!(ended["exceptionDetails"], Value::Null);
    }

    /// Waits until the text of an expression contains this.
    ///
    /// # Panics
    /// If it does not within the limit.
    pub fn await_text(&mut self, expression: &str, wanted: &str) {
        wait_until(wanted, LIMIT, || self.text(expression).contains(wanted));
    }

    /// Types a text into what has the focus.
    ///
    /// # Panics
    /// If the browser has ended.
    pub fn type_text(&mut self, text: &str) {
        for letter in text.chars() {
            let key = json!({ "type": "char", "text": letter });
            let _ = self.call("Input.dispatchKeyEvent", key);
        }
    }

    /// Presses a key: `Tab` or `Enter`.
    ///
    /// # Panics
    /// If the browser has ended.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Enter" => (13, "\r"),
            _ => (9, ""),
        };
        for event in ["keyDown", "keyUp"] {
            let mut parameters =
                json!({ "type": event, "key": key, "code": key, "windowsVirtualKeyCode": code });
            if event == "keyDown" && !text.is_empty() {
                parameters["text"] = json!(text);
            }
            let _ = self.call("Input.dispatchKeyEvent", parameters);
        }
    }
}

impl Drop for OpenPage {
    fn drop(&mut self) {
        // A killed browser leaves a folder behind.
        self.session = None;
        let _ = self.send("Browser.close", json!({}));
        let end = Instant::now() + END;
        while Instant::now() < end && !matches!(self.browser.try_wait(), Ok(Some(_))) {
            thread::sleep(Duration::from_millis(10));
        }
        let _ = self.browser.kill();
        let _ = self.browser.wait();
    }
}
