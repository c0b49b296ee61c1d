//! The Rust peer of the interoperability tests; see python/peer.py, which does the same.

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tokio_stream::{Stream, StreamExt};
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Request, Response, Status, Streaming};
use tower::service_fn;

const LARGE: usize = 16 << 20;

static CANCELLED: AtomicUsize = AtomicUsize::new(0);

/// Messages are bytes as they are.
#[derive(Clone, Default)]
struct AsIs;

impl Codec for AsIs {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = AsIs;
    type Decoder = AsIs;
    fn encoder(&mut self) -> AsIs {
        AsIs
    }
    fn decoder(&mut self) -> AsIs {
        AsIs
    }
}

impl Encoder for AsIs {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put(item);
        Ok(())
    }
}

impl Decoder for AsIs {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(src.copy_to_bytes(src.remaining())))
    }
}

fn filled(size: usize, with: u8) -> Bytes {
    Bytes::from(vec![with; size])
}

fn blob(size: usize) -> Vec<u8> {
    [0u8, 0xff].repeat(size / 2)
}

// ---- server

type Many = Pin<Box<dyn Stream<Item = Result<Bytes, Status>> + Send>>;

fn asked(m: &MetadataMap, name: &str) -> Option<String> {
    m.get(name).and_then(|v| v.to_str().ok()).map(String::from)
}

async fn unary(request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    if let Some(fail) = asked(request.metadata(), "x-fail") {
        let details = asked(request.metadata(), "x-details").map_or(0, |s| s.parse().unwrap());
        return Err(Status::with_details(Code::FailedPrecondition, format!("no % ✓ {fail}"), filled(details, 0xfe)));
    }
    Ok(Response::new(request.into_inner()))
}

async fn count(request: Request<Bytes>) -> Result<Response<Many>, Status> {
    let text = String::from_utf8(request.into_inner().to_vec()).unwrap();
    let (n, size) = text.split_once(' ').unwrap();
    let (n, size): (usize, usize) = (n.parse().unwrap(), size.parse().unwrap());
    Ok(Response::new(Box::pin(tokio_stream::iter((0..n).map(move |i| Ok(filled(size, (i % 251) as u8)))))))
}

async fn total(request: Request<Streaming<Bytes>>) -> Result<Response<Bytes>, Status> {
    let (mut n, mut size, mut messages) = (0, 0, request.into_inner());
    while let Some(m) = messages.message().await? {
        n += 1;
        size += m.len();
    }
    Ok(Response::new(Bytes::from(format!("{n} {size}"))))
}

async fn chat(request: Request<Streaming<Bytes>>) -> Result<Response<Many>, Status> {
    Ok(Response::new(Box::pin(request.into_inner())))
}

/// Never says anything, and tells when nobody listens any more.
struct Silence;

impl Stream for Silence {
    type Item = Result<Bytes, Status>;
    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Pending
    }
}

impl Drop for Silence {
    fn drop(&mut self) {
        CANCELLED.fetch_add(1, Ordering::SeqCst);
    }
}

async fn sleep(_: Request<Bytes>) -> Result<Response<Many>, Status> {
    Ok(Response::new(Box::pin(Silence)))
}

async fn cancels(_: Request<Bytes>) -> Result<Response<Bytes>, Status> {
    Ok(Response::new(Bytes::from(CANCELLED.load(Ordering::SeqCst).to_string())))
}

/// An answer with more trailers than its status.
struct Longer {
    answer: Body,
    trailers: http::HeaderMap,
}

impl http_body::Body for Longer {
    type Data = Bytes;
    type Error = Status;
    fn is_end_stream(&self) -> bool {
        self.answer.is_end_stream()
    }
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<http_body::Frame<Bytes>, Status>>> {
        let this = &mut *self;
        let next = Pin::new(&mut this.answer).poll_frame(cx);
        next.map(|f| {
            f.map(|f| {
                f.map(|mut f| {
                    if let Some(t) = f.trailers_mut() {
                        t.extend(std::mem::take(&mut this.trailers));
                    }
                    f
                })
            })
        })
    }
}

async fn answer(request: http::Request<Body>) -> Result<http::Response<Body>, Infallible> {
    let mut grpc = tonic::server::Grpc::new(AsIs).max_decoding_message_size(usize::MAX);
    let path = request.uri().path().to_string();
    Ok(match path.strip_prefix("/interop.Peer/").unwrap_or("") {
        "Unary" => {
            let size = request.headers().get("x-trailer").and_then(|v| v.to_str().ok()).map_or(0, |s| s.parse().unwrap());
            let mut trailers = MetadataMap::new();
            if size > 0 {
                trailers.insert("x-blob", "t".repeat(size).parse().unwrap());
                trailers.insert_bin("details-bin", MetadataValue::from_bytes(&blob(size)));
            }
            let trailers = trailers.into_headers();
            grpc.unary(service_fn(unary), request).await.map(|answer| Body::new(Longer { answer, trailers }))
        }
        "Count" => grpc.server_streaming(service_fn(count), request).await,
        "Total" => grpc.client_streaming(service_fn(total), request).await,
        "Chat" => grpc.streaming(service_fn(chat), request).await,
        "Sleep" => grpc.server_streaming(service_fn(sleep), request).await,
        "Cancels" => grpc.unary(service_fn(cancels), request).await,
        _ => Status::unimplemented("").into_http(),
    })
}

