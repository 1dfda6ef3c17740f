use bytes::Bytes;

use super::*;
use crate::fingerprint::{Fingerprint, Recipe};
use crate::key::{Key, RecordId, Scope};
use crate::record::{Kind, Principal};

#[path = "decide_tests/holder_tests.rs"]
mod holder;
#[path = "decide_tests/people_tests.rs"]
mod people;
#[path = "decide_tests/sequences_tests.rs"]
mod sequences;
#[path = "decide_tests/sweep_tests.rs"]
mod sweeping;

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(30);
const HORIZON: Duration = Duration::from_secs(9_000);
const ATTEMPT: u32 = 3;
const WRITTEN: Version = Version::from_number(40);
const NEXT: Version = Version::from_number(41);
const HOLDER: LeaseToken = LeaseToken::from_bytes([1; 16]);
const STRANGER: LeaseToken = LeaseToken::from_bytes([2; 16]);

/// The moment of every decision here.
fn now() -> Stamp {
    Stamp::from_micros(1_780_000_000_000_000)
}

fn ago(seconds: u32) -> Stamp {
    now().before(SECOND * seconds)
}

fn ahead(seconds: u32) -> Stamp {
    now().after(SECOND * seconds)
}

fn at() -> Moment {
    Moment { now: now(), next: NEXT }
}

fn answer() -> Outcome {
    Outcome::new(&b"the first answer"[..])
}

/// Where a record can stand. What ended did so ten seconds ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum There {
    Absent,
    Held,
    Lapsed,
    Fresh,
    Tombstone,
    CompletedAndGone,
    Retry,
    RetryAndGone,
    Unknown(Why),
    /// Unknown, and not yet to be taken over.
    Closed(Why),
}

impl There {
    fn all() -> Vec<Self> {
        let mut all = vec![
            Self::Absent,
            Self::Held,
            Self::Lapsed,
            Self::Fresh,
            Self::Tombstone,
            Self::CompletedAndGone,
            Self::Retry,
            Self::RetryAndGone,
        ];
        for code in 1..=5 {
            let why = Why::from_code(code).expect("a reason");
            all.extend([Self::Unknown(why), Self::Closed(why)]);
        }
        all
    }

    fn state(self) -> Option<State> {
        let completed = |expires, gone| {
            Some(State::Completed { outcome: answer(), at: ago(100), expires, gone })
        };
        let unknown = |why, not_before| {
            let (since, horizon) = (ago(10), ahead(9_000));
            Some(State::Unknown { why, since, not_before, horizon })
        };
        match self {
            Self::Absent => None,
            Self::Held => Some(State::InProgress { lease_until: ahead(20) }),
            Self::Lapsed => Some(State::InProgress { lease_until: ago(10) }),
            Self::Fresh => completed(ahead(60), ahead(90)),
            Self::Tombstone => completed(ago(5), ahead(90)),
            Self::CompletedAndGone => completed(ago(50), ago(5)),
            Self::Retry => Some(State::Retry { status: 503, at: ago(10), expires: ahead(60) }),
            Self::RetryAndGone => Some(State::Retry { status: 503, at: ago(90), expires: ago(5) }),
            Self::Unknown(why) => unknown(why, ago(10)),
            Self::Closed(why) => unknown(why, ahead(5)),
        }
    }

    /// The record under the token of [`HOLDER`].
    fn record(self) -> Option<Record> {
        Some(record(self.state()?))
    }

    /// Nothing that counts is there.
    fn is_nothing(self) -> bool {
        matches!(self, Self::Absent | Self::CompletedAndGone | Self::RetryAndGone)
    }

    /// Somebody began and nobody said how it ended, in time or late.
    fn is_open(self) -> bool {
        matches!(self, Self::Held | Self::Lapsed | Self::Unknown(_) | Self::Closed(_))
    }

    /// Its holder said how the run ended, and it was no outcome.
    fn is_said(self) -> bool {
        match self {
            Self::Retry | Self::RetryAndGone => true,
            Self::Unknown(why) | Self::Closed(why) => {
                !matches!(why, Why::LeaseEnded | Why::ProcessEnded)
            }
            _ => false,
        }
    }

    fn is_completed(self) -> bool {
        matches!(self, Self::Fresh | Self::Tombstone | Self::CompletedAndGone)
    }

