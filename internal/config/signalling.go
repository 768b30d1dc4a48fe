package config

import (
	"net/url"

	"berth/internal/secret"
	"berth/internal/signalling"
)

// Signalling holds the settings of how participants reach the media units of their conferences.
type Signalling struct {
	URL    secret.Address `help:"Address that participants connect to: a ws or wss URL that leads to the API processes. Default: the address of the request." name:"signalling-url" env:"BERTH_SIGNALLING_URL"`
	Direct bool           `help:"Give participants the address of the media unit and a token for it, instead of the signalling proxy's. They then have to follow a conference that moves." name:"signalling-direct" env:"BERTH_SIGNALLING_DIRECT"`
	Keys   string         `help:"File with the API keys of media units, one 'id: secret' per line; changes apply within a second." name:"livekit-keys-file" env:"BERTH_LIVEKIT_KEYS_FILE"`
	Hosts  []string       `help:"Hosts of media units that the API may connect to: names, *.names, addresses and networks such as 10.0.0.0/8, each with an optional :port. Default: none." name:"media-hosts" env:"BERTH_MEDIA_HOSTS"`
}

func (s *Signalling) validate(p *problems) {
	if s.URL != "" {
		u, err := url.Parse(string(s.URL))
		if err != nil || u.Scheme != "ws" && u.Scheme != "wss" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			p.bad(&s.URL, "must be a ws or wss URL without user, query and fragment")
		}
	}
	if err := signalling.Hosts(s.Hosts).Validate(); err != nil {
		p.bad(&s.Hosts, "%s", err)
	}
}
