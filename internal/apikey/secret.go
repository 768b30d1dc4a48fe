// Package apikey makes the secrets of API keys and finds the keys of those that requests present.
package apikey

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"
)

const (
	// Prefix distinguishes secrets from other tokens, for programs that search texts for secrets as well.
	Prefix = "sk-berth-"
	// secretBytes are random: too many to guess, so that a hash without a salt protects the secret.
	secretBytes = 32
	hintLength  = 4
)

// NewSecret returns a new secret: 43 random characters of base64url behind the prefix.
func NewSecret() string {
	var b [secretBytes]byte
	_, _ = rand.Read(b[:]) // never fails: see crypto/rand
	return Prefix + base64.RawURLEncoding.EncodeToString(b[:])
}

// Is reports whether a token is meant as the secret of an API key, rather than as a token of an identity provider.
func Is(token string) bool { return strings.HasPrefix(token, Prefix) }

// Hash returns the form in which a secret is stored.
func Hash(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Hint returns the end of a secret, by which its holder recognises it.
func Hint(secret string) string { return secret[max(0, len(secret)-hintLength):] }

// complete reports whether a secret has the form of NewSecret.
func complete(secret string) bool {
	b, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(secret, Prefix))
	return Is(secret) && err == nil && len(b) == secretBytes
}
