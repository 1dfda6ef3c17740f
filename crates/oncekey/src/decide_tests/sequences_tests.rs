//! Whatever is done in whatever order, these hold.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

/// Something that happens to the one record.
#[derive(Clone, Debug)]
enum Step {
    Claim { token: u8, on_unknown: OnUnknown, age: u32 },
    Renew { token: u8 },
    Start { token: u8 },
    Complete { token: u8, outcome: u8 },
    End { token: u8, how: Ending },
    Change(Change),
    Recover,
    Restart,
    Pass(u32),
}

fn token(number: u8) -> LeaseToken {
    LeaseToken::from_bytes([number + 1; 16])
}

fn keep() -> Retention {
    Retention { keep: SECOND * 40, tombstone: SECOND * 20 }
}

fn steps() -> impl Strategy<Value = Step> {
    let on_unknown =
        prop_oneof![Just(OnUnknown::Hold), Just(OnUnknown::Ask), Just(OnUnknown::TakeOver)];
    let how = prop_oneof![
        1 => Just(Ending::Release),
        1 => on_unknown.clone().prop_map(|on_unknown| Ending::TakeBack { on_unknown }),
        2 => Just(Ending::Retry { status: 503, keep: keep() }),
        2 => (0..20_u32).prop_map(|after| Ending::Unknown {
            why: Why::Abandoned,
            after: SECOND * after
        }),
    ];
    let what = prop_oneof![
        any::<u8>().prop_map(|text| Change::Complete(Outcome::new(vec![text]), keep())),
        Just(Change::Retry(keep())),
        Just(Change::Release),
    ];
    prop_oneof![
        6 => (0..4_u8, on_unknown, 0..30_u32)
            .prop_map(|(token, on_unknown, age)| Step::Claim { token, on_unknown, age }),
        2 => (0..4_u8).prop_map(|token| Step::Renew { token }),
        1 => (0..4_u8).prop_map(|token| Step::Start { token }),
        2 => (0..4_u8, any::<u8>()).prop_map(|(token, outcome)| Step::Complete { token, outcome }),
        3 => (0..4_u8, how).prop_map(|(token, how)| Step::End { token, how }),
        1 => what.prop_map(Step::Change),
        1 => Just(Step::Recover),
        1 => Just(Step::Restart),
        4 => (1..45_u32).prop_map(Step::Pass),
    ]
}

/// The smallest store there can be.
struct World {
    found: Option<Record>,
    dead: HashSet<LeaseToken>,
    at: Moment,
}

impl World {
    fn lease(&self, number: u8) -> Lease {
        Lease {
            id: record(There::Held.state().expect("a state")).id,
            token: token(number),
            attempt: 1,
        }
    }

    fn liveness(&self, token: LeaseToken) -> Token {
        if self.dead.contains(&token) { Token::Dead } else { Token::Alive }
    }

    fn write(&mut self, write: Write) {
        match write {
            Write::Keep => {}
            Write::Put(record) => self.found = Some(*record),
            Write::Release(token) => {
                self.dead.insert(token);
                self.found = None;
            }
            Write::Bury(token, record) => {
                self.dead.insert(token);
                self.found = record.map(|record| *record).or(self.found.take());
            }
        }
    }

    fn step(&mut self, step: &Step) {
        self.at.next = Version::from_number(self.at.next.number() + 1);
        let (found, at) = (self.found.as_ref(), self.at);
        let write = match step {
            Step::Pass(seconds) => {
                self.at.now = at.now.after(SECOND * *seconds);
                Write::Keep
            }
            Step::Claim { token: number, on_unknown, age } => {
                let case = Case {
                    there: There::Absent,
                    by_holder: true,
                    same_principal: true,
                    asked: Asked::TheSame,
                    on_unknown: *on_unknown,
                    dead: false,
                    waited: false,
                };
                let asked = Claim { token: token(*number), ..case.claim() };
                let arrived = at.now.before(SECOND * *age);
                claim(found, &asked, self.liveness(asked.token), arrived, at).write
            }
            Step::Renew { token } => renew(found, &self.lease(*token), LEASE, None, at).write,
            Step::Start { token } => {
                let note = Note::Starts(found.map_or(1, |record| record.attempt + 1));
                renew(found, &self.lease(*token), LEASE, Some(&note), at).write
            }
            Step::Complete { token, outcome } => {
                let outcome = Outcome::new(vec![*outcome]);
                complete(found, &self.lease(*token), &outcome, keep(), at).write
            }
            Step::End { token: number, how } => {
                let liveness = self.liveness(token(*number));
                end(found, &self.lease(*number), liveness, *how, at).write
            }
            Step::Change(what) => {
                let seen = found.map_or(Version::ABSENT, |record| record.version);
                let by = By { who: "ann".into(), reason: "because".into() };
                change(found, seen, what, &by, at).write
            }
            Step::Recover => {
                let taken = found.and_then(|found| recover(found, SECOND * 5, LEASE, 10, at));
                taken.map_or(Write::Keep, |(record, _)| Write::Put(Box::new(record)))
            }
            Step::Restart => {
                let orphaned = found.and_then(|found| orphan(found, at));
                orphaned.map_or(Write::Keep, |record| Write::Put(Box::new(record)))
            }
        };
        self.write(write);
    }

