package pipeline

import (
	"errors"
	"time"

	"github.com/sidecar-mesh/sidecar/proxy/netio"
	"github.com/sidecar-mesh/sidecar/resilience"
)

// LengthUnknown is the body length of a message whose end is marked in the stream or by its close.
const LengthUnknown = -1

// Request is the head of a request, the same for every version of HTTP. Its strings live as long as the exchange.
type Request struct {
	Version   Version
	Method    string
	Target    string // as sent, for the log
	Scheme    string // "http" unless the request said otherwise
	Authority string // host and port as the client sent them
	Path      string // without query; "*" for the asterisk form, empty for CONNECT
	Query     string // without the question mark
	HasQuery  bool   // "/a?" has one, and it is empty
	Fields    []Field
	Length    int64  // of the body; LengthUnknown when chunked, 0 when there is none
	HasBody   bool   // a body was announced, be it empty
	Upgrade   string // the protocols that the client offers to switch to, as far as we pass them on
	Expect    bool   // 100-continue, and a body is to come
	// TrailersWanted says that the client takes part in trailers (TE: trailers).
	TrailersWanted bool
}

// Version is a version of HTTP.
type Version uint8

// The versions.
const (
	HTTP10 Version = iota
	HTTP11
	HTTP2
)

// String returns the version as access logs spell it.
func (v Version) String() string { return [...]string{"HTTP/1.0", "HTTP/1.1", "HTTP/2"}[v] }

// Response is the head of a response, the same for every version of HTTP. Its strings live until the attempt that it came
// from has ended.
type Response struct {
	Status int
	Reason string // phrase of HTTP/1, may be empty
	Fields []Field
	Length int64 // of the body; LengthUnknown when only the stream's end tells
	NoBody bool  // by its status or the request's method there is none, whatever Length says
	// KeepLength says that a Content-Length among Fields is sent on although there is no body (HEAD, 304).
	KeepLength bool
	Local      bool // our own answer
	// Offline is how long its endpoint wants no more requests, as it says itself; 0: it says nothing.
	Offline time.Duration
}

// Body is a message body read piece by piece.
type Body interface {
	// Next returns the next piece, valid until the following call, waiting for it until the given time; io.EOF after the
	// last one.
	Next(until time.Time) ([]byte, error)
	// Buffered reports whether Next would return without waiting.
	Buffered() bool
	// Whole reports whether all that is left is at hand.
	Whole() bool
	// Trailers returns what came behind the body, once Next has returned io.EOF.
	Trailers() []Field
	// Raw returns the socket and how many bytes of the body are still to come from it, when the rest of the body is just
	// the next bytes of a plain socket and none of them is buffered; else nil.
	Raw() (*netio.Conn, int64)
	// Advance says that n bytes were taken from the socket that Raw returned.
	Advance(n int64)
}

// Flow is a Body whose pieces need not change goroutines. While Flow waits for the next one it may give those that come to
// pass, on the goroutine that received them, and waits on as long as pass takes them. One that pass does not take is what it
// returns. It gives up when nothing came for as long as idle, and at a time unless that is zero. It does not return while
// pass is running.
type Flow interface {
	Flow(pass Pass, idle time.Duration, until time.Time) ([]byte, error)
}

// Pass is offered a piece of a body, and reports whether it took it. What it returns besides, unless that is nil, must be
// told to send before whoever offers pieces waits for more.
type Pass func(p []byte) (bool, Sender)

// Sender has something to be sent that it does not send by itself. Send does, without waiting for the peer.
type Sender interface {
	Send()
}

// Sink is a Stream or an Upstream whose head was sent. Offer is a Pass: it takes a piece of the body if that can be done
// without waiting.
type Sink interface {
	Offer(p []byte) (bool, Sender)
}

