//! What the tests through real processes and real sockets stand on.
//!
//! | part | is |
//! |---|---|
//! | [`Gateway`] | the built binary: started, killed, stopped, restarted on its data and port |
//! | [`Demo`] | the same binary's demo |
//! | [`Express`] | a real Express application, installed from npm once and run by Node |
//! | [`Upstream`] | a scripted application that sees and sends exact bytes |
//! | [`Connection`], [`post`], [`get`] | a client that sends exact bytes and reads whole answers |
//!
//! 1. Everything here blocks: a test is a plain function, and [`race`] starts threads.
//! 2. Whatever a test waits for comes within [`PATIENCE`], or the test fails and says what it was.
//!    Waiting is for a condition; nothing sleeps to let something happen.
//! 3. Processes and sockets end with the value that stands for them.
//! 4. Nothing here asserts what a test is about.
//!
//! ```ignore
//! let express = Express::start();
//! let mut gateway = Gateway::to(express.address()).start();
//! let first = post(gateway.address(), "/pay", &[("Idempotency-Key", "k1")], "{}");
//! gateway.kill();
//! gateway.restart();
//! let second = post(gateway.address(), "/pay", &[("Idempotency-Key", "k1")], "{}");
//! assert!(second.replayed());
//! assert_eq!((first.body, express.count("/pay")), (second.body, 1));
//! ```
#![allow(dead_code)] // Each test file uses a part.

mod client;
mod demo;
mod express;
mod gateway;
mod message;
mod port;
mod process;
mod proof;
mod proof_gateway;
mod upstream;
mod wire;

use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use oncekey::clock::{Clock, Stamp};

#[allow(unused_imports)]
pub(crate) use self::{
    client::{Connection, Failure, Request, get, post, try_get, try_post},
    demo::Demo,
    express::Express,
    gateway::{Builder, Ended, Gateway, oncekey},
    message::{Fields, Framing, Reply},
    port::{Port, nowhere},
    upstream::{After, Exchange, Received, Upstream},
    wire::Wire,
};

/// Whatever a test waits for comes in this time, or the test fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// How often a condition is looked at that nobody tells of.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The end of a wait.
#[derive(Clone)]
pub(crate) struct Deadline {
    clock: Clock,
    end: Stamp,
}

impl Deadline {
    pub(crate) fn after(patience: Duration) -> Self {
        let clock = Clock::real();
        let end = clock.now().after(patience);
        Self { clock, end }
    }

    /// What is left; none when it is over.
    pub(crate) fn left(&self) -> Option<Duration> {
        let left = self.end.since(self.clock.now());
        (!left.is_zero()).then_some(left)
    }
}

/// Returns what `look` finds as soon as it finds something.
#[track_caller]
pub(crate) fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Deadline::after(PATIENCE);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(deadline.left().is_some(), "waited in vain: {what}");
        thread::sleep(LOOK_AGAIN);
    }
}

/// Returns as soon as the condition holds.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    wait_for(what, || holds().then_some(()));
}

/// Runs `work` on `count` threads that begin together; results in the order of their numbers.
pub(crate) fn race<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let start = Barrier::new(count);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|number| {
                let (start, work) = (&start, &work);
                scope.spawn(move || {
                    start.wait();
                    work(number)
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
    })
}

/// Something that a test lets happen: closed at first, open for good once it is opened.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        *self.0.0.lock().unwrap()
    }

    /// Whether it opened within `bound`.
    pub(crate) fn opens_within(&self, bound: Duration) -> bool {
        let closed = self.0.0.lock().unwrap();
        *self.0.1.wait_timeout_while(closed, bound, |open| !*open).unwrap().0
    }

    /// Returns when it is open.
    #[track_caller]
    pub(crate) fn pass(&self) {
        assert!(self.opens_within(PATIENCE), "waited in vain for a gate to open");
    }
}
