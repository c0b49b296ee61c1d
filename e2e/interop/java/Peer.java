// The Java peer of the interoperability tests; see python/peer.py, which does the same.

import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.ClientCall;
import io.grpc.ClientInterceptors;
import io.grpc.ManagedChannel;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.MethodDescriptor.MethodType;
import io.grpc.Server;
import io.grpc.ServerCall;
import io.grpc.ServerCallHandler;
import io.grpc.ServerServiceDefinition;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.netty.NettyServerBuilder;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.stub.StreamObserver;
import java.io.ByteArrayInputStream;
import java.io.InputStream;
import java.net.InetSocketAddress;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;

public final class Peer {
  static final String SERVICE = "interop.Peer";
  static final int LARGE = 16 << 20;
  static final Metadata.Key<byte[]> DETAILS = Metadata.Key.of("details-bin", Metadata.BINARY_BYTE_MARSHALLER);
  static final Metadata.Key<byte[]> STATUS_DETAILS = Metadata.Key.of("grpc-status-details-bin", Metadata.BINARY_BYTE_MARSHALLER);

  static Metadata.Key<String> key(String name) {
    return Metadata.Key.of(name, Metadata.ASCII_STRING_MARSHALLER);
  }

  static final MethodDescriptor.Marshaller<byte[]> AS_IS = new MethodDescriptor.Marshaller<>() {
    @Override
    public InputStream stream(byte[] message) {
      return new ByteArrayInputStream(message);
    }

    @Override
    public byte[] parse(InputStream stream) {
      try {
        return stream.readAllBytes();
      } catch (java.io.IOException e) {
        throw Status.INTERNAL.withCause(e).asRuntimeException();
      }
    }
  };

  static MethodDescriptor<byte[], byte[]> method(String name, MethodType type) {
    return MethodDescriptor.newBuilder(AS_IS, AS_IS).setType(type).setFullMethodName(SERVICE + "/" + name).build();
  }

  static final MethodDescriptor<byte[], byte[]> UNARY = method("Unary", MethodType.UNARY);
  static final MethodDescriptor<byte[], byte[]> COUNT = method("Count", MethodType.SERVER_STREAMING);
  static final MethodDescriptor<byte[], byte[]> TOTAL = method("Total", MethodType.CLIENT_STREAMING);
  static final MethodDescriptor<byte[], byte[]> CHAT = method("Chat", MethodType.BIDI_STREAMING);
  // A stream, since the head of a unary answer waits for its message.
  static final MethodDescriptor<byte[], byte[]> SLEEP = method("Sleep", MethodType.SERVER_STREAMING);
  static final MethodDescriptor<byte[], byte[]> CANCELS = method("Cancels", MethodType.UNARY);
  static final MethodDescriptor<byte[], byte[]> NOWHERE = method("Nowhere", MethodType.UNARY);

  static byte[] filled(int size, int with) {
    byte[] b = new byte[size];
    Arrays.fill(b, (byte) with);
    return b;
  }

  static byte[] blob(int size) {
    byte[] b = new byte[size / 2 * 2];
    for (int i = 1; i < b.length; i += 2) {
      b[i] = (byte) 0xff;
    }
    return b;
  }

  // ---- server

  static final AtomicInteger cancelled = new AtomicInteger();

  /** What a call does with a message, and at the end of messages. */
  abstract static class Handler extends ServerCall.Listener<byte[]> {
    final ServerCall<byte[], byte[]> call;
    byte[] last = {};

    Handler(ServerCall<byte[], byte[]> call, boolean headAtOnce) {
      this.call = call;
      if (headAtOnce) {
        call.sendHeaders(new Metadata());
      }
      call.request(1);
    }

    void message(byte[] m) {}

    @Override
    public void onMessage(byte[] m) {
      last = m;
      message(m);
      call.request(1);
    }

    void reply(byte[] m, Metadata trailers) {
      call.sendHeaders(new Metadata());
      call.sendMessage(m);
      call.close(Status.OK, trailers);
    }
  }

  static ServerCall.Listener<byte[]> unary(ServerCall<byte[], byte[]> call, Metadata head) {
    return new Handler(call, false) {
      @Override
      public void onHalfClose() {
        String size = head.get(key("x-trailer"));
        String fail = head.get(key("x-fail"));
        String details = head.get(key("x-details"));
        Metadata trailers = new Metadata();
        if (size != null) {
          trailers.put(key("x-blob"), "t".repeat(Integer.parseInt(size)));
          trailers.put(DETAILS, blob(Integer.parseInt(size)));
        }
        if (fail == null) {
          reply(last, trailers);
          return;
        }
        trailers.put(STATUS_DETAILS, filled(details == null ? 0 : Integer.parseInt(details), 0xfe));
        call.close(Status.FAILED_PRECONDITION.withDescription("no % \u2713 " + fail), trailers);
      }
    };
  }

