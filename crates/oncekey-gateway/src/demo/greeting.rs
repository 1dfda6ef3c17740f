//! What the demo says on the terminal: where things are, and three lines to try.
//!
//! 1. Every line can be pasted into a shell as it stands; they need nothing but curl.
//! 2. Each is followed by the answer to expect, so that a reader can tell that it worked.
//! 3. Colours only where the caller says so.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;

/// Whether the terminal shows colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    Plain,
    Coloured,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        match self {
            Self::Plain => text.to_owned(),
            Self::Coloured => format!("\x1b[{code}m{text}\x1b[0m"),
        }
    }

    fn strong(self, text: &str) -> String {
        self.paint("1", text)
    }

    fn link(self, text: &str) -> String {
        self.paint("4;36", text)
    }

    fn command(self, text: &str) -> String {
        self.paint("32", text)
    }

    fn faint(self, text: &str) -> String {
        self.paint("2", text)
    }
}

/// What the demo started.
#[derive(Debug)]
pub(super) struct Greeting<'a> {
    pub(super) gateway: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) shop: SocketAddr,
    pub(super) folder: &'a Path,
}

impl Greeting<'_> {
    /// The whole greeting.
    pub(super) fn text(&self, style: Style) -> String {
        let mut out = String::from("\n");
        let title = style.strong("oncekey demo");
        let _ = writeln!(out, "  {title}  a double click charges once\n");
        self.places(style, &mut out);
        for (number, trial) in self.trials().iter().enumerate() {
            let heading = style.strong(&format!("{}. {}", number + 1, trial.heading));
            let command = style.command(&trial.command);
            let _ = writeln!(out, "  {heading}\n\n     {command}\n");
            for line in trial.expect {
                let _ = writeln!(out, "     {}", style.faint(line));
            }
            out.push('\n');
        }
        let folder = format!("The records lie in {} and go with it.", self.folder.display());
        let _ = writeln!(out, "  {} {}\n", style.strong("Ctrl-C stops."), style.faint(&folder));
        out
    }

    fn places(&self, style: Style, out: &mut String) {
        let Self { gateway, admin, shop, .. } = self;
        let rows = [
            ("Shop", format!("http://{gateway}/"), "a page with a pay button: press it twice"),
            ("Ledger", format!("http://{gateway}/ledger"), "every charge that really ran"),
            ("Metrics", format!("http://{admin}/metrics"), "claims, replays, what is unknown"),
            ("No gateway", format!("http://{shop}/"), "the same shop, unprotected: pays twice"),
        ];
        let width = rows.iter().map(|(_, url, _)| url.len()).max().unwrap_or(0);
        for (name, url, what) in &rows {
            let room = " ".repeat(width - url.len());
            let (url, what) = (style.link(url), style.faint(what));
            let _ = writeln!(out, "  {name:<10}  {url}{room}  {what}");
        }
        out.push('\n');
    }

    fn trials(&self) -> [Trial; 3] {
        let pay = |options: &str, key: &str, amount: u32| {
            let body = format!("'{{\"item\":\"coffee\",\"amount\":{amount}}}'");
            let url = format!("http://{}/api/pay", self.gateway);
            format!("curl {options} {url} -H 'Idempotency-Key: {key}' -d {body}")
        };
        [
            Trial {
                heading: "Replay: run this line twice",
                command: pay("-i", "order-1", 420),
                expect: &[
                    "First 201 with `Idempotency-Status: stored`: the shop ran and charged.",
                    "Then the same 201, body and all, with `Idempotent-Replayed: true`:",
                    "the shop was not asked.",
                ],
            },
            Trial {
                heading: "Mismatch: the same key for another amount",
                command: pay("-i", "order-1", 9900),
                expect: &[
                    "422 with code `key-reused`: a key stands for one request.",
                    "Nothing was charged.",
                ],
            },
            Trial {
                heading: "Concurrent duplicates: two at the same moment",
                command: format!("for i in 1 2; do {} & done; wait", pay("-is", "order-2", 420)),
                expect: &[
                    "Two answers with the same charge: one ran, the other waited for it and was",
                    "replayed. The ledger shows one more charge, not two.",
                ],
            },
        ]
    }
}

/// A line to try.
struct Trial {
    heading: &'static str,
    command: String,
    expect: &'static [&'static str],
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Greeting<'static> {
        Greeting {
            gateway: SocketAddr::from(([127, 0, 0, 1], 8080)),
            admin: SocketAddr::from(([127, 0, 0, 1], 9090)),
            shop: SocketAddr::from(([127, 0, 0, 1], 40123)),
            folder: Path::new("/tmp/oncekey-demo-x"),
        }
    }

    #[test]
    fn a1_the_greeting_shows_three_curl_lines_and_where_things_are() {
        let text = greeting().text(Style::Plain);
        let curls: Vec<&str> = text.lines().filter(|line| line.contains("curl ")).collect();
        assert_eq!(curls.len(), 3, "{text}");
        assert!(curls.iter().all(|line| line.contains("http://127.0.0.1:8080/api/pay")), "{text}");
        assert!(curls[0].contains("order-1") && curls[1].contains("order-1"), "{text}");
        assert!(curls[2].contains("& done; wait") && !curls[2].contains("order-1"), "{text}");
        for url in ["127.0.0.1:8080/ledger", "127.0.0.1:9090/metrics", "127.0.0.1:40123/"] {
            assert!(text.contains(url), "{url} is missing in {text}");
        }
        for said in ["`Idempotent-Replayed: true`", "422", "`key-reused`"] {
            assert!(text.contains(said), "{said} is missing in {text}");
        }
    }

    #[test]
    fn a1_a_pipe_gets_no_escape_codes_and_no_overlong_prose() {
        let text = greeting().text(Style::Plain);
        assert!(!text.contains('\x1b'));
        assert!(text.is_ascii());
        let prose = text.lines().filter(|line| !line.contains("curl "));
        assert!(prose.clone().all(|line| line.len() <= 100), "{text}");
        assert!(greeting().text(Style::Coloured).contains("\x1b[1m"));
    }
}
