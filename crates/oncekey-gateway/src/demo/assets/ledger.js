// The ledger, kept up to date by asking once a second while someone looks.

const PERIOD = 1000;

const part = (id) => document.getElementById(id);
const euros = (cents) => "\u20ac" + (cents / 100).toFixed(2);
const known = new Set();
let first = true;

function show(id, text) {
  const place = part(id);
  if (place.textContent !== String(text)) place.textContent = text;
}

function cell(text, style) {
  const made = document.createElement("td");
  made.textContent = text;
  if (style) made.className = style;
  return made;
}

function recordCell(record) {
  const made = cell("");
  const code = document.createElement("code");
  code.textContent = record ? record.slice(0, 12) : "none";
  if (record) code.title = record;
  made.append(code);
  return made;
}

function row(charge) {
  const made = document.createElement("tr");
  const time = new Date(charge.at).toLocaleTimeString([], { hour12: false });
  made.append(
    cell(charge.id),
    cell(charge.item),
    cell(euros(charge.amount), "number"),
    cell(time),
    cell(charge.attempt ?? "-", "number"),
    recordCell(charge.record),
  );
  if (!first && !known.has(charge.id)) made.className = "fresh";
  return made;
}

function draw(ledger) {
  show("requests", ledger.requests);
  show("charges", ledger.charges);
  show("total", euros(ledger.total));
  const unchanged = ledger.charges === known.size && known.has(ledger.rows[0]?.id);
  if (ledger.rows.length > 0 && !unchanged) {
    part("rows").replaceChildren(...ledger.rows.map(row));
    for (const charge of ledger.rows) known.add(charge.id);
  }
  part("none").hidden = ledger.rows.length > 0;
  part("scroll").hidden = ledger.rows.length === 0;
  first = false;
}

function live(style, text) {
  part("live").className = `live ${style}`;
  show("live", text);
}

async function refresh() {
  try {
    const answer = await fetch("/api/ledger");
    draw(await answer.json());
    live("on", "live");
  } catch {
    live("off", "not reached, trying again");
  }
}

async function watch() {
  if (!document.hidden) await refresh();
  setTimeout(watch, PERIOD);
}

document.addEventListener("visibilitychange", () => document.hidden || refresh());
watch();
