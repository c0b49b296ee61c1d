package proxy

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
)

// reachGRPC asks the health service of gRPC (grpc.health.v1) whether a service is served; an empty name stands for all.
func reachGRPC(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), host, service string) error {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	t := &http.Transport{DialContext: dial, Protocols: protocols, Proxy: nil}
	defer t.CloseIdleConnections()
	message := []byte{}
	if service != "" {
		message = append(message, 0x0a, byte(len(service)))
		message = append(message, service...)
	}
	frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+host+"/grpc.health.v1.Health/Check",
		bytes.NewReader(append(frame, message...)))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/grpc")
	q.Header.Set("Te", "trailers")
	r, err := t.RoundTrip(q)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(r.Body, 64))
	if err != nil {
		return err
	}
	status := r.Trailer.Get("Grpc-Status")
	if status == "" {
		status = r.Header.Get("Grpc-Status")
	}
	const serving = 1
	if r.StatusCode != http.StatusOK || status != "0" || len(answer) != 7 || answer[5] != 0x08 || answer[6] != serving {
		return fmt.Errorf("not serving: HTTP status %d, gRPC status %q", r.StatusCode, status)
	}
	return nil
}
