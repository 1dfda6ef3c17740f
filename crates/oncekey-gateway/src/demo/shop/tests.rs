use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tower_service::Service;

use super::*;

const INSTANT: Pace = Pace { usual: Duration::ZERO, slow: Duration::ZERO };

struct Answer {
    status: StatusCode,
    headers: HeaderMap,
    body: Bytes,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the answer is JSON")
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the answer is text")
    }
}

async fn ask(shop: &Router, request: Request<Body>) -> Answer {
    let answer = shop.clone().call(request).await.expect("a router always answers");
    let (head, body) = answer.into_parts();
    let body = body.collect().await.expect("the body ends").to_bytes();
    Answer { status: head.status, headers: head.headers, body }
}

async fn get(shop: &Router, path: &str) -> Answer {
    ask(shop, Request::get(path).body(Body::empty()).expect("a request")).await
}

async fn pay(shop: &Router, order: &str, headers: &[(&str, &str)]) -> Answer {
    let mut request = Request::post("/api/pay");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    ask(shop, request.body(Body::from(order.to_owned())).expect("a request")).await
}

const COFFEE: &str = r#"{"item":"coffee","amount":420}"#;

#[tokio::test]
async fn a1_the_ledger_shows_every_charge_that_ran() {
    let shop = with_pace(INSTANT);
    let headers = [("Idempotency-Record", "ab12"), ("Idempotency-Attempt", "2")];
    let paid = pay(&shop, COFFEE, &headers).await;
    assert_eq!(paid.status, StatusCode::CREATED);
    assert_eq!(paid.headers["location"], "/api/charges/ch_1");
    assert_eq!(get(&shop, "/api/charges/ch_1").await.json(), paid.json());

    pay(&shop, COFFEE, &[]).await;
    let ledger = get(&shop, "/api/ledger").await.json();
    assert_eq!(ledger["requests"], 2);
    assert_eq!(ledger["charges"], 2, "the shop itself charges for every request");
    assert_eq!(ledger["total"], 840);
    assert_eq!(ledger["rows"][1], paid.json());
    assert_eq!(ledger["rows"][1]["record"], "ab12");
    assert_eq!(ledger["rows"][1]["attempt"], 2);
    assert_eq!(ledger["rows"][0]["record"], Value::Null);
}

#[tokio::test]
async fn a1_a_failing_shop_charges_nothing_at_first_and_then_once() {
    let shop = with_pace(INSTANT);
    let order = r#"{"item":"coffee","amount":420,"story":"fails"}"#;
    let failed = pay(&shop, order, &[("Idempotency-Attempt", "1")]).await;
    assert_eq!(failed.status, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(get(&shop, "/api/ledger").await.json()["charges"], 0);
    let paid = pay(&shop, order, &[("Idempotency-Attempt", "2")]).await;
    assert_eq!(paid.status, StatusCode::CREATED);
    let ledger = get(&shop, "/api/ledger").await.json();
    assert_eq!((&ledger["requests"], &ledger["charges"]), (&2.into(), &1.into()));
}

#[tokio::test]
async fn a1_a_shop_that_dies_midway_charges_and_says_not_a_byte() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let shop = with_pace(INSTANT);
    let serving = tokio::spawn(axum::serve(listener, shop.clone()).into_future());

    let order = r#"{"item":"coffee","amount":420,"story":"crashes"}"#;
    let length = order.len();
    let request =
        format!("POST /api/pay HTTP/1.1\r\nHost: shop\r\nContent-Length: {length}\r\n\r\n{order}");
    let mut client = tokio::net::TcpStream::connect(address).await.expect("the shop listens");
    client.write_all(request.as_bytes()).await.expect("the request is sent");
    let mut said = Vec::new();
    let read = client.read_to_end(&mut said);
    let ended = tokio::time::timeout(Duration::from_secs(10), read).await.expect("it hangs up");
    assert!(said.is_empty(), "{ended:?} {:?}", String::from_utf8_lossy(&said));
    assert_eq!(get(&shop, "/api/ledger").await.json()["charges"], 1);
    serving.abort();
}

