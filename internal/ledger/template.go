package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"berth"
)

// TemplateSource is where a version of a template comes from.
type TemplateSource string

// The sources of versions.
const (
	TemplateBuiltIn   TemplateSource = "builtin"
	TemplateDirectory TemplateSource = "directory"
	TemplateAPI       TemplateSource = "api"
)

// TemplateVersion is one content of a template, which never changes.
type TemplateVersion struct {
	Template  berth.Template
	Version   string
	Files     map[string]string // by name; empty in lists
	Source    TemplateSource
	CreatedAt time.Time
	CreatedBy string // the operator; empty for a process
}

// TemplateState is which version of a template new tasks use.
type TemplateState struct {
	Template berth.Template
	Version  string
	// Source is where the version comes from.
	Source TemplateSource
	// Deleted: new tasks are refused. Accepted ones keep their versions.
	Deleted   bool
	ChangedAt time.Time
	ChangedBy string // the operator; empty for a process
	// changes counts the changes of the row.
	changes int64
}

var templateVersionColumns = columns[TemplateVersion]{
	{"template", func(v *TemplateVersion) any { return &v.Template }},
	{"version", func(v *TemplateVersion) any { return &v.Version }},
	{"source", func(v *TemplateVersion) any { return &v.Source }},
	{"created_at", func(v *TemplateVersion) any { return storedTime{&v.CreatedAt} }},
	{"created_by", func(v *TemplateVersion) any { return &v.CreatedBy }},
}

var templateColumns = columns[TemplateState]{
	{"template", func(s *TemplateState) any { return &s.Template }},
	{"version", func(s *TemplateState) any { return &s.Version }},
	{"(SELECT source FROM template_versions v WHERE v.template = templates.template AND v.version = templates.version)", func(s *TemplateState) any { return &s.Source }},
	{"deleted", func(s *TemplateState) any { return &s.Deleted }},
	{"changed_at", func(s *TemplateState) any { return storedTime{&s.ChangedAt} }},
	{"changed_by", func(s *TemplateState) any { return &s.ChangedBy }},
	{"changes", func(s *TemplateState) any { return &s.changes }},
}

var (
	insertTemplateVersion = `INSERT INTO template_versions (template, version, source, created_at, created_by, used_at, files)
		VALUES ($1, $2, $3, $4, $5, $4, $6) ON CONFLICT (template, version) DO NOTHING`
	activateTemplate = `INSERT INTO templates (template, version, deleted, changed_at, changed_by, changes) VALUES ($1, $2, $5, $3, $4, 1)
		ON CONFLICT (template) DO UPDATE SET version = excluded.version, deleted = excluded.deleted, changed_at = excluded.changed_at,
			changed_by = excluded.changed_by, changes = templates.changes + 1`
	markTemplateOffered    = `UPDATE template_versions SET used_at = $3 WHERE template = $1 AND version = $2 AND used_at < $3`
	selectTemplates        = `SELECT ` + templateColumns.names("") + ` FROM templates`
	selectTemplateVersions = `SELECT ` + templateVersionColumns.names("") + ` FROM template_versions`
)

// OfferedTemplate is the outcome of offering a version that a process has.
type OfferedTemplate struct {
	Template  berth.Template
	Version   string
	Created   bool          // it was not stored before
	Activated bool          // new tasks use it from now on
	Before    TemplateState // the zero value if the template is new
}

