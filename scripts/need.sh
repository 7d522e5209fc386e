#!/usr/bin/env bash
# Makes sure that a command is there, from Debian's package of the same name:
#   scripts/need.sh gcc
set -euo pipefail

for name in "$@"; do
	command -v "$name" >/dev/null && continue
	as_root=()
	if [[ $(id -u) != 0 ]]; then
		command -v sudo >/dev/null || {
			echo "need.sh: $name is missing: install the package $name, or run this as root" >&2
			exit 1
		}
		as_root=(sudo)
	fi
	"${as_root[@]}" apt-get update -q
	packages=("$name")
	# The compiler alone has no headers to compile against.
	[[ $name != gcc ]] || packages+=(libc6-dev)
	"${as_root[@]}" apt-get install -y -q --no-install-recommends "${packages[@]}"
done
