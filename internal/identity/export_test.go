package identity

import "time"

// MaxWait is how long a call waits for a reading of a provider.
const MaxWait = maxWait

// SetWait replaces MaxWait, before the first call.
func (p *Provider) SetWait(d time.Duration) { p.wait = d }

// CheckRedirect is the rule of the default client.
var CheckRedirect = checkRedirect
