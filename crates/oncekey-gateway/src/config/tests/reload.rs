//! What a reload may change, and what it may not.

use super::super::Effect;
use super::accepted;

fn refusal(old: &str, new: &str) -> Option<Vec<(String, Effect)>> {
    let refusal = accepted(old).reload_refusal(&accepted(new))?;
    Some(refusal.changes.into_iter().map(|change| (change.what, change.effect)).collect())
}

#[test]
fn a5_routes_and_their_settings_may_change() {
    let old = "[[route]]\nmatch = \"POST /a\"\nretention = \"1h\"\nlease = \"20s\"";
    for new in [
        old,
        "",
        "[[route]]\nmatch = \"POST /a\"\nretention = \"2h\"\nprofile = \"payment\"",
        "[[route]]\nmatch = \"POST /b\"\nmode = \"off\"\n[[route]]\nmatch = \"POST /a\"",
        "[upstream]\nurl = \"http://other:1\"\n[log]\nlevel = \"debug\"",
    ] {
        assert_eq!(refusal(old, new), None, "{new}");
    }
}

#[test]
fn a5_what_ids_are_derived_from_needs_a_restart() {
    let rows = [
        ("namespace = \"b\"", "namespace", Effect::KeysBecomeNew),
        ("[tenant]\nfrom = \"host\"", "[tenant]", Effect::KeysBecomeNew),
        ("[defaults]\noperation = \"tenant\"", "`operation` of [defaults]", Effect::KeysBecomeNew),
        ("[defaults]\nauthority = true", "`operation` of [defaults]", Effect::KeysBecomeNew),
        ("[defaults]\nkey = [\"header:X-K\"]", "`key` of [defaults]", Effect::KeysBecomeNew),
        ("[principal]\nheaders = [\"X-Api-Key\"]", "[principal]", Effect::CallersChange),
        ("[server]\nlisten = \"127.0.0.1:1\"", "[server] listen", Effect::None),
        ("[admin]\nlisten = \"127.0.0.1:1\"", "[admin] listen", Effect::None),
        ("[store]\npath = \"/other\"", "[store] kind or path", Effect::KeysBecomeNew),
        ("[store]\nmax_entries = 7", "[store] max_entries", Effect::None),
        ("[store]\nmax_bytes = \"1GiB\"", "[store] max_bytes or reserve", Effect::None),
        ("[store]\nreserve = \"1GiB\"", "[store] max_bytes or reserve", Effect::None),
    ];
    for (new, what, effect) in rows {
        assert_eq!(refusal("", new), Some(vec![(what.to_owned(), effect)]), "{new}");
    }
}

#[test]
fn a5_a_route_that_comes_or_goes_may_not_move_keys() {
    let keyed = "[[route]]\nmatch = \"POST /a\"\nkey = [\"body:/id\"]";
    let what = Some(vec![("`key` of route \"POST /a\"".to_owned(), Effect::KeysBecomeNew)]);
    assert_eq!(refusal("", keyed), what);
    assert_eq!(refusal(keyed, ""), what);
    // Covered by a wider route with the same key: nothing moves.
    let wider = "[[route]]\nmatch = \"POST /*\"\nkey = [\"body:/id\"]";
    let both = format!("{keyed}\n{wider}");
    assert_eq!(refusal(wider, &both), None);
}

#[test]
fn a5_the_refusal_says_what_a_restart_does() {
    let new = accepted("namespace = \"b\"\n[principal]\ncookies = [\"sid\"]");
    let refusal = accepted("").reload_refusal(&new).expect("two changes").to_string();
    assert_eq!(
        refusal,
        "only a restart changes namespace, [principal]; keys used before it become new; callers \
         from before it get 403 other-principal on a repeat"
    );
}
