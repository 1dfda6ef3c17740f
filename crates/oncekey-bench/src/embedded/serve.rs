//! A store under load, in a process of its own: it takes its orders from standard input.
//!
//! ```text
//! <- opened MICROSECONDS
//! -> busy SECONDS
//! <- busy PAIRS_A_SECOND
//! -> steady SECONDS PAIRS_A_SECOND
//! <- steady LONGEST P99            (microseconds of a claim since it was due)
//! ```

use std::cell::RefCell;
use std::io::{self, BufRead as _};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use oncekey::clock::{Clock, Stamp};
use oncekey::fingerprint::{Recipe, Secret};
use oncekey::key::RecordId;
use oncekey::record::{Kind, Lease, LeaseToken, Principal};
use oncekey::store::embedded::{EmbeddedStore, Options};
use oncekey::store::{Claim, Claimed, Held, OnUnknown, Store as _};
use tokio::task::LocalSet;

use super::fill::{KEPT, key, outcome, scope};

/// Who claim and complete at the same time when as much as possible is asked for.
const TASKS: usize = 64;

/// The most claims of a steady load that may be under way: beyond that it cannot keep up.
const MAX_UNDER_WAY: usize = 200_000;

/// Opens the store in `folder` and does what it is told until nothing more comes.
pub(crate) fn serve(folder: &Path) -> Result<()> {
    let clock = Clock::real();
    let begun = clock.now();
    let store = EmbeddedStore::open(folder, Options::default())?;
    println!("opened {}", clock.now().since(begun).as_micros());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let load = Rc::new(Load { store, clock, secret: Secret::random() });
    for order in io::stdin().lock().lines() {
        let order = order?;
        let words: Vec<&str> = order.split_whitespace().collect();
        let local = LocalSet::new();
        match words[..] {
            ["busy", seconds] => {
                let seconds = Duration::from_secs(seconds.parse()?);
                let rate = local.block_on(&runtime, Rc::clone(&load).busy(seconds))?;
                println!("busy {rate:.1}");
            }
            ["steady", seconds, rate] => {
                let seconds = Duration::from_secs(seconds.parse()?);
                let rate = rate.parse()?;
                let (longest, p99) =
                    local.block_on(&runtime, Rc::clone(&load).steady(seconds, rate))?;
                println!("steady {longest} {p99}");
            }
            _ => bail!("an order that is not known: {order}"),
        }
    }
    Ok(())
}

struct Load {
    store: EmbeddedStore,
    clock: Clock,
    secret: Secret,
}

impl Load {
    /// Claims and completions a second.
    async fn busy(self: Rc<Self>, bound: Duration) -> Result<f64> {
        let begun = self.clock.now();
        let until = begun.after(bound);
        let tasks: Vec<_> = (0..TASKS)
            .map(|_| {
                let load = Rc::clone(&self);
                tokio::task::spawn_local(async move {
                    let mut pairs = 0_u32;
                    while load.clock.now() < until {
                        load.complete(load.claim().await?).await?;
                        pairs += 1;
                    }
                    anyhow::Ok(pairs)
                })
            })
            .collect();
        let mut pairs = 0.0;
        for task in tasks {
            pairs += f64::from(task.await??);
        }
        Ok(pairs / self.clock.now().since(begun).as_secs_f64())
    }

    /// A claim and its completion come due at equal distances, however long the ones before take.
    /// The longest time of a claim since it was due, and the 99th of a hundred, in microseconds.
    async fn steady(self: Rc<Self>, bound: Duration, per_second: u32) -> Result<(u64, u64)> {
        ensure!(per_second > 0, "no load at all");
        let begun = self.clock.now();
        let waits = Rc::new(RefCell::new(Waits::default()));
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        let mut sent = 0_u32;
        loop {
            tick.tick().await;
            let passed = self.clock.now().since(begun);
            let due = |number: u32| begun.after(due_after(number, per_second));
            while due_after(sent, per_second) <= passed.min(bound) {
                let (load, waits, due) = (Rc::clone(&self), Rc::clone(&waits), due(sent));
                tokio::task::spawn_local(async move { load.one(due, &waits).await });
                sent += 1;
            }
            ensure!(waits.borrow().under_way(sent) < MAX_UNDER_WAY, "it cannot keep up");
            if passed >= bound {
                break;
            }
        }
        while waits.borrow().under_way(sent) > 0 {
            tick.tick().await;
        }
        let Waits { mut claims, failed, .. } = waits.take();
        if let Some(error) = failed {
            return Err(error.context("a claim or a completion failed"));
        }
        claims.sort_unstable();
        let longest = *claims.last().context("not one claim")?;
        Ok((longest, claims[claims.len() * 99 / 100]))
    }

