package config

import "time"

// ConsulRegistry asks Consul who is there, by one watch for each service.
type ConsulRegistry struct {
	// Addresses are agents or servers of one datacenter, in the order in which they are tried (S-34): host:port,
	// http://host:port, https://host:port or unix:PATH.
	Addresses  []string
	TLS        *ConsulTLS        // given: host:port means https
	TokenFile  string            // holds the access token; read again when it changes
	Datacenter string            // empty: that of the agent
	Namespace  string            // where the server has them
	Near       string            // order of the answer, by network distance from this node; switches streaming off
	Filter     string            // an expression for the server
	Tags       []string          // an instance must carry all of these
	Meta       map[string]string // and all of these
	Stale      bool              // any server may answer, not only the leader
	Wait       time.Duration     // how long one query waits for a change
	Poll       time.Duration     // plain queries with this pause instead; 0: blocking queries
	Timeout    time.Duration     // of an answer that need not be waited for
	// MaxConnections bounds the connections, and with that the queries at one time. Beyond it the services take turns.
	MaxConnections int
	MaxAnswer      int64 // bytes of one answer; a longer one is a failure
}

// ConsulTLS is how an https address is spoken to. Files are read anew for each connection.
type ConsulTLS struct {
	CAFile, CertFile, KeyFile, ServerName string
	SkipVerify                            bool
}

func defaultConsul() ConsulRegistry {
	return ConsulRegistry{
		Addresses: []string{"127.0.0.1:8500"}, Stale: true, Wait: time.Minute, Timeout: 5 * time.Second,
		MaxConnections: 128, MaxAnswer: 8 << 20,
	}
}
