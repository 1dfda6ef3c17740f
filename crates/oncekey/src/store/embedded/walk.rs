//! Whether the journals, in their order, hold every batch that they must hold.
//!
//! A pure function of what was read: it changes nothing and looks at nothing else.

use std::path::{Path, PathBuf};

use super::error::{Damage, Fault, Missing};
use super::journal::{self, Contents, Tail};
use super::synced::{Gap, Start, Table};

/// What is wrong with the journals, and how far each may be used.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    pub(super) damages: Vec<Damage>,
    /// Every gap in the numbers, the accepted ones too.
    pub(super) gaps: Vec<Gap>,
    /// Journals that hold something behind what is usable: number in the name, usable bytes.
    pub(super) cuts: Vec<(u64, u64)>,
}

/// Judges `journals`, which are those from [`Table::oldest`] on, oldest first.
pub(super) fn judge(database: &Path, table: &Table, journals: &[Contents]) -> Verdict {
    let mut files: Vec<u64> = table.journals.iter().map(|start| start.file).collect();
    files.extend(journals.iter().map(|journal| journal.file));
    files.sort_unstable();
    files.dedup();
    let mut walk =
        Walk { database, table, before: None, last: None, open: None, verdict: Verdict::default() };
    for file in files {
        let listed = table.journals.iter().find(|start| start.file == file).copied();
        match (journals.iter().find(|journal| journal.file == file), listed) {
            (Some(journal), listed) => walk.journal(journal, listed),
            (None, Some(start)) => walk.absent(start),
            (None, None) => {}
        }
    }
    walk.end(journals.last());
    walk.verdict
}

struct Walk<'a> {
    database: &'a Path,
    table: &'a Table,
    /// The journal before, if it is there.
    before: Option<&'a Contents>,
    /// Number and sequence number of the last batch seen.
    last: Option<(u64, u64)>,
    /// Something unreadable; what it held shows in what follows.
    open: Option<Trouble>,
    verdict: Verdict,
}

struct Trouble {
    path: PathBuf,
    offset: u64,
    fault: Fault,
}

impl<'a> Walk<'a> {
    fn trouble(&mut self, path: &Path, offset: u64, fault: Fault) {
        // The first place tells most; the numbers tell how far it reaches.
        self.open.get_or_insert_with(|| Trouble { path: path.to_path_buf(), offset, fault });
    }

    /// A journal that began with `start` and gives nothing.
    fn lacks(&mut self, start: Start) {
        self.last.get_or_insert((start.number.saturating_sub(1), 0));
    }

    fn absent(&mut self, start: Start) {
        let path = self.database.join(journal::name(start.file));
        self.trouble(&path, 0, Fault::Absent);
        self.lacks(start);
        self.before = None;
    }

    fn journal(&mut self, journal: &'a Contents, listed: Option<Start>) {
        let begins = self.beginning(journal, listed);
        match begins {
            Ok(()) => self.runs(journal),
            Err(fault) => {
                self.trouble(&journal.path, 0, fault);
                if journal.length > 0 {
                    self.verdict.cuts.push((journal.file, 0));
                }
            }
        }
        self.before = Some(journal);
    }

    /// Whether the journal begins as it must.
    fn beginning(&mut self, journal: &Contents, listed: Option<Start>) -> Result<(), Fault> {
        let found = journal.start();
        if let Some(start) = listed {
            let fault = match found {
                Some(found) if found == (start.number, start.seqno) => None,
                Some((number, _)) if number == start.number => Some(Fault::Broken),
                Some((found, _)) => Some(Fault::Order { expected: start.number, found }),
                None if journal.tail == Tail::Zeros => Some(Fault::Short),
                None => Some(Fault::Broken),
            };
            if let Some(fault) = fault {
                self.lacks(start);
                return Err(fault);
            }
        }
        let (Some((number, seqno)), Some((last, last_seqno))) = (found, self.last) else {
            return Ok(());
        };
        if number > last && seqno <= last_seqno {
            // One of the two was changed: this one, unless it is known to begin so.
            let (Some(_), Some(before)) = (listed, self.before) else { return Err(Fault::Broken) };
            let Some(run) = before.runs.last() else { return Err(Fault::Broken) };
            self.trouble(&before.path, run.last_at, Fault::Broken);
            self.verdict.cuts.retain(|(file, _)| *file != before.file);
            self.verdict.cuts.push((before.file, run.last_at));
            self.last = Some((last.saturating_sub(1), 0));
        }
        Ok(())
    }

