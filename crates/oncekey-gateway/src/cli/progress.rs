//! How far long work has come, drawn on one line for people and for nobody else.

use std::io::{self, IsTerminal, Write};

use oncekey::store::embedded::{Progress, Step};

/// How wide the bar is, in characters.
const WIDTH: u64 = 30;

/// Draws on the same line again and again; wipes it out when dropped.
pub(super) struct Bar<W: Write> {
    /// `None` where nobody looks.
    out: Option<W>,
    drawn: Option<(Step, u64)>,
}

impl Bar<io::Stderr> {
    /// On standard error, if that is a terminal.
    pub(super) fn on_terminal() -> Self {
        let err = io::stderr();
        Self { out: err.is_terminal().then_some(err), drawn: None }
    }
}

impl<W: Write> Bar<W> {
    /// Draws it where it is to look different.
    pub(super) fn show(&mut self, progress: Progress) {
        let Some(out) = &mut self.out else { return };
        let percent = progress.done.saturating_mul(100) / progress.total.max(1);
        let now = (progress.step, percent.min(100));
        if self.drawn == Some(now) {
            return;
        }
        self.drawn = Some(now);
        let what = match progress.step {
            Step::Files => "comparing files",
            Step::Records => "reading records",
            Step::Copy => "copying files",
            _ => "working",
        };
        let full = "#".repeat(usize::try_from(now.1 * WIDTH / 100).unwrap_or(0));
        let width = usize::try_from(WIDTH).unwrap_or(0);
        // It is only for show: where it cannot be drawn, the work goes on.
        let _ =
            write!(out, "\r{what:<16}[{full:<width$}] {:>3} %", now.1).and_then(|()| out.flush());
    }
}

impl<W: Write> Drop for Bar<W> {
    fn drop(&mut self) {
        if let (Some(out), Some(_)) = (&mut self.out, self.drawn) {
            let _ = write!(out, "\r{:60}\r", "").and_then(|()| out.flush());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncekey::store::embedded::{EmbeddedStore, Options, check};

    #[test]
    fn a4_it_is_drawn_on_one_line_and_wiped_out() {
        let folder = tempfile::tempdir().unwrap();
        drop(EmbeddedStore::open(folder.path(), Options::default()).unwrap());
        let mut drawn = Vec::new();
        let mut bar = Bar { out: Some(&mut drawn), drawn: None };
        check(folder.path(), &mut |progress| bar.show(progress)).unwrap();
        drop(bar);
        let drawn = String::from_utf8(drawn).unwrap();
        assert!(!drawn.contains('\n'));
        assert!(drawn.contains(&format!("reading records [{}] 100 %", "#".repeat(30))), "{drawn}");
        assert!(drawn.split('\r').all(|line| line.len() <= 60), "{drawn}");
        assert!(drawn.ends_with('\r'));
    }

    #[test]
    fn a4_nothing_is_drawn_where_nobody_looks() {
        let folder = tempfile::tempdir().unwrap();
        drop(EmbeddedStore::open(folder.path(), Options::default()).unwrap());
        let mut bar = Bar::<Vec<u8>> { out: None, drawn: None };
        check(folder.path(), &mut |progress| bar.show(progress)).unwrap();
        assert_eq!(bar.drawn, None);
    }
}
