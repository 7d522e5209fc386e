#!/usr/bin/env bash
# Holds the tree to what CI wants of it: format, vet, staticcheck, tidy modules,
# and every shipped configuration accepted without a warning or a remark.
#   HAPROXY_VERSIONS="2.6 3.0 3.2" scripts/lint.sh
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

fail() {
	echo "lint: $*" >&2
	exit 1
}

unformatted=$(gofmt -l cmd internal test)
[[ -z $unformatted ]] || fail "not gofmt-ed: $unformatted"
# What the analysis compiles is then what make build needs.
export GOFLAGS="${GOFLAGS:-} -trimpath"
go vet ./...
go tool staticcheck ./...
go mod tidy -diff || fail "go.mod is not tidy"

# With and without a server-state file, the gate and servers from DNS: there is a
# branch for each.
state=$(mktemp)
trap 'rm -f "$state"' EXIT
echo 1 >"$state"
for version in ${HAPROXY_VERSIONS:-2.6 3.0 3.2}; do
	haproxy=$(scripts/haproxy.sh path "$version")
	for cfg in haproxy/*.cfg; do
		for set in "none on none" "$state on none" "none off none" "$state off none" "$state on heavy.test:9000" "none off heavy.test:9000"; do
			read -r file gate name <<<"$set"
			said=$(TIER_AGENT_STATE_FILE=$file TIER_GATE=$gate TIER_HEAVY_NAME=$name "$haproxy" -c -f "$cfg" 2>&1) || fail "HAProxy $version refuses $cfg: $said"
			if grep -Eqi 'warning|alert|deprecated' <<<"$said"; then
				fail "HAProxy $version has something to say about $cfg: $said"
			fi
		done
		echo "lint: HAProxy $version accepts $cfg"
	done
done
for yaml in haproxy/*.yaml compose/*.yaml; do
	go run ./cmd/tier-agent check-config --strict -c "$yaml"
done