    fn standing(self) -> Standing {
        match self {
            Self::Absent | Self::CompletedAndGone | Self::RetryAndGone => Standing::Gone,
            Self::Held => Standing::InProgress,
            Self::Lapsed | Self::Unknown(_) | Self::Closed(_) => Standing::Unknown,
            Self::Fresh => Standing::Completed,
            Self::Tombstone => Standing::Tombstone,
            Self::Retry => Standing::Retry,
        }
    }
}

fn scope() -> Scope {
    Scope::new("main", "shared", "POST /pay")
}

fn key() -> Key {
    Key::from_text("k1").expect("a key")
}

fn fingerprint(recipe: u64, digest: u8) -> Fingerprint {
    Fingerprint::from_parts(Recipe::from_number(recipe), [digest; 32])
}

fn record(state: State) -> Record {
    Record {
        id: RecordId::derive(Kind::Request, &scope(), &key()),
        kind: Kind::Request,
        scope: scope(),
        key: key(),
        principal: Principal::named("alice"),
        fingerprint: fingerprint(1, 1),
        token: HOLDER,
        attempt: ATTEMPT,
        version: WRITTEN,
        created: ago(1_000),
        horizon: HORIZON,
        memo: Bytes::from_static(b"first memo"),
        reference: Some("ch_1".into()),
        state,
        audit: Vec::new(),
    }
}

/// How the fingerprints compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    TheSame,
    SomethingElse,
    ByAnotherRecipe,
}

/// One claim on one record.
#[derive(Clone, Copy, Debug)]
struct Case {
    there: There,
    by_holder: bool,
    same_principal: bool,
    asked: Asked,
    on_unknown: OnUnknown,
    dead: bool,
    /// The request was there before the run ended.
    waited: bool,
}

impl Case {
    fn all() -> impl Iterator<Item = Self> {
        const BOTH: [bool; 2] = [false, true];
        let asked = [Asked::TheSame, Asked::SomethingElse, Asked::ByAnotherRecipe];
        let mut all = Vec::new();
        for there in There::all() {
            for bits in 0..16_usize {
                let bit = |place: usize| BOTH[bits >> place & 1];
                for asked in asked {
                    for on_unknown in [OnUnknown::Hold, OnUnknown::Ask, OnUnknown::TakeOver] {
                        all.push(Self {
                            there,
                            by_holder: bit(0),
                            same_principal: bit(1),
                            asked,
                            on_unknown,
                            dead: bit(2),
                            waited: bit(3),
                        });
                    }
                }
            }
        }
        all.into_iter()
    }

    fn claim(self) -> Claim {
        Claim {
            id: RecordId::derive(Kind::Request, &scope(), &key()),
            kind: Kind::Request,
            scope: scope(),
            key: key(),
            principal: Principal::named(if self.same_principal { "alice" } else { "mallory" }),
            fingerprint: match self.asked {
                Asked::TheSame => fingerprint(1, 1),
                Asked::SomethingElse => fingerprint(1, 2),
                Asked::ByAnotherRecipe => fingerprint(2, 2),
            },
            token: if self.by_holder { HOLDER } else { STRANGER },
            lease: LEASE,
            horizon: HORIZON * 2,
            on_unknown: self.on_unknown,
            age: Duration::ZERO,
            memo: Bytes::from_static(b"another memo"),
        }
    }

    fn decide(self) -> Decision<Claimed> {
        let token = if self.dead { Token::Dead } else { Token::Alive };
        let arrived = if self.waited { ago(20) } else { ago(1) };
        claim(self.there.record().as_ref(), &self.claim(), token, arrived, at())
    }

    /// Past the checks that come before the state.
    fn admitted(self) -> bool {
        !self.dead
            && !self.there.is_nothing()
            && self.same_principal
            && self.asked != Asked::SomethingElse
    }

    /// Meets a run that nobody knows the end of.
    fn meets_unknown(self) -> bool {
        match self.there {
            There::Unknown(_) | There::Closed(_) => self.admitted() && !self.by_holder,
            There::Lapsed => self.admitted() && !self.by_holder,
            _ => false,
        }
    }

    /// Meets its own run, which is unknown.
    fn meets_own_unknown(self) -> bool {
        let unknown = matches!(self.there, There::Unknown(_) | There::Closed(_));
        unknown && self.admitted() && self.by_holder
    }

    /// What an unknown record tells of itself.
    fn told_unknown(self) -> Claimed {
        let why = match self.there {
            There::Unknown(why) | There::Closed(why) => why,
            _ => Why::LeaseEnded,
        };
        Claimed::Unknown { version: WRITTEN, attempt: ATTEMPT, since: SECOND * 10, why }
    }

