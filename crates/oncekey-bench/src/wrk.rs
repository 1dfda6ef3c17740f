//! wrk, the load: a script says what each request is, a line at the end what came of it.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// wrk's threads: one a core of a small machine.
const THREADS: u32 = 2;

/// How the keys of the requests are chosen.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keys {
    /// No request has one.
    None,
    /// Each request has another one, in no other run either.
    Fresh,
    /// The keys of [`known_key`], over and over.
    Known,
}

/// How many keys are replayed.
pub(crate) const KNOWN_KEYS: u32 = 256;

/// The key with that number.
pub(crate) fn known_key(number: u32) -> String {
    format!("known-{number:08}-4f1c-9d7a")
}

/// The body of every request: 200 bytes of JSON.
pub(crate) fn body() -> String {
    let start = r#"{"amount":4200,"currency":"eur","customer":"cu_8812","description":""#;
    let end = r#""}"#;
    format!("{start}{}{end}", "o".repeat(200 - start.len() - end.len()))
}

/// Where every request goes.
pub(crate) const PATH: &str = "/charges";

/// What came of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Run {
    pub(crate) requests: u64,
    pub(crate) per_second: f64,
    /// 99 of a hundred requests took no longer, in microseconds.
    pub(crate) p99: f64,
}

/// A load generator whose scripts lie in a folder.
pub(crate) struct Wrk {
    pub(crate) folder: PathBuf,
    pub(crate) connections: u32,
    /// Runs so far: fresh keys bear the number of their run.
    pub(crate) runs: u32,
}

impl Wrk {
    /// Loads `address` for some seconds; an error if any answer was missing or none of success.
    pub(crate) fn run(&mut self, address: SocketAddr, keys: Keys, seconds: u32) -> Result<Run> {
        self.runs += 1;
        let script = self.folder.join(format!("load-{}.lua", self.runs));
        fs::write(&script, self.script(keys))?;
        let connections = self.connections.to_string();
        let output = Command::new("wrk")
            .args(["-t", &THREADS.to_string(), "-c", &connections, "-d", &format!("{seconds}s")])
            .args(["--timeout", "10s", "-s"])
            .arg(&script)
            .arg(format!("http://{address}{PATH}"))
            .output()
            .context("cannot start wrk")?;
        let said = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("wrk failed: {said}{}", String::from_utf8_lossy(&output.stderr));
        }
        read(&said)
    }

    /// A program for each of wrk's threads.
    fn script(&self, keys: Keys) -> String {
        match keys {
            Keys::None => format!("local whole = {}\n{CONSTANT}{DONE}", request("")),
            Keys::Fresh => {
                let whole = request(r#"Idempotency-Key: \"@\"\r\n"#);
                let split = whole.replacen('@', &format!("fresh-{:06}-\", \"", self.runs), 1);
                format!("local head, tail = {split}\n{COUNTED}{DONE}")
            }
            Keys::Known => {
                let known = (0..KNOWN_KEYS).map(|number| {
                    let key = known_key(number);
                    request(&format!(r#"Idempotency-Key: \"{key}\"\r\n"#)) + ",\n"
                });
                format!("local known = {{\n{}}}\n{CYCLE}{DONE}", known.collect::<String>())
            }
        }
    }
}

/// A whole request as a string of Lua; `key` is the line of its key, if it has one.
fn request(key: &str) -> String {
    let body = body();
    let length = body.len();
    let body = body.replace('"', r#"\""#);
    format!(
        "\"POST {PATH} HTTP/1.1\\r\\nHost: bench\\r\\nContent-Type: application/json\\r\\n\
         {key}Content-Length: {length}\\r\\n\\r\\n{body}\""
    )
}

const CONSTANT: &str = "function request() return whole end\n";

/// Threads share no state: each one's keys bear its number.
const COUNTED: &str = "
local threads = 0
function setup(thread)
  threads = threads + 1
  thread:set(\"number\", threads)
end
function init() head = head .. number .. \"-\" end
local n = 0
function request()
  n = n + 1
  return head .. n .. tail
end
";

const CYCLE: &str = "
local n = 0
function request()
  n = n % #known + 1
  return known[n]
end
";

/// The last line of a run, for [`read`].
const DONE: &str = "
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(\"RESULT %d %d %d %d %d %d %d %.1f\\n\", summary.requests,
    summary.duration, e.connect, e.read, e.write, e.status, e.timeout, latency:percentile(99)))
end
";

fn read(said: &str) -> Result<Run> {
    let line = said.lines().find_map(|line| line.strip_prefix("RESULT "));
    let fields: Vec<f64> = line
        .with_context(|| format!("wrk told no result: {said}"))?
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [requests, micros, connect, read, write, status, timeout, p99] = fields[..] else {
        bail!("wrk's result has other fields: {said}");
    };
    if connect + read + write + status + timeout > 0.0 {
        bail!(
            "not every request was answered with success: {connect} did not connect, {read} were \
             not read, {write} not written, {status} had another status, {timeout} timed out"
        );
    }
    if said.contains("Non-2xx") || requests < 1.0 {
        bail!("not every request was answered with success: {said}");
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // A count that wrk printed.
    let count = requests as u64;
    Ok(Run { requests: count, per_second: requests * 1e6 / micros, p99 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_without_errors_is_read() {
        let run = read("Running 6s test\nRESULT 120 6000000 0 0 0 0 0 810.0\n").expect("a result");
        assert_eq!(run, Run { requests: 120, per_second: 20.0, p99: 810.0 });
    }

    #[test]
    fn any_answer_but_success_fails_the_bench() {
        assert!(read("RESULT 120 6000000 0 0 0 1 0 810.0\n").is_err());
        assert!(read("RESULT 120 6000000 0 1 0 0 0 810.0\n").is_err());
        assert!(read("RESULT 120 6000000 0 0 0 0 2 810.0\n").is_err());
        assert!(read("RESULT 0 6000000 0 0 0 0 0 0.0\n").is_err());
        assert!(read("wrk fell over\n").is_err());
    }

    #[test]
    fn a_request_has_two_hundred_bytes() {
        assert_eq!(body().len(), 200);
    }
}
