// The pay button.
//
// One key stands for one operation. It is made when the operation begins, kept in localStorage over
// clicks and reloads, and replaced only by the visitor: with the button, or with another story.

const PRICE = 420;
const OTHER_PRICE = 9900;
const SHOWN = 60;
const STORE = "oncekey-demo-operation";

const HINTS = {
  works: "One click runs. All others get the answer of the first, byte for byte.",
  fails: "Nothing was charged and the shop said so, so the next click runs again. "
    + "A double click still runs once.",
  slow: "It takes 4 s and the gateway answers after 2 s that nobody knows yet. "
    + "The charge goes on; click again for its answer.",
  crashes: "It charges and then dies without a word. Nobody can know, so the key is never run "
    + "again by itself: no second charge.",
};

const PROBLEMS = {
  "key-reused": ["refused", "bad"],
  "in-progress": ["still running", "warn"],
  "outcome-unknown": ["unknown", "warn"],
};

const OUTCOMES = {
  stored: ["ran", "good"],
  unstored: ["ran, not stored", "warn"],
  lost: ["ran, lease lost", "warn"],
  degraded: ["ran, unprotected", "warn"],
  retry: ["ran and failed", "warn"],
  released: ["not run", "warn"],
  unknown: ["unknown", "warn"],
};

const part = (id) => document.getElementById(id);
const euros = (cents) => "\u20ac" + (cents / 100).toFixed(2);

function begin(story) {
  const id = crypto.randomUUID ? crypto.randomUUID() : randomHex();
  return { key: id, story, sent: 0 };
}

// randomUUID is missing where the page does not come from a secure origin.
function randomHex() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function restore() {
  try {
    const kept = JSON.parse(localStorage.getItem(STORE));
    if (kept && typeof kept.key === "string" && kept.story in HINTS) return kept;
  } catch {
    // A store that is closed to us or holds something else: a new operation.
  }
  return begin("works");
}

function keep() {
  try {
    localStorage.setItem(STORE, JSON.stringify(operation));
  } catch {
    // Then the key lives as long as the page.
  }
}

let operation = restore();
let turn = 0;

function showOperation() {
  part("key").textContent = operation.key;
  part("sent").textContent = operation.sent;
  part("hint").textContent = HINTS[operation.story];
  document.querySelector(`input[name=story][value=${operation.story}]`).checked = true;
}

function replaceOperation(story) {
  operation = begin(story);
  keep();
  showOperation();
}

function element(kind, style, text) {
  const made = document.createElement(kind);
  made.className = style;
  if (text !== undefined) made.textContent = text;
  return made;
}

function addRow() {
  turn += 1;
  const row = element("li", "waiting");
  const line = element("div", "line");
  line.append(element("span", "turn", `#${turn}`), element("span", "status", "..."));
  row.append(line);
  const list = part("answers");
  list.prepend(row);
  while (list.children.length > SHOWN) list.lastElementChild.remove();
  part("none").hidden = true;
  part("clear").hidden = false;
  return row;
}

function fillRow(row, { status, badge, said, took }) {
  row.classList.remove("waiting");
  row.classList.add("fresh");
  const line = row.firstElementChild;
  line.lastElementChild.textContent = status;
  line.append(element("span", `badge ${badge[1]}`, badge[0]));
  line.append(element("span", "took", `${Math.round(took)} ms`));
  if (said) row.append(element("p", "said", said));
}

function judge(headers, body) {
  if (headers.get("idempotent-replayed") === "true") return ["replayed", "again"];
  if (body && body.code) return PROBLEMS[body.code] || ["refused", "bad"];
  const outcome = headers.get("idempotency-status");
  return OUTCOMES[outcome] || ["ran, no gateway", "warn"];
}

function sentence(body) {
  if (!body) return "";
  if (body.id) return `charge ${body.id}, ${euros(body.amount)}`;
  if (body.code) return `${body.code}: ${body.detail || body.title || ""}`;
  return body.error || "";
}

async function pay(amount) {
  operation.sent += 1;
  keep();
  showOperation();
  const row = addRow();
  const started = performance.now();
  const order = { item: "Flat white", amount, story: operation.story };
  let shown;
  try {
    const answer = await fetch("/api/pay", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Idempotency-Key": `"${operation.key}"` },
      body: JSON.stringify(order),
    });
    const body = await answer.json().catch(() => null);
    shown = { status: answer.status, badge: judge(answer.headers, body), said: sentence(body) };
  } catch {
    shown = { status: "-", badge: ["no answer", "bad"], said: "The connection broke. Try again with the same key." };
  }
  fillRow(row, { ...shown, took: performance.now() - started });
  refresh();
}

function several(count) {
  for (let sent = 0; sent < count; sent += 1) pay(PRICE);
}

async function refresh() {
  try {
    const answer = await fetch("/api/ledger");
    const ledger = await answer.json();
    part("requests").textContent = ledger.requests;
    part("charges").textContent = ledger.charges;
  } catch {
    // The next look may succeed; the numbers stay as they were.
  }
}

part("pay").addEventListener("click", () => pay(PRICE));
part("two").addEventListener("click", () => several(2));
part("ten").addEventListener("click", () => several(10));
part("other").addEventListener("click", () => pay(OTHER_PRICE));
part("new").addEventListener("click", () => replaceOperation(operation.story));
part("clear").addEventListener("click", () => {
  part("answers").replaceChildren();
  part("none").hidden = false;
  part("clear").hidden = true;
});
for (const choice of document.querySelectorAll("input[name=story]")) {
  choice.addEventListener("change", () => replaceOperation(choice.value));
}

keep();
showOperation();
refresh();
setInterval(() => document.hidden || refresh(), 2000);