// OfferTemplates stores versions that a process has, those of its binary or of a directory, and activates those that no process has had
// before: processes of two releases that run side by side do not alternate between their versions. What an operator has deleted stays
// deleted; what was deleted because its files were removed returns with them. A binary does not replace a version that an operator has
// activated, or that comes from elsewhere. changed: the directory has just got these versions, so that known ones are activated as well, unless
// an operator has activated the present one. It returns those that were new or became active.
func (l *Ledger) OfferTemplates(ctx context.Context, versions []TemplateVersion, changed bool) (offered []OfferedTemplate, err error) {
	known, err := l.knownTemplates(ctx)
	if err != nil {
		return nil, err
	}
	var rare []templateID
	for _, v := range versions {
		found, stored := known[templateID{v.Template, v.Version}]
		if stored && !changed && !found.withdrawn {
			if found.usedAt.Before(time.Now().Add(-offeredEvery)) {
				rare = append(rare, found.templateID)
			}
			continue
		}
		o := OfferedTemplate{Template: v.Template, Version: v.Version}
		o.Created, err = l.storeTemplate(ctx, v, func(now TemplateState, created bool) bool {
			o.Before = now
			own := now.ChangedBy == "" // no operator has decided
			switch {
			case now.Template == "":
				o.Activated = created || changed
			case now.Deleted:
				o.Activated = own && v.Source == TemplateDirectory
			case v.Source == TemplateBuiltIn:
				o.Activated = created && own && now.Source == TemplateBuiltIn
			default:
				o.Activated = created || changed && own
			}
			o.Activated = o.Activated && (now.Deleted || now.Version != v.Version)
			return o.Activated
		})
		if err != nil {
			return offered, err
		}
		if o.Created || o.Activated {
			offered = append(offered, o)
		}
	}
	return offered, l.keepTemplates(ctx, rare)
}

// keepTemplates makes the retention keep versions that processes have: one that it removed would be new, and become active, at the next start.
func (l *Ledger) keepTemplates(ctx context.Context, versions []templateID) error {
	if len(versions) == 0 {
		return nil
	}
	return l.inTx(ctx, "keep template versions", func(tx *sql.Tx) error {
		for _, v := range versions {
			if _, err := tx.ExecContext(ctx, markTemplateOffered, v.template, v.version, time.Now().Add(-2*replacedWithin).UnixMilli()); err != nil {
				return err
			}
		}
		return nil
	})
}

type templateID struct {
	template berth.Template
	version  string
}

// knownTemplate is a stored version.
type knownTemplate struct {
	templateID

	usedAt    time.Time
	withdrawn bool // its template was deleted because its files were removed
}

func (l *Ledger) knownTemplates(ctx context.Context) (map[templateID]knownTemplate, error) {
	rows, err := list(ctx, l, "list template versions", func(k *knownTemplate) []any {
		return []any{&k.template, &k.version, storedTime{&k.usedAt}, &k.withdrawn}
	}, `SELECT v.template, v.version, v.used_at, COALESCE(t.deleted AND t.changed_by = '', FALSE)
		FROM template_versions v LEFT JOIN templates t ON t.template = v.template`)
	known := make(map[templateID]knownTemplate, len(rows))
	for _, k := range rows {
		known[k.templateID] = k
	}
	return known, err
}

// WithdrawTemplate deletes a template whose files were removed from a directory, or returns to the version of the binary; "" if it has none.
// It changes nothing unless new tasks use that version of the directory, and no operator has activated it. It returns the state.
func (l *Ledger) WithdrawTemplate(ctx context.Context, name berth.Template, version, builtin string) (state TemplateState, withdrawn bool, err error) {
	err = l.inTx(ctx, "withdraw template", func(tx *sql.Tx) error {
		now, err := l.lockTemplate(ctx, tx, name)
		if state = now; err != nil {
			return err
		}
		if withdrawn = now.Version == version && !now.Deleted && now.ChangedBy == ""; !withdrawn {
			return nil
		}
		next := TemplateState{Template: name, Version: version, Deleted: true}
		if builtin != "" && builtin != version {
			found, err := hasTemplate(ctx, tx, name, builtin)
			if err != nil {
				return err
			}
			if found {
				next.Version, next.Deleted = builtin, false
			}
		}
		state.Version, state.Deleted = next.Version, next.Deleted
		return activate(ctx, tx, now, next)
	})
	return state, withdrawn, err
}