async fn serve() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap().port());
    Server::builder()
        .max_connection_age(Duration::from_secs(1))
        .max_connection_age_grace(Duration::from_secs(30))
        .http2_max_header_list_size(1 << 20)
        .serve_with_incoming(service_fn(answer), TcpListenerStream::new(listener))
        .await
        .unwrap();
}

// ---- client

type Check = Result<(), String>;

fn require(ok: bool, what: impl ToString) -> Check {
    if ok {
        Ok(())
    } else {
        Err(what.to_string())
    }
}

fn text(e: impl std::fmt::Debug) -> String {
    format!("{e:?}").chars().take(1000).collect()
}

fn path(name: &str) -> PathAndQuery {
    format!("/interop.Peer/{name}").parse().unwrap()
}

#[derive(Clone)]
struct Client(Channel);

impl Client {
    async fn grpc(&self) -> tonic::client::Grpc<Channel> {
        let mut g = tonic::client::Grpc::new(self.0.clone()).max_decoding_message_size(usize::MAX);
        let _ = g.ready().await;
        g
    }

    async fn one(&self, name: &str, request: Request<Bytes>) -> Result<Response<Bytes>, Status> {
        self.grpc().await.unary(request, path(name), AsIs).await
    }

    async fn cancels(&self) -> Result<usize, String> {
        let r = self.one("Cancels", Request::new(Bytes::new())).await.map_err(text)?;
        String::from_utf8(r.into_inner().to_vec()).unwrap().parse().map_err(text)
    }

