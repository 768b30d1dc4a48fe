package redisconn

import "errors"

// maxChannels is how many channels one SUBSCRIBE or UNSUBSCRIBE names.
const maxChannels = 1000

// subscriptions are the channels of a Listener and their states on the current connection. What a channel is to become
// is sent only after Redis has confirmed the last command about it, so that a confirmation is never mistaken for that of
// another command.
type subscriptions struct {
	channels    map[string]*subscription
	join, leave map[string]struct{} // channels to subscribe and to unsubscribe
	unconfirmed int                 // permanent channels that are not confirmed yet
}

type subscription struct {
	state     subscriptionState
	wanted    bool
	permanent bool // one of ListenerOptions.Channels
}

type subscriptionState int

const (
	waiting subscriptionState = iota // to be subscribed
	joining                          // SUBSCRIBE was sent
	active                           // confirmed
	leaving                          // to be unsubscribed, or UNSUBSCRIBE was sent
)

func newSubscriptions(permanent []string) subscriptions {
	s := subscriptions{
		channels: map[string]*subscription{}, join: map[string]struct{}{}, leave: map[string]struct{}{},
	}
	for _, channel := range permanent {
		s.channels[channel] = &subscription{wanted: true, permanent: true}
	}
	return s
}

func (s *subscriptions) add(channel string) {
	c := s.channels[channel]
	if c == nil {
		c = &subscription{}
		s.channels[channel] = c
		s.join[channel] = struct{}{}
	}
	c.wanted = true
}

func (s *subscriptions) remove(channel string) {
	c := s.channels[channel]
	if c == nil {
		return
	}
	c.wanted = false
	switch c.state {
	case waiting:
		delete(s.channels, channel)
		delete(s.join, channel)
	case active:
		c.state = leaving
		s.leave[channel] = struct{}{}
	case joining, leaving: // the confirmation decides
	}
}

// reset begins a new connection, on which nothing is subscribed.
func (s *subscriptions) reset() {
	s.unconfirmed = 0
	clear(s.leave)
	for channel, c := range s.channels {
		if !c.wanted {
			delete(s.channels, channel)
			continue
		}
		c.state = waiting
		s.join[channel] = struct{}{}
		if c.permanent {
			s.unconfirmed++
		}
	}
}

// due reports whether there is something to send.
func (s *subscriptions) due() bool { return len(s.join)+len(s.leave) > 0 }

// take returns the channels of the next commands.
func (s *subscriptions) take() (join, leave []string) {
	join, leave = some(s.join), some(s.leave)
	for _, channel := range join {
		s.channels[channel].state = joining
	}
	return join, leave
}

// some removes up to maxChannels names from the set and returns them.
func some(set map[string]struct{}) (names []string) {
	for name := range set {
		if len(names) == maxChannels {
			break
		}
		names = append(names, name)
		delete(set, name)
	}
	return names
}

// errReconnected is a second confirmation of a SUBSCRIBE that was sent once: go-redis has replaced the connection.
var errReconnected = errors.New("the redis client reconnected")

// confirmed notes Redis's confirmation of a command, and returns the event to report, if any.
func (s *subscriptions) confirmed(channel string, subscribed bool) (Event, error) {
	c := s.channels[channel]
	switch {
	case c == nil:
	case subscribed && (c.state == active || c.state == leaving):
		return nil, errReconnected
	case subscribed && c.state == joining && c.wanted:
		c.state = active
		if !c.permanent {
			return Confirmed{channel}, nil
		}
		if s.unconfirmed--; s.unconfirmed == 0 {
			return Up{}, nil
		}
	case subscribed && c.state == joining:
		c.state = leaving
		s.leave[channel] = struct{}{}
	case !subscribed && c.state == leaving && c.wanted:
		c.state = waiting
		s.join[channel] = struct{}{}
	case !subscribed && c.state == leaving:
		delete(s.channels, channel)
	}
	return nil, nil
}
