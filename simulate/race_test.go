//go:build race

package simulate_test

// patience bounds the calls of a scenario that is played: the race detector makes the large ones take minutes.
const patience = 50_000
