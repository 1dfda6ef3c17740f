//! What time alone takes from a record (T3, U3).

use super::*;

const WEEK: Duration = SHRINK_AFTER;
const DAY: Duration = Duration::from_secs(24 * 3600);

/// An unknown request as it was left, with a horizon of 90 days.
fn unknown_since_now(state: State) -> Record {
    Record { horizon: 90 * DAY, ..record(state) }
}

/// Said by the holder, and unsaid with a lease that ends at the same moment.
fn both() -> [Record; 2] {
    let said = State::Unknown {
        why: Why::Abandoned,
        since: now(),
        not_before: now(),
        horizon: now().after(90 * DAY),
    };
    [said, State::InProgress { lease_until: now() }].map(unknown_since_now)
}

/// A stranger's claim by the same principal for the same thing.
fn ask(on_unknown: OnUnknown) -> Claim {
    let (there, asked) = (There::Absent, Asked::TheSame);
    Case {
        there,
        by_holder: false,
        same_principal: true,
        asked,
        on_unknown,
        dead: false,
        waited: false,
    }
    .claim()
}

fn just_before(stamp: Stamp) -> Stamp {
    stamp.before(Duration::from_micros(1))
}

#[test]
fn t3_a_sweep_takes_only_what_is_over() {
    for there in There::all() {
        let Some(record) = there.record() else { continue };
        match there.standing() {
            Standing::Gone => assert_eq!(sweep(&record, now()), Sweep::End, "{there:?}"),
            Standing::Tombstone => {
                let Sweep::Shrink(stone) = sweep(&record, now()) else { panic!("{there:?}") };
                assert_eq!(sweep(&stone, now()), Sweep::Keep, "it shrinks once");
                assert_eq!(due(&stone), stone.gone_at(), "and is next met when it is gone");
                let State::Completed { outcome, .. } = &stone.state else { panic!("{there:?}") };
                assert!(outcome.bytes().is_empty() && stone.memo.is_empty());
            }
            _ => assert_eq!(sweep(&record, now()), Sweep::Keep, "{there:?}"),
        }
    }
}

#[test]
fn u3_an_unknown_request_shrinks_after_seven_days_and_ends_after_its_horizon() {
    for record in both() {
        assert_eq!(due(&record), Some(now().after(WEEK)));
        assert_eq!(sweep(&record, just_before(now().after(WEEK))), Sweep::Keep);
        let Sweep::Shrink(shrunk) = sweep(&record, now().after(WEEK)) else { panic!("{record:?}") };
        assert_eq!(*shrunk, Record { memo: Bytes::new(), ..record.clone() }, "all else stays");
        let horizon = now().after(90 * DAY);
        assert_eq!(due(&shrunk), Some(horizon));
        for record in [record, *shrunk] {
            assert_ne!(sweep(&record, just_before(horizon)), Sweep::End);
            assert_eq!(sweep(&record, horizon), Sweep::End);
        }
    }
}

#[test]
fn u3_a_horizon_shorter_than_seven_days_ends_it_without_shrinking() {
    let state = State::InProgress { lease_until: now() };
    let record = Record { horizon: DAY, ..record(state) };
    assert_eq!(due(&record), Some(now().after(DAY)));
    assert_eq!(sweep(&record, just_before(now().after(DAY))), Sweep::Keep);
    assert_eq!(sweep(&record, now().after(DAY)), Sweep::End);
}

#[test]
fn u3_u4_what_is_kept_for_ever_and_what_is_no_request_is_never_swept() {
    let end = Stamp::from_micros(u64::MAX - 1);
    for unknown in both() {
        for kind in [Kind::Event, Kind::Effect] {
            let record = Record { kind, ..unknown.clone() };
            assert_eq!((due(&record), sweep(&record, end)), (None, Sweep::Keep), "{kind:?}");
        }
    }
    let state = State::InProgress { lease_until: now() };
    let endless = Record { horizon: Duration::MAX, memo: Bytes::new(), ..record(state) };
    assert_eq!(sweep(&endless, end), Sweep::Keep);
}

#[test]
fn u3_a_shrunk_request_is_answered_as_before() {
    let later = Moment { now: now().after(8 * DAY), next: NEXT };
    for record in both() {
        let Sweep::Shrink(shrunk) = sweep(&record, later.now) else { panic!("{record:?}") };
        let asks = [
            ask(OnUnknown::Hold),
            Claim { principal: Principal::named("eve"), ..ask(OnUnknown::Hold) },
            Claim { fingerprint: fingerprint(1, 9), ..ask(OnUnknown::Hold) },
            ask(OnUnknown::Ask),
            ask(OnUnknown::TakeOver),
        ];
        for asked in asks {
            let [before, after] = [&record, &*shrunk]
                .map(|found| claim(Some(found), &asked, Token::Alive, later.now, later).answer);
            assert_eq!(before, after);
        }
        let lease = Lease { id: record.id, token: HOLDER, attempt: ATTEMPT };
        let keep = Retention::keep(DAY);
        let late = complete(Some(&shrunk), &lease, &answer(), keep, later);
        assert!(matches!(late.answer, Held::Ours { attempt: ATTEMPT, .. }), "{:?}", late.answer);
        let by = By { who: "ann".into(), reason: "the bank says so".into() };
        let resolved = change(Some(&shrunk), WRITTEN, &Change::Retry(keep), &by, later);
        assert_eq!(resolved.answer, Changed::Made(NEXT), "the version that was seen still holds");
    }
}

#[test]
fn u3_no_claim_ends_an_unknown_request_however_old() {
    let later = Moment { now: now().after(400 * DAY), next: NEXT };
    for record in both() {
        let told = claim(Some(&record), &ask(OnUnknown::Hold), Token::Alive, later.now, later);
        assert!(matches!(told.answer, Claimed::Unknown { .. }), "{:?}", told.answer);
        assert_eq!(told.write, Write::Keep);
    }
}
