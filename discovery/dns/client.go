package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	mdns "github.com/miekg/dns"
)

const (
	attempts = 2    // rounds through the servers
	udpSize  = 1232 // the EDNS0 buffer: fits every path without fragments
)

// client asks name servers.
type client struct {
	servers []string // host:port; empty: those of the system
	timeout time.Duration
	system  *system

	good atomic.Uint32 // the server that answered last is asked first
}

// errGone says that a name server knows for sure that there is nothing: no such name, or no record of the type asked for.
var errGone = errors.New("no such name or no such record")

// query asks one question. Its answer is a NOERROR reply (perhaps without records); errGone stands for NXDOMAIN, any
// other error is a failure to find out.
func (c *client) query(ctx context.Context, name string, qtype uint16) (*mdns.Msg, error) {
	servers := c.servers
	if len(servers) == 0 {
		servers = c.system.current().servers
	}
	first := int(c.good.Load())
	var failed error
	for range attempts {
		for i := range servers {
			n := (first + i) % len(servers)
			reply, err := c.ask(ctx, servers[n], name, qtype)
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				failed = fmt.Errorf("%s %s: server %s: %w", strings.TrimSuffix(name, "."), mdns.TypeToString[qtype], servers[n], err)
				continue
			}
			c.good.Store(uint32(n))
			if reply.Rcode == mdns.RcodeNameError {
				return reply, errGone
			}
			return reply, nil
		}
	}
	return nil, failed
}

// ask sends one question to one server: by UDP, by TCP when the answer does not fit, without EDNS0 where that is refused.
func (c *client) ask(ctx context.Context, server, name string, qtype uint16) (*mdns.Msg, error) {
	q := new(mdns.Msg)
	q.SetQuestion(name, qtype)
	q.SetEdns0(udpSize, false)
	reply, err := c.exchange(ctx, "udp", server, q)
	if err == nil && reply.Rcode == mdns.RcodeFormatError {
		q.Extra = nil
		reply, err = c.exchange(ctx, "udp", server, q)
	}
	if err == nil && reply.Truncated {
		reply, err = c.exchange(ctx, "tcp", server, q)
	}
	if err != nil {
		return nil, err
	}
	if reply.Rcode != mdns.RcodeSuccess && reply.Rcode != mdns.RcodeNameError {
		return nil, errors.New(mdns.RcodeToString[reply.Rcode])
	}
	return reply, nil
}

func (c *client) exchange(ctx context.Context, network, server string, q *mdns.Msg) (*mdns.Msg, error) {
	mc := mdns.Client{Net: network, Timeout: c.timeout, UDPSize: udpSize}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	conn, err := mc.DialContext(ctx, server)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	reply, _, err := mc.ExchangeWithConnContext(ctx, q, conn)
	var ne net.Error
	switch {
	case errors.As(err, &ne) && ne.Timeout():
		return nil, errors.New("no answer in time")
	case err != nil:
		return nil, err
	case !reply.Response || len(reply.Question) != 1 || reply.Question[0].Qtype != q.Question[0].Qtype ||
		!strings.EqualFold(reply.Question[0].Name, q.Question[0].Name):
		return nil, errors.New("the answer is to another question")
	}
	return reply, nil
}
