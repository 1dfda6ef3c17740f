//! The shop's ledger: every charge that really ran, in order.
//!
//! 1. A charge is written once and never changed.
//! 2. The counters count everything since the start; of the charges the latest [`KEPT`] are shown.
//! 3. "Requests" are those that reached the shop's payment handler, whatever became of them. What a
//!    gateway answers by itself never shows here, and that is the point of the page.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;

/// How many charges the ledger keeps to show.
pub(super) const KEPT: usize = 500;

/// A charge that ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Charge {
    /// `ch_1`, `ch_2` and so on.
    pub(super) id: String,
    pub(super) item: String,
    /// In cents.
    pub(super) amount: u64,
    /// Milliseconds since the Unix epoch.
    pub(super) at: u64,
    /// The record that the gateway named, if one stands in front.
    pub(super) record: Option<String>,
    /// The attempt that the gateway named.
    pub(super) attempt: Option<u32>,
}

/// What the ledger page shows.
#[derive(Debug, Serialize)]
pub(super) struct Statement {
    /// Requests to pay that reached the shop.
    pub(super) requests: u64,
    /// Charges made.
    pub(super) charges: u64,
    /// Cents taken.
    pub(super) total: u64,
    /// The latest charges, newest first.
    pub(super) rows: Vec<Charge>,
}

/// Counts what arrives and keeps what ran.
#[derive(Debug, Default)]
pub(super) struct Ledger(Mutex<Book>);

#[derive(Debug, Default)]
struct Book {
    requests: u64,
    charges: u64,
    total: u64,
    latest: VecDeque<Charge>,
}

impl Ledger {
    /// Notes that a request to pay arrived.
    pub(super) fn saw_request(&self) {
        self.book().requests += 1;
    }

    /// Writes a charge; `describe` gets its id.
    pub(super) fn charge(&self, describe: impl FnOnce(String) -> Charge) -> Charge {
        let mut book = self.book();
        book.charges += 1;
        let charge = describe(format!("ch_{}", book.charges));
        book.total = book.total.saturating_add(charge.amount);
        if book.latest.len() == KEPT {
            book.latest.pop_front();
        }
        book.latest.push_back(charge.clone());
        charge
    }

    /// The charge with this id, while it is among the latest.
    pub(super) fn find(&self, id: &str) -> Option<Charge> {
        self.book().latest.iter().find(|charge| charge.id == id).cloned()
    }

    /// Everything, newest first.
    pub(super) fn statement(&self) -> Statement {
        let book = self.book();
        Statement {
            requests: book.requests,
            charges: book.charges,
            total: book.total,
            rows: book.latest.iter().rev().cloned().collect(),
        }
    }

    /// Nothing that holds the lock leaves the book half written: a poisoned one is still good.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coffee(id: String) -> Charge {
        Charge { id, item: "coffee".into(), amount: 420, at: 1, record: None, attempt: None }
    }

    #[test]
    fn the_ledger_counts_requests_and_charges_apart() {
        let ledger = Ledger::default();
        ledger.saw_request();
        ledger.saw_request();
        assert_eq!(ledger.charge(coffee).id, "ch_1");
        let statement = ledger.statement();
        assert_eq!((statement.requests, statement.charges, statement.total), (2, 1, 420));
        assert_eq!(statement.rows, vec![coffee("ch_1".into())]);
    }

    #[test]
    fn the_ledger_keeps_the_latest_and_counts_all() {
        let ledger = Ledger::default();
        for _ in 0..KEPT + 1 {
            ledger.charge(coffee);
        }
        let statement = ledger.statement();
        assert_eq!(statement.rows.len(), KEPT);
        assert_eq!(statement.charges, KEPT as u64 + 1);
        assert_eq!(statement.rows[0].id, format!("ch_{}", KEPT + 1));
        assert_eq!(ledger.find("ch_1"), None);
        assert!(ledger.find("ch_2").is_some());
    }
}
