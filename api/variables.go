package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"

	"berth"
	"berth/client"
	"berth/internal/ledger"
	"berth/internal/template"
)

// maxTextBytes bounds one text of a request or one text asset.
const maxTextBytes = 200_000

// Variable is one value of a task's input: a text, or an asset.
type Variable struct {
	Text string
	client.AssetVariable
}

// UnmarshalJSON accepts a string or {"assetId": "…"}, which may have the kind of the asset, as responses do.
func (v *Variable) UnmarshalJSON(b []byte) error {
	if b = bytes.TrimSpace(b); len(b) > 0 && b[0] == '"' {
		return json.Unmarshal(b, &v.Text)
	}
	return json.Unmarshal(b, &v.AssetVariable)
}

// Schema describes both forms; huma validates requests with it.
func (Variable) Schema(huma.Registry) *huma.Schema {
	one := 1
	s := &huma.Schema{
		Description: `A text, or {"assetId"} of an upload or of an earlier task's text. A text that is the id of one of your assets is refused.`,
		OneOf: []*huma.Schema{
			{Type: huma.TypeString},
			{
				Type: huma.TypeObject, AdditionalProperties: false, Required: []string{"assetId"},
				Properties: map[string]*huma.Schema{
					"assetId": {Type: huma.TypeString, MinLength: &one},
					"kind":    {Type: huma.TypeString, Enum: []any{string(berth.KindTextAsset), string(berth.KindImageAsset)}, Description: "What the asset is, as responses state it; may be left out"},
				},
			},
		},
	}
	s.PrecomputeMessages()
	for _, o := range s.OneOf {
		o.PrecomputeMessages()
	}
	return s
}

// values holds a request's variables after they were checked and found to be the user's.
type values struct {
	texts  map[string]string // still to be stored
	stored map[string]string // texts of assets
	assets map[string]string // variable to asset
	files  map[string]string // variable to asset, of those that were uploaded as a file
	kinds  map[string]berth.VariableKind
	title  string // that the client gave
}

// checkValues validates the variables before anything is stored. Errors name the field.
func (s *server) checkValues(ctx context.Context, userID string, t *template.Template, vars map[string]Variable) (values, error) {
	v, err := s.readValues(ctx, userID, vars)
	if err != nil {
		return values{}, err
	}
	if err := t.CheckVariables(v.kinds); err != nil {
		return values{}, v.blameAsset(t, err)
	}
	return v, nil
}

// readValues reads the variables and the assets that they name.
func (s *server) readValues(ctx context.Context, userID string, vars map[string]Variable) (values, error) {
	v := values{
		texts: map[string]string{}, stored: map[string]string{}, assets: map[string]string{}, files: map[string]string{},
		kinds: map[string]berth.VariableKind{},
	}
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		kind := berth.KindText
		if id := vars[name].AssetID; id != "" {
			asset, err := s.assetOf(ctx, userID, name, vars[name].AssetVariable)
			if err != nil {
				return values{}, err
			}
			kind, v.assets[name] = assetKind(asset.Kind), asset.ID
			if asset.Name != "" {
				v.files[name] = asset.ID
			}
			if kind == berth.KindTextAsset {
				v.stored[name] = string(asset.Content)
			}
		} else {
			if err := cmp.Or(checkText("variables."+name, vars[name].Text), s.checkNoID(ctx, userID, "variables."+name, vars[name].Text)); err != nil {
				return values{}, err
			}
			v.texts[name] = vars[name].Text
		}
		v.kinds[name] = kind
	}
	return v, nil
}

// blameAsset changes the field of an error to the asset id when a variable's asset is of the wrong kind.
func (v values) blameAsset(t *template.Template, err error) error {
	e, ok := errors.AsType[*berth.Error](err)
	if !ok {
		return err
	}
	for _, in := range t.Variables {
		if _, given := v.assets[in.Name]; given && e.Field == "variables."+in.Name && !slices.Contains(in.Kinds(), v.kinds[in.Name]) {
			return inField(err, e.Field+".assetId")
		}
	}
	return err
}

