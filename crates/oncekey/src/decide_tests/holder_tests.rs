//! Renew, complete and end look only at the token (L2).

use super::*;

/// Who calls, on a record that [`HOLDER`] has, or that a person left to nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    Own,
    Foreign,
    /// With the token that nobody holds, on a record that bears it.
    Nobody,
}

const CALLERS: [Caller; 3] = [Caller::Own, Caller::Foreign, Caller::Nobody];

impl Caller {
    fn lease(self) -> Lease {
        let token = match self {
            Self::Own => HOLDER,
            Self::Foreign => STRANGER,
            Self::Nobody => LeaseToken::NOBODY,
        };
        Lease { id: RecordId::derive(Kind::Request, &scope(), &key()), token, attempt: 2 }
    }

    fn found(self, there: There) -> Option<Record> {
        let token = if self == Self::Nobody { LeaseToken::NOBODY } else { HOLDER };
        there.record().map(|record| Record { token, ..record })
    }
}

fn each(mut check: impl FnMut(There, Caller, Option<Record>)) {
    for there in There::all() {
        for caller in CALLERS {
            check(there, caller, caller.found(there));
        }
    }
}

fn keep() -> Retention {
    Retention { keep: SECOND * 70, tombstone: SECOND * 7 }
}

/// A stale call is told the attempt that is there, and changes nothing.
fn assert_lost(decision: &Decision<Held>, found: Option<&Record>, about: &str) {
    let attempt = found.map(|record| record.attempt);
    assert_eq!(decision.answer, Held::Lost { attempt }, "{about}");
    assert_eq!(decision.write, Write::Keep, "{about}");
}

fn assert_ours(decision: &Decision<Held>, expires_in: Duration, about: &str) {
    assert_eq!(decision.answer, Held::Ours { attempt: ATTEMPT, expires_in }, "{about}");
}

/// Everything but the named state and the next version is as it was.
fn assert_put(decision: &Decision<Held>, state: State, about: &str) -> Record {
    let Write::Put(written) = &decision.write else { panic!("{about}: {decision:?}") };
    assert_eq!(**written, Record { version: NEXT, ..record(state) }, "{about}");
    (**written).clone()
}

#[test]
fn l2_complete_works_for_the_own_token_until_the_run_has_another_ending() {
    let newer = Outcome::new(&b"another answer"[..]);
    each(|there, caller, found| {
        let about = format!("{there:?} {caller:?}");
        let decide =
            |found: Option<&Record>| complete(found, &caller.lease(), &newer, keep(), at());
        let decision = decide(found.as_ref());
        if caller != Caller::Own || there == There::Absent {
            return assert_lost(&decision, found.as_ref(), &about);
        }
        if there.is_open() {
            assert_ours(&decision, SECOND * 70, &about);
            let state = State::Completed {
                outcome: newer.clone(),
                at: now(),
                expires: ahead(70),
                gone: ahead(77),
            };
            let written = assert_put(&decision, state, &about);
            let again = decide(Some(&written));
            assert_ours(&again, SECOND * 70, &about);
            assert_eq!(again.write, Write::Keep, "X4, {about}");
        } else if there.is_completed() {
            let left = if there == There::Fresh { SECOND * 60 } else { Duration::ZERO };
            assert_ours(&decision, left, &about);
            assert_eq!(decision.write, Write::Keep, "the first outcome stays: {about}");
        } else {
            assert_lost(&decision, found.as_ref(), &about);
        }
    });
}

