// A browser's client of gRPC-Web (the npm package grpc-web, as pages use it), in Node: `web.js HOST:PORT text|binary ORIGIN`
// runs every check against a peer of the interoperability tests and prints a line for each.
"use strict";
const assert = require("node:assert");
const http = require("node:http");
globalThis.XMLHttpRequest = require("xhr2").XMLHttpRequest;
const { GrpcWebClientBase, MethodDescriptor, MethodType } = require("grpc-web");

const [address, mode, origin] = process.argv.slice(2), base = `http://${address}/interop.Peer/`;
// xhr2 lets a page set no Origin and no Host, as browsers do not: the service listens on a port of its own.
const client = new GrpcWebClientBase({ format: mode });
const message = (b) => new Uint8Array(b);
const describe = (name, type) => new MethodDescriptor(base + name, type, Uint8Array, Uint8Array, (m) => m, message);
const unary = (name, body, metadata = {}) =>
  new Promise((done, fail) => {
    let fields;
    const call = client.rpcCall(base + name, body, metadata, describe(name, MethodType.UNARY), (err, reply) => (err ? fail(err) : done({ reply, fields: () => fields })));
    call.on("metadata", (m) => { fields = m; });
  });
const stream = (name, text, metadata = {}) => client.serverStreaming(base + name, message(Buffer.from(text)), metadata, describe(name, MethodType.SERVER_STREAMING));
const ended = (call) =>
  new Promise((done) => {
    const got = { messages: [] };
    call.on("data", (m) => got.messages.push(Buffer.from(m)));
    call.on("status", (s) => { got.status = s; });
    call.on("error", (e) => { got.error = e; done(got); });
    call.on("end", () => setImmediate(() => done(got)));
  });
const fails = (promise) => promise.then(() => assert.fail("did not fail"), (e) => { if (e instanceof assert.AssertionError) throw e; return e; });

const checks = {
  async unary() {
    for (const size of [0, 1, 2, 3, 1000, 70_000, 1 << 20]) {
      const { reply } = await unary("Unary", message(Buffer.alloc(size, "u")));
      assert(Buffer.alloc(size, "u").equals(Buffer.from(reply)), `${size}`);
    }
  },
  async streams() {
    for (const [n, size] of [[0, 0], [1, 1], [50, 0], [100, 1000], [20, 50_001]]) {
      const got = await ended(stream("Count", `${n} ${size}`));
      assert.strictEqual(got.error, undefined);
      assert.strictEqual(got.messages.length, n);
      got.messages.forEach((m, i) => assert(Buffer.alloc(size, i % 251).equals(m), `${i}`));
      if (n > 0) assert.strictEqual(got.status?.code, 0, "status"); // of an answer that is only a head this client tells none
    }
  },
  async details() {
    for (const size of [0, 1 << 10, 8 << 10]) {
      const e = await fails(unary("Unary", message([]), { "x-fail": "so", "x-details": String(size) }));
      assert.deepStrictEqual([e.code, e.message], [9, "no % ✓ so"]);
      const details = Buffer.from(e.metadata["grpc-status-details-bin"] ?? "", "base64");
      assert(Buffer.alloc(size, 0xfe).equals(details), `${size}`);
    }
  },
  async unimplemented() {
    assert.strictEqual((await fails(unary("Nowhere", message([])))).code, 12);
  },
  async deadline() { // the client's own clock is far away: it is the sidecar that says so
    const e = await fails(unary("Sleep", message([]), { "grpc-timeout": "300m" }));
    assert.strictEqual(e.code, 4, e.message);
  },
  async cancel() {
    const cancels = async () => Number(Buffer.from((await unary("Cancels", message([]))).reply).toString());
    const before = await cancels(), call = stream("Sleep", "");
    await new Promise((done) => setTimeout(done, 200));
    call.cancel();
    for (let i = 0; (await cancels()) <= before; i++) {
      assert(i < 500, "the server did not see the cancel");
      await new Promise((done) => setTimeout(done, 10));
    }
  },
  async preflight() { // what a browser asks before the first call
    const answer = await new Promise((done, fail) => {
      const headers = { origin, "access-control-request-method": "POST", "access-control-request-headers": "content-type,x-grpc-web,x-user-agent" };
      http.request(base + "Unary", { method: "OPTIONS", headers }, done).on("error", fail).end();
    });
    answer.resume();
    assert.deepStrictEqual([answer.statusCode, answer.headers["access-control-allow-origin"], answer.headers["access-control-allow-headers"]],
      [204, origin, "content-type,x-grpc-web,x-user-agent"]);
  },
};

(async () => {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    const start = Date.now();
    const late = new Promise((_, fail) => setTimeout(() => fail(new Error("took too long")), 30_000).unref());
    try {
      await Promise.race([check(), late]);
      console.log(`ok ${name} ${Date.now() - start}ms`);
    } catch (e) {
      failed++;
      console.log("FAILED", name, String(e.stack ?? e).slice(0, 2000));
    }
  }
  process.exit(failed ? 1 : 0);
})();
