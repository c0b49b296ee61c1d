//go:build race

package netio_test

// raceEnabled makes what is slow under the race detector shorter.
const raceEnabled = true
