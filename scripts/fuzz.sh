#!/usr/bin/env bash
# Runs every fuzz test of the module for the given time: scripts/fuzz.sh 30s
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:?usage: scripts/fuzz.sh DURATION}
passed=0 failed=0
while IFS=: read -r file func; do
	echo "== $func (${file%/*})"
	if go test -run='^$' -fuzz="^$func\$" -fuzztime="$time" "./${file%/*}"; then ((++passed)); else ((++failed)); fi
done < <(git ls-files --cached --others --exclude-standard -- '*_test.go' |
	xargs -r grep -HoE '^func Fuzz[A-Za-z0-9_]*' | sed 's/:func /:/')
echo "$passed passed, $failed failed"
((failed == 0))