#[test]
fn l2_renew_extends_what_is_held_and_brings_nothing_back() {
    let notes = [None, Some(Note::Reference("ch_2".into())), Some(Note::Starts(8))];
    each(|there, caller, found| {
        for note in &notes {
            let about = format!("{there:?} {caller:?} {note:?}");
            let decide =
                |found: Option<&Record>| renew(found, &caller.lease(), LEASE, note.as_ref(), at());
            let decision = decide(found.as_ref());
            let held = matches!(there, There::Held | There::Lapsed);
            if caller == Caller::Own && held {
                let Write::Put(written) = &decision.write else { panic!("{about}") };
                let state = State::InProgress { lease_until: now().after(LEASE) };
                let expected = match note {
                    // A lease alone is no news, so the version stays.
                    None => record(state),
                    Some(Note::Reference(told)) => {
                        let reference = Some(told.clone());
                        Record { reference, version: NEXT, ..record(state) }
                    }
                    Some(Note::Starts(attempt)) => {
                        Record { attempt: *attempt, version: NEXT, ..record(state) }
                    }
                };
                assert_eq!(**written, expected, "{about}");
                let attempt = expected.attempt;
                assert_eq!(decision.answer, Held::Ours { attempt, expires_in: LEASE }, "{about}");
                assert_eq!(decide(Some(written)).answer, decision.answer, "X4, {about}");
            } else if caller == Caller::Own && there.is_open() {
                assert_ours(&decision, Duration::ZERO, &about);
                assert_eq!(decision.write, Write::Keep, "{about}");
            } else {
                assert_lost(&decision, found.as_ref(), &about);
            }
        }
    });
}

fn endings() -> [Ending; 3] {
    [
        Ending::Release,
        Ending::Retry { status: 500, keep: keep() },
        Ending::Unknown { why: Why::Stopped, after: SECOND * 3 },
    ]
}

/// What an ending leaves of an open record, and for how long.
fn ended(how: Ending) -> (State, Duration) {
    match how {
        Ending::Retry { status, .. } => {
            (State::Retry { status, at: now(), expires: ahead(70) }, SECOND * 70)
        }
        Ending::Unknown { why, .. } => {
            let (since, not_before, horizon) = (now(), ahead(3), now().after(HORIZON));
            (State::Unknown { why, since, not_before, horizon }, HORIZON)
        }
        Ending::Release | Ending::TakeBack { .. } => panic!("it is no ending of a run"),
    }
}

#[test]
fn l2_end_works_for_the_own_token_until_the_run_has_another_ending() {
    each(|there, caller, found| {
        for how in endings() {
            for token in [Token::Alive, Token::Dead] {
                let about = format!("{there:?} {caller:?} {how:?} {token:?}");
                let decision = end(found.as_ref(), &caller.lease(), token, how, at());
                if caller == Caller::Own && there != There::Absent {
                    own_end(there, how, &decision, found.as_ref(), &about);
                } else {
                    other_end(caller, token, how, &decision, found.as_ref(), &about);
                }
            }
        }
    });
}

fn own_end(
    there: There,
    how: Ending,
    decision: &Decision<Held>,
    found: Option<&Record>,
    about: &str,
) {
    let unknown = matches!(there, There::Unknown(_) | There::Closed(_));
    let retry = matches!(there, There::Retry | There::RetryAndGone);
    match how {
        Ending::Release if there.is_open() => {
            assert_ours(decision, Duration::ZERO, about);
            assert_eq!(decision.write, Write::Release(HOLDER), "{about}");
            let again = end(None, &Caller::Own.lease(), Token::Dead, how, at());
            assert!(matches!(again.answer, Held::Ours { .. }), "X4, {about}");
            assert_eq!(again.write, Write::Keep, "X4, {about}");
        }
        Ending::Unknown { .. } if unknown => {
            // Said before: what was said first stays.
            assert_ours(decision, SECOND * 9_000, about);
            assert_eq!(decision.write, Write::Keep, "{about}");
        }
        Ending::Retry { .. } if retry => {
            let left = if there == There::Retry { SECOND * 60 } else { Duration::ZERO };
            assert_ours(decision, left, about);
            assert_eq!(decision.write, Write::Keep, "{about}");
        }
        Ending::Retry { .. } | Ending::Unknown { .. } if there.is_open() => {
            let (state, left) = ended(how);
            assert_ours(decision, left, about);
            let written = assert_put(decision, state, about);
            let again = end(Some(&written), &Caller::Own.lease(), Token::Alive, how, at());
            assert_ours(&again, left, about);
            assert_eq!(again.write, Write::Keep, "X4, {about}");
        }
        _ => assert_lost(decision, found, about),
    }
}

