package config

import (
	"fmt"
	"log/slog"
	"reflect"

	"berth/internal/clienttls"
	"berth/internal/payload"
	"berth/internal/secret"
	"berth/internal/temporalconn"
)

// Temporal holds the settings of the Temporal connection.
type Temporal struct {
	Addr      string         `help:"Address of the Temporal frontend, host:port." name:"temporal-addr" env:"BERTH_TEMPORAL_ADDR" default:"127.0.0.1:7233"`
	Namespace string         `help:"Temporal namespace." name:"temporal-namespace" env:"BERTH_TEMPORAL_NAMESPACE" default:"default"`
	UIURL     secret.Address `help:"Base URL of the Temporal UI, for links; its origin may call the payload decoder; empty for none." name:"temporal-ui-url" env:"BERTH_TEMPORAL_UI_URL" default:"http://127.0.0.1:8233"`

	TLS           bool   `help:"Connect to Temporal with TLS. Implied by every other --temporal-tls flag and by an API key." name:"temporal-tls" env:"BERTH_TEMPORAL_TLS"`
	TLSCA         string `help:"PEM file of the authorities that verify Temporal's certificate; empty for the system's." name:"temporal-tls-ca" env:"BERTH_TEMPORAL_TLS_CA"`
	TLSCert       string `help:"PEM file of the client certificate for mutual TLS." name:"temporal-tls-cert" env:"BERTH_TEMPORAL_TLS_CERT"`
	TLSKey        string `help:"PEM file of the client certificate's key." name:"temporal-tls-key" env:"BERTH_TEMPORAL_TLS_KEY"`
	TLSServerName string `help:"Name in Temporal's certificate; empty for the host of the address." name:"temporal-tls-server-name" env:"BERTH_TEMPORAL_TLS_SERVER_NAME"`

	APIKey     secret.Text `help:"API key of the Temporal namespace." name:"temporal-api-key" env:"BERTH_TEMPORAL_API_KEY"`
	APIKeyFile string      `help:"File with the API key, read again for every call." name:"temporal-api-key-file" env:"BERTH_TEMPORAL_API_KEY_FILE"`

	PayloadKeys     secret.Text `help:"AES-256 keys that encrypt what Temporal stores, id:base64,id2:base64. The first encrypts, all decrypt; with none in the first place nothing is encrypted." name:"payload-keys" env:"BERTH_PAYLOAD_KEYS"`
	PayloadKeysFile string      `help:"File with these keys, separated by commas or lines, read at the start." name:"payload-keys-file" env:"BERTH_PAYLOAD_KEYS_FILE"`
}

func (t Temporal) payloadKeys() secret.Secret {
	return secret.NewLines("BERTH_PAYLOAD_KEYS", string(t.PayloadKeys), t.PayloadKeysFile)
}

// Keys returns the keys of payloads. Its errors name the setting.
func (t Temporal) Keys() (payload.Keys, error) {
	if err := t.payloadKeys().Validate(); err != nil {
		return payload.Keys{}, err
	}
	text, err := t.payloadKeys().Read()
	if err != nil {
		return payload.Keys{}, err
	}
	keys, err := payload.ParseKeys(text)
	if err != nil {
		return payload.Keys{}, t.payloadKeys().Invalid("%s", err)
	}
	return keys, nil
}

func (t *Temporal) validate(p *problems) {
	p.hostPort(&t.Addr)
	if t.Namespace == "" {
		p.bad(&t.Namespace, "must not be empty")
	}
	if !isURL(t.UIURL, "http", "https") {
		p.bad(&t.UIURL, "invalid URL %s: must be http://host:port or https://host/path", t.UIURL)
	}
	p.secret(secret.New("BERTH_TEMPORAL_API_KEY", string(t.APIKey), t.APIKeyFile).Validate())
	_, err := t.Keys()
	p.secret(err)
}

// IsDefault reports whether no setting names the server.
func (t Temporal) IsDefault() bool { return isDefault(&t, &t.Addr) }

// Options returns the options of a client.
func (t Temporal) Options(logger *slog.Logger) (temporalconn.Options, error) {
	keys, err := t.Keys()
	if err != nil {
		return temporalconn.Options{}, err
	}
	return temporalconn.Options{
		Addr: t.Addr, Namespace: t.Namespace, PayloadKeys: keys, APIKey: string(t.APIKey), APIKeyFile: t.APIKeyFile, Logger: logger,
		TLS: clienttls.Files{Enabled: t.TLS, CA: t.TLSCA, Cert: t.TLSCert, Key: t.TLSKey, ServerName: t.TLSServerName},
	}, nil
}

// Environ returns the settings as environment variables for another process.
func (t Temporal) Environ() []string {
	var env []string
	Each(&t, func(s Setting) {
		value := fmt.Sprint(s.Value) // a reflect.Value is printed as what it holds
		if s.Value.Kind() == reflect.String {
			value = s.Value.String()
		}
		env = append(env, s.Env+"="+value)
	})
	return env
}
