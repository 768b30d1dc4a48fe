package config

import (
	"time"

	"berth/internal/secret"
	"berth/internal/webhook"
)

// Record holds the settings of the webhook that receives the detail records of conferences.
type Record struct {
	URL          secret.Text   `help:"https URL to which the detail record of each ended conference is sent; empty for none." name:"record-url" env:"BERTH_RECORD_URL"`
	Secrets      []secret.Text `help:"Secrets that sign detail records, separated by commas: whsec_ and 24 to 64 bytes in base64. Each makes one signature." name:"record-secrets" env:"BERTH_RECORD_SECRETS"`
	SecretsFile  string        `help:"File with the secrets that sign detail records, separated by commas or lines, read again for every record." name:"record-secrets-file" env:"BERTH_RECORD_SECRETS_FILE"`
	AllowPrivate bool          `help:"Permit http, and loopback, private and link-local addresses, for --record-url." name:"record-allow-private" env:"BERTH_RECORD_ALLOW_PRIVATE"`
}

// Webhook holds the settings of the webhooks that users define.
type Webhook struct {
	AllowPrivate bool `help:"Permit http, and loopback, private and link-local addresses, for webhooks. All who may define one can then send events to hosts of your network." name:"webhook-allow-private" env:"BERTH_WEBHOOK_ALLOW_PRIVATE"`
}

// Options returns the options of the webhook; URL is empty where records are not sent.
func (r Record) Options() webhook.Options {
	return webhook.Options{URL: string(r.URL), Secrets: secret.Strings(r.Secrets), SecretsFile: r.SecretsFile, AllowPrivate: r.AllowPrivate}
}

// retryRecordFor is how long after the end of a conference sending its record is retried.
const retryRecordFor = 72 * time.Hour

// RetryFor returns for how long sending a record is retried; 0 where records are not sent.
func (r Record) RetryFor() time.Duration {
	if r.URL == "" {
		return 0
	}
	return retryRecordFor
}

func (r *Record) validate(p *problems) {
	if r.URL == "" {
		return
	}
	err := r.Options().Validate()
	switch {
	case secret.Named(err):
		p.secret(err)
	case err != nil:
		p.bad(&r.URL, "%s", err)
	}
}
