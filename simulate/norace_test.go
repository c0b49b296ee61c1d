//go:build !race

package simulate_test

// patience bounds the calls of a scenario that is played: none is left out.
const patience = 1 << 40
