package node

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"berth"
	"berth/internal/secret"
	"berth/internal/webhook"
)

// newSigner returns what signs calls, nil where no secret is configured.
func (f HTTPFlags) newSigner() (*webhook.Signer, error) {
	from := secret.NewLines("BERTH_NODE_HTTP_SECRET", strings.Join(secret.Strings(f.HTTPSecrets), ","), f.HTTPSecretFile)
	if !from.IsSet() {
		return nil, nil
	}
	return webhook.NewSigner(from)
}

// sign signs a request, unless the driver has no secrets.
func (h *HTTP) sign(req *http.Request, id string, body []byte) error {
	if h.signer == nil {
		return nil
	}
	if err := h.signer.Sign(req.Header, id, body); err != nil {
		return berth.Errorf(berth.CodeNodeFailed, "the call to the endpoint cannot be signed").With(err)
	}
	return nil
}

// messageID returns the id of the message about one dispatch of a job or attempt of an execution. It has no dots, which separate the parts
// that are signed.
func messageID(id string, attempt int) string {
	sum := sha256.Sum256([]byte(id + "\n" + strconv.Itoa(attempt)))
	return "msg_" + hex.EncodeToString(sum[:16])
}