#[tokio::test]
async fn a1_orders_that_make_no_sense_are_refused_and_charge_nothing() {
    let shop = with_pace(INSTANT);
    let long = format!(r#"{{"item":"{}","amount":1}}"#, "x".repeat(ITEM_LIMIT + 1));
    let orders = [
        "",
        "coffee",
        r#"{"item":"coffee"}"#,
        r#"{"item":"","amount":1}"#,
        r#"{"item":"coffee","amount":0}"#,
        r#"{"item":"coffee","amount":-1}"#,
        r#"{"item":"coffee","amount":1000001}"#,
        r#"{"item":"coffee","amount":1,"story":"rains"}"#,
        long.as_str(),
    ];
    for order in orders {
        let refused = pay(&shop, order, &[]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{order}");
        assert!(refused.json()["error"].is_string(), "{order}");
    }
    let huge = " ".repeat(BODY_LIMIT + 1);
    assert_eq!(pay(&shop, &huge, &[]).await.status, StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(get(&shop, "/api/ledger").await.json()["charges"], 0);
    assert_eq!(get(&shop, "/api/charges/ch_1").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a1_the_pages_have_no_inline_script_or_style_and_load_nothing_from_elsewhere() {
    let shop = with_pace(INSTANT);
    for path in ["/", "/ledger"] {
        let page = get(&shop, path).await;
        let policy = page.headers["content-security-policy"].to_str().expect("ASCII");
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self'"));
        assert!(!policy.contains("unsafe"), "{policy}");
        let html = page.text();
        assert!(html.is_ascii(), "{path}");
        for script in html.split("<script").skip(1) {
            let (tag, rest) = script.split_once('>').expect("the tag ends");
            assert!(tag.contains("src=\"/assets/"), "{path}: inline script {tag}");
            assert!(rest.starts_with("</script>"), "{path}: script text");
        }
        for banned in ["<style", " style=", " onclick", " onload", "javascript:", "://", "<base"] {
            assert!(!html.contains(banned), "{path}: {banned}");
        }
        for source in html.split("\"/assets/").skip(1) {
            let (name, _) = source.split_once('"').expect("the attribute ends");
            let asset = get(&shop, &format!("/assets/{name}")).await;
            assert_eq!(asset.status, StatusCode::OK, "{path}: {name}");
            assert_eq!(asset.headers["x-content-type-options"], "nosniff");
        }
    }
}

#[tokio::test]
async fn a1_the_scripts_find_the_elements_they_ask_for() {
    let shop = with_pace(INSTANT);
    for (page, script) in [("/", "/assets/pay.js"), ("/ledger", "/assets/ledger.js")] {
        let html = get(&shop, page).await;
        let script = get(&shop, script).await;
        assert!(script.headers["content-type"].to_str().expect("ASCII").contains("javascript"));
        let mut asked = 0;
        for function in ["part(\"", "show(\""] {
            for call in script.text().split(function).skip(1) {
                let (id, _) = call.split_once('"').expect("the string ends");
                asked += 1;
                assert!(html.text().contains(&format!("id=\"{id}\"")), "{page} has no {id}");
            }
        }
        assert!(asked > 4, "{page}: {asked}");
    }
}

#[tokio::test]
async fn a1_the_page_says_whether_a_gateway_stands_before_it() {
    let shop = with_pace(INSTANT);
    let through = Request::get("/").header("via", "1.1 oncekey").body(Body::empty()).unwrap();
    let answer = ask(&shop, through).await;
    assert!(answer.text().contains("You are charged once"));
    let direct = get(&shop, "/").await;
    assert!(!direct.text().contains("You are charged once"));
    assert!(direct.text().contains("every click charges again"));
}
