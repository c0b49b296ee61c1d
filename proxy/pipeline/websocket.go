package pipeline

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it; it secures nothing
	"encoding/base64"
	"encoding/binary"
)

// WebSocketKey is the field that HTTP/1 has and an extended CONNECT has not (RFC 8441 5).
const WebSocketKey = "sec-websocket-key"

// NewWebSocketKey returns a key for a handshake that came without one.
func NewWebSocketKey() string {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], random())
	binary.LittleEndian.PutUint64(b[8:], random())
	return base64.StdEncoding.EncodeToString(b[:])
}

// WebSocketAccept returns the answer to a key (RFC 6455 4.2.2).
func WebSocketAccept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	return base64.StdEncoding.EncodeToString(sum[:])
}
