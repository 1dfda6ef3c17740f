//! Problems: their members, their statuses by profile, their types (H, C4).

use super::{Gateway, Request, Upstream, counting, keyed};
use crate::rig::{After, Gate, Reply, nowhere};

/// Every problem has these members, and says the same in its head as in its body.
#[track_caller]
fn is_problem(reply: &Reply, status: u16, code: &str, base: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    assert_eq!(reply.header("content-type"), "application/problem+json");
    assert_eq!(reply.header("cache-control"), "no-store");
    let problem = reply.json();
    assert_eq!(problem["type"], format!("{base}{code}"));
    assert_eq!((&problem["code"], &problem["status"]), (&code.into(), &status.into()));
    for text in ["title", "detail"] {
        assert!(problem[text].as_str().is_some_and(|text| text.len() > 10), "{problem}");
    }
    let seconds = reply.headers.text("retry-after").map(|text| text.parse::<u64>().unwrap());
    assert_eq!(problem.get("retry_after").and_then(|value| value.as_u64()), seconds, "{problem}");
    let known = ["type", "title", "status", "detail", "code", "retry_after", "record", "first"];
    for name in problem.as_object().unwrap().keys() {
        assert!(known.contains(&name.as_str()), "{name} in {problem}");
    }
}

const URN: &str = "urn:oncekey:problem:";

#[test]
fn h_every_problem_has_its_status_its_type_and_its_members() {
    let upstream = Upstream::start(|exchange| match exchange.request.target.as_str() {
        "/unknown" => After::Reset,
        _ => exchange.answer(201, &[], b"done"),
    });
    let (type_base, own) = ("https://docs.example/p", "https://docs.example/p/");
    for (problem, base) in
        [(String::new(), URN), (format!("[problem]\ntype_base = \"{type_base}\"\n"), own)]
    {
        let config = format!(
            "{problem}[defaults]\nmax_request_body = \"16B\"\n\
             [[route]]\nmatch = \"POST /required\"\nrequire_key = true\n"
        );
        let gateway = Gateway::to(upstream.address()).config(&config).start();
        let send = |request: Request| request.reply(gateway.address());
        is_problem(&send(Request::post("/required").json("{}")), 400, "missing-key", base);
        is_problem(&send(keyed("/pay", "\"")), 400, "invalid-key", base);
        let large = Request::post("/pay").key("large").json(&"x".repeat(17));
        is_problem(&send(large), 413, "request-too-large", base);

        assert_eq!(send(keyed("/pay", "k")).status, 201);
        let reused = send(Request::post("/pay").key("k").json("[]"));
        is_problem(&reused, 422, "key-reused", base);
        assert_eq!(reused.json()["first"], "completed");
        assert_eq!(reused.json()["record"].as_str().unwrap().len(), 64);
        let other = send(keyed("/pay", "k").header("Authorization", "other"));
        is_problem(&other, 403, "other-principal", base);

        let unknown = send(keyed("/unknown", "k"));
        is_problem(&unknown, 504, "outcome-unknown", base);
        let held = send(keyed("/unknown", "k"));
        is_problem(&held, 409, "outcome-unknown", base);
        for reply in [&unknown, &held] {
            assert_eq!(reply.idempotency(), "unknown");
        }
        let reused = send(Request::post("/unknown").key("k").json("[]"));
        is_problem(&reused, 422, "key-reused", base);
        assert_eq!(reused.json()["first"], "unknown");
    }
}

#[test]
fn h_an_application_that_is_not_there_is_told_by_the_same_contract() {
    let (address, _held) = nowhere();
    let config = "[problem]\ntype_base = \"https://docs.example/p\"\n";
    let gateway = Gateway::to(address).config(config).start();
    let base = "https://docs.example/p/";
    let keyed = keyed("/pay", "k").reply(gateway.address());
    is_problem(&keyed, 502, "upstream-unreachable", base);
    assert_eq!(keyed.idempotency(), "released");
    let unkeyed = Request::post("/pay").json("{}").reply(gateway.address());
    is_problem(&unkeyed, 502, "upstream-unreachable", base);
}