    fn standing(&self) -> Standing {
        self.found.as_ref().map_or(Standing::Gone, |record| record.standing(self.at.now))
    }
}

fn outcome(record: &Record) -> Option<&Outcome> {
    match &record.state {
        State::Completed { outcome, .. } => Some(outcome),
        _ => None,
    }
}

/// Whether the step may end an unknown record without an outcome or another run.
fn may_forget(step: &Step) -> bool {
    matches!(
        step,
        Step::End { how: Ending::Release | Ending::TakeBack { .. }, .. }
            | Step::Change(Change::Release)
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn u4_l2_t1_whatever_happens_the_invariants_hold(
        steps in proptest::collection::vec(steps(), 1..60),
    ) {
        let at = Moment { now: now(), next: Version::from_number(1) };
        let mut world = World { found: None, dead: HashSet::new(), at };
        for step in &steps {
            let (before, stood) = (world.found.clone(), world.standing());
            world.step(step);
            let stands = world.standing();
            // U4: unknown becomes absent by nothing but a release, and by no passing of time.
            if stood == Standing::Unknown && !may_forget(step) {
                prop_assert_ne!(stands, Standing::Gone);
            }
            // T1: what is held stays held but for its holder, a restart, or its lease's end.
            if stood == Standing::InProgress && matches!(step, Step::Pass(_)) {
                prop_assert!(matches!(stands, Standing::InProgress | Standing::Unknown));
            }
            let (Some(before), Some(after)) = (before, &world.found) else { continue };
            // A record whose time was over may give way to a new one.
            if stood == Standing::Gone {
                continue;
            }
            // The identity is written once.
            prop_assert_eq!(&after.id, &before.id);
            prop_assert_eq!(&after.principal, &before.principal);
            prop_assert_eq!(&after.fingerprint, &before.fingerprint);
            prop_assert_eq!(&after.created, &before.created);
            prop_assert_eq!(&after.memo, &before.memo);
            // So is the outcome.
            if let Some(written) = outcome(&before) {
                prop_assert_eq!(outcome(after), Some(written));
                prop_assert_eq!(after, &before);
            }
            prop_assert!(after.attempt >= before.attempt);
            // A write is seen by its version, but for a renewal, which is no news.
            if after.version == before.version {
                let renewed = Record { state: before.state.clone(), ..after.clone() };
                prop_assert_eq!(renewed, before);
            } else {
                prop_assert!(after.version > before.version);
            }
        }
    }

    #[test]
    fn l2_at_most_one_token_writes(steps in proptest::collection::vec(steps(), 1..40)) {
        let at = Moment { now: now(), next: Version::from_number(1) };
        let mut world = World { found: None, dead: HashSet::new(), at };
        for step in &steps {
            world.step(step);
            let (found, at) = (world.found.as_ref(), world.at);
            let mut writers = 0;
            for number in 0..4 {
                let lease = world.lease(number);
                let how = Ending::Unknown { why: Why::Stopped, after: SECOND };
                let liveness = world.liveness(lease.token);
                let writes = [
                    complete(found, &lease, &answer(), keep(), at),
                    renew(found, &lease, LEASE, Some(&Note::Starts(9)), at),
                    end(found, &lease, liveness, how, at),
                ];
                if writes.iter().any(|decision| decision.write != Write::Keep) {
                    writers += 1;
                    prop_assert_eq!(found.map(|record| record.token), Some(lease.token));
                    // C2: nobody who was released writes again.
                    prop_assert_eq!(liveness, Token::Alive);
                }
            }
            prop_assert!(writers <= 1);
        }
    }
}
