package probe

import (
	"strconv"
	"strings"
)

// decimal is a number in the one form that makes == exact: 0.digits * 10^exponent, digits
// without zeros at either end. math/big would do too, but takes the memory that an exponent of
// ten digits asks for, and the exponent is the server's.
type decimal struct {
	negative bool
	digits   string // "" is zero, with everything else zero too
	exponent int
}

// decimalOf reads a JSON number or what strconv writes for a finite one.
func decimalOf(s string) (decimal, bool) {
	var d decimal
	s, d.negative = strings.CutPrefix(s, "-")
	mantissa, power, scaled := s, "", false
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		mantissa, power, scaled = s[:i], s[i+1:], true
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	all := whole + fraction
	if all == "" || strings.Trim(all, "0123456789") != "" {
		return decimal{}, false // NaN and infinities of a wanted float, among others
	}
	d.digits = strings.TrimLeft(all, "0")
	d.exponent = len(whole) - (len(all) - len(d.digits))
	d.digits = strings.TrimRight(d.digits, "0")
	if d.digits == "" {
		return decimal{}, true
	}
	if scaled {
		// No wanted value is out of this range, and no answer is long enough to come back into it.
		n, err := strconv.ParseInt(power, 10, 32)
		if err != nil {
			return decimal{}, false
		}
		d.exponent += int(n)
	}
	return d, true
}

// String is JSON, and decimalOf reads the same decimal from it: written out up to 21 digits before
// the point and 6 zeros after it, as JavaScript does, else with an exponent.
func (d decimal) String() string {
	n, s := len(d.digits), d.digits
	switch {
	case n == 0:
		return "0"
	case d.exponent > 21 || d.exponent <= -6:
		if n > 1 {
			s = s[:1] + "." + s[1:]
		}
		s += "e" + strconv.Itoa(d.exponent-1)
	case d.exponent <= 0:
		s = "0." + strings.Repeat("0", -d.exponent) + s
	case d.exponent < n:
		s = s[:d.exponent] + "." + s[d.exponent:]
	default:
		s += strings.Repeat("0", d.exponent-n)
	}
	if d.negative {
		return "-" + s
	}
	return s
}
