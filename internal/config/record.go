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
	Within       time.Duration `help:"Time after the end of a conference for which sending its detail record is retried." name:"record-within" env:"BERTH_RECORD_WITHIN" default:"72h"`
}

// Options returns the options of the webhook; URL is empty where records are not sent.
func (r Record) Options() webhook.Options {
	return webhook.Options{URL: string(r.URL), Secrets: secret.Strings(r.Secrets), SecretsFile: r.SecretsFile, AllowPrivate: r.AllowPrivate}
}

// RetryFor returns for how long sending a record is retried; 0 where records are not sent.
func (r Record) RetryFor() time.Duration {
	if r.URL == "" {
		return 0
	}
	return r.Within
}

func (r Record) validate(bad func(flag, env, format string, args ...any), lasting func(flag, env string, d time.Duration)) {
	lasting("record-within", "BERTH_RECORD_WITHIN", r.Within)
	if r.URL == "" {
		return
	}
	err := r.Options().Validate()
	switch {
	case secret.Named(err):
		badSecret(bad, err)
	case err != nil:
		bad("record-url", "BERTH_RECORD_URL", "%s", err)
	}
}
