"""The Python peer of the interoperability tests: `peer.py server` prints its port, `peer.py client HOST:PORT` runs every
check and prints a line for each; with `cut` behind it the server dies while `load` runs. Messages are bytes as they are. The Node peer in node/peer.js does the same."""
import asyncio
import sys
import time

import grpc
from grpc import aio

SERVICE, AUTHORITY = "interop.Peer", "peer.test"
LARGE = 16 << 20
CUT = "cut" in sys.argv[3:]
cancelled = 0


async def unary(request, context):
    """Echoes; metadata says how long the trailers are to be, and which failure to answer with which details."""
    asked = dict(context.invocation_metadata())
    size = int(asked.get("x-trailer", 0))
    trailers = [("x-blob", "t" * size), ("details-bin", b"\x00\xff" * (size // 2))] if size else []
    if "x-fail" in asked:
        details = int(asked.get("x-details", 0))
        context.set_trailing_metadata(trailers + [("grpc-status-details-bin", b"\xfe" * details)])
        await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "no % ✓ " + asked["x-fail"])
    context.set_trailing_metadata(trailers)
    return request


async def count(request, context):
    n, size = map(int, request.split())
    for i in range(n):
        yield bytes([i % 251]) * size


async def total(requests, context):
    n = size = 0
    async for message in requests:
        n, size = n + 1, size + len(message)
    return b"%d %d" % (n, size)


async def chat(requests, context):
    async for message in requests:
        yield message


async def sleep(request, context):
    """Sends its head and nothing more, so that the caller knows when it is being worked on."""
    global cancelled
    await context.send_initial_metadata((("x-here", "1"),))
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        cancelled += 1
        raise
    return b""


async def cancels(request, context):
    return b"%d" % cancelled


async def serve():
    server = aio.server(options=[
        ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
        ("grpc.max_connection_age_ms", 1000), ("grpc.max_connection_age_grace_ms", 30000),
    ])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Count": grpc.unary_stream_rpc_method_handler(count),
        "Total": grpc.stream_unary_rpc_method_handler(total),
        "Chat": grpc.stream_stream_rpc_method_handler(chat),
        "Sleep": grpc.unary_unary_rpc_method_handler(sleep),
        "Cancels": grpc.unary_unary_rpc_method_handler(cancels),
    }),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


class Client:
    def __init__(self, address):
        self.channel = aio.insecure_channel(address, options=[
            ("grpc.default_authority", AUTHORITY), ("grpc.max_receive_message_length", -1),
            ("grpc.max_send_message_length", -1), ("grpc.max_metadata_size", 1 << 20),
            ("grpc.absolute_max_metadata_size", 1 << 20),
            # More often than servers put up with: the sidecar must not let them notice.
            ("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.max_pings_without_data", 0),
        ])
        path = f"/{SERVICE}/"
        self.unary = self.channel.unary_unary(path + "Unary")
        self.count = self.channel.unary_stream(path + "Count")
        self.total = self.channel.stream_unary(path + "Total")
        self.chat = self.channel.stream_stream(path + "Chat")
        self.sleep = self.channel.unary_stream(path + "Sleep")  # else the head is told with the end only
        self.cancels = self.channel.unary_unary(path + "Cancels")
        self.nowhere = self.channel.unary_unary(path + "Nowhere")

    async def cancels_reach(self, at_least):
        until = time.monotonic() + 5
        while (seen := int(await self.cancels(b""))) < at_least:
            assert time.monotonic() < until, f"the server saw {seen} cancels, not {at_least}"
            await asyncio.sleep(0.01)

    async def check_unary(self):
        for size in (0, 1, 1000, 70_000, LARGE):
            assert await self.unary(b"u" * size) == b"u" * size, size

    async def check_streams(self):
        got = [m async for m in self.count(b"500 3000")]
        assert len(got) == 500 and all(m == bytes([i % 251]) * 3000 for i, m in enumerate(got))
        assert [m async for m in self.count(b"0 0")] == []
        assert await self.total(iter([b"x" * 10_000] * 300)) == b"300 3000000"
        assert await self.total(iter([])) == b"0 0"
        call = self.chat()
        for size in [0, 1, 128, 65_536, 1 << 20] * 5:
            await call.write(b"c" * size)
            assert await call.read() == b"c" * size, size
        await call.done_writing()
        assert await call.read() is aio.EOF

    async def check_trailers(self):
        for size in (16, 1 << 10, 8 << 10, 20 << 10):
            call = self.unary(b"", metadata=[("x-trailer", str(size))])
            await call
            trailers = dict(await call.trailing_metadata())
            assert trailers["x-blob"] == "t" * size and trailers["details-bin"] == b"\x00\xff" * (size // 2), size

    async def check_details(self):
        for size in (0, 1 << 10, 8 << 10, 32 << 10):
            try:
                await self.unary(b"", metadata=[("x-fail", "so"), ("x-details", str(size))])
                raise AssertionError("did not fail")
            except aio.AioRpcError as e:
                assert (e.code(), e.details()) == (grpc.StatusCode.FAILED_PRECONDITION, "no % ✓ so"), e
                assert dict(e.trailing_metadata()).get("grpc-status-details-bin", b"") == b"\xfe" * size, size

    async def check_unimplemented(self):
        try:
            await self.nowhere(b"")
            raise AssertionError("did not fail")
        except aio.AioRpcError as e:
            assert e.code() == grpc.StatusCode.UNIMPLEMENTED, e

    async def check_deadline(self):
        before = int(await self.cancels(b""))
        start = time.monotonic()
        try:
            await self.sleep(b"", timeout=0.3).read()
            raise AssertionError("did not fail")
        except aio.AioRpcError as e:
            assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED, e
        assert time.monotonic() - start < 3
        await self.cancels_reach(before + 1)

    async def check_cancel(self):
        before = int(await self.cancels(b""))
        calls = [self.sleep(b"") for _ in range(5)]
        await asyncio.gather(*(c.initial_metadata() for c in calls))
        for c in calls:
            c.cancel()
        await self.cancels_reach(before + 5)

    async def check_load(self):
        """Calls for so long that the server ends several connections meanwhile, and sees more than two strikes."""
        print("load begins", flush=True)
        until, calls = time.monotonic() + 4.5, 0
        quiet = self.chat()
        await quiet.write(b"a")
        assert await quiet.read() == b"a"

        async def caller():
            nonlocal calls
            while time.monotonic() < until:
                assert await self.unary(b"load") == b"load"
                calls += 1

        await asyncio.gather(*(caller() for _ in range(4)))
        print(f"   {calls} calls")
        if CUT:  # no call has failed, but the stream cannot be saved
            assert await quiet.code() == grpc.StatusCode.UNAVAILABLE, await quiet.code()
            return
        await quiet.write(b"b")
        assert await quiet.read() == b"b", "the quiet stream was cut"
        await quiet.done_writing()
        assert await quiet.read() is aio.EOF


async def main():
    client, failed = Client(sys.argv[2]), 0
    for name in [n for n in dir(client) if n.startswith("check_")]:
        try:
            start = time.monotonic()
            await asyncio.wait_for(getattr(client, name)(), 60)
            print(f"ok {name} {time.monotonic() - start:.2f}s")
        except Exception as e:
            failed += 1
            print("FAILED", name, repr(e)[:2000])
    await client.channel.close()
    sys.exit(1 if failed else 0)


asyncio.run(serve() if sys.argv[1] == "server" else main())
