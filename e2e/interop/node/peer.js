// The Node peer of the interoperability tests; see python/peer.py, which does the same.
"use strict";
const grpc = require("@grpc/grpc-js");
const assert = require("node:assert");

const SERVICE = "interop.Peer", AUTHORITY = "peer.test", LARGE = 16 << 20;
const same = (b) => b;
const method = (name, requestStream, responseStream) => ({
  path: `/${SERVICE}/${name}`, requestStream, responseStream,
  requestSerialize: same, requestDeserialize: same, responseSerialize: same, responseDeserialize: same,
});
const definition = {
  unary: method("Unary", false, false), count: method("Count", false, true), total: method("Total", true, false),
  chat: method("Chat", true, true), sleep: method("Sleep", false, false), cancels: method("Cancels", false, false),
};
const later = (ms) => new Promise((done) => setTimeout(done, ms));

let cancelled = 0;
const handlers = {
  unary(call, done) {
    const asked = (name) => call.metadata.get(name)[0];
    const size = Number(asked("x-trailer") ?? 0), trailers = new grpc.Metadata();
    if (size) {
      trailers.set("x-blob", "t".repeat(size));
      trailers.set("details-bin", Buffer.alloc(size, Buffer.from([0, 255])));
    }
    if (asked("x-fail") === undefined) return done(null, call.request, trailers);
    const details = Number(asked("x-details") ?? 0);
    trailers.set("grpc-status-details-bin", Buffer.alloc(details, 0xfe));
    done({ code: grpc.status.FAILED_PRECONDITION, details: "no % ✓ " + asked("x-fail"), metadata: trailers });
  },
  async count(call) {
    const [n, size] = call.request.toString().split(" ").map(Number);
    for (let i = 0; i < n; i++) {
      if (!call.write(Buffer.alloc(size, i % 251))) await new Promise((done) => call.once("drain", done));
    }
    call.end();
  },
  total(call, done) {
    let n = 0, size = 0;
    call.on("data", (m) => { n++; size += m.length; });
    call.on("end", () => done(null, Buffer.from(`${n} ${size}`)));
  },
  chat(call) {
    call.on("data", (m) => call.write(m));
    call.on("end", () => call.end());
  },
  sleep(call) { // sends its head and nothing more, so that the caller knows when it is being worked on
    call.on("cancelled", () => cancelled++);
    call.sendMetadata(new grpc.Metadata());
  },
  cancels(call, done) { done(null, Buffer.from(String(cancelled))); },
};

function serve() {
  const server = new grpc.Server({
    "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1,
    "grpc.max_connection_age_ms": 1000, "grpc.max_connection_age_grace_ms": 30000,
  });
  server.addService(definition, handlers);
  server.bindAsync("127.0.0.1:0", grpc.ServerCredentials.createInsecure(), (err, port) => {
    if (err) throw err;
    console.log(port);
  });
}