// PutTemplate stores a version of an operator and, if it is asked to, activates it, also if it was stored before. created: it was not.
func (l *Ledger) PutTemplate(ctx context.Context, v TemplateVersion, activate bool) (created bool, err error) {
	return l.storeTemplate(ctx, v, func(TemplateState, bool) bool { return activate })
}

// storeTemplate stores a version, and activates it if the state of the template, zero for a new one, permits it.
func (l *Ledger) storeTemplate(ctx context.Context, v TemplateVersion, permits func(now TemplateState, created bool) bool) (created bool, err error) {
	err = l.inTx(ctx, "store template", func(tx *sql.Tx) error {
		now, err := l.lockTemplate(ctx, tx, v.Template)
		if err != nil {
			return err
		}
		by := plain(v.CreatedBy)
		res, err := tx.ExecContext(ctx, insertTemplateVersion, v.Template, v.Version, v.Source, time.Now().UnixMilli(), by, storedJSON{v.Files})
		if err != nil {
			return err
		}
		n, err := res.RowsAffected()
		if err != nil {
			return err
		}
		created = n > 0
		if !permits(now, created) {
			return nil
		}
		return activate(ctx, tx, now, TemplateState{Template: v.Template, Version: v.Version, ChangedBy: by})
	})
	return created, err
}

// lockTemplate returns the state of a template, the zero value for an unknown one.
func (l *Ledger) lockTemplate(ctx context.Context, tx *sql.Tx, name berth.Template) (TemplateState, error) {
	state, err := scan(tx.QueryRowContext(ctx, selectTemplates+` WHERE template = $1`+l.dialect.forUpdate, plain(string(name))), templateColumns.fields)
	if errors.Is(err, sql.ErrNoRows) {
		return TemplateState{}, nil
	}
	return state, err
}

// activate changes the state of a template, unless it is that already. used_at keeps the version that it replaces for a time, to which one
// may return.
func activate(ctx context.Context, tx *sql.Tx, now, next TemplateState) error {
	if now.Template == next.Template && now.Version == next.Version && now.Deleted == next.Deleted && now.ChangedBy == next.ChangedBy {
		return nil
	}
	at := time.Now().UnixMilli()
	if _, err := tx.ExecContext(ctx, `UPDATE template_versions SET used_at = $1 WHERE template = $2 AND version IN ($3, $4)`,
		at, next.Template, now.Version, next.Version); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, activateTemplate, next.Template, next.Version, at, next.ChangedBy, next.Deleted)
	return err
}

// ActivateTemplate makes a stored version that of new tasks; CodeNotFound for an unknown one.
func (l *Ledger) ActivateTemplate(ctx context.Context, name berth.Template, version, by string) error {
	unknown := berth.Errorf(berth.CodeNotFound, "template %s has no version %s", name, version)
	if !storableID(string(name)) || !storableID(version) {
		return unknown
	}
	return l.inTx(ctx, "activate template", func(tx *sql.Tx) error {
		now, err := l.lockTemplate(ctx, tx, name)
		if err != nil {
			return err
		}
		found, err := hasTemplate(ctx, tx, name, version)
		switch {
		case err != nil:
			return err
		case !found:
			return unknown
		}
		return activate(ctx, tx, now, TemplateState{Template: name, Version: version, ChangedBy: plain(by)})
	})
}

func hasTemplate(ctx context.Context, tx *sql.Tx, name berth.Template, version string) (bool, error) {
	var found int
	err := tx.QueryRowContext(ctx, `SELECT count(*) FROM template_versions WHERE template = $1 AND version = $2`, name, version).Scan(&found)
	return found > 0, err
}