    async fn one(&self, due: Stamp, waits: &RefCell<Waits>) {
        let claimed = self.claim().await;
        let waited = self.clock.now().since(due);
        let ended = match claimed {
            Ok(lease) => self.complete(lease).await,
            Err(error) => Err(error),
        };
        let mut waits = waits.borrow_mut();
        waits.claims.push(u64::try_from(waited.as_micros()).unwrap_or(u64::MAX));
        waits.ended += 1;
        if let Err(error) = ended {
            waits.failed = Some(error);
        }
    }

    async fn claim(&self) -> Result<Lease> {
        let token = LeaseToken::random();
        let hex: String = token.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        let (scope, key) = (scope(), key(&hex));
        let claim = Claim {
            id: RecordId::derive(Kind::Request, &scope, &key),
            kind: Kind::Request,
            scope,
            key,
            principal: Principal::anonymous(),
            fingerprint: Recipe::new(&self.secret, b"bench").digester(&self.secret).finish(),
            token,
            lease: Duration::from_secs(30),
            horizon: Duration::from_secs(90 * 24 * 3600),
            on_unknown: OnUnknown::Hold,
            age: Duration::ZERO,
            memo: Bytes::new(),
        };
        match self.store.claim(&claim).await? {
            Claimed::Acquired(lease) => Ok(lease),
            other => bail!("a new key was answered with {other:?}"),
        }
    }

    async fn complete(&self, lease: Lease) -> Result<()> {
        let random = u64::from_le_bytes(*lease.token.as_bytes().first_chunk().context("a token")?);
        match self.store.complete(&lease, &outcome(random), KEPT).await? {
            Held::Ours { .. } => Ok(()),
            other => bail!("a completion was answered with {other:?}"),
        }
    }
}

/// What came of a steady load so far.
#[derive(Default)]
struct Waits {
    /// Microseconds that each claim took since it was due.
    claims: Vec<u64>,
    ended: usize,
    failed: Option<anyhow::Error>,
}

impl Waits {
    fn under_way(&self, sent: u32) -> usize {
        (sent as usize).saturating_sub(self.ended)
    }
}

/// When the pair with this number is due.
fn due_after(number: u32, per_second: u32) -> Duration {
    Duration::from_nanos(u64::from(number) * 1_000_000_000 / u64::from(per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_carried_and_told() {
        let folder = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let store = EmbeddedStore::open(folder.path(), Options::default()).unwrap();
        let load = Rc::new(Load { store, clock: Clock::real(), secret: Secret::random() });
        let (busy, steady) = (Rc::clone(&load), Rc::clone(&load));
        let second = Duration::from_secs(1);
        let rate = LocalSet::new().block_on(&runtime, busy.busy(second / 4)).unwrap();
        assert!(rate > 1.0, "{rate}");
        let (longest, p99) = LocalSet::new().block_on(&runtime, steady.steady(second, 50)).unwrap();
        assert!(longest >= p99 && p99 > 0, "{longest} {p99}");
    }

    #[test]
    fn pairs_come_due_at_equal_distances_for_as_long_as_it_takes() {
        assert_eq!(due_after(0, 3), Duration::ZERO);
        assert_eq!(due_after(30_000 * 600, 30_000), Duration::from_secs(600));
        assert_eq!(due_after(u32::MAX, 1), Duration::from_secs(u32::MAX.into()));
    }
}
