package api

import (
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"
	commonpb "go.temporal.io/api/common/v1"
	"google.golang.org/protobuf/encoding/protojson"

	"berth"
	"berth/internal/payload"
)

// codecPath is the decoder of Temporal's remote codec protocol. The UI's setting for a codec endpoint is this path without
// "/decode".
const codecPath = "/v1/codec/decode"

// codecRoute registers the decoder. There is no encoder: only berth's processes encrypt.
func (s *server) codecRoute() {
	payloads := &huma.Schema{
		Type: huma.TypeObject, Description: "temporal.api.common.v1.Payloads as Protobuf JSON",
		Properties: map[string]*huma.Schema{"payloads": {Type: huma.TypeArray, Items: &huma.Schema{
			Type: huma.TypeObject,
			Properties: map[string]*huma.Schema{
				"metadata": {Type: huma.TypeObject, AdditionalProperties: &huma.Schema{Type: huma.TypeString, Format: "byte"}},
				"data":     {Type: huma.TypeString, Format: "byte"},
			},
		}}},
	}
	decode := op("decode-payloads", "operations", "Decrypt payloads of Temporal",
		"Temporal's remote codec protocol, for its UI and command line: set their codec endpoint to `/v1/codec` of this API. ",
		"Payloads that are not encrypted are returned unchanged. The origin of the Temporal UI may call this route.")
	decode.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: payloads}}}
	decode.Responses = map[string]*huma.Response{"200": response("The payloads in the same order", "application/json", payloads)}
	s.route("POST "+codecPath, forOperator, s.decodePayloads, decode)
}

func (s *server) decodePayloads(c echo.Context) error {
	if err := s.readBody(c); err != nil {
		return err
	}
	body, err := io.ReadAll(c.Request().Body)
	if err != nil {
		return bodyError(err)
	}
	var in commonpb.Payloads
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(body, &in); err != nil {
		return berth.Invalid("payloads", "must be temporal.api.common.v1.Payloads as Protobuf JSON").With(err)
	}
	decoded, err := payload.NewCodec(s.Config.PayloadKeys).Decode(in.GetPayloads())
	if err != nil {
		return berth.Invalid("payloads", "%s", err)
	}
	out, err := protojson.Marshal(&commonpb.Payloads{Payloads: decoded})
	if err != nil {
		return fmt.Errorf("serialize payloads: %w", err)
	}
	return c.JSONBlob(http.StatusOK, out)
}

// codecOrigin lets pages of the Temporal UI call the decoder. It is called before the token is checked, because a browser
// sends none with its preflight request and hides an error that has no such header.
func (s *server) codecOrigin(next echo.HandlerFunc) echo.HandlerFunc {
	var allowed string
	if u, err := url.Parse(s.Config.TemporalUIURL); err == nil && u.Host != "" {
		allowed = u.Scheme + "://" + u.Host
	}
	return func(c echo.Context) error {
		req, h := c.Request(), c.Response().Header()
		if req.URL.Path != codecPath {
			return next(c)
		}
		h.Add(echo.HeaderVary, echo.HeaderOrigin)
		if allowed == "" || req.Header.Get(echo.HeaderOrigin) != allowed {
			return next(c)
		}
		h.Set(echo.HeaderAccessControlAllowOrigin, allowed)
		if req.Method != http.MethodOptions {
			return next(c)
		}
		h.Set(echo.HeaderAccessControlAllowMethods, http.MethodPost)
		h.Set(echo.HeaderAccessControlAllowHeaders, "authorization, authorization-extras, content-type, x-namespace")
		h.Set(echo.HeaderAccessControlMaxAge, "600")
		return c.NoContent(http.StatusNoContent)
	}
}
