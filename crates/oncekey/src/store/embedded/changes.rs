//! Changes that are decided: for each record touched, where it lay and what it becomes.
//!
//! A record that several calls touch is changed once, as the last of them left it.

use std::collections::HashMap;
use std::sync::Arc;

use super::layout::Bucket;
use crate::key::RecordId;
use crate::record::Record;

/// Where a record lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Absent,
    Live,
    Bucket(Bucket),
}

impl Place {
    /// Where `record` belongs.
    pub(super) fn of(record: Option<&Record>) -> Self {
        match record {
            None => Self::Absent,
            Some(record) => Bucket::of(record).map_or(Self::Live, Self::Bucket),
        }
    }
}

/// A record as a decision finds it.
#[derive(Clone)]
pub(super) struct Found {
    /// Where it lay before the changes.
    pub(super) place: Place,
    /// What it is by now, the changes counted.
    pub(super) record: Option<Arc<Record>>,
}

/// How far a change reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Reach {
    /// A lease alone: it ends with this process, so it is kept in memory.
    Memory,
    /// It must be on disk before it is told.
    Disk,
}

/// One record that is changed.
pub(super) struct Pending {
    pub(super) id: RecordId,
    pub(super) found: Found,
    pub(super) reach: Reach,
}

impl Pending {
    /// Whether the disk is changed by it.
    pub(super) fn is_written(&self) -> bool {
        let comes_and_goes = self.found.place == Place::Absent && self.found.record.is_none();
        self.reach == Reach::Disk && !comes_and_goes
    }
}

/// Changes to many records, one each.
#[derive(Default)]
pub(super) struct Changes {
    list: Vec<Pending>,
    index: HashMap<RecordId, usize>,
}

impl Changes {
    /// The record, if it is changed.
    pub(super) fn get(&self, id: &RecordId) -> Option<&Found> {
        self.index.get(id).map(|at| &self.list[*at].found)
    }

    /// Takes note of a change.
    pub(super) fn put(&mut self, id: RecordId, found: Found, reach: Reach) {
        if let Some(at) = self.index.get(&id) {
            let pending = &mut self.list[*at];
            pending.reach = pending.reach.max(reach);
            pending.found.record = found.record;
            return;
        }
        self.index.insert(id, self.list.len());
        self.list.push(Pending { id, found, reach });
    }

    /// How many records are changed.
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Those that the disk is changed by.
    pub(super) fn written(&self) -> impl Iterator<Item = &Pending> {
        self.list.iter().filter(|pending| pending.is_written())
    }

    /// Empties it for the next round; its room is kept.
    pub(super) fn take(&mut self) -> std::vec::Drain<'_, Pending> {
        self.index.clear();
        self.list.drain(..)
    }
}