function client(address) {
  const stub = new (grpc.makeGenericClientConstructor(definition, SERVICE))(address, grpc.credentials.createInsecure(), {
    "grpc.default_authority": AUTHORITY, "grpc.max_receive_message_length": -1, "grpc.max_send_message_length": -1,
    "grpc.keepalive_time_ms": 1000, "grpc.keepalive_permit_without_calls": 1,
  });
  const one = (name, message, metadata = {}, options = {}) => new Promise((done, fail) => {
    let trailers;
    const call = stub[name](message, grpc.Metadata.fromHttp2Headers(metadata), options, (err, reply) =>
      err ? fail(err) : setImmediate(() => done({ reply, trailers })));
    call.on("status", (s) => { trailers = s.metadata; });
  });
  const fails = (promise) => promise.then(() => assert.fail("did not fail"), (e) => { if (e.code === undefined || e instanceof assert.AssertionError) throw e; return e; });
  const all = async (call) => { const list = []; for await (const m of call) list.push(m); return list; };
  const cancels = async () => Number((await one("cancels", Buffer.alloc(0))).reply);
  const cancelsReach = async (n) => {
    for (let i = 0; (await cancels()) < n; i++) {
      assert(i < 500, "the server did not see the cancel");
      await later(10);
    }
  };
  const total = (list) => new Promise((done, fail) => {
    const call = stub.total((err, reply) => (err ? fail(err) : done(reply.toString())));
    for (const m of list) call.write(m);
    call.end();
  });
  const checks = {
    async unary() {
      for (const size of [0, 1, 1000, 70_000, LARGE]) {
        const m = Buffer.alloc(size, "u");
        assert(m.equals((await one("unary", m)).reply), `${size}`);
      }
    },
    async streams() {
      const got = await all(stub.count(Buffer.from("500 3000")));
      assert(got.length === 500 && got.every((m, i) => m.equals(Buffer.alloc(3000, i % 251))));
      assert.strictEqual((await all(stub.count(Buffer.from("0 0")))).length, 0);
      assert.strictEqual(await total(Array(300).fill(Buffer.alloc(10_000))), "300 3000000");
      assert.strictEqual(await total([]), "0 0");
      const call = stub.chat(), replies = call[Symbol.asyncIterator]();
      for (let round = 0; round < 5; round++) {
        for (const size of [0, 1, 128, 65_536, 1 << 20]) {
          const m = Buffer.alloc(size, "c");
          call.write(m);
          assert(m.equals((await replies.next()).value), `${size}`);
        }
      }
      call.end();
      assert((await replies.next()).done);
    },
    async trailers() {
      for (const size of [16, 1 << 10, 8 << 10, 20 << 10]) {
        const { trailers } = await one("unary", Buffer.alloc(0), { "x-trailer": String(size) });
        assert.strictEqual(trailers.get("x-blob")[0], "t".repeat(size));
        assert(Buffer.alloc(size, Buffer.from([0, 255])).equals(trailers.get("details-bin")[0]), `${size}`);
      }
    },
    async details() {
      for (const size of [0, 1 << 10, 8 << 10, 32 << 10]) {
        const e = await fails(one("unary", Buffer.alloc(0), { "x-fail": "so", "x-details": String(size) }));
        assert.deepStrictEqual([e.code, e.details], [grpc.status.FAILED_PRECONDITION, "no % ✓ so"]);
        assert(Buffer.alloc(size, 0xfe).equals(e.metadata.get("grpc-status-details-bin")[0] ?? Buffer.alloc(0)), `${size}`);
      }
    },
    async deadline() {
      const before = await cancels();
      const e = await fails(one("sleep", Buffer.alloc(0), {}, { deadline: Date.now() + 300 }));
      assert.strictEqual(e.code, grpc.status.DEADLINE_EXCEEDED, e.message);
      await cancelsReach(before + 1);
    },
    async cancel() {
      const before = await cancels(), begun = [], ended = [], calls = [];
      for (let i = 0; i < 5; i++) {
        ended.push(new Promise((done) => calls.push(stub.sleep(Buffer.alloc(0), (err) => done(err.code)))));
        begun.push(new Promise((done) => calls[i].on("metadata", done)));
      }
      await Promise.all(begun);
      calls.forEach((c) => c.cancel());
      assert.deepStrictEqual(await Promise.all(ended), Array(5).fill(grpc.status.CANCELLED));
      await cancelsReach(before + 5);
    },
    async load() { // for so long that the server ends several connections meanwhile, and sees more than two strikes
      const quiet = stub.chat(), replies = quiet[Symbol.asyncIterator](), until = Date.now() + 4500;
      quiet.write(Buffer.from("a"));
      assert.strictEqual((await replies.next()).value.toString(), "a");
      let calls = 0;
      await Promise.all(Array(4).fill(0).map(async () => {
        for (; Date.now() < until; calls++) {
          assert.strictEqual((await one("unary", Buffer.from("load"))).reply.toString(), "load");
        }
      }));
      quiet.write(Buffer.from("b"));
      assert.strictEqual((await replies.next()).value.toString(), "b");
      quiet.end();
      console.log(`   ${calls} calls`);
    },
  };
  (async () => {
    let failed = 0;
    for (const [name, check] of Object.entries(checks)) {
      try {
        await Promise.race([check(), later(60_000).then(() => assert.fail("took too long"))]);
        console.log("ok", name);
      } catch (e) {
        failed++;
        console.log("FAILED", name, String(e.stack).slice(0, 2000));
      }
    }
    process.exit(failed ? 1 : 0);
  })();
}

process.argv[2] === "server" ? serve() : client(process.argv[3]);
