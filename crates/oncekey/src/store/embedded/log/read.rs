//! Reading the log of a store that nobody has open.
//!
//! 1. Whatever a slot holds besides frames is passed over: room that was never written, frames of
//!    an earlier round that are half overwritten, the torn frame of a crash.
//! 2. So what is missing is told by numbers alone: from the last batch that is known to be in the
//!    tables to the last that is known to be acknowledged, or found, none may be absent.
//! 3. A frame is believed by its checksum, whose seed nobody outside the folder knows.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::super::check::Journal;
use super::super::error::{Damage, Fault, Missing};
use super::super::folder;
use super::super::layout::Mark;
use super::super::synced::{Gap, Table};
use super::frame::{self, Changed};

/// Where a frame lies.
#[derive(Clone, Copy, Debug)]
struct Place {
    slot: usize,
    offset: usize,
    length: usize,
    mark: Mark,
}

/// What the slots hold.
#[derive(Debug, Default)]
pub(in super::super) struct Slots {
    folder: PathBuf,
    paths: Vec<(PathBuf, u64)>,
    /// By number, those that are in the tables already among them.
    frames: Vec<Place>,
}

/// Reads the log of the store at `path`; a store without one has an empty one.
pub(in super::super) fn scan(path: &Path) -> io::Result<Slots> {
    let folder = path.join(super::NAME);
    let mut slots = Slots { folder: folder.clone(), ..Slots::default() };
    for path in list(&folder)? {
        let bytes = fs::read(&path)?;
        slots.read(&bytes);
        slots.paths.push((path, bytes.len() as u64));
    }
    slots.frames.sort_by_key(|place| place.mark.logged);
    Ok(slots)
}

fn list(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in folder::entries(folder)? {
        let number = entry.file_name().to_str().and_then(|name| name.parse::<usize>().ok());
        if let Some(number) = number.filter(|number| *number < super::SLOTS) {
            found.push((number, entry.path()));
        }
    }
    found.sort_unstable();
    Ok(found.into_iter().map(|(_, path)| path).collect())
}

impl Slots {
    fn read(&mut self, bytes: &[u8]) {
        let Some(seed) = frame::seed(bytes) else { return };
        let (slot, mut offset) = (self.paths.len(), frame::FIRST);
        while offset < bytes.len() {
            match frame::decode(&bytes[offset..], seed) {
                Some(found) => {
                    let (length, mark) = (found.length, found.mark);
                    self.frames.push(Place { slot, offset, length, mark });
                    offset += length.next_multiple_of(8);
                }
                None => offset += 8,
            }
        }
    }

    /// The highest of every part of what is there, its number included.
    pub(in super::super) fn highest(&self) -> Mark {
        self.frames.iter().fold(Mark::default(), |mark, place| mark.max(place.mark))
    }

    /// The slots that are there, and their lengths.
    pub(in super::super) fn files(&self) -> &[(PathBuf, u64)] {
        &self.paths
    }

    /// Where the slots are.
    pub(in super::super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// What is missing of what `known` says, but for what a person has accepted.
    pub(in super::super) fn lacks(&self, known: &Table) -> Vec<Damage> {
        let mut damages = Vec::new();
        for (before, gap) in self.holes(known.applied) {
            if !known.skips.contains(&gap) {
                damages.push(self.missing(before, gap, Fault::Broken));
            }
        }
        let last = self.after(known.applied).last();
        let first = last.map_or(known.applied, |place| place.mark.logged) + 1;
        if first <= known.highest.logged {
            let gap = Gap { first, last: known.highest.logged };
            damages.push(self.missing(last, gap, Fault::Short));
        }
        damages
    }

    /// What each slot holds after batch `applied`.
    pub(in super::super) fn told(&self, applied: u64) -> Vec<Journal> {
        let mut told: Vec<_> = self
            .paths
            .iter()
            .map(|(path, length)| Journal {
                path: path.clone(),
                length: *length,
                intact: 0,
                batches: 0,
                first: None,
                last: None,
                torn: false,
            })
            .collect();
        for place in self.after(applied) {
            let slot = &mut told[place.slot];
            slot.intact = (place.offset + place.length) as u64;
            slot.batches += 1;
            slot.first = slot.first.or(Some(place.mark.logged));
            slot.last = Some(place.mark.logged);
        }
        told
    }

    /// What is missing between the frames after batch `applied`.
    pub(in super::super) fn gaps(&self, applied: u64) -> Vec<Gap> {
        self.holes(applied).into_iter().map(|(_, gap)| gap).collect()
    }

    /// The same, each with the frame before it, if there is one.
    fn holes(&self, applied: u64) -> Vec<(Option<&Place>, Gap)> {
        let (mut before, mut next) = (None, applied + 1);
        let mut holes = Vec::new();
        for place in self.after(applied) {
            let number = place.mark.logged;
            if number > next {
                holes.push((before, Gap { first: next, last: number - 1 }));
            }
            (before, next) = (Some(place), number + 1);
        }
        holes
    }

    /// These batches are missing behind `before`.
    fn missing(&self, before: Option<&Place>, gap: Gap, fault: Fault) -> Damage {
        let missing = Missing { first: Some(gap.first), last: Some(gap.last) };
        match before {
            Some(place) => {
                let file = self.paths[place.slot].0.clone();
                let offset = (place.offset + place.length) as u64;
                Damage::Journal { file, offset, fault, missing }
            }
            None => Damage::Journal { file: self.folder.clone(), offset: 0, fault, missing },
        }
    }

    /// Frames after a number, in order; of two with one number the first alone.
    fn after(&self, number: u64) -> impl Iterator<Item = &Place> {
        let mut last = number;
        self.frames.iter().filter(move |place| {
            let is_next = place.mark.logged > last;
            last = last.max(place.mark.logged);
            is_next
        })
    }

    /// Without knowing what is in the tables: the batch before the last unbroken row of frames.
    /// What lies before a gap may be older than what the tables hold.
    pub(in super::super) fn unbroken(&self) -> u64 {
        let mut next = None;
        for place in self.frames.iter().rev() {
            let number = place.mark.logged;
            match next {
                Some(known) if number == known => {}
                Some(known) if number + 1 != known => break,
                _ => next = Some(number),
            }
        }
        next.map_or(0, |first| first - 1)
    }
}

/// Hands every frame after batch `applied` to `apply`, in order.
///
/// # Errors
/// What the system says; a frame that makes no sense is [`io::ErrorKind::InvalidData`].
pub(in super::super) fn replay(
    slots: &Slots,
    applied: u64,
    mut apply: impl FnMut(Mark, Vec<Changed>),
) -> io::Result<()> {
    let open = |(path, _): &(PathBuf, u64)| {
        let file = File::open(path)?;
        let mut head = [0; frame::FIRST];
        // One that is no slot holds no frame either.
        let _ = file.read_exact_at(&mut head, 0);
        io::Result::Ok((file, frame::seed(&head)))
    };
    let files = slots.paths.iter().map(open).collect::<io::Result<Vec<_>>>()?;
    let mut bytes = Vec::new();
    for place in slots.after(applied) {
        let (file, seed) = &files[place.slot];
        bytes.resize(place.length, 0);
        file.read_exact_at(&mut bytes, place.offset as u64)?;
        let changes = seed.and_then(|seed| frame::decode(&bytes, seed)?.changes());
        apply(place.mark, changes.ok_or(io::ErrorKind::InvalidData)?);
    }
    Ok(())
}
