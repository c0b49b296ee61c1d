module github.com/sidecar-mesh/sidecar/e2e/clients

go 1.26.7

require (
	github.com/coder/websocket v1.8.14
	github.com/gorilla/websocket v1.5.3
	github.com/sidecar-mesh/sidecar v0.0.0
)

require (
	golang.org/x/net v0.59.0 // indirect
	golang.org/x/text v0.42.0 // indirect
)

replace github.com/sidecar-mesh/sidecar => ../..
