package config

import (
	"cmp"
	"regexp"
)

// Rollout holds the settings of upgrades with two versions side by side.
type Rollout struct {
	Deployment string `help:"Name of the worker deployment in Temporal, which makes runs stay on the version that began them; empty for no versioning." name:"deployment" env:"BERTH_DEPLOYMENT"`
	BuildID    string `help:"Version of this process in its worker deployment; empty for that of the binary." name:"build-id" env:"BERTH_BUILD_ID"`
}

// Validate returns what is wrong with the settings of a command.
func (r Rollout) Validate() error {
	p := check(&r)
	r.validate(p)
	return p.err()
}

// Build returns the version of a process whose binary has the given version.
func (r Rollout) Build(version string) string { return cmp.Or(r.BuildID, version) }

// Temporal accepts more, but joins both to one name: "name:build", formerly "name.build".
var (
	deploymentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$`)
	buildID        = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,62}$`)
)

func (r *Rollout) validate(p *problems) {
	if r.Deployment != "" && !deploymentName.MatchString(r.Deployment) {
		p.bad(&r.Deployment, "invalid name %q: must be at most 63 letters, digits, - and _, and begin with a letter or digit", r.Deployment)
	}
	if r.BuildID != "" && !buildID.MatchString(r.BuildID) {
		p.bad(&r.BuildID, "invalid version %q: must be at most 63 letters, digits, ., _, + and -, and begin with a letter or digit", r.BuildID)
	}
}
