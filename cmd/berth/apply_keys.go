package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"berth"
	"berth/client"
	"berth/internal/declaration"
	"berth/internal/llm"
	"berth/internal/pause"
)

// keys plans the API keys with their budgets.
func (p *applyPlan) keys(ctx context.Context) error {
	for _, t := range p.file.Teams {
		if err := p.keysOf(ctx, "team "+t.ID, client.Key{TeamID: t.ID}, p.teams[t.ID] != nil, t.Keys); err != nil {
			return err
		}
	}
	for _, a := range p.file.Apps {
		if err := p.keysOf(ctx, "application "+a.ID, client.Key{AppID: a.ID}, p.apps[a.ID] != nil, a.Keys); err != nil {
			return err
		}
	}
	return nil
}

// keysOf plans the keys of a team or an application.
func (p *applyPlan) keysOf(ctx context.Context, of string, owner client.Key, exists bool, keys []declaration.Key) error {
	if len(keys) == 0 {
		return nil
	}
	now := map[string][]client.Key{} // by title
	if exists {
		for k, err := range p.api.Keys(ctx, client.KeyQuery{TeamID: owner.TeamID, AppID: owner.AppID}) {
			if err != nil {
				return err
			}
			if k.AppID == owner.AppID { // the list of a team has those of its applications
				now[k.Title] = append(now[k.Title], k)
			}
		}
	}
	for _, k := range keys {
		spec, err := p.keySpec(ctx, k)
		if err != nil {
			return err
		}
		owner.KeySpec = spec
		p.key("key "+k.Title+" of "+of, owner, k, now[k.Title])
	}
	return nil
}

// keySpec returns the settings of a key, with the names of the models that the file names by alias.
func (p *applyPlan) keySpec(ctx context.Context, k declaration.Key) (client.KeySpec, error) {
	spec := client.KeySpec{
		Title: k.Title, RPM: k.RPM, TPM: k.TPM, MaxCalls: k.MaxCalls, ServiceTiers: berth.Distinct(k.ServiceTiers), EndUsers: k.EndUsers,
		Durability: string(k.Durability), Retention: string(k.Retention), ReplaceResponses: k.ReplaceResponses, ExpiresAt: k.ExpiresAt,
	}
	for i, name := range k.Models {
		if p.models == nil {
			now, err := p.api.Routing(ctx)
			if err != nil {
				return spec, err
			}
			content, err := llm.ParseContent(fmt.Sprintf("revision %d", now.Revision), now.Content)
			if err != nil {
				return spec, fmt.Errorf("the routing of the server is of another release: %w", err)
			}
			if p.models, err = llm.NewCatalog(content.Config, llm.Settings{}); err != nil {
				return spec, err
			}
		}
		m, ok := p.models.Model(name)
		if !ok {
			p.mistake(slices.Concat(k.Path, []string{"models", fmt.Sprint(i)}), "the routing has no model %q", name)
			continue
		}
		spec.Models = append(spec.Models, m.Name)
	}
	spec.Models = berth.Distinct(spec.Models)
	return spec, nil
}

// key plans one key. now are those of its team or application with its title.
func (p *applyPlan) key(object string, want client.Key, k declaration.Key, now []client.Key) {
	id := new("")
	var changed differences
	switch len(now) {
	case 0:
	case 1:
		*id, changed = now[0].KeyID, differKeys(want.KeySpec, now[0].KeySpec)
	default:
		var ids []string
		for _, other := range now {
			ids = append(ids, other.KeyID)
		}
		p.mistake(k.Path, "the server has several keys with this title: %s; revoke all but one, or give them other titles ('berth key set')", strings.Join(ids, ", "))
		return
	}
	if unchanged := changed != nil && len(changed) == 0; !unchanged && !want.ExpiresAt.IsZero() && !want.ExpiresAt.After(p.now) {
		p.mistake(slices.Concat(k.Path, []string{"expiresAt"}), "must be in the future")
	}
	if changed == nil {
		file := p.secretTo(k)
		p.add(object, nil, func(ctx context.Context) (note string, err error) {
			note, *id, err = p.createKey(ctx, want, file)
			return note, err
		})
	} else {
		p.add(object, changed, func(ctx context.Context) (string, error) {
			return "", p.withModels(ctx, func() error { _, err := p.api.PutKey(ctx, *id, want.KeySpec); return err })
		})
	}
	p.budget(object, berth.BudgetKey, id, k.Budget)
}

func differKeys(want, now client.KeySpec) differences {
	d := differences{}
	differSets(&d, "models", want.Models, now.Models)
	differ(&d, "rpm", want.RPM, now.RPM)
	differ(&d, "tpm", want.TPM, now.TPM)
	differ(&d, "maxCalls", want.MaxCalls, now.MaxCalls)
	differSets(&d, "serviceTiers", want.ServiceTiers, now.ServiceTiers)
	differ(&d, "endUsers", want.EndUsers, now.EndUsers)
	differ(&d, "durability", want.Durability, now.Durability)
	differ(&d, "retention", want.Retention, now.Retention)
	differ(&d, "replaceResponses", want.ReplaceResponses, now.ReplaceResponses)
	differ(&d, "expiresAt", want.ExpiresAt.UnixMilli(), now.ExpiresAt.UnixMilli())
	return d
}

// createKey creates a key, and returns the line that shows its secret or the file that has it.
func (p *applyPlan) createKey(ctx context.Context, k client.Key, path string) (note, id string, err error) {
	var file secretFile
	if path != "" { // before the key, whose secret would be lost
		if file, err = newSecretFile(path); err != nil {
			return "", "", err
		}
	}
	var created client.NewKey
	err = p.withModels(ctx, func() (err error) { created, err = p.api.CreateKey(ctx, k); return err })
	if err != nil {
		if path != "" {
			file.remove()
		}
		if _, refused := errors.AsType[*client.Problem](err); !refused {
			err = fmt.Errorf("%w; the key may exist, and its secret is lost then: 'berth key list' shows it, revoke it", err)
		}
		return "", "", err
	}
	if path == "" {
		return "secret, which is shown only once: " + created.Secret, created.KeyID, nil
	}
	if err := file.write(created.Secret); err != nil {
		return "", "", errors.Join(err, p.api.RevokeKey(context.WithoutCancel(ctx), created.KeyID))
	}
	return "secret: " + path, created.KeyID, nil
}

// How long after a change of the routing all processes of the API use it.
const (
	routingDelay = 10 * time.Second
	routingRetry = 200 * time.Millisecond
)

// withModels makes a call that names models. Another process of the API than the one that has published the routing may not know them yet.
func (p *applyPlan) withModels(ctx context.Context, call func() error) error {
	for end := time.Now().Add(routingDelay); ; {
		err := call()
		unknown, ok := errors.AsType[*client.Problem](err)
		if !p.published || !ok || !strings.HasPrefix(unknown.Field, "models[") || time.Now().After(end) || !pause.For(ctx, routingRetry) {
			return err
		}
	}
}
