//! The way back to the callers' runtimes.
//!
//! The writer answers many calls at a time. Waking each caller by itself would cross threads as
//! often as there are callers, and on a busy machine each crossing costs more than the call. All
//! answers of a batch that go to one runtime are put in its mailbox instead, the runtime is woken
//! once, and a task of its own hands them out.
//!
//! 1. A mailbox belongs to one runtime and goes with it; answers to a runtime that is gone are
//!    given directly, to whoever may still listen.
//! 2. Nothing is bounded here beyond the batch: one answer a call, and calls are bounded.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::runtime::{Handle, Id};
use tokio::sync::Notify;

use super::request::Answer;

/// Runtimes that a thread works for by turns, at most: nearly always one.
const KNOWN: usize = 8;

thread_local! {
    /// The mailboxes of the runtimes that this thread worked for last.
    static MINE: RefCell<Vec<(Id, Arc<Mailbox>)>> = const { RefCell::new(Vec::new()) };
}

/// Where one runtime's answers lie until it hands them out.
pub(super) struct Mailbox {
    /// `None` once the runtime is gone.
    answers: Mutex<Option<Vec<Answer>>>,
    come: Notify,
}

impl Mailbox {
    /// The mailbox of the runtime that the caller runs in; none outside of any.
    pub(super) fn here() -> Option<Arc<Self>> {
        let runtime = Handle::try_current().ok()?;
        MINE.with_borrow_mut(|mine| {
            if let Some((_, mailbox)) = mine.iter().find(|(id, _)| *id == runtime.id()) {
                return Some(Arc::clone(mailbox));
            }
            let mailbox =
                Arc::new(Self { answers: Mutex::new(Some(Vec::new())), come: Notify::new() });
            runtime.spawn(hand_out(Open(Arc::clone(&mailbox))));
            mine.truncate(KNOWN - 1);
            mine.insert(0, (runtime.id(), Arc::clone(&mailbox)));
            Some(mailbox)
        })
    }

    /// Puts an answer in, to be handed out after [`ring`](Self::ring).
    pub(super) fn put(&self, answer: Answer) {
        let mut answers = self.answers();
        match &mut *answers {
            Some(answers) => answers.push(answer),
            None => {
                drop(answers);
                answer.send();
            }
        }
    }

    /// Wakes the runtime.
    pub(super) fn ring(&self) {
        self.come.notify_one();
    }

    fn answers(&self) -> MutexGuard<'_, Option<Vec<Answer>>> {
        // Nothing that panics runs under this lock.
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes the mailbox when its runtime drops the task that hands out.
struct Open(Arc<Mailbox>);

impl Drop for Open {
    fn drop(&mut self) {
        let rest = self.0.answers().take();
        rest.into_iter().flatten().for_each(Answer::send);
    }
}

async fn hand_out(mailbox: Open) {
    loop {
        mailbox.0.come.notified().await;
        let answers = mailbox.0.answers().as_mut().map(std::mem::take);
        answers.into_iter().flatten().for_each(Answer::send);
    }
}
