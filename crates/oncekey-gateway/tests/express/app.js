// An ordinary Express application: nothing in here knows about oncekey.
//
// Each answer to a keyed method says in X-Run how often its handler has run, so that a second run
// can be told from a replay. GET /count?path=/pay says the same from outside.
//
// It listens on PORT (0 or none: a free one), prints {"port":N}, and ends when its standard input
// does, so that it never outlives the test that started it.

"use strict";

const { randomUUID } = require("node:crypto");
const { setTimeout: pause } = require("node:timers/promises");
const zlib = require("node:zlib");

const express = require("express");

const MEBIBYTE = 1024 * 1024;
const app = express();
const runs = new Map();

function count(request, response, next) {
  const run = (runs.get(request.path) || 0) + 1;
  runs.set(request.path, run);
  request.run = run;
  response.set("X-Run", String(run));
  next();
}

// Tells what arrived, byte for byte.
app.all("/echo", express.raw({ type: () => true, limit: "4mb" }), count, (request, response) => {
  const body = Buffer.isBuffer(request.body) ? request.body : Buffer.alloc(0);
  const raw = request.rawHeaders;
  const headers = [];
  for (let at = 0; at < raw.length; at += 2) headers.push([raw[at], raw[at + 1]]);
  response.json({
    method: request.method,
    url: request.url,
    version: request.httpVersion,
    headers,
    body: body.toString("base64"),
  });
});

app.get("/count", (request, response) => {
  response.json({ count: runs.get(request.query.path) || 0 });
});

app.use(express.json({ limit: "4mb" }));

app.post("/pay", count, (request, response) => {
  response
    .status(201)
    .location(`/payments/${request.run}`)
    .set("ETag", `"payment-${request.run}"`)
    .set("X-Request-Id", randomUUID())
    .cookie("session", `s${request.run}`, { httpOnly: true })
    .json({
      payment: request.run,
      amount: request.body?.amount ?? null,
      record: request.get("Idempotency-Record") ?? null,
      attempt: request.get("Idempotency-Attempt") ?? null,
    });
});

// Every byte value, sixteen times.
app.post("/binary", count, (request, response) => {
  const body = Buffer.alloc(4096);
  for (let at = 0; at < body.length; at += 1) body[at] = at % 256;
  response.type("application/octet-stream").send(body);
});

app.post("/empty", count, (request, response) => {
  response.status(204).end();
});

app.post("/empty202", count, (request, response) => {
  response.status(202).end();
});

// More than the store keeps: 2 MiB, no two pages alike.
app.post("/big", count, (request, response) => {
  const body = Buffer.alloc(2 * MEBIBYTE);
  for (let at = 0; at < body.length; at += 4) body.writeUInt32BE(at, at);
  response.type("application/octet-stream").set("ETag", '"big"').send(body);
});

app.post("/gzip", count, (request, response) => {
  const text = JSON.stringify({ run: request.run, text: "once ".repeat(500) });
  response
    .type("application/json")
    .set("Content-Encoding", "gzip")
    .set("Vary", "Accept-Encoding")
    .send(zlib.gzipSync(text));
});

// Chunked: several writes with pauses, so that they leave one by one.
app.post("/stream", count, async (request, response) => {
  response.type("text/plain; charset=utf-8");
  for (let part = 1; part <= 5; part += 1) {
    response.write(`part ${part} of run ${request.run}\n`);
    await pause(20);
  }
  response.end();
});

app.post("/sse", count, async (request, response) => {
  // Not by set(), which would add a charset.
  response.setHeader("Content-Type", "text/event-stream");
  response.setHeader("Cache-Control", "no-cache");
  for (let id = 1; id <= 3; id += 1) {
    response.write(`id: ${id}\ndata: event ${id} of run ${request.run}\n\n`);
    await pause(20);
  }
  response.end();
});

// 500, or what ?status says.
app.post("/fail", count, (request, response) => {
  const status = Number(request.query.status ?? 500);
  response.status(status).json({ error: "it failed", run: request.run });
});

app.post("/slow", count, async (request, response) => {
  await pause(Math.min(Number(request.query.ms ?? 1000), 60_000));
  response.json({ run: request.run });
});

// Runs, then hangs up without a word.
app.post("/crash", count, (request) => {
  request.socket.destroy();
});

// Repeated fields in order, and a byte that is no UTF-8.
app.post("/headers", count, (request, response) => {
  response.set("Link", ["</a>; rel=prev", "</b>; rel=next", "</c>; rel=last"]);
  response.set("X-Latin", "caf\u00e9");
  response.set("X-Empty", "");
  response.json({ run: request.run });
});

const server = app.listen(Number(process.env.PORT ?? 0), "127.0.0.1", (error) => {
  if (error) throw error;
  console.log(JSON.stringify({ port: server.address().port }));
});

process.stdin.resume();
process.stdin.on("end", () => process.exit(0));