    fn runs(&mut self, journal: &Contents) {
        for run in &journal.runs {
            match self.last {
                Some((last, _)) if run.first <= last => {
                    let fault = Fault::Order { expected: last + 1, found: run.first };
                    self.trouble(&journal.path, run.at, fault);
                    self.verdict.cuts.push((journal.file, run.at));
                    return;
                }
                Some((last, _)) if run.first > last + 1 => {
                    if self.open.is_none() {
                        self.place(journal, run.at, last + 1, run.first);
                    }
                    self.gap(last + 1, run.first - 1);
                }
                Some(_) => self.follows(),
                None => {
                    if let Some(trouble) = self.open.take() {
                        self.tell(trouble, None, Some(run.first.saturating_sub(1)));
                    }
                }
            }
            self.last = Some((run.last, run.last_seqno));
        }
        let fault = match journal.tail {
            Tail::Zeros => return,
            Tail::Torn => Fault::Broken,
            Tail::Unmarked => Fault::Foreign,
        };
        self.trouble(&journal.path, journal.end, fault);
        self.verdict.cuts.push((journal.file, journal.end));
    }

    /// Where a gap lies that nothing unreadable explains.
    fn place(&mut self, journal: &Contents, at: u64, expected: u64, found: u64) {
        match self.before {
            Some(before) if at == 0 && before.file + 1 == journal.file => {
                self.trouble(&before.path, before.end, Fault::Short);
            }
            Some(before) if at == 0 => {
                let path = self.database.join(journal::name(before.file + 1));
                self.trouble(&path, 0, Fault::Absent);
            }
            _ => self.trouble(&journal.path, at, Fault::Order { expected, found }),
        }
    }

    /// The next batch is the next number: whatever could not be read was no batch of the store.
    fn follows(&mut self) {
        if let Some(trouble) = self.open.take()
            && trouble.fault != Fault::Broken
        {
            self.tell(trouble, None, None);
        }
    }

    fn gap(&mut self, first: u64, last: u64) {
        let gap = Gap { first, last };
        self.verdict.gaps.push(gap);
        let Some(trouble) = self.open.take() else { return };
        if !self.table.gaps.contains(&gap) {
            self.tell(trouble, Some(first), Some(last));
        }
    }

    fn tell(&mut self, trouble: Trouble, first: Option<u64>, last: Option<u64>) {
        let Trouble { path: file, offset, fault } = trouble;
        let missing = Missing { first, last };
        self.verdict.damages.push(Damage::Journal { file, offset, fault, missing });
    }

    /// Nothing follows: is the last batch the one that was synced, or a later one?
    fn end(&mut self, journal: Option<&Contents>) {
        let synced = self.table.highest.number;
        if let Some((last, _)) = self.last
            && last < synced
        {
            if self.open.is_none() {
                let (path, end) = match journal {
                    Some(journal) => (journal.path.clone(), journal.end),
                    None => (self.database.to_path_buf(), 0),
                };
                self.trouble(&path, end, Fault::Short);
            }
            self.gap(last + 1, synced);
            return;
        }
        let Some(trouble) = self.open.take() else { return };
        // A crash tore the end of the last journal: nobody was told of what it held.
        let torn = trouble.fault == Fault::Broken
            && journal.is_some_and(|it| it.path == trouble.path && it.end == trouble.offset);
        if !torn {
            let first = self.last.map(|(last, _)| last + 1);
            self.tell(trouble, first, None);
        }
    }
}
