package simulate

import "math"

const golden = 0x9e3779b97f4a7c15

// dice draws random numbers; the same seed draws the same ones (splitmix64).
type dice struct{ state uint64 }

func (d *dice) next() uint64 {
	d.state += golden
	z := d.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// unit draws from 0 … 1, 1 excluded.
func (d *dice) unit() float64 { return float64(d.next()>>11) / (1 << 53) }

// exponential draws the gap between two events of a Poisson process, 1 on average.
func (d *dice) exponential() float64 { return -math.Log(1 - d.unit()) }
