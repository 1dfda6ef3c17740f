//! What callers ask of the writer, and how they are answered.
//!
//! An answer is kept until the batch that it belongs to is committed: what it tells holds then, or
//! it is replaced by an error.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;

use super::mailbox::Mailbox;
use crate::clock::Stamp;
use crate::key::RecordId;
use crate::record::{Lease, Outcome, Record, Retention, Version};
use crate::store::{
    By, Change, Changed, Claim, Claimed, Ending, Held, Note, StoreError, StoreErrorKind,
};

/// Where an answer goes.
pub(super) type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

/// One call, and the runtime that it came from.
pub(super) struct Call {
    pub(super) request: Request,
    pub(super) from: Option<Arc<Mailbox>>,
}

/// What is asked, with the way back to its caller.
pub(super) enum Request {
    Claim {
        claim: Box<Claim>,
        arrived: Stamp,
        reply: Reply<Claimed>,
    },
    Renew {
        lease: Lease,
        ttl: Duration,
        note: Option<Note>,
        reply: Reply<Held>,
    },
    Complete {
        lease: Lease,
        outcome: Outcome,
        keep: Retention,
        reply: Reply<Held>,
    },
    End {
        lease: Lease,
        how: Ending,
        reply: Reply<Held>,
    },
    Get {
        id: RecordId,
        reply: Reply<Option<Arc<Record>>>,
    },
    Change {
        id: RecordId,
        seen: Version,
        change: Change,
        by: By,
        reply: Reply<Changed>,
    },
    Take {
        wish: Take,
        reply: Reply<Vec<(Record, Lease)>>,
    },
    /// Passed on to the applier, if anything may be deleted.
    Purge {
        reply: Reply<Purged>,
    },
    Sweep {
        ids: Vec<RecordId>,
        reply: Reply<Option<usize>>,
    },
}

/// What one step of a purge did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purged {
    /// It deleted a bucket.
    Bucket {
        /// About how many records that held.
        records: usize,
    },
    /// The files of the last one are still being removed.
    Later,
    /// No bucket is over, or none may be deleted now.
    Nothing,
}

/// Which unknown records recovery wants.
pub(super) struct Take {
    /// Found without the writer; looked at again by it.
    pub(super) candidates: Vec<RecordId>,
    pub(super) stale_for: Duration,
    pub(super) ttl: Duration,
    pub(super) max_attempts: u32,
}

/// An answer that waits for its batch.
pub(super) enum Answer {
    Claim(Reply<Claimed>, Result<Claimed, StoreError>),
    Held(Reply<Held>, Result<Held, StoreError>),
    Get(Reply<Option<Arc<Record>>>, Result<Option<Arc<Record>>, StoreError>),
    Change(Reply<Changed>, Result<Changed, StoreError>),
    Take(Reply<Vec<(Record, Lease)>>, Vec<(Record, Lease)>),
    Purge(Reply<Purged>, Purged),
    Sweep(Reply<Option<usize>>, Option<usize>),
    /// Somebody else answers.
    Nothing,
}

impl Answer {
    /// Answers the caller, who may have left.
    pub(super) fn send(self) {
        match self {
            Self::Claim(reply, result) => drop(reply.send(result)),
            Self::Held(reply, result) => drop(reply.send(result)),
            Self::Get(reply, result) => drop(reply.send(result)),
            Self::Change(reply, result) => drop(reply.send(result)),
            Self::Take(reply, taken) => drop(reply.send(Ok(taken))),
            Self::Purge(reply, purged) => drop(reply.send(Ok(purged))),
            Self::Sweep(reply, ended) => drop(reply.send(Ok(ended))),
            Self::Nothing => {}
        }
    }

    /// Answers with trouble instead.
    pub(super) fn fail(self, kind: StoreErrorKind) {
        match self {
            Self::Claim(reply, _) => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Held(reply, _) => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Get(reply, _) => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Change(reply, _) => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Take(reply, _) => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Purge(reply, _) => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Sweep(reply, _) => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Nothing => {}
        }
    }
}

impl Request {
    /// About how many bytes it brings.
    pub(super) fn size(&self) -> usize {
        match self {
            Self::Complete { outcome, .. }
            | Self::Change { change: Change::Complete(outcome, _), .. } => outcome.bytes().len(),
            _ => 0,
        }
    }

    /// Answers with trouble, without looking at anything.
    pub(super) fn refuse(self, kind: StoreErrorKind) {
        match self {
            Self::Claim { reply, .. } => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Renew { reply, .. } | Self::Complete { reply, .. } | Self::End { reply, .. } => {
                drop(reply.send(Err(StoreError::new(kind))));
            }
            Self::Get { reply, .. } => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Change { reply, .. } => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Take { reply, .. } => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Purge { reply } => drop(reply.send(Err(StoreError::new(kind)))),
            Self::Sweep { reply, .. } => drop(reply.send(Err(StoreError::new(kind)))),
        }
    }
}