    async fn cancels_reach(&self, n: usize) -> Check {
        for _ in 0..500 {
            if self.cancels().await? >= n {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Err("the server did not see the cancel".into())
    }

    async fn unary(&self) -> Check {
        for size in [0, 1, 1000, 70_000, LARGE] {
            let r = self.one("Unary", Request::new(filled(size, b'u'))).await.map_err(text)?;
            require(r.into_inner() == filled(size, b'u'), size)?;
        }
        Ok(())
    }

    async fn counted(&self, n: usize, size: usize) -> Check {
        let request = Request::new(Bytes::from(format!("{n} {size}")));
        let mut got = self.grpc().await.server_streaming(request, path("Count"), AsIs).await.map_err(text)?.into_inner();
        for i in 0..n {
            require(got.message().await.map_err(text)? == Some(filled(size, (i % 251) as u8)), i)?;
        }
        require(got.message().await.map_err(text)?.is_none(), "more than asked for")
    }

    async fn total(&self, n: usize, size: usize) -> Check {
        let messages = tokio_stream::iter((0..n).map(move |_| filled(size, b'x')));
        let r = self.grpc().await.client_streaming(Request::new(messages), path("Total"), AsIs).await.map_err(text)?;
        require(r.into_inner() == Bytes::from(format!("{n} {}", n * size)), "total")
    }

    /// Opens a stream and says something: servers may send their head with the answer to it.
    async fn talk(&self, first: Bytes) -> Result<(tokio::sync::mpsc::Sender<Bytes>, Streaming<Bytes>), String> {
        let (to, from) = tokio::sync::mpsc::channel(1);
        to.send(first).await.map_err(text)?;
        let r = self.grpc().await.streaming(Request::new(ReceiverStream::new(from)), path("Chat"), AsIs).await.map_err(text)?;
        Ok((to, r.into_inner()))
    }

    async fn streams(&self) -> Check {
        self.counted(500, 3000).await?;
        self.counted(0, 0).await?;
        self.total(300, 10_000).await?;
        self.total(0, 0).await?;
        let (to, mut from) = self.talk(Bytes::new()).await?;
        require(from.message().await.map_err(text)? == Some(Bytes::new()), "the first")?;
        for _ in 0..5 {
            for size in [0, 1, 128, 65_536, 1 << 20] {
                to.send(filled(size, b'c')).await.map_err(text)?;
                require(from.message().await.map_err(text)? == Some(filled(size, b'c')), size)?;
            }
        }
        drop(to);
        require(from.message().await.map_err(text)?.is_none(), "the end")
    }

    async fn trailers(&self) -> Check {
        for size in [16, 1 << 10, 8 << 10, 20 << 10] {
            let mut request = Request::new(Bytes::new());
            request.metadata_mut().insert("x-trailer", size.to_string().parse().unwrap());
            let r = self.one("Unary", request).await.map_err(text)?;
            require(asked(r.metadata(), "x-blob") == Some("t".repeat(size)), size)?;
            let details = r.metadata().get_bin("details-bin").ok_or("no details")?.to_bytes().map_err(text)?;
            require(details == blob(size), size)?;
        }
        Ok(())
    }

    async fn details(&self) -> Check {
        for size in [0, 1 << 10, 8 << 10, 32 << 10] {
            let mut request = Request::new(Bytes::new());
            request.metadata_mut().insert("x-fail", "so".parse().unwrap());
            request.metadata_mut().insert("x-details", size.to_string().parse().unwrap());
            let e = self.one("Unary", request).await.err().ok_or("did not fail")?;
            require(e.code() == Code::FailedPrecondition && e.message() == "no % ✓ so", text(&e))?;
            require(e.details() == filled(size, 0xfe), size)?;
        }
        Ok(())
    }

    async fn unimplemented(&self) -> Check {
        let e = self.one("Nowhere", Request::new(Bytes::new())).await.err().ok_or("did not fail")?;
        require(e.code() == Code::Unimplemented, text(e))
    }

    /// The client itself bounds the wait for the head only, so that it is the sidecar that ends the stream.
    async fn deadline(&self) -> Check {
        let before = self.cancels().await?;
        let mut request = Request::new(Bytes::new());
        request.set_timeout(Duration::from_millis(300));
        let start = Instant::now();
        let mut got = self.grpc().await.server_streaming(request, path("Sleep"), AsIs).await.map_err(text)?.into_inner();
        let e = got.message().await.err().ok_or("did not fail")?;
        require(e.code() == Code::DeadlineExceeded, text(e))?;
        require(start.elapsed() < Duration::from_secs(3), "late")?;
        self.cancels_reach(before + 1).await
    }

    async fn cancel(&self) -> Check {
        let before = self.cancels().await?;
        let mut calls = vec![];
        for _ in 0..5 {
            calls.push(self.grpc().await.server_streaming(Request::new(Bytes::new()), path("Sleep"), AsIs).await.map_err(text)?);
        }
        drop(calls);
        self.cancels_reach(before + 5).await
    }

    /// Calls for so long that the server ends several connections meanwhile, and sees more than two strikes.
    async fn load(&self) -> Check {
        let until = Instant::now() + Duration::from_millis(4500);
        let (to, mut quiet) = self.talk(filled(1, b'a')).await?;
        require(quiet.message().await.map_err(text)? == Some(filled(1, b'a')), "a")?;
        let mut callers = vec![];
        for _ in 0..4 {
            let client = self.clone();
            callers.push(tokio::spawn(async move {
                let mut calls = 0;
                while Instant::now() < until {
                    let r = client.one("Unary", Request::new(filled(4, b'l'))).await.map_err(text)?;
                    require(r.into_inner() == filled(4, b'l'), "load")?;
                    calls += 1;
                }
                Ok::<usize, String>(calls)
            }));
        }
        let mut calls = 0;
        for c in callers {
            calls += c.await.map_err(text)??;
        }
        to.send(filled(1, b'b')).await.map_err(text)?;
        require(quiet.message().await.map_err(text)? == Some(filled(1, b'b')), "the quiet stream was cut")?;
        drop(to);
        require(quiet.next().await.is_none(), "the end")?;
        println!("   {calls} calls");
        Ok(())
    }
}

async fn run(name: &str, check: impl Future<Output = Check>) -> usize {
    let start = Instant::now();
    match tokio::time::timeout(Duration::from_secs(60), check).await.unwrap_or(Err("took too long".into())) {
        Ok(()) => {
            println!("ok {name} {:.2?}", start.elapsed());
            0
        }
        Err(e) => {
            println!("FAILED {name} {e}");
            1
        }
    }
}

async fn client(address: &str) {
    let channel = Endpoint::from_shared(format!("http://{address}"))
        .unwrap()
        .origin("http://peer.test".parse().unwrap())
        .http2_max_header_list_size(1 << 20)
        // More often than servers put up with: the sidecar must not let them notice.
        .http2_keep_alive_interval(Duration::from_secs(1))
        .keep_alive_while_idle(true)
        .connect_lazy();
    let c = Client(channel);
    let failed = run("unary", c.unary()).await
        + run("streams", c.streams()).await
        + run("trailers", c.trailers()).await
        + run("details", c.details()).await
        + run("unimplemented", c.unimplemented()).await
        + run("deadline", c.deadline()).await
        + run("cancel", c.cancel()).await
        + run("load", c.load()).await;
    std::process::exit((failed > 0) as i32);
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let args: Vec<String> = std::env::args().collect();
    if args[1] == "server" {
        serve().await;
    } else {
        client(&args[2]).await;
    }
}