fn other_end(
    caller: Caller,
    token: Token,
    how: Ending,
    decision: &Decision<Held>,
    found: Option<&Record>,
    about: &str,
) {
    let released = Held::Ours { attempt: 2, expires_in: Duration::ZERO };
    match (how, token, found) {
        (Ending::Release, Token::Dead, _) => {
            assert_eq!(decision.answer, released, "a release can be repeated: {about}");
            assert_eq!(decision.write, Write::Keep, "and touches no other's record: {about}");
        }
        (Ending::Release, Token::Alive, None) => {
            assert_eq!(decision.answer, released, "C2, a release may come first: {about}");
            let token = caller.lease().token;
            assert_eq!(decision.write, Write::Release(token), "and kills its token: {about}");
        }
        _ => assert_lost(decision, found, about),
    }
}

/// A record in progress as a claim left it whose answer never came.
fn claimed(attempt: u32) -> Record {
    Record { attempt, ..record(There::Held.state().expect("a state")) }
}

#[test]
fn c2_u4_a_claim_that_is_taken_back_leaves_what_the_run_before_it_left() {
    let horizon = now().after(HORIZON);
    let unknown =
        || State::Unknown { why: Why::Abandoned, since: now(), not_before: now(), horizon };
    let retry = || State::Retry { status: 0, at: now(), expires: horizon };
    for (on_unknown, attempt, left) in [
        (OnUnknown::Hold, 1, None),
        (OnUnknown::TakeOver, 1, None),
        // One that asks counts no attempt, so an unknown run may have been there.
        (OnUnknown::Ask, 1, Some(unknown())),
        (OnUnknown::Hold, 2, Some(retry())),
        (OnUnknown::Ask, 2, Some(unknown())),
        (OnUnknown::TakeOver, 2, Some(unknown())),
    ] {
        let about = format!("{on_unknown:?} {attempt}");
        let how = Ending::TakeBack { on_unknown };
        let lease = Lease { attempt: 0, ..Caller::Own.lease() };
        let decision = end(Some(&claimed(attempt)), &lease, Token::Alive, how, at());
        assert!(matches!(decision.answer, Held::Ours { .. }), "{about}: {decision:?}");
        let Some(state) = left else {
            assert_eq!(decision.write, Write::Release(HOLDER), "{about}");
            continue;
        };
        let token = LeaseToken::NOBODY;
        let left = Record { state, token, version: NEXT, ..claimed(attempt) };
        let Write::Bury(HOLDER, Some(written)) = &decision.write else { panic!("{decision:?}") };
        assert_eq!(**written, left, "{about}");
        let again = end(Some(&left), &lease, Token::Dead, how, at());
        assert_eq!(again.write, Write::Keep, "X4, {about}");
        assert!(matches!(again.answer, Held::Ours { .. }), "X4, {about}");
    }
}

#[test]
fn c2_whatever_a_claim_that_is_taken_back_meets_its_token_is_dead() {
    each(|there, caller, found| {
        for on_unknown in [OnUnknown::Hold, OnUnknown::Ask, OnUnknown::TakeOver] {
            let about = format!("{there:?} {caller:?} {on_unknown:?}");
            let (lease, how) = (caller.lease(), Ending::TakeBack { on_unknown });
            let decision = end(found.as_ref(), &lease, Token::Alive, how, at());
            let own = caller == Caller::Own;
            if own && (there.is_completed() || there.is_said()) {
                // Its answer came, or it could not have said how it ended.
                assert_lost(&decision, found.as_ref(), &about);
            } else if own && there != There::Absent {
                let (Write::Release(token) | Write::Bury(token, Some(_))) = decision.write else {
                    panic!("{about}: {decision:?}");
                };
                assert_eq!(token, HOLDER, "{about}");
            } else {
                assert_eq!(decision.write, Write::Bury(lease.token, None), "{about}");
            }
            let again = end(found.as_ref(), &lease, Token::Dead, how, at());
            assert_eq!(again.write, Write::Keep, "X4, {about}");
        }
    });
}
