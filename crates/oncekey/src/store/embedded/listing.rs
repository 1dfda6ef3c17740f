//! Listing: a page of records in order of id, merged from all keyspaces.
//!
//! 1. A page sees one moment: a record that moves between keyspaces is listed once.
//! 2. Records that cannot be read are skipped and counted (X3).
//! 3. A page looks at a bounded number of entries: it may come back short, with a cursor.

use std::ops::Bound;

use fjall::{Iter, KvPair, Readable};

use super::view::View;
use crate::key::RecordId;
use crate::record::codec;
use crate::record::{Record, Standing};
use crate::store::{Cursor, Filter, Page, StoreError, StoreErrorKind};

/// The most records that one page lists.
const MAX_PAGE: usize = 10_000;

/// The most entries that one page looks at.
const MAX_LOOKS: usize = 200_000;

/// Collects a page. Reads the disk: not for a thread that serves.
pub(super) fn page(
    view: &View,
    filter: &Filter,
    cursor: Option<Cursor>,
    limit: usize,
) -> Result<Page, StoreError> {
    let now = view.clock.now();
    let (snapshot, keyspaces) = view.snapshot();
    let after = cursor.map_or(Bound::Unbounded, |cursor| Bound::Excluded(*cursor.0.as_bytes()));
    let range = (after, Bound::Unbounded);
    let mut sources = vec![Source::new(snapshot.range(&keyspaces.live, range))?];
    if !wants_live_alone(filter) {
        for part in &keyspaces.ended {
            sources.push(Source::new(snapshot.range(&part.keyspace, range))?);
        }
    }

    let limit = limit.clamp(1, MAX_PAGE);
    let (mut page, mut last) = (Page::default(), None);
    for _ in 0..MAX_LOOKS {
        let Some(id) = sources.iter().filter_map(Source::id).min() else {
            return Ok(page);
        };
        if page.records.len() == limit {
            break;
        }
        match newest(view, &mut sources, id)? {
            Some(record) if filter.matches(&record, now) => page.records.push(record),
            Some(_) => {}
            None => page.unreadable += 1,
        }
        last = Some(Cursor(id));
    }
    page.next = last;
    Ok(page)
}

/// Whether everything that matches is in progress or unknown.
fn wants_live_alone(filter: &Filter) -> bool {
    matches!(filter.standing, Some(Standing::InProgress | Standing::Unknown))
}

/// Takes `id` out of every source; `None` where it cannot be read.
fn newest(view: &View, sources: &mut [Source], id: RecordId) -> Result<Option<Record>, StoreError> {
    let mut best: Option<Record> = None;
    let mut readable = true;
    for source in sources.iter_mut().filter(|source| source.id() == Some(id)) {
        let Some((_, value)) = source.next()? else { continue };
        match codec::decode(&value) {
            // An old copy that is over may still lie in its bucket.
            Ok(record) if record.id == id => {
                if best.as_ref().is_none_or(|best| best.version < record.version) {
                    best = Some(record);
                }
            }
            _ => readable = false,
        }
    }
    let Some(best) = best.filter(|_| readable) else { return Ok(None) };
    if best.gone_at().is_none() {
        // A renewed lease is known in memory alone.
        if let Some(held) = view.live(&id).filter(|held| held.version == best.version) {
            return Ok(Some(Record::clone(&held)));
        }
    }
    Ok(Some(best))
}

/// The entries of one keyspace, in order of id.
struct Source {
    iter: Iter,
    head: Option<KvPair>,
}

impl Source {
    fn new(iter: Iter) -> Result<Self, StoreError> {
        let mut source = Self { iter, head: None };
        source.next()?;
        Ok(source)
    }

    fn id(&self) -> Option<RecordId> {
        let (key, _) = self.head.as_ref()?;
        <[u8; 32]>::try_from(&**key).ok().map(RecordId::from_bytes)
    }

    /// The entry at the head; the next one with an id takes its place.
    fn next(&mut self) -> Result<Option<KvPair>, StoreError> {
        let head = self.head.take();
        for entry in self.iter.by_ref() {
            let pair = entry
                .into_inner()
                .map_err(|error| StoreError::caused(StoreErrorKind::Unreadable, error))?;
            // The mark is no record.
            if pair.0.len() == 32 {
                self.head = Some(pair);
                break;
            }
        }
        Ok(head)
    }
}