  static ServerCall.Listener<byte[]> count(ServerCall<byte[], byte[]> call, Metadata head) {
    return new Handler(call, true) {
      int sent;

      /** Sends while the other side takes it. */
      void more() {
        String[] asked = new String(last).split(" ");
        int n = Integer.parseInt(asked[0]);
        for (; sent < n && call.isReady(); sent++) {
          call.sendMessage(filled(Integer.parseInt(asked[1]), sent % 251));
        }
        if (sent == n) {
          sent++;
          call.close(Status.OK, new Metadata());
        }
      }

      @Override
      public void onHalfClose() {
        more();
      }

      @Override
      public void onReady() {
        if (last.length > 0) {
          more();
        }
      }
    };
  }

  static ServerCall.Listener<byte[]> total(ServerCall<byte[], byte[]> call, Metadata head) {
    return new Handler(call, false) {
      int n;
      long size;

      @Override
      void message(byte[] m) {
        n++;
        size += m.length;
      }

      @Override
      public void onHalfClose() {
        reply((n + " " + size).getBytes(), new Metadata());
      }
    };
  }

  static ServerCall.Listener<byte[]> chat(ServerCall<byte[], byte[]> call, Metadata head) {
    return new Handler(call, true) {
      @Override
      void message(byte[] m) {
        call.sendMessage(m);
      }

      @Override
      public void onHalfClose() {
        call.close(Status.OK, new Metadata());
      }
    };
  }

  static ServerCall.Listener<byte[]> sleep(ServerCall<byte[], byte[]> call, Metadata head) {
    return new Handler(call, true) {
      @Override
      public void onCancel() {
        cancelled.incrementAndGet();
      }
    };
  }

  static ServerCall.Listener<byte[]> cancels(ServerCall<byte[], byte[]> call, Metadata head) {
    return new Handler(call, false) {
      @Override
      public void onHalfClose() {
        reply(String.valueOf(cancelled.get()).getBytes(), new Metadata());
      }
    };
  }

  static void serve() throws Exception {
    Map<MethodDescriptor<byte[], byte[]>, ServerCallHandler<byte[], byte[]>> methods = Map.of(
        UNARY, Peer::unary, COUNT, Peer::count, TOTAL, Peer::total, CHAT, Peer::chat, SLEEP, Peer::sleep, CANCELS, Peer::cancels);
    ServerServiceDefinition.Builder service = ServerServiceDefinition.builder(SERVICE);
    methods.forEach(service::addMethod);
    Server server = NettyServerBuilder.forAddress(new InetSocketAddress("127.0.0.1", 0))
        .addService(service.build())
        .executor(Executors.newFixedThreadPool(4))
        .maxInboundMessageSize(Integer.MAX_VALUE)
        .maxConnectionAge(1, TimeUnit.SECONDS)
        .maxConnectionAgeGrace(30, TimeUnit.SECONDS)
        .build()
        .start();
    System.out.println(server.getPort());
    System.out.flush();
    server.awaitTermination();
  }

  // ---- client

  static Channel channel;

  static byte[] one(MethodDescriptor<byte[], byte[]> method, byte[] message) {
    return ClientCalls.blockingUnaryCall(channel, method, CallOptions.DEFAULT.withDeadlineAfter(60, TimeUnit.SECONDS), message);
  }

  static void require(boolean ok, Object what) {
    if (!ok) {
      throw new AssertionError(what);
    }
  }

  static int cancels() {
    return Integer.parseInt(new String(one(CANCELS, new byte[0])));
  }

  static void cancelsReach(int n) throws Exception {
    for (int i = 0; cancels() < n; i++) {
      require(i < 500, "the server did not see the cancel");
      Thread.sleep(10);
    }
  }

  static StatusRuntimeException fails(Runnable call) {
    try {
      call.run();
    } catch (StatusRuntimeException e) {
      return e;
    }
    throw new AssertionError("did not fail");
  }

  /** What a stream of answers brought. */
  static final class Replies implements StreamObserver<byte[]> {
    static final byte[] END = {};
    final BlockingQueue<byte[]> queue = new ArrayBlockingQueue<>(1000);
    volatile Throwable error;

