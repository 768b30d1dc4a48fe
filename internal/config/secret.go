package config

import (
	"fmt"
	"net/url"
	"slices"

	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/secret"
	"berth/internal/setting"
)

// Database holds the settings of the database connection.
type Database struct {
	URL          secret.Address `help:"Database URL: sqlite:FILE or postgres://…" name:"database" env:"BERTH_DATABASE" default:"sqlite:.berth/berth.db"`
	URLFile      string         `help:"File with the database URL. Its user and password are read again for every connection." name:"database-file" env:"BERTH_DATABASE_FILE"`
	PasswordFile string         `help:"File with the password of the PostgreSQL database, read again for every connection." name:"database-password-file" env:"BERTH_DATABASE_PASSWORD_FILE"`
	// A process that migrates the database needs two: one renews its lock.
	Connections int `help:"Maximum number of connections of this process to PostgreSQL, at least 2; two more check whether it is available." name:"database-connections" env:"BERTH_DATABASE_CONNECTIONS" default:"20" min:"2"`
}

// Source returns where address and password come from.
func (d Database) Source() ledger.Source {
	src := ledger.Source{URL: string(d.URL), URLFile: d.URLFile, PasswordFile: d.PasswordFile, Connections: d.Connections}
	if src.URLFile != "" && isDefault(&d, &d.URL) { // the default does not conflict with a file
		src.URL = ""
	}
	return src
}

// IsDefault reports whether no setting names a database.
func (d Database) IsDefault() bool { return isDefault(&d, &d.URL) && d.URLFile == "" }

func (d *Database) validate(p *problems) {
	p.secret(d.Source().Validate())
}

// Settings returns what the deployment adds to the routing file. Keys of BERTH_PROVIDER_KEYS precede others.
func (m Model) Settings() llm.Settings {
	return llm.Settings{
		Keys:    map[string]string{"DEEPSEEK_API_KEY": string(m.DeepSeekKey), "ZHIPUAI_API_KEY": string(m.ZhipuKey)},
		KeyList: string(m.ProviderKeys), KeysFile: m.ProviderKeysFile, LocalURL: string(m.LocalURL),
		KeyFiles: map[string]string{"DEEPSEEK_API_KEY": m.DeepSeekKeyFile, "ZHIPUAI_API_KEY": m.ZhipuKeyFile},
	}
}

// Catalog returns the models of the routing file with these keys. Its error names the setting.
func (m Model) Catalog() (*llm.Catalog, error) {
	routing, err := llm.LoadConfig(m.RoutingFile)
	if err != nil {
		return nil, setting.Wrong(fmt.Errorf("--routing-file (BERTH_ROUTING_FILE): %w", err))
	}
	catalog, err := llm.NewCatalog(routing, m.Settings())
	return catalog, setting.Wrong(err)
}

func (m *Model) validate(p *problems) {
	if !isURL(m.LocalURL, "http", "https") {
		p.bad(&m.LocalURL, "invalid URL %s: must be http://host:port/path", m.LocalURL)
	}
	p.secret(m.Settings().Validate())
}

// isURL reports whether an address is empty, or a URL with a host and one of the schemes.
func isURL(address secret.Address, schemes ...string) bool {
	u, err := url.Parse(string(address))
	return address == "" || err == nil && u.Host != "" && slices.Contains(schemes, u.Scheme)
}
