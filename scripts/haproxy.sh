#!/usr/bin/env bash
# Gives the project real HAProxy binaries of several minor versions on one Debian machine,
# side by side and without touching the system: each version comes with its own libc and
# libraries, taken as signed packages from the mirror that this machine already uses.
#
#   scripts/haproxy.sh install 2.6 3.0 3.2   make sure of each; one line per version
#   scripts/haproxy.sh path 3.0              print the path of an installed one
#   scripts/haproxy.sh system                print the path of some haproxy >= 2.6
#
# Binaries are at <dir>/<version>/haproxy, where <dir> is $TIER_AGENT_HAPROXY_DIR or
# .haproxy at the top of the repository. They do not survive a move of <dir>: the path of
# the loader is part of the binary. `install` notices that and builds them anew.
#
# TIER_AGENT_DEBIAN_MIRROR overrides the mirror (as in http://HOST/debian) where apt's own
# sources have none, as on a machine that is not Debian but has apt.
set -euo pipefail

readonly DEFAULT_VERSION=3.0

repo=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
dir=${TIER_AGENT_HAPROXY_DIR:-$repo/.haproxy}
[[ $dir == /* ]] || dir=$PWD/$dir

say() { printf '%s\n' "$*" >&2; }

die() {
	printf 'haproxy.sh: %s\n' "$*" >&2
	exit 1
}

# The suites that may carry a minor version, likeliest first. A line is one set of suites
# that apt may resolve from together (backports need their stable beside them). Suites move
# on, so more than one is named for what is not in a stable release.
suites_for() {
	case $1 in
	2.6) printf '%s\n' 'bookworm' ;;
	3.0) printf '%s\n' 'trixie' 'bookworm bookworm-backports' ;;
	3.2) printf '%s\n' 'forky' 'sid' 'trixie trixie-backports' ;;
	*) printf '%s\n' 'sid' 'testing' 'trixie trixie-backports' 'trixie' 'bookworm bookworm-backports' ;;
	esac
}

# Prints the version of a binary, as in 3.0.11, or nothing when it cannot run.
version_of() {
	local out
	out=$("$1" -v 2>/dev/null) || return 0
	[[ $out =~ [Vv]ersion\ ([0-9]+\.[0-9]+(\.[0-9]+)?) ]] && printf '%s\n' "${BASH_REMATCH[1]}"
	return 0
}

is_version() {
	local have
	have=$(version_of "$1")
	[[ $have == "$2" || $have == "$2".* ]]
}

check_name() {
	[[ $1 =~ ^[0-9]+\.[0-9]+$ ]] || die "version '$1': want a minor version such as 2.6, 3.0 or 3.2"
}

report() { printf 'haproxy %s: %s at %s\n' "$1" "$(version_of "$dir/$1/haproxy")" "$dir/$1/haproxy"; }

need() {
	local tool
	for tool in "$@"; do
		command -v "$tool" >/dev/null || die "'$tool' is missing; this recipe needs a Debian machine (or one with apt). Install '$tool', or put your own binary at $dir/<version>/haproxy"
	done
}

# Prints the URIs of this machine's own Debian mirror. apt parses its sources itself, so
# sources.list, *.list and *.sources are all understood, and no host is named here.
mirrors() {
	if [[ -n ${TIER_AGENT_DEBIAN_MIRROR:-} ]]; then
		printf '%s\n' "$TIER_AGENT_DEBIAN_MIRROR"
		return
	fi
	local codename=''
	if [[ -r /etc/os-release ]]; then
		# shellcheck source=/dev/null
		codename=$(. /etc/os-release && [[ $ID == debian ]] && printf '%s' "${VERSION_CODENAME:-}") || codename=''
	fi
	# Other archives may use Debian's suite names as well; they rarely have a "main", and
	# their URI does not end in /debian. -security and -updates are not complete archives.
	# shellcheck disable=SC2016 # the fields are apt's, not the shell's
	apt-get indextargets --format '$(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
		awk -v own="$codename" '
			$3 != "main" { next }
			$2 == own || $2 ~ /^(stable|oldstable|testing|unstable|sid|bookworm|trixie|forky)$/ {
				if (seen[$1]++) next
				if ($1 ~ /\/debian\/?$/) print $1; else rest = rest $1 "\n"
			}
			END { printf "%s", rest }'
}

# Runs an apt tool on the private state in $build/apt and nothing else of this machine's
# but its proxy and transport settings.
apt_private() {
	local tool=$1
	shift
	"$tool" -qq -c "$build/apt/apt.conf" "$@"
}

prepare_apt() {
	local a=$build/apt key
	mkdir -p "$a/lists/partial" "$a/cache/archives/partial" "$a/keys"
	: >"$a/status"
	# #clear: the hooks of the machine's apt would clean the system's cache and wake
	# desktop services. The sandbox user could not write below a private folder.
	cat >"$a/apt.conf" <<-CONF
		#clear APT::Update::Pre-Invoke;
		#clear APT::Update::Post-Invoke;
		#clear APT::Update::Post-Invoke-Success;
		#clear DPkg::Pre-Invoke;
		#clear DPkg::Post-Invoke;
		APT::Sandbox::User "";
		APT::Install-Recommends "false";
		APT::Update::Error-Mode "any";
		Acquire::Languages "none";
		Acquire::Retries "3";
		Acquire::http::Timeout "30";
		Dir::State "$a";
		Dir::State::status "$a/status";
		Dir::State::lists "$a/lists";
		Dir::Cache "$a/cache";
		Dir::Cache::archives "$a/cache/archives";
		Dir::Etc::sourcelist "$a/sources.list";
		Dir::Etc::sourceparts "/dev/null";
		Dir::Etc::preferences "/dev/null";
		Dir::Etc::preferencesparts "/dev/null";
		Dir::Etc::trusted "/dev/null";
		Dir::Etc::trustedparts "$a/keys";
	CONF
	for key in /etc/apt/trusted.gpg.d/*.{gpg,asc} /usr/share/keyrings/debian-archive-keyring.*; do
		add_key "$key"
	done
}

add_key() {
	local name=${1##*/}
	# apt reads .gpg and .asc only; newer keyring packages name the same format .pgp.
	if [[ -r $1 ]]; then cp -L -- "$1" "$build/apt/keys/${name/%.pgp/.gpg}"; fi
}

