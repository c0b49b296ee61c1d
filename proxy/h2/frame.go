package h2

import "golang.org/x/net/http2"

// This file takes the names of the framing library; frames are read and written by our own code (see reader.go).

// code is an error code of RFC 9113 7.
type code uint32

const (
	noError          = code(http2.ErrCodeNo)
	protocolError    = code(http2.ErrCodeProtocol)
	internalError    = code(http2.ErrCodeInternal)
	flowControlError = code(http2.ErrCodeFlowControl)
	settingsTimeout  = code(http2.ErrCodeSettingsTimeout)
	streamClosed     = code(http2.ErrCodeStreamClosed)
	frameSizeError   = code(http2.ErrCodeFrameSize)
	refusedStream    = code(http2.ErrCodeRefusedStream)
	cancelled        = code(http2.ErrCodeCancel)
	compressionError = code(http2.ErrCodeCompression)
	connectError     = code(http2.ErrCodeConnect)
	enhanceYourCalm  = code(http2.ErrCodeEnhanceYourCalm)
)

// String returns the name of c as the RFC has it.
func (c code) String() string { return http2.ErrCode(c).String() }

// kind is the type of a frame.
type kind = http2.FrameType

const (
	kindData         = http2.FrameData
	kindHeaders      = http2.FrameHeaders
	kindPriority     = http2.FramePriority
	kindReset        = http2.FrameRSTStream
	kindSettings     = http2.FrameSettings
	kindPush         = http2.FramePushPromise
	kindPing         = http2.FramePing
	kindGoAway       = http2.FrameGoAway
	kindWindow       = http2.FrameWindowUpdate
	kindContinuation = http2.FrameContinuation
	kindUpdate       = http2.FramePriorityUpdate // RFC 9218

	flagEndStream  = 0x1  // of DATA and HEADERS
	flagAck        = 0x1  // of SETTINGS and PING
	flagEndHeaders = 0x4  // of HEADERS and CONTINUATION
	flagPadded     = 0x8  // of DATA and HEADERS
	flagPriority   = 0x20 // of HEADERS
)

// Identifiers of settings (RFC 9113 6.5.2, RFC 8441 3).
const (
	setTableSize     = http2.SettingHeaderTableSize
	setEnablePush    = http2.SettingEnablePush
	setMaxStreams    = http2.SettingMaxConcurrentStreams
	setInitialWindow = http2.SettingInitialWindowSize
	setMaxFrame      = http2.SettingMaxFrameSize
	setMaxList       = http2.SettingMaxHeaderListSize
	setConnect       = http2.SettingEnableConnectProtocol
)

type setting = http2.Setting

const (
	// Preface is what a client sends first (RFC 9113 3.4).
	Preface = http2.ClientPreface

	maxFrame      = 16384 // what we accept, and send at most
	tableSize     = 4096  // of header compression, both ways
	maxSettings   = 32    // entries of one frame
	defaultWindow = 65535
	maxWindow     = 1<<31 - 1
	frameHead     = 9 // bytes before the payload
)

// connError ends the whole connection.
type connError struct {
	code code
	text string
}

// Error implements error.
func (e *connError) Error() string { return e.code.String() + ": " + e.text }

// streamError ends one stream.
type streamError struct {
	id   uint32
	code code
	text string
}

// Error implements error.
func (e *streamError) Error() string { return e.code.String() + ": " + e.text }

// frame is a frame that was read, valid until the next one is.
type frame struct {
	kind     kind
	flags    byte
	id       uint32
	length   int    // of the payload, padding included: what counts for flow control
	payload  []byte // DATA: without padding; HEADERS, CONTINUATION: the fragment; PING: the eight bytes
	part     bool   // DATA: more of the same frame follows
	code     code   // RST_STREAM, GOAWAY
	value    uint32 // WINDOW_UPDATE: increment; GOAWAY: last stream; HEADERS and PRIORITY: the stream depended on
	settings [maxSettings]setting
	count    int // of settings
}

func (f *frame) has(flag byte) bool { return f.flags&flag != 0 }

// appendHead adds the nine bytes before a payload of n bytes.
func appendHead(b []byte, n int, k kind, flags byte, id uint32) []byte {
	return append(b, byte(n>>16), byte(n>>8), byte(n), byte(k), flags, byte(id>>24), byte(id>>16), byte(id>>8), byte(id))
}

func append32(b []byte, v uint32) []byte {
	return append(b, byte(v>>24), byte(v>>16), byte(v>>8), byte(v))
}

// appendBlock adds a header block as one HEADERS frame and as many CONTINUATION frames as it takes.
func appendBlock(b, block []byte, size int, id uint32, end bool) []byte {
	k, flags := kindHeaders, byte(0)
	if end {
		flags = flagEndStream
	}
	for {
		n := min(len(block), size)
		if n == len(block) {
			flags |= flagEndHeaders
		}
		b = appendHead(b, n, k, flags, id)
		b = append(b, block[:n]...)
		if block = block[n:]; len(block) == 0 {
			return b
		}
		k, flags = kindContinuation, 0
	}
}

func appendSettings(b []byte, list ...setting) []byte {
	b = appendHead(b, 6*len(list), kindSettings, 0, 0)
	for _, s := range list {
		b = append(b, byte(s.ID>>8), byte(s.ID))
		b = append32(b, s.Val)
	}
	return b
}

func appendGoAway(b []byte, last uint32, c code, text string) []byte {
	b = appendHead(b, 8+len(text), kindGoAway, 0, 0)
	b = append32(b, last)
	b = append32(b, uint32(c))
	return append(b, text...)
}

func appendReset(b []byte, id uint32, c code) []byte {
	return append32(appendHead(b, 4, kindReset, 0, id), uint32(c))
}

func appendWindow(b []byte, id, n uint32) []byte {
	return append32(appendHead(b, 4, kindWindow, 0, id), n)
}

func appendPing(b []byte, ack bool, data []byte) []byte {
	flags := byte(0)
	if ack {
		flags = flagAck
	}
	return append(appendHead(b, 8, kindPing, flags, 0), data[:8]...)
}
