package identity

import (
	"cmp"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-jose/go-jose/v4"
	"github.com/golang-jwt/jwt/v5"
)

// publicKeyMethods are the accepted algorithms of a provider's tokens.
var publicKeyMethods = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

// minRSABits is the minimum size of an RSA key (RFC 7518, section 3.3).
const minRSABits = 2048

// keySet is the public keys of a provider. It is immutable; a nil one is empty.
type keySet struct {
	keys []jose.JSONWebKey
	// unused describes the other keys with the reasons, faulty those of them that may be meant for tokens.
	unused, faulty []string
}

// parseKeys decodes a JWK set (RFC 7517). Keys of other kinds and for other uses are left out: a provider may publish keys that
// only others need.
func parseKeys(document []byte) (*keySet, error) {
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("decode JWK set: %w", err)
	}
	set := &keySet{}
	for i, raw := range doc.Keys {
		var stated struct {
			ID  any    `json:"kid"`
			Use string `json:"use"`
			Alg string `json:"alg"`
		}
		_ = json.Unmarshal(raw, &stated) // the key's own decoder returns the error
		name := fmt.Sprint("key ", i+1)
		if stated.ID != nil {
			name = fmt.Sprintf("%.100q", fmt.Sprint(stated.ID))
		}
		if stated.Use != "" && stated.Use != "sig" || strings.HasPrefix(stated.Alg, "RSA-OAEP") || strings.HasPrefix(stated.Alg, "ECDH-ES") {
			set.unused = append(set.unused, fmt.Sprintf("%s is for encryption (use %q, alg %q)", name, stated.Use, stated.Alg))
			continue
		}
		k, err := parseKey(raw)
		if err == nil {
			set.keys = append(set.keys, k)
			continue
		}
		reason := fmt.Sprintf("%s: %s", name, err)
		set.unused = append(set.unused, reason)
		if !errors.Is(err, errOtherKind) {
			set.faulty = append(set.faulty, reason)
		}
	}
	return set, nil
}

// errOtherKind is the error of a key that verifies no accepted algorithm.
var errOtherKind = errors.New("its kind is not one that tokens are verified with")

// numbers makes base64url without padding of what base64 has.
var numbers = strings.NewReplacer("=", "", "+", "-", "/", "_")

// parseKey decodes a key. Certificates beside it are ignored, and so is what is wrong with them.
func parseKey(raw []byte) (k jose.JSONWebKey, err error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return k, fmt.Errorf("decode JWK: %w", err)
	}
	var kind string
	if err := json.Unmarshal(fields["kty"], &kind); err != nil || !slices.Contains([]string{"RSA", "EC", "OKP"}, kind) {
		return k, errOtherKind
	}
	for _, name := range []string{"n", "e", "x", "y"} { // some providers pad the numbers, or use the other alphabet
		var number string
		if json.Unmarshal(fields[name], &number) == nil {
			fields[name], _ = json.Marshal(numbers.Replace(number)) // a text can be encoded
		}
	}
	maps.DeleteFunc(fields, func(name string, _ json.RawMessage) bool { return strings.HasPrefix(name, "x5") })
	if raw, err = json.Marshal(fields); err != nil {
		return k, fmt.Errorf("decode JWK: %w", err)
	}
	if err := k.UnmarshalJSON(raw); err != nil {
		return k, err
	}
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		if n := key.N.BitLen(); n < minRSABits {
			return k, fmt.Errorf("an RSA key of %d bits; at least %d are required", n, minRSABits)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return k, errOtherKind
	}
	return k, nil
}

// matching returns the keys that can have signed the token, of the kind of its algorithm: those of its key id, those without an id, or all
// where the token has none.
func (s *keySet) matching(t *jwt.Token) jwt.VerificationKeySet {
	var set jwt.VerificationKeySet
	if s == nil {
		return set
	}
	id, _ := t.Header["kid"].(string)
	for _, k := range s.keys {
		if (id == "" || k.KeyID == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == t.Method.Alg()) && fits(k.Key, t.Method) {
			set.Keys = append(set.Keys, k.Key)
		}
	}
	return set
}

// named reports whether there are keys with the key id of the token.
func (s *keySet) named(t *jwt.Token) bool {
	id, _ := t.Header["kid"].(string)
	return s != nil && id != "" && slices.ContainsFunc(s.keys, func(k jose.JSONWebKey) bool { return k.KeyID == id })
}

// fits reports whether a key is of the kind that the method needs.
func fits(key any, method jwt.SigningMethod) bool {
	switch m := method.(type) {
	case *jwt.SigningMethodRSA, *jwt.SigningMethodRSAPSS:
		_, ok := key.(*rsa.PublicKey)
		return ok
	case *jwt.SigningMethodECDSA:
		k, ok := key.(*ecdsa.PublicKey)
		return ok && k.Curve.Params().BitSize == m.CurveBits
	case *jwt.SigningMethodEd25519:
		_, ok := key.(ed25519.PublicKey)
		return ok
	}
	return false
}

// ids lists the key ids; a key without one has its number.
func (s *keySet) ids() []string {
	if s == nil {
		return nil
	}
	ids := make([]string, len(s.keys))
	for i, k := range s.keys {
		ids[i] = cmp.Or(k.KeyID, fmt.Sprint("key ", i+1))
	}
	slices.Sort(ids)
	return ids
}