# use_suites MIRROR "SUITE...": makes them the only source and fetches their lists.
use_suites() {
	local suite log=$build/apt/update.log
	: >"$build/apt/sources.list"
	for suite in $2; do
		printf 'deb [target=Packages] %s %s main\n' "$1" "$suite" >>"$build/apt/sources.list"
	done
	apt_private apt-get update >"$log" 2>&1
}

# The suite may be signed with a key younger than this machine. The newer keyring is taken
# from the machine's own suite, whose signature is checked with the keys it has.
renew_keys() {
	local mirror=$1 own deb key
	# shellcheck source=/dev/null
	own=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-stable}")
	say "the keyring here does not know the key of that suite; fetching a newer one from $own"
	use_suites "$mirror" "$own" || return 1
	(cd "$build/apt" && apt_private apt-get download debian-archive-keyring >/dev/null 2>&1) || return 1
	for deb in "$build"/apt/debian-archive-keyring_*.deb; do
		dpkg -x "$deb" "$build/apt/keyring"
	done
	for key in "$build"/apt/keyring/usr/share/keyrings/debian-archive-keyring.*; do
		add_key "$key"
	done
}

# Leaves the newest package version of haproxy with that minor in $package, its suites set up.
find_package() {
	local minor=$1 mirror suites tried='' found renewed=''
	local -a uris
	mapfile -t uris < <(mirrors)
	[[ ${#uris[@]} -gt 0 ]] || die "no Debian mirror in apt's sources (looked for a 'main' of a Debian suite in /etc/apt/sources.list and sources.list.d). Add one, or set TIER_AGENT_DEBIAN_MIRROR to its URI"
	for mirror in "${uris[@]}"; do
		while IFS= read -r suites; do
			if ! use_suites "$mirror" "$suites"; then
				if [[ -z $renewed ]] && grep -q -e NO_PUBKEY -e EXPKEYSIG "$build/apt/update.log"; then
					renewed=yes
					renew_keys "$mirror" || true
					use_suites "$mirror" "$suites" || true
				fi
			fi
			found=$(apt_private apt-cache madison haproxy 2>/dev/null | awk -F'|' '{ gsub(/ /, "", $2); print $2 }')
			package=$(grep -m1 -E "^${minor//./\\.}[.~-]" <<<"$found" || true)
			[[ -z $package ]] || return 0
			tried+=$(printf '\n  %s: %s' "$suites" "$(grep -m1 -E '^[EW]:' "$build/apt/update.log" || printf 'has %s' "$(paste -sd' ' <<<"${found:-no haproxy}")")")
		done < <(suites_for "$minor")
	done
	die "no suite of this machine's mirror (${uris[*]}) has haproxy $minor:$tried
If the network is down, try again later. If a key is missing, upgrade debian-archive-keyring. If the suites have moved on, name the one that has it in suites_for() of this script, or put a binary at $dir/$minor/haproxy"
}

# Fetches and unpacks; then makes the binary use the loader and libraries that came with it.
build_version() {
	local minor=$1 final=$dir/$1 root deb loader multiarch patch
	local -a extra=()
	prepare_apt
	find_package "$minor"
	command -v patchelf >/dev/null || extra=(patchelf)
	# The empty status file makes apt resolve everything, down to libc.
	apt_private apt-get install -y --download-only "haproxy=$package" "${extra[@]}" >"$build/apt/install.log" 2>&1 ||
		die "cannot fetch haproxy $package: $(tail -n1 "$build/apt/install.log"). If the network or the mirror is down, run this again later"
	root=$build/root
	mkdir "$root"
	for deb in "$build"/apt/cache/archives/*.deb; do
		dpkg -x "$deb" "$root" || die "cannot unpack ${deb##*/}: is $dir on a full or read-only disk?"
	done

	# Before usr-merge the loader is in /lib, after it in /usr/lib; lib64 has only a link.
	loader=$(find "$root" -path '*/lib/*-linux-gnu*/ld*.so.[0-9]*' -print -quit)
	[[ -n $loader ]] || die "no loader among the packages of haproxy $package; please report this suite's layout"
	multiarch=$(basename -- "$(dirname -- "$loader")")
	patch=(patchelf)
	if [[ ${#extra[@]} -gt 0 ]]; then
		patch=("$loader" --library-path "$root/lib/$multiarch:$root/usr/lib/$multiarch" "$root/usr/bin/patchelf")
	fi
	# --force-rpath: DT_RPATH is followed for the libraries' libraries too, RUNPATH is not.
	"${patch[@]}" --set-interpreter "$final/root${loader#"$root"}" --force-rpath \
		--set-rpath "$final/root/usr/lib/$multiarch:$final/root/lib/$multiarch" "$root/usr/sbin/haproxy" ||
		die "patchelf failed on haproxy $package. Install another patchelf and run this again"

	find "$root" -mindepth 1 -maxdepth 1 ! -name usr ! -name 'lib*' -exec rm -rf {} +
	find "$root/usr" -mindepth 1 -maxdepth 1 ! -name sbin ! -name 'lib*' -exec rm -rf {} +
	find "$root/usr/sbin" -mindepth 1 ! -name haproxy -delete
	rm -rf "$build/apt"
	ln -s root/usr/sbin/haproxy "$build/haproxy"
	chmod 755 "$build"
	if [[ -e $final || -L $final ]]; then mv -T -- "$final" "$build.old"; fi
	mv -T -- "$build" "$final"
	rm -rf "$build.old"
	is_version "$final/haproxy" "$minor" ||
		die "haproxy $package was unpacked to $final but does not run: $("$final/haproxy" -v 2>&1 | head -n1). Is $dir mounted noexec?"
}

install_version() {
	local minor=$1
	check_name "$minor"
	if is_version "$dir/$minor/haproxy" "$minor"; then
		report "$minor"
		return
	fi
	need apt-get apt-cache dpkg flock awk find
	[[ $dir != *[:\"]* ]] || die "the folder $dir has a ':' or a quote in its name, which a library path cannot hold; set TIER_AGENT_HAPROXY_DIR to another"
	mkdir -p "$dir" || die "cannot make $dir; set TIER_AGENT_HAPROXY_DIR to a folder you may write"
	[[ -e $dir/.gitignore ]] || printf '*\n' >"$dir/.gitignore"
	# No "|| die" after the subshell: inside a tested command, set -e is off.
	(
		flock -w 900 9 || die "another run has held $dir/.lock-$minor for 15 minutes; end it and try again"
		if ! is_version "$dir/$minor/haproxy" "$minor"; then
			rm -rf "$dir/.build-$minor."* # left by a run that was killed; we hold the lock
			build=$(mktemp -d "$dir/.build-$minor.XXXXXX")
			trap 'rm -rf "$build" "$build.old"' EXIT
			trap 'exit 130' INT TERM
			set -E
			trap 'say "haproxy.sh: line $LINENO: \"$BASH_COMMAND\" failed unexpectedly; bash -x scripts/haproxy.sh shows more"' ERR
			say "haproxy $minor: fetching from this machine's Debian mirror ..."
			build_version "$minor"
		fi
	) 9>"$dir/.lock-$minor"
	report "$minor"
}

print_path() {
	check_name "$1"
	is_version "$dir/$1/haproxy" "$1" || die "haproxy $1 is not at $dir/$1/haproxy; run: scripts/haproxy.sh install $1"
	printf '%s\n' "$dir/$1/haproxy"
}

# Prints the path of a haproxy >= 2.6 that the shell would find. Debian puts it in
# /usr/sbin, which is not on everybody's PATH.
on_path() {
	local found have
	found=$(PATH=$PATH:/usr/local/sbin:/usr/sbin command -v haproxy) || return 1
	have=$(version_of "$found")
	if [[ -z $have || $(printf '%s\n' 2.6 "$have" | sort -V | head -n1) != 2.6 ]]; then
		say "haproxy.sh: $found is ${have:-not running}; 2.6 or newer is wanted"
		return 1
	fi
	printf '%s\n' "$found"
}

install_system() {
	local -a as_root=()
	command -v apt-get >/dev/null || return 1
	if [[ $(id -u) -ne 0 ]]; then
		command -v sudo >/dev/null || return 1
		as_root=(sudo)
		[[ -t 0 ]] || as_root=(sudo -n) # nobody there to type a password
	fi
	say "installing the distribution's haproxy ..."
	# The lists may be absent or old (container images ship none), hence the second try.
	"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends haproxy >&2 || {
		"${as_root[@]}" apt-get update -qq >&2 &&
			"${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends haproxy >&2
	}
}

system() {
	local minor
	on_path && return
	if install_system; then
		on_path && return
	fi
	for minor in 3.2 3.0 2.6; do
		if is_version "$dir/$minor/haproxy" "$minor"; then
			printf '%s\n' "$dir/$minor/haproxy"
			return
		fi
	done
	say "haproxy.sh: cannot install the distribution's haproxy (needs root or sudo, and a package of 2.6 or newer); taking a private $DEFAULT_VERSION"
	install_version "$DEFAULT_VERSION" >&2
	print_path "$DEFAULT_VERSION"
}

usage() {
	say "usage: scripts/haproxy.sh install VERSION... | path VERSION | system"
	exit 2
}

case ${1:-} in
install)
	shift
	[[ $# -gt 0 ]] || usage
	for v in "$@"; do install_version "$v"; done
	;;
path)
	[[ $# -eq 2 ]] || usage
	print_path "$2"
	;;
system)
	[[ $# -eq 1 ]] || usage
	system
	;;
*) usage ;;
esac
