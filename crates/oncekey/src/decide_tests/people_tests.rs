//! What people, recovery and a restart do to a record (U3, U4, E4).

use super::*;

fn by() -> By {
    By { who: "ann".into(), reason: "the bank says so".into() }
}

fn changes() -> [Change; 3] {
    let keep = Retention::keep(SECOND * 70);
    [Change::Complete(Outcome::new(&b"paid"[..]), keep), Change::Retry(keep), Change::Release]
}

#[test]
fn u3_a_change_is_made_only_to_what_was_seen_and_is_neither_held_nor_final() {
    for there in There::all() {
        for what in changes() {
            for seen in [WRITTEN, Version::from_number(39), Version::ABSENT] {
                let about = format!("{there:?} {what:?} {seen:?}");
                let found = there.record();
                let decision = change(found.as_ref(), seen, &what, &by(), at());
                let told = decision.answer.clone();
                let refused = if there.is_nothing() {
                    Some(Changed::Moved(None))
                } else if seen != WRITTEN {
                    Some(Changed::Moved(found.clone().map(Box::new)))
                } else {
                    match there.standing() {
                        Standing::InProgress => Some(Changed::Held),
                        Standing::Completed | Standing::Tombstone => Some(Changed::Final),
                        _ => None,
                    }
                };
                if let Some(refused) = refused {
                    assert_eq!(told, refused, "{about}");
                    assert_eq!(decision.write, Write::Keep, "{about}");
                } else {
                    made(&what, &decision, &about);
                }
            }
        }
    }
}

fn made(what: &Change, decision: &Decision<Changed>, about: &str) {
    let state = match what {
        Change::Release => {
            assert_eq!(decision.answer, Changed::Made(Version::ABSENT), "{about}");
            assert_eq!(decision.write, Write::Release(HOLDER), "{about}");
            return;
        }
        Change::Complete(outcome, _) => State::Completed {
            outcome: outcome.clone(),
            at: now(),
            expires: ahead(70),
            gone: ahead(70),
        },
        Change::Retry(_) => State::Retry { status: 0, at: now(), expires: ahead(70) },
    };
    assert_eq!(decision.answer, Changed::Made(NEXT), "{about}");
    let Write::Put(written) = &decision.write else { panic!("{about}") };
    let audit = vec![Audit { who: by().who, reason: by().reason, at: now() }];
    let token = LeaseToken::NOBODY;
    assert_eq!(**written, Record { token, version: NEXT, audit, ..record(state) }, "{about}");
    let lease = Lease { id: written.id, token: HOLDER, attempt: ATTEMPT };
    let late = complete(Some(written), &lease, &answer(), Retention::keep(SECOND), at());
    assert!(matches!(late.answer, Held::Lost { .. }), "the holder is fenced: {about}");
}

#[test]
fn u3_only_the_newest_changes_are_kept() {
    let old = |number: usize| Audit { who: number.to_string(), reason: String::new(), at: ago(1) };
    let audit: Vec<_> = (0..Record::MAX_AUDIT).map(old).collect();
    let state = There::Unknown(Why::Abandoned).state().expect("a state");
    let full = Record { audit, ..record(state) };
    let what = Change::Retry(Retention::keep(SECOND));
    let decision = change(Some(&full), WRITTEN, &what, &by(), at());
    let Write::Put(written) = decision.write else { panic!("it is made") };
    assert_eq!(written.audit.len(), Record::MAX_AUDIT);
    assert_eq!(written.audit[0].who, "1");
    assert_eq!(written.audit[Record::MAX_AUDIT - 1].who, "ann");
}

#[test]
fn e4_recovery_takes_what_is_unknown_stale_and_not_tried_too_often() {
    for there in There::all() {
        let Some(found) = there.record() else { continue };
        for (stale_for, is_stale) in [(0, true), (9, true), (10, true), (11, false)] {
            for (most, may) in [(ATTEMPT - 1, false), (ATTEMPT, true), (ATTEMPT + 1, true)] {
                let about = format!("{there:?} {stale_for} {most}");
                let taken = recover(&found, SECOND * stale_for, LEASE, most, at());
                // What is closed was last touched in the future, so to say.
                let open = matches!(there, There::Lapsed | There::Unknown(_));
                if !(open && is_stale && may) {
                    assert!(taken.is_none(), "{about}");
                    continue;
                }
                let (written, lease) = taken.unwrap_or_else(|| panic!("{about}"));
                let state = State::InProgress { lease_until: now().after(LEASE) };
                let token = lease.token;
                assert_ne!(token, HOLDER, "{about}");
                assert_eq!((lease.id, lease.attempt), (found.id, ATTEMPT), "{about}");
                assert_eq!(written, Record { token, version: NEXT, ..record(state) }, "{about}");
            }
        }
    }
}

#[test]
fn u4_a_restart_makes_unknown_what_was_in_progress_and_nothing_else() {
    for there in There::all() {
        let Some(found) = there.record() else { continue };
        let orphaned = orphan(&found, at());
        if !matches!(there, There::Held | There::Lapsed) {
            assert_eq!(orphaned, None, "{there:?}");
            continue;
        }
        let state = State::Unknown {
            why: Why::ProcessEnded,
            since: now(),
            not_before: now(),
            horizon: now().after(HORIZON),
        };
        // The token stays: a holder that is alive after all still decides.
        assert_eq!(orphaned, Some(Record { version: NEXT, ..record(state) }), "{there:?}");
    }
}