    fn is_closed(self) -> bool {
        matches!(self.there, There::Closed(_))
    }
}

/// What a claim should come to.
#[derive(Debug)]
enum Expected {
    /// Nothing is written.
    Told(Claimed),
    /// A new record is made of the claim.
    New,
    /// The record goes to the claim, at this attempt.
    Given(u32),
}

/// A rule: when it applies, and what it demands. No rule depends on another's place in the list:
/// exactly one applies to each case.
struct Row {
    rule: &'static str,
    when: fn(Case) -> bool,
    then: fn(Case) -> Expected,
}

const ROWS: &[Row] = &[
    Row {
        rule: "C2: a released token claims nothing, whatever is there",
        when: |case| case.dead,
        then: |_| Expected::Told(Claimed::Lost),
    },
    Row {
        rule: "C1, T2: where nothing is, or all is over, the claim is the first of its key",
        when: |case| !case.dead && case.there.is_nothing(),
        then: |_| Expected::New,
    },
    Row {
        rule: "C3, S4: another principal is told nothing else",
        when: |case| !case.dead && !case.there.is_nothing() && !case.same_principal,
        then: |_| Expected::Told(Claimed::OtherPrincipal),
    },
    Row {
        rule: "C3: another fingerprint is a mismatch, wherever the record stands",
        when: |case| {
            let same = case.same_principal && case.asked == Asked::SomethingElse;
            !case.dead && !case.there.is_nothing() && same
        },
        then: |case| Expected::Told(Claimed::Mismatch { first: case.there.standing() }),
    },
    Row {
        rule: "C5: a completed record is replayed",
        when: |case| case.admitted() && case.there == There::Fresh,
        then: |_| {
            let expires_in = SECOND * 60;
            Expected::Told(Claimed::Completed { outcome: answer(), expires_in })
        },
    },
    Row {
        rule: "T2: a tombstone refuses its key",
        when: |case| case.admitted() && case.there == There::Tombstone,
        then: |_| Expected::Told(Claimed::Expired),
    },
    Row {
        rule: "C2: a claim finds itself, also after its lease",
        when: |case| {
            let held = matches!(case.there, There::Held | There::Lapsed);
            case.admitted() && held && case.by_holder
        },
        then: |_| Expected::Given(ATTEMPT),
    },
    Row {
        rule: "C2, B44: a claim finds itself, also when the store was opened again meanwhile",
        when: |case| case.meets_own_unknown() && !case.there.is_said(),
        then: |_| Expected::Given(ATTEMPT),
    },
    Row {
        rule: "C2, B59: a token that gave up takes nothing over: it is never two attempts",
        when: |case| case.meets_own_unknown() && case.there.is_said(),
        then: |case| Expected::Told(case.told_unknown()),
    },
    Row {
        rule: "C4: what somebody else holds is told as in progress",
        when: |case| case.admitted() && case.there == There::Held && !case.by_holder,
        then: |_| {
            let retry_after = SECOND * 20;
            Expected::Told(Claimed::InProgress { version: WRITTEN, retry_after })
        },
    },
    Row {
        rule: "L2: the token of a run that ended in retry is stale",
        when: |case| case.admitted() && case.there == There::Retry && case.by_holder,
        then: |_| Expected::Told(Claimed::Lost),
    },
    Row {
        rule: "C4: who was there while the run lasted starts no other",
        when: |case| {
            case.admitted() && case.there == There::Retry && !case.by_holder && case.waited
        },
        then: |_| Expected::Told(Claimed::Ended { status: Some(503), attempt: ATTEMPT }),
    },
    Row {
        rule: "C4: who comes after a retry runs, as the next attempt",
        when: |case| {
            case.admitted() && case.there == There::Retry && !case.by_holder && !case.waited
        },
        then: |_| Expected::Given(ATTEMPT + 1),
    },
    Row {
        rule: "U1: unknown is told to who holds back, or comes too early",
        when: |case| {
            case.meets_unknown() && (case.is_closed() || case.on_unknown == OnUnknown::Hold)
        },
        then: |case| Expected::Told(case.told_unknown()),
    },
    Row {
        rule: "U2: asking takes the record and is no attempt",
        when: |case| case.meets_unknown() && !case.is_closed() && case.on_unknown == OnUnknown::Ask,
        then: |_| Expected::Given(ATTEMPT),
    },
    Row {
        rule: "C4: who was there while the unknown run lasted takes nothing over",
        when: |case| {
            let over = case.on_unknown == OnUnknown::TakeOver;
            case.meets_unknown() && !case.is_closed() && over && case.waited
        },
        then: |_| Expected::Told(Claimed::Ended { status: None, attempt: ATTEMPT }),
    },
    Row {
        rule: "U1: a takeover runs again, as the next attempt",
        when: |case| {
            let over = case.on_unknown == OnUnknown::TakeOver;
            case.meets_unknown() && !case.is_closed() && over && !case.waited
        },
        then: |_| Expected::Given(ATTEMPT + 1),
    },
];