// assetOf reads the asset of a variable. Assets of other users are reported as missing.
func (s *server) assetOf(ctx context.Context, userID, name string, ref client.AssetVariable) (berth.Asset, error) {
	field := "variables." + name + ".assetId"
	if err := berth.ValidID(field, ref.AssetID); err != nil {
		return berth.Asset{}, err
	}
	asset, err := s.namedAsset(ctx, userID, field, ref.AssetID)
	if err != nil {
		return berth.Asset{}, err
	}
	if kind := assetKind(asset.Kind); ref.Kind != "" && ref.Kind != kind {
		return berth.Asset{}, berth.Invalid("variables."+name+".kind", "the asset is a %s: correct the kind, or leave it out", kind)
	}
	if asset.Kind == berth.AssetResult && asset.MediaType != "" && !strings.HasPrefix(asset.MediaType, "text/") {
		return berth.Asset{}, berth.Invalid(field, "asset is neither a text nor an image")
	}
	return asset, nil
}

// namedAsset reads an asset that a field of a request names.
func (s *server) namedAsset(ctx context.Context, userID, field, id string) (berth.Asset, error) {
	a, err := s.Ledger.GetAsset(ctx, userID, id)
	switch berth.CodeOf(err) {
	case berth.CodeNotFound:
		return a, berth.Invalid(field, "asset not found")
	case berth.CodeErased:
		return a, berth.Invalid(field, "the content of the asset was erased; upload it again")
	default:
		return a, err
	}
}

// checkNoID rejects a text that is the id of an asset of the user: in place of its content, a model would get 54 letters.
func (s *server) checkNoID(ctx context.Context, userID, field, text string) error {
	id := strings.TrimSpace(text)
	if !ledger.IsAssetID(id) {
		return nil
	}
	_, err := s.Ledger.GetAsset(ctx, userID, id)
	if code := berth.CodeOf(err); err == nil || code == berth.CodeErased {
		return berth.Invalid(field, `is the id of one of your assets, not its content; write {"assetId": %q}`, id)
	} else if code != berth.CodeNotFound {
		return err
	}
	return nil
}

func assetKind(kind berth.AssetKind) berth.VariableKind {
	if kind == berth.AssetImage {
		return berth.KindImageAsset
	}
	return berth.KindTextAsset
}

// checkText rejects texts that are empty, too long or cannot be stored.
func checkText(field, text string) error {
	switch {
	case !strings.ContainsFunc(text, berth.Visible):
		return berth.Invalid(field, "must not be empty")
	case len(text) > maxTextBytes:
		return exceeds(field, maxTextBytes)
	case strings.ContainsRune(text, 0):
		return berth.Invalid(field, "must not contain NUL characters")
	case !utf8.ValidString(text):
		return berth.Invalid(field, "must be UTF-8")
	}
	return nil
}

// normalize brings a name in a request into its stored form.
func normalize(field string, name *string, limit int) error {
	stored, err := berth.Name(field, *name, limit)
	if err == nil {
		*name = stored
	}
	return err
}

// all returns all texts by the names of their variables.
func (v values) all() map[string]string {
	all := maps.Clone(v.texts)
	maps.Copy(all, v.stored)
	return all
}

// ids returns the ids of all assets of the variables, also of texts that are not stored yet.
func (v values) ids(userID string) map[string]string {
	ids := maps.Clone(v.assets)
	for name, text := range v.texts {
		ids[name] = ledger.AssetID(userID, berth.AssetText, []byte(text))
	}
	return ids
}

// titleAsset returns the id of the asset that the title is taken from: that of the client's title, of the first file that was uploaded, or
// of the first text, in the order of the template's variables; empty where there is none.
func (v values) titleAsset(userID string, t *template.Template) string {
	if v.title != "" {
		return ledger.AssetID(userID, berth.AssetTitle, []byte(v.title))
	}
	ids := v.ids(userID)
	text := ""
	for _, in := range t.Variables {
		if id := v.files[in.Name]; id != "" {
			return id
		}
		if kind := v.kinds[in.Name]; text == "" && (kind == berth.KindText || kind == berth.KindTextAsset) {
			text = ids[in.Name]
		}
	}
	return text
}

// store saves the title and the texts as the assets that titleAsset and ids name. It is idempotent, and called for an admitted submission only. If that is
// not accepted after all, the texts stay unused until they are deleted.
func (s *server) store(ctx context.Context, userID string, v values) error {
	put := func(kind berth.AssetKind, text string) error {
		_, err := s.Ledger.PutAsset(ctx, berth.Asset{UserID: userID, Kind: kind, MediaType: berth.TextMediaType, Content: []byte(text)})
		return err
	}
	if v.title != "" {
		if err := put(berth.AssetTitle, v.title); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(v.texts)) {
		if err := put(berth.AssetText, v.texts[name]); err != nil {
			return err
		}
	}
	return nil
}