    @Override
    public void onNext(byte[] m) {
      queue.add(m);
    }

    @Override
    public void onError(Throwable t) {
      error = t;
      queue.add(END);
    }

    @Override
    public void onCompleted() {
      queue.add(END);
    }

    byte[] next() throws Exception {
      byte[] m = queue.poll(30, TimeUnit.SECONDS);
      require(m != null && error == null, "no answer, " + error);
      return m;
    }
  }

  static String totalOf(List<byte[]> messages) throws Exception {
    Replies replies = new Replies();
    StreamObserver<byte[]> call = ClientCalls.asyncClientStreamingCall(channel.newCall(TOTAL, CallOptions.DEFAULT), replies);
    messages.forEach(call::onNext);
    call.onCompleted();
    return new String(replies.next());
  }

  interface Check {
    void run() throws Exception;
  }

  static void checkUnary() {
    for (int size : new int[] {0, 1, 1000, 70_000, LARGE}) {
      byte[] m = filled(size, 'u');
      require(Arrays.equals(m, one(UNARY, m)), size);
    }
  }

  static void checkStreams() throws Exception {
    Iterator<byte[]> got = ClientCalls.blockingServerStreamingCall(channel, COUNT, CallOptions.DEFAULT, "500 3000".getBytes());
    for (int i = 0; i < 500; i++) {
      require(Arrays.equals(filled(3000, i % 251), got.next()), i);
    }
    require(!got.hasNext(), "more than asked for");
    require(!ClientCalls.blockingServerStreamingCall(channel, COUNT, CallOptions.DEFAULT, "0 0".getBytes()).hasNext(), "none");
    String total = totalOf(Collections.nCopies(300, new byte[10_000]));
    require(total.equals("300 3000000"), total);
    total = totalOf(List.of());
    require(total.equals("0 0"), total);
    Replies replies = new Replies();
    StreamObserver<byte[]> call = ClientCalls.asyncBidiStreamingCall(channel.newCall(CHAT, CallOptions.DEFAULT), replies);
    for (int round = 0; round < 5; round++) {
      for (int size : new int[] {0, 1, 128, 65_536, 1 << 20}) {
        byte[] m = filled(size, 'c');
        call.onNext(m);
        require(Arrays.equals(m, replies.next()), size);
      }
    }
    call.onCompleted();
    require(replies.next() == Replies.END, "the end");
  }

  static void checkTrailers() {
    for (int size : new int[] {16, 1 << 10, 8 << 10, 20 << 10}) {
      AtomicReference<Metadata> head = new AtomicReference<>();
      AtomicReference<Metadata> trailers = new AtomicReference<>();
      Channel c = with(Map.of("x-trailer", String.valueOf(size)), head, trailers);
      ClientCalls.blockingUnaryCall(c, UNARY, CallOptions.DEFAULT, new byte[0]);
      require("t".repeat(size).equals(trailers.get().get(key("x-blob"))), size);
      require(Arrays.equals(blob(size), trailers.get().get(DETAILS)), size);
    }
  }