#[test]
fn c3_every_state_meets_every_claim_by_exactly_one_rule() {
    let mut met = vec![0; ROWS.len()];
    for case in Case::all() {
        let applying: Vec<_> = (0..ROWS.len()).filter(|row| (ROWS[*row].when)(case)).collect();
        let [row] = applying[..] else { panic!("{case:?} is met by the rules {applying:?}") };
        met[row] += 1;
        let (rule, expected) = (ROWS[row].rule, (ROWS[row].then)(case));
        let decision = case.decide();
        let claim = case.claim();
        match expected {
            Expected::Told(told) => {
                assert_eq!(decision.answer, told, "{rule}: {case:?}");
                assert_eq!(decision.write, Write::Keep, "{rule}: {case:?}");
            }
            Expected::New => {
                let made = Record {
                    token: claim.token,
                    principal: claim.principal.clone(),
                    fingerprint: claim.fingerprint,
                    attempt: 1,
                    version: NEXT,
                    created: now(),
                    horizon: claim.horizon,
                    memo: claim.memo.clone(),
                    reference: None,
                    ..record(State::InProgress { lease_until: now().after(LEASE) })
                };
                given(&decision, &claim, made, rule, case);
            }
            Expected::Given(attempt) => {
                let state = State::InProgress { lease_until: now().after(LEASE) };
                let token = claim.token;
                let made = Record { token, attempt, version: NEXT, ..record(state) };
                given(&decision, &claim, made, rule, case);
            }
        }
    }
    for (row, count) in met.into_iter().enumerate() {
        assert!(count > 0, "nothing meets the rule {}", ROWS[row].rule);
    }
}

fn given(decision: &Decision<Claimed>, claim: &Claim, made: Record, rule: &str, case: Case) {
    let lease = Lease { id: claim.id, token: claim.token, attempt: made.attempt };
    assert_eq!(decision.answer, Claimed::Acquired(lease), "{rule}: {case:?}");
    let Write::Put(written) = &decision.write else { panic!("{rule}: {case:?} writes nothing") };
    // `Record` prints only a part of itself, so that a plain comparison could not say what differs.
    assert_eq!(written.memo, made.memo, "{rule}: {case:?}");
    assert_eq!(**written, made, "{rule}: {case:?}");
}

#[test]
fn t1_a_lease_and_a_retention_end_at_their_very_moment() {
    let claim = Case {
        there: There::Held,
        by_holder: false,
        same_principal: true,
        asked: Asked::TheSame,
        on_unknown: OnUnknown::Hold,
        dead: false,
        waited: false,
    }
    .claim();
    let on = |state| super::claim(Some(&record(state)), &claim, Token::Alive, now(), at()).answer;
    let completed =
        |expires, gone| State::Completed { outcome: answer(), at: ago(100), expires, gone };
    let told = on(State::InProgress { lease_until: now() });
    assert!(matches!(told, Claimed::Unknown { why: Why::LeaseEnded, .. }), "{told:?}");
    assert_eq!(on(completed(now(), ahead(1))), Claimed::Expired);
    assert!(matches!(on(completed(now(), now())), Claimed::Acquired(Lease { attempt: 1, .. })));
    let retry = State::Retry { status: 503, at: ago(9), expires: now() };
    assert!(matches!(on(retry), Claimed::Acquired(Lease { attempt: 1, .. })));
}

#[test]
fn u4_an_attempt_never_wraps() {
    let state = There::Retry.state().expect("a state");
    let worn = Record { attempt: u32::MAX, ..record(state) };
    let case = Case {
        there: There::Retry,
        by_holder: false,
        same_principal: true,
        asked: Asked::TheSame,
        on_unknown: OnUnknown::Hold,
        dead: false,
        waited: false,
    };
    let decision = claim(Some(&worn), &case.claim(), Token::Alive, ago(1), at());
    assert!(matches!(decision.answer, Claimed::Acquired(Lease { attempt: u32::MAX, .. })));
}
