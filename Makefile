# Two commands do all the set-up on a Debian machine with Go: make demo, make test.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# The versions that every integration test runs on.
HAPROXY_VERSIONS ?= 2.6 3.0 3.2

export CGO_ENABLED = 0
# VERSION says what was built; go's own stamp fails where another user owns the checkout.
export GOFLAGS := $(shell go env GOFLAGS) -buildvcs=false
# A path of our own: what is installed on the machine is not touched.
export TIER_AGENT_HAPROXY_DIR ?= $(CURDIR)/.haproxy

.PHONY: build demo gotest test test-again haproxies unit integration soak fuzz bench lint clean

build: ## the static binary, and the demo engine
	go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/tier-agent ./cmd/tier-agent
	go build -trimpath -o bin/engine ./test/engine/cmd/engine

demo: build ## the main job on real HAProxy; DEMO=once plays the story and ends, DEMO=discover on hosts from DNS
	go build -trimpath -o bin/demo ./test/demo
	haproxy=$$(scripts/haproxy.sh system) && exec bin/demo -parent $$PPID -haproxy "$$haproxy"

# Each part runs even when another fails. bin/failed lists the tests that failed, and why.
test: gotest haproxies ## everything
	bin/gotest begin unit integration
	$(MAKE) -k unit integration

test-again: gotest ## what bin/failed lists, alone; a broken guarantee is never run again
	$(TEST_ENV) bin/gotest again -- -race -timeout 16m

gotest:
	@go build -trimpath -o bin/gotest ./test/gotest

TEST_ENV = CGO_ENABLED=1 TIER_AGENT_HAPROXY_VERSIONS='$(HAPROXY_VERSIONS)' TIER_AGENT_RAN_ON=$(CURDIR)/bin/ran-on

haproxies: ## the HAProxy versions, from Debian's packages into a folder of ours
	scripts/haproxy.sh install $(HAPROXY_VERSIONS)

# On two cores that build and test several packages side by side, one with properties on
# real sockets and files comes near Go's default limit of 10 minutes for a package.
unit: gotest ## every package, under the race detector
	scripts/need.sh gcc
	$(TEST_ENV) bin/gotest run unit -- -race -timeout 20m $$(go list ./... | grep -v /test/integration)

# The versions at once, and at the end the tests that do little but wait, nine at a time: with go's default,
# the number of cores, two versions would run and the third come after them.
integration: gotest build haproxies ## real HAProxy, real sockets, each version
	scripts/need.sh gcc
	@rm -f bin/ran-on
	$(TEST_ENV) bin/gotest run integration -- -race -count=1 -parallel 9 -timeout 30m ./test/integration/...
	@echo "integration tests ran on HAProxy: $$(sort -uV bin/ran-on | paste -sd, | sed 's/,/, /g')"

soak: build haproxies ## the fault tests at full length, and their table
	@rm -f bin/soak
	TIER_AGENT_SOAK_TABLE=$(CURDIR)/bin/soak TIER_AGENT_HAPROXY_VERSIONS='$(HAPROXY_VERSIONS)' \
		go test -count=1 -timeout 30m -parallel 3 -run 'Fault|Rows' ./test/integration
	@scripts/soak-table.sh bin/soak

# A number of inputs, about 15 s on two cores. A time would do, but when it is over the
# go command now and then calls that a failure ("context deadline exceeded").
FUZZTIME ?= 150000x
fuzz: ## hostile bytes for the gate, FUZZTIME for each target
	go test -run '^$$' -fuzz '^FuzzConversation$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 20x ./internal/spoe
	go test -run '^$$' -fuzz '^FuzzMessages$$' -fuzztime $(FUZZTIME) -fuzzminimizetime 20x ./internal/spoe

bench: build haproxies ## speed, each table beside a baseline of the same run
	go run ./test/bench

lint: ## what CI holds the code to
	scripts/lint.sh

clean:
	rm -rf bin
