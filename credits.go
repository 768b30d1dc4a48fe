package berth

import (
	"encoding/json"
	"fmt"
	"math/big"
	"reflect"
	"regexp"
	"strconv"
	"strings"
)

// Credits is an amount of the unit in which users pay, in thousandths. In JSON and text it is a decimal number of credits, such as 1.25.
type Credits int64

// Credit is one credit.
const Credit Credits = 1000

// MaxCredits bounds a balance, so that every JSON client reads it exactly.
const MaxCredits = 1_000_000_000_000 * Credit

// String returns a decimal number, without zeros at the end.
func (c Credits) String() string {
	whole, rest, sign := int64(c/Credit), int64(c%Credit), ""
	if c < 0 {
		whole, rest, sign = -whole, -rest, "-"
	}
	s := sign + strconv.FormatInt(whole, 10)
	if rest == 0 {
		return s
	}
	return s + "." + strings.TrimRight(fmt.Sprintf("%03d", rest), "0")
}

// decimal has bounded lengths, so that no text takes long to read.
var decimal = regexp.MustCompile(`^[+-]?[0-9]{1,40}(\.[0-9]{1,40})?([eE][+-]?[0-9]{1,2})?$`)

// ParseCredits reads a decimal number with at most three decimals, from -MaxCredits to MaxCredits. It may have an exponent, as in JSON.
func ParseCredits(s string) (Credits, error) {
	amount, ok := new(big.Rat), decimal.MatchString(s)
	if ok {
		_, ok = amount.SetString(s)
	}
	amount.Mul(amount, big.NewRat(int64(Credit), 1))
	if !ok || !amount.IsInt() || !amount.Num().IsInt64() || Credits(amount.Num().Int64()) > MaxCredits || Credits(amount.Num().Int64()) < -MaxCredits {
		return 0, fmt.Errorf("%q is not a number of credits: at most %s, with at most three decimals", s, MaxCredits)
	}
	return Credits(amount.Num().Int64()), nil
}

// MarshalJSON returns a JSON number.
func (c Credits) MarshalJSON() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalJSON reads a JSON number. Its error is a *json.UnmarshalTypeError, to which the decoder adds the field.
func (c *Credits) UnmarshalJSON(b []byte) error {
	if c.UnmarshalText(b) != nil {
		return &json.UnmarshalTypeError{Value: "number " + string(b), Type: reflect.TypeFor[Credits]()}
	}
	return nil
}

// UnmarshalText reads a number of credits.
func (c *Credits) UnmarshalText(b []byte) (err error) {
	*c, err = ParseCredits(string(b))
	return err
}