  static Channel with(Map<String, String> fields, AtomicReference<Metadata> head, AtomicReference<Metadata> trailers) {
    Metadata m = new Metadata();
    fields.forEach((name, value) -> m.put(key(name), value));
    return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(m),
        MetadataUtils.newCaptureMetadataInterceptor(head, trailers));
  }

  static void checkDetails() {
    for (int size : new int[] {0, 1 << 10, 8 << 10, 32 << 10}) {
      Channel c = with(Map.of("x-fail", "so", "x-details", String.valueOf(size)), new AtomicReference<>(), new AtomicReference<>());
      StatusRuntimeException e = fails(() -> ClientCalls.blockingUnaryCall(c, UNARY, CallOptions.DEFAULT, new byte[0]));
      require(e.getStatus().getCode() == Status.Code.FAILED_PRECONDITION && "no % \u2713 so".equals(e.getStatus().getDescription()), e);
      byte[] details = e.getTrailers().get(STATUS_DETAILS);
      require(Arrays.equals(filled(size, 0xfe), details == null ? new byte[0] : details), size);
    }
  }

  static void checkUnimplemented() {
    StatusRuntimeException e = fails(() -> one(NOWHERE, new byte[0]));
    require(e.getStatus().getCode() == Status.Code.UNIMPLEMENTED, e);
  }

  static void checkDeadline() throws Exception {
    int before = cancels();
    long start = System.nanoTime();
    StatusRuntimeException e = fails(() -> ClientCalls.blockingServerStreamingCall(
        channel, SLEEP, CallOptions.DEFAULT.withDeadlineAfter(300, TimeUnit.MILLISECONDS), new byte[0]).hasNext());
    require(e.getStatus().getCode() == Status.Code.DEADLINE_EXCEEDED, e);
    require(System.nanoTime() - start < 3_000_000_000L, "late");
    cancelsReach(before + 1);
  }

  static void checkCancel() throws Exception {
    int before = cancels();
    CountDownLatch begun = new CountDownLatch(5);
    CountDownLatch ended = new CountDownLatch(5);
    for (int i = 0; i < 5; i++) {
      ClientCall<byte[], byte[]> call = channel.newCall(SLEEP, CallOptions.DEFAULT);
      call.start(new ClientCall.Listener<>() {
        @Override
        public void onHeaders(Metadata head) {
          begun.countDown();
          call.cancel("enough", null);
        }

        @Override
        public void onClose(Status status, Metadata trailers) {
          if (status.getCode() == Status.Code.CANCELLED) {
            ended.countDown();
          }
        }
      }, new Metadata());
      call.request(1);
      call.sendMessage(new byte[0]);
      call.halfClose();
    }
    require(begun.await(10, TimeUnit.SECONDS) && ended.await(10, TimeUnit.SECONDS), "cancelled");
    cancelsReach(before + 5);
  }

  /** Calls for so long that the server ends several connections meanwhile. */
  static void checkLoad() throws Exception {
    long until = System.nanoTime() + 4_500_000_000L;
    Replies replies = new Replies();
    StreamObserver<byte[]> quiet = ClientCalls.asyncBidiStreamingCall(channel.newCall(CHAT, CallOptions.DEFAULT), replies);
    quiet.onNext(new byte[] {'a'});
    require(replies.next().length == 1, "a");
    AtomicInteger calls = new AtomicInteger();
    CompletableFuture<?>[] callers = new CompletableFuture<?>[4];
    for (int i = 0; i < callers.length; i++) {
      callers[i] = CompletableFuture.runAsync(() -> {
        for (; System.nanoTime() < until; calls.incrementAndGet()) {
          require(new String(one(UNARY, "load".getBytes())).equals("load"), "load");
        }
      }, task -> new Thread(task).start());
    }
    CompletableFuture.allOf(callers).get(60, TimeUnit.SECONDS);
    quiet.onNext(new byte[] {'b'});
    require(replies.next().length == 1, "the quiet stream was cut");
    quiet.onCompleted();
    require(replies.next() == Replies.END, "the end");
    System.out.println("   " + calls + " calls");
  }

  static void client(String address) throws Exception {
    int colon = address.lastIndexOf(':');
    ManagedChannel c = NettyChannelBuilder
        .forAddress(new InetSocketAddress(address.substring(0, colon), Integer.parseInt(address.substring(colon + 1))))
        .usePlaintext()
        .overrideAuthority("peer.test")
        .maxInboundMessageSize(Integer.MAX_VALUE)
        .maxInboundMetadataSize(1 << 20)
        .keepAliveTime(10, TimeUnit.SECONDS) // the least that it takes
        .keepAliveWithoutCalls(true)
        .build();
    channel = c;
    Map<String, Check> checks = new TreeMap<>(Map.of("unary", Peer::checkUnary, "streams", Peer::checkStreams,
        "trailers", Peer::checkTrailers, "details", Peer::checkDetails, "unimplemented", Peer::checkUnimplemented,
        "deadline", Peer::checkDeadline, "cancel", Peer::checkCancel, "load", Peer::checkLoad));
    int failed = 0;
    for (Map.Entry<String, Check> check : checks.entrySet()) {
      long start = System.nanoTime();
      try {
        check.getValue().run();
        System.out.printf("ok %s %.2fs%n", check.getKey(), (System.nanoTime() - start) / 1e9);
      } catch (Exception | AssertionError e) {
        failed++;
        System.out.println("FAILED " + check.getKey() + " " + e);
        e.printStackTrace(System.out);
      }
    }
    c.shutdownNow();
    System.exit(failed > 0 ? 1 : 0);
  }

  public static void main(String[] args) throws Exception {
    if (args[0].equals("server")) {
      serve();
    } else {
      client(args[1]);
    }
  }
}