// Stream is the downstream half of an exchange, offered by the engine that parsed the request. One goroutine calls it,
// but for Body, which one other may use meanwhile. Errors mean that the client cannot be reached any more.
type Stream interface {
	Body() Body
	// InterruptBody ends a wait in Body().Next; ResumeBody allows it again.
	InterruptBody()
	ResumeBody()
	// Guard is told the attempt in progress, to be interrupted when the client leaves; nil when there is none. It reports
	// whether the client has left already.
	Guard(u Upstream) (gone bool)

	// Interim sends an interim response at once.
	Interim(r *Response) error
	// Head starts the final response. unread says that the request body was not, or is not yet, read to its end. After
	// ErrTooLarge another head may follow.
	Head(r *Response, unread bool) error
	// Write sends a piece of the body, Flush what has been held back so far, End the end of the message and all before it.
	Write(p []byte) error
	Flush() error
	End(trailers []Field) error
	// RawWriter returns the socket, when body bytes may be written to it without any framing, n in all; else nil. Every
	// byte before them has been flushed then.
	RawWriter(n int64) *netio.Conn
	// Abort makes the client see that the response is cut short.
	Abort()
	// Tunnel ends the message and begins a tunnel: from now on Body, Write, Flush and End are about its bytes, whatever they
	// are. Where the connection is the tunnel's alone, its socket is given up instead, with what was read from it.
	Tunnel() (*netio.Conn, []byte)
}

// HangUp is a Stream whose client may close its sending side alone. HangUp says that this one does so only when it leaves.
type HangUp interface{ HangUp() }

// Pool opens attempts at one endpoint; the engine of its protocol implements it. It stands in snapshot.Endpoint.Pool.
type Pool interface {
	// Open takes or opens a connection for a request of that version, or for a raw one (HTTP10), until the given time;
	// opening may take as long as connect. fresh asks for one that has served nothing yet.
	Open(v Version, fresh bool, connect time.Duration, until time.Time) (Upstream, error)
}

// OpenError says why a Pool could not open an attempt, where it is not that the connect failed.
type OpenError struct {
	kind resilience.Kind
	err  error
}

// ConnectTimeout says that connecting took too long.
func ConnectTimeout(err error) error { return &OpenError{resilience.ConnectTimed, err} }

// Saturated says that a limit on connections was reached.
func Saturated(err error) error { return &OpenError{resilience.Saturated, err} }

// Error returns the text of the cause.
func (e *OpenError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *OpenError) Unwrap() error { return e.err }

// ErrTooBusy is among the errors of an attempt that its endpoint gave up because we ask too much of it.
var ErrTooBusy = errors.New("the endpoint asks for calm (ENHANCE_YOUR_CALM)")

// Upstream is one attempt: a request being sent to an endpoint and the response to it. One goroutine sends and another
// may receive; Interrupt may come from anywhere.
type Upstream interface {
	// Reused reports whether the connection has served before. Connected says how long opening it took, and how long the
	// attempt waited for a place before that.
	Reused() bool
	Connected() (queued, connecting time.Duration)

	// SendHead starts the request. SendBody, Flush and SendEnd go on with it.
	SendHead(q *Request) error
	SendBody(p []byte) error
	Flush() error
	// hold says that ReadHead follows at once, so that sending may be left to it.
	SendEnd(trailers []Field, hold bool) error
	// Sent reports whether any byte of the request has left.
	Sent() bool
	// RawWriter is as for Stream.
	RawWriter(n int64) *netio.Conn

	// ReadHead waits for the next head, interim or final, until the given time.
	ReadHead(r *Response, until time.Time) error
	// Received reports whether any byte of a response has arrived.
	Received() bool
	Body() Body

	Interrupt()
	// Close ends the attempt. clean says that request and response are complete, so that the connection may serve again.
	Close(clean bool)
	// Tunnel is as for Stream.
	Tunnel() (*netio.Conn, []byte)
}

// Multiplexed is an Upstream that shares its connection, whose peer may say two things more. It has not acted on the
// request: whatever its method, it may be sent again then, so that its body is kept. And it wants no more of the body, having
// answered: Stopped tells whether that has come, and else gives a channel with a token when it may have.
//
// What others send may be in the way of the body: Hurry bounds the time that SendBody waits for them.
type Multiplexed interface {
	Hurry(until time.Time)
	Stopped() (stopped bool, notice <-chan struct{})
}