#[test]
fn h_our_own_problems_carry_no_status_but_those_that_say_so() {
    let upstream = counting();
    let gateway = Gateway::to(upstream.address()).start();
    keyed("/pay", "k").reply(gateway.address());
    for request in [keyed("/pay", ""), Request::post("/pay").key("k").json("[]")] {
        let reply = request.reply(gateway.address());
        assert!(reply.status >= 400);
        let ours = reply.headers.names().into_iter().filter(|name| name.starts_with("idempoten"));
        assert_eq!(ours.count(), 0, "{reply:?}");
    }
}

fn told_while_the_first_runs(in_progress: &str) {
    let gate = Gate::new();
    let opened = gate.clone();
    let upstream = Upstream::start(move |exchange| {
        if exchange.wait(&opened) { exchange.answer(201, &[], b"done") } else { After::Close }
    });
    let config = format!("[defaults]\nin_progress = {in_progress}\n");
    let gateway = Gateway::to(upstream.address()).config(&config).start();
    std::thread::scope(|scope| {
        let first = scope.spawn(|| keyed("/pay", "k").reply(gateway.address()));
        upstream.wait_for_requests(1);
        let second = keyed("/pay", "k").reply(gateway.address());
        // Mismatch is told at once, whatever the first does (C3).
        let other = Request::post("/pay").key("k").json("[]").reply(gateway.address());
        gate.open();
        is_problem(&second, 409, "in-progress", URN);
        let seconds: u64 = second.header("retry-after").parse().unwrap();
        assert!((1..=30).contains(&seconds), "{seconds}");
        is_problem(&other, 422, "key-reused", URN);
        assert_eq!(other.json()["first"], "in-progress");
        assert_eq!(first.join().unwrap().status, 201);
    });
    assert_eq!(upstream.count(), 1);
}

#[test]
fn c4_at_the_bound_a_waiter_is_told_when_to_come_again() {
    told_while_the_first_runs("{ wait = \"50ms\" }");
}

#[test]
fn c4_in_reject_mode_a_repeat_is_told_at_once_when_to_come_again() {
    told_while_the_first_runs("\"reject\"");
}

#[test]
fn h_o2_the_profiles_rename_statuses_and_decide_about_5xx() {
    let upstream = Upstream::start(|exchange| {
        let status = exchange.request.target.rsplit('/').next().unwrap().parse().unwrap();
        let body = format!("run {}", exchange.request.number);
        exchange.answer(status, &[], body.as_bytes())
    });
    let config = "[[route]]\nmatch = \"POST /stripe/*\"\nprofile = \"stripe\"\n\
                  [[route]]\nmatch = \"POST /payment/*\"\nprofile = \"payment\"\n";
    let gateway = Gateway::to(upstream.address()).config(config).start();
    let send = |path: &str, body: &str| {
        let reply = Request::post(path).key("k").json(body).reply(gateway.address());
        (reply.status, reply.idempotency(), reply.code())
    };
    // Path, the first answer's mark, the repeat's status and mark, the status of a reuse.
    for (path, status, first, repeat, reused) in [
        ("/ietf", 500, "retry", (500, "retry"), 422),
        ("/ietf", 503, "retry", (503, "retry"), 422),
        ("/ietf", 502, "unknown", (409, "unknown"), 422),
        ("/ietf", 504, "unknown", (409, "unknown"), 422),
        ("/ietf", 404, "stored", (404, "replayed"), 422),
        ("/ietf", 303, "stored", (303, "replayed"), 422),
        ("/ietf", 429, "released", (429, "released"), 429),
        ("/ietf", 401, "released", (401, "released"), 401),
        ("/stripe", 500, "stored", (500, "replayed"), 400),
        ("/stripe", 502, "unknown", (409, "unknown"), 400),
        ("/payment", 500, "unknown", (409, "unknown"), 422),
        ("/payment", 503, "unknown", (409, "unknown"), 422),
        ("/payment", 402, "stored", (402, "replayed"), 422),
    ] {
        let path = format!("{path}/{status}");
        assert_eq!(send(&path, "{}"), (status, first.into(), String::new()), "{path}");
        let (second, mark, _) = send(&path, "{}");
        assert_eq!((second, mark.as_str()), repeat, "{path}");
        assert_eq!(send(&path, "[]").0, reused, "{path}");
    }
}
