package node

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"berth"
	"berth/internal/webhook"
)

// signer returns what signs a call: nil where no secret is configured. A file is read for each call, so that its secrets can be replaced.
func (f HTTPFlags) signer() (func() (*webhook.Signer, error), error) {
	var source func() ([]string, error)
	setting := "--http-secret (BERTH_NODE_HTTP_SECRET)"
	switch {
	case f.HTTPSecretFile == "" && len(f.HTTPSecrets) == 0:
		return nil, nil
	case f.HTTPSecretFile != "" && len(f.HTTPSecrets) > 0:
		return nil, errors.New("--http-secret, --http-secret-file: set only one of them")
	case f.HTTPSecretFile != "":
		setting = "--http-secret-file (BERTH_NODE_HTTP_SECRET_FILE)"
		source = func() ([]string, error) {
			b, err := os.ReadFile(f.HTTPSecretFile)
			if err != nil {
				return nil, err
			}
			return strings.Fields(string(b)), nil
		}
	default:
		source = func() ([]string, error) { return f.HTTPSecrets, nil }
	}
	signer := func() (*webhook.Signer, error) {
		secrets, err := source()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
		s, err := webhook.NewSigner(secrets)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", setting, err)
		}
		return s, nil
	}
	_, err := signer()
	return signer, err
}

// sign signs a request, unless the driver has no secrets.
func (h *HTTP) sign(req *http.Request, id string, body []byte) error {
	if h.signer == nil {
		return nil
	}
	signer, err := h.signer()
	if err != nil {
		return berth.Errorf(berth.CodeNodeFailed, "the call to the endpoint cannot be signed").With(err)
	}
	return signer.Sign(req.Header, id, body)
}

// messageID returns the id of the message about one dispatch of a job or attempt of an execution. It has no dots, which separate the parts
// that are signed.
func messageID(id string, attempt int) string {
	sum := sha256.Sum256([]byte(id + "\n" + strconv.Itoa(attempt)))
	return "msg_" + hex.EncodeToString(sum[:16])
}
