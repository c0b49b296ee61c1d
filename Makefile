# Targets explain themselves: `make` alone lists them.
GO      ?= go
BIN     := bin/sidecar
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X main.version=$(VERSION)
TOOL    := $(GO) tool -modfile=internal/tools/go.mod
UNIT    := $(GO) list ./... | grep -v /e2e/

.DEFAULT_GOAL := help
.PHONY: help setup build docker test unit e2e interop race fuzz fuzz-long lint fmt bench profile demo demo-consul cover properties soak schema clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ## install what the tests need (Debian: apt)
	@scripts/setup.sh test

build: ## build bin/sidecar: static, reproducible, with its version
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/sidecar

docker: ## build the container image sidecar:VERSION (needs docker)
	docker build --build-arg VERSION=$(VERSION) -t sidecar:$(VERSION) .

test: setup unit e2e ## everything that CI runs: unit tests, then the real binary end to end

unit: ## unit tests of all packages, shuffled, under the race detector
	$(GO) test -shuffle=on -race -timeout=8m $$($(UNIT))

e2e: ## the real binary: HTTP conformance, gRPC, life cycle, reported bugs, stories, programs of others, footprint
	$(GO) test -p=1 -shuffle=on -count=1 -timeout=10m -v ./e2e/...
	cd e2e/clients && $(GO) test -shuffle=on -count=1 -timeout=5m -v ./...
	cd e2e/interop && $(GO) test -shuffle=on -count=1 -timeout=5m -v ./...

interop: ## gRPC of Go, Python, Node, Java and Rust with each other through one sidecar and through two (builds the peers once)
	@scripts/setup.sh interop
	cd e2e/interop && SIDECAR_INTEROP=all $(GO) test -count=1 -timeout=20m -v ./...

race: setup ## unit tests three times on 1, 2 and 4 threads under the race detector
	$(GO) test -shuffle=on -race -count=3 -cpu=1,2,4 -timeout=30m $$($(UNIT))

fuzz: ## every fuzz test for 30 s
	@scripts/fuzz.sh 30s

fuzz-long: ## every fuzz test for 10 min
	@scripts/fuzz.sh 10m

lint: ## gofumpt, go vet, staticcheck (versions pinned in internal/tools)
	@out=$$($(TOOL) gofumpt -l .); test -z "$$out" || { echo "not gofumpt'ed (make fmt):"; echo "$$out"; exit 1; }
	$(GO) vet ./...
	$(TOOL) staticcheck ./...

fmt: ## format all Go files
	$(TOOL) gofumpt -l -w .

bench: ## compare with nginx, haproxy, Envoy, nghttpx and net/http; BENCH='-only cpu -rounds 3' chooses
	@scripts/setup.sh bench
	@test ! -e cmd/sidecar/main.go || $(MAKE) --no-print-directory build
	$(GO) run ./bench $(BENCH)

profile: build ## CPU profile of the data path under load, for go tool pprof or go build -pgo: cpu.pprof
	@scripts/setup.sh bench
	$(GO) run ./bench -only cpu,log,h2,h2h1,tcp -peers sidecar -rounds 2 -seconds 5 -profile cpu.pprof

demo: build ## toy services, faults and traffic in one process, and a page of what happens
	$(BIN) demo

demo-consul: build ## a real Consul, services and sidecars: found, without registry, protected, drained, switched, started without it; a minute
	@scripts/setup.sh consul
	@$(GO) test -c -o bin/demo-consul ./e2e/demo
	@SIDECAR_BINARY=$(CURDIR)/$(BIN) bin/demo-consul -test.timeout=5m

cover: ## coverage of the unit tests, by package and in total
	$(GO) test -coverprofile=cover.out $$($(UNIT))
	@$(GO) tool cover -func=cover.out | tail -1

properties: ## the properties of the deciding packages, each a million times (RUNS=n): half an hour
	$(GO) test -run='^TestProperties$$' -runs=$(or $(RUNS),1000000) -timeout=1h -v ./resilience
	$(GO) test -run='^TestWeightedCounts$$' -runs=$(or $(RUNS),1000000) -timeout=1h -v ./balance
	$(GO) test -run='^TestNoPickOfWhatIsExcluded$$' -picks=$(or $(RUNS),1000000) -timeout=1h -v ./snapshot

soak: build ## the long stories, then load for 10 min (SOAK=seconds); fails on errors or growing memory, descriptors
	@scripts/setup.sh bench
	SIDECAR_SOAK=1 $(GO) test -p=1 -count=1 -timeout=40m -v ./e2e/stories ./e2e/twin ./e2e/consul ./e2e/registry ./e2e/register
	$(GO) run ./bench -only soak -seconds $(or $(SOAK),600)

schema: build ## write docs/config.schema.json from the configuration language
	$(BIN) schema >docs/config.schema.json

clean: ## remove what was built
	rm -rf bin cover.out
