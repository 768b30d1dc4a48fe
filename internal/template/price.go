package template

import (
	"fmt"

	"go.yaml.in/yaml/v3"

	"berth"
)

// metered is how a template states that its tasks are charged by what their calls use.
const metered = "metered"

// NoPrice is what is wrong with any other value.
const NoPrice = "must be a number of credits from 0 to 1000000000, with at most three decimals, or metered"

// Price is what a task of a template costs: a number of credits, or what its calls use, by the prices of the models.
type Price struct {
	Credits berth.Credits
	Metered bool
}

// String returns the price as it is written.
func (p Price) String() string {
	if p.Metered {
		return metered
	}
	return p.Credits.String()
}

// UnmarshalYAML reads a number of credits, or the word metered. Its error does not end the reading of other fields.
func (p *Price) UnmarshalYAML(n *yaml.Node) (err error) {
	if *p = (Price{Metered: n.Value == metered}); p.Metered {
		return nil
	}
	if p.Credits, err = berth.ParseCredits(n.Value); err != nil {
		return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %s", n.Line, NoPrice)}}
	}
	return nil
}

// UnmarshalJSON reads what MarshalJSON returns.
func (p *Price) UnmarshalJSON(b []byte) error {
	if *p = (Price{Metered: string(b) == `"`+metered+`"`}); p.Metered {
		return nil
	}
	return p.Credits.UnmarshalJSON(b)
}

// MarshalJSON returns a number, or the word metered.
func (p Price) MarshalJSON() ([]byte, error) {
	if p.Metered {
		return []byte(`"` + metered + `"`), nil
	}
	return p.Credits.MarshalJSON()
}