// DeleteTemplate makes new tasks of a template refused; CodeNotFound for an unknown one, CodeConflict for one that an operator has deleted.
func (l *Ledger) DeleteTemplate(ctx context.Context, name berth.Template, by string) error {
	return l.inTx(ctx, "delete template", func(tx *sql.Tx) error {
		now, err := l.lockTemplate(ctx, tx, name)
		switch {
		case err != nil:
			return err
		case now.Template == "":
			return berth.Errorf(berth.CodeNotFound, "template %s not found", name)
		case now.Deleted && now.ChangedBy != "":
			return berth.Errorf(berth.CodeConflict, "template %s is already deleted, by %s; activate a version to restore it", name, now.ChangedBy)
		}
		return activate(ctx, tx, now, TemplateState{Template: now.Template, Version: now.Version, Deleted: true, ChangedBy: plain(by)})
	})
}

// Templates returns all templates by name, deleted ones included.
func (l *Ledger) Templates(ctx context.Context) ([]TemplateState, error) {
	return list(ctx, l, "list templates", templateColumns.fields, selectTemplates+` ORDER BY template`)
}

// TemplateChanges returns a number that rises with each change of what Templates returns.
func (l *Ledger) TemplateChanges(ctx context.Context) (int64, error) {
	return find(ctx, l, "count template changes", value[int64], `SELECT CAST(COALESCE(sum(changes), 0) AS BIGINT) FROM templates`)
}

// TemplateVersion returns a version with its files; CodeNotFound for an unknown one.
func (l *Ledger) TemplateVersion(ctx context.Context, name berth.Template, version string) (TemplateVersion, error) {
	v, err := find(ctx, l, "read template", templateFiles,
		`SELECT `+templateVersionColumns.names("")+`, files FROM template_versions WHERE template = $1 AND version = $2`, string(name), version)
	if err != nil {
		return TemplateVersion{}, fmt.Errorf("template %s, version %s: %w", name, version, err)
	}
	return v, nil
}

// templateFiles are the fields of a version with its files.
func templateFiles(v *TemplateVersion) []any {
	return append(templateVersionColumns.fields(v), storedJSON{&v.Files})
}

// TemplateVersions returns a page of the versions of a template, the newest first.
func (l *Ledger) TemplateVersions(ctx context.Context, name berth.Template, cursor string, limit int) ([]TemplateVersion, string, error) {
	at, version := time.Now().Add(24*time.Hour).UnixMilli(), ""
	p := pageBehind(cursor, limit, &at, &version)
	p.text("template", string(name))
	return listPage(ctx, l, p, "list template versions", templateVersionColumns.fields, selectTemplateVersions+` WHERE `,
		`(created_at, version) < ($1, $2) ORDER BY created_at DESC, version DESC LIMIT $3`,
		func(v TemplateVersion) []any { return []any{millis(v.CreatedAt), v.Version} })
}

// offeredEvery is how often the row of a version that processes have is written.
const offeredEvery = 24 * time.Hour

// replacedWithin is how long after a version was replaced another process may still accept tasks with it.
const replacedWithin = time.Minute

// OpenTemplateVersions returns which versions open tasks use, and those that new tasks used until a moment ago.
func (l *Ledger) OpenTemplateVersions(ctx context.Context) ([]TemplateVersion, error) {
	return list(ctx, l, "list open templates", func(v *TemplateVersion) []any { return []any{&v.Template, &v.Version} },
		`SELECT template, template_version FROM tasks WHERE ended_at = 0 UNION SELECT template, version FROM template_versions WHERE used_at > $1`,
		time.Now().Add(-replacedWithin).UnixMilli())
}

// deleteTemplateVersions removes versions that new tasks have not used since a time and that no task has.
const deleteTemplateVersions = `DELETE FROM template_versions WHERE (template, version) IN (SELECT v.template, v.version FROM template_versions v
	WHERE v.used_at < $1
	AND NOT EXISTS (SELECT 1 FROM templates t WHERE t.template = v.template AND t.version = v.version)
	AND NOT EXISTS (SELECT 1 FROM tasks t WHERE t.template = v.template AND t.template_version = v.version)
	ORDER BY v.used_at LIMIT CAST($2 AS BIGINT)) AND used_at < $1`
