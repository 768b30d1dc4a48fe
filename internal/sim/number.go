package sim

import (
	"encoding/json"
	"math/big"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// numbers returns the number that the source has for the place, and others within the limits.
func (f *filler) numbers(all []*jsonschema.Schema, at place) (out []any, said bool) {
	var low, high, step *big.Rat
	raise := func(n *big.Rat) {
		if n != nil && (low == nil || n.Cmp(low) > 0) {
			low = n
		}
	}
	lower := func(n *big.Rat) {
		if n != nil && (high == nil || n.Cmp(high) < 0) {
			high = n
		}
	}
	whole := false
	for _, s := range all {
		raise(s.Minimum)
		raise(s.ExclusiveMinimum)
		lower(s.Maximum)
		lower(s.ExclusiveMaximum)
		step = common(step, s.MultipleOf)
		if s.Types != nil && !slices.Contains(s.Types.ToStrings(), "number") {
			whole = true
		}
	}
	if whole {
		step = common(step, big.NewRat(1, 1))
	}
	wanted, said := f.number(at, high)
	for _, s := range all {
		if s.Default == nil || wanted != nil {
			continue
		}
		if n, ok := (*s.Default).(json.Number); ok {
			wanted, _ = new(big.Rat).SetString(n.String())
		}
	}
	if wanted == nil {
		wanted = new(big.Rat)
	}
	one := step
	if one == nil {
		one = big.NewRat(1, 1)
	}
	shift := new(big.Rat).Mul(one, big.NewRat(int64(at.variant), 1))
	options := []*big.Rat{new(big.Rat).Add(wanted, shift)}
	if low != nil {
		options = append(options, new(big.Rat).Add(low, shift), new(big.Rat).Add(new(big.Rat).Add(low, one), shift))
	}
	if high != nil {
		options = append(options, new(big.Rat).Sub(high, shift), new(big.Rat).Sub(new(big.Rat).Sub(high, one), shift))
	}
	if low != nil && high != nil { // between them, for exclusive limits
		width := new(big.Rat).Sub(high, low)
		part := big.NewRat(int64(at.variant)+1, int64(at.variant)+2)
		options = append(options, new(big.Rat).Add(low, new(big.Rat).Mul(width, part)))
	}
	for _, n := range options {
		for _, n := range roundings(n, step) {
			out = append(out, decimal(n))
		}
	}
	return out, said
}

// common returns the smallest number of which both are divisors.
func common(a, b *big.Rat) *big.Rat {
	const most = 4096 // bits
	if a == nil || b == nil || b.Sign() <= 0 || a.Num().BitLen()+a.Denom().BitLen() > most {
		if a == nil {
			return b
		}
		return a
	}
	x, y := new(big.Int).Mul(a.Num(), b.Denom()), new(big.Int).Mul(b.Num(), a.Denom())
	gcd := new(big.Int).GCD(nil, nil, x, y)
	lcm := new(big.Int).Div(new(big.Int).Mul(x, y), gcd)
	return new(big.Rat).SetFrac(lcm, new(big.Int).Mul(a.Denom(), b.Denom()))
}

// roundings returns the multiples of a step on both sides of n, or n itself without a step.
func roundings(n, step *big.Rat) []*big.Rat {
	if step == nil || step.Sign() == 0 {
		return []*big.Rat{n}
	}
	q := new(big.Rat).Quo(n, step)
	below := new(big.Int).Div(q.Num(), q.Denom())
	at := func(k *big.Int) *big.Rat { return new(big.Rat).Mul(new(big.Rat).SetInt(k), step) }
	return []*big.Rat{at(below), at(new(big.Int).Add(below, big.NewInt(1)))}
}

// decimal writes a number in JSON.
func decimal(n *big.Rat) json.Number {
	if n.IsInt() {
		return json.Number(n.Num().String())
	}
	digits, exact := n.FloatPrec()
	if !exact {
		digits = min(digits+20, 40)
	}
	return json.Number(strings.TrimRight(strings.TrimRight(n.FloatString(digits), "0"), "."))
}
