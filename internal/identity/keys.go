package identity

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
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
type keySet struct{ keys []jose.JSONWebKey }

// parseKeys decodes a JWK set (RFC 7517). Keys of other kinds and for other uses are ignored: a provider may publish keys that
// only others need.
func parseKeys(document []byte) (*keySet, error) {
	var doc struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.Unmarshal(document, &doc); err != nil {
		return nil, fmt.Errorf("decode JWK set: %w", err)
	}
	set := &keySet{}
	for _, raw := range doc.Keys {
		var k jose.JSONWebKey
		if k.UnmarshalJSON(raw) == nil && (k.Use == "" || k.Use == "sig") && verifies(k.Key) {
			set.keys = append(set.keys, k)
		}
	}
	if len(set.keys) == 0 {
		return nil, errors.New("the JWK set has no public key for signatures")
	}
	return set, nil
}

func verifies(key any) bool {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return k.N.BitLen() >= minRSABits
	case *ecdsa.PublicKey, ed25519.PublicKey:
		return true
	}
	return false
}

// matching returns the keys that can have signed the token: those of its key id, or all where it has none, of the kind of its
// algorithm.
func (s *keySet) matching(t *jwt.Token) jwt.VerificationKeySet {
	var set jwt.VerificationKeySet
	if s == nil {
		return set
	}
	id, _ := t.Header["kid"].(string)
	for _, k := range s.keys {
		if (id == "" || k.KeyID == id) && (k.Algorithm == "" || k.Algorithm == t.Method.Alg()) && fits(k.Key, t.Method) {
			set.Keys = append(set.Keys, k.Key)
		}
	}
	return set
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

// ids lists the key ids, for the log.
func (s *keySet) ids() string {
	if s == nil {
		return ""
	}
	ids := make([]string, len(s.keys))
	for i, k := range s.keys {
		ids[i] = k.KeyID
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}
