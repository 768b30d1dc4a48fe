package api

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"path"
	"runtime"
	"slices"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"

	"berth"
	"berth/internal/extract"
	"berth/internal/raster"
)

const (
	// manyPixels is the size of an image after which its memory is released.
	manyPixels = 4_000_000
	// bodyFactor times the limit of an upload is that of its body, which may have other parts.
	bodyFactor    = 4
	acceptedMedia = "image/png, image/jpeg, image/webp, text, and PDF, DOCX, ODT, HTML, XML and mail with text"
)

func (s *server) assetRoutes() {
	file := &huma.Schema{Type: huma.TypeString, Format: "binary", Description: "PNG, JPEG or WebP image; PDF, DOCX, ODT, HTML, XML or mail with text; or text"}
	upload := op("upload-asset", "assets", "Upload an image or a text for a task's variables",
		"The format is detected from the content. Of documents the text is stored, of texts their UTF-8 form. Images are stored upright, and "+
			"those that not every model reads as JPEG. 413 over a limit, 415 for other formats, by their name, and for files that cannot be read completely. Uploading the same content "+
			"again gives the same id, and downloads have the first name. An upload that no accepted task uses is deleted after a time.")
	upload.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"multipart/form-data": {Schema: &huma.Schema{
			Type: huma.TypeObject, Required: []string{"file"}, Properties: map[string]*huma.Schema{"file": file},
		}},
	}}
	upload.Responses = map[string]*huma.Response{"201": response("Stored", "application/json", s.schemaOf(assetView{}))}
	s.route("POST /v1/assets", forUser, s.upload, upload)
	get := op("get-asset", "assets", "Download an asset")
	get.Parameters = []*huma.Param{pathParam("id", berth.IDPattern)}
	get.Responses = map[string]*huma.Response{
		"200": response("The content with its media type", "*/*", &huma.Schema{Type: huma.TypeString, Format: "binary"}),
	}
	s.route("GET /v1/assets/{id}", forUser, s.download, get)
	registerOutput(s, "DELETE /v1/assets/{id}", forUser, s.eraseAsset, op("erase-asset", "assets", "Erase the content of an asset",
		"Tasks that had it remain without it, and the events of those that produced it are removed. 409 while a task that uses it runs. The asset then returns 410; its content can be uploaded again. "+
			"The answers that tasks derived from it remain: DELETE /v1/tasks/{id}/content erases both."))
}

// assetView is an asset without its content.
type assetView struct {
	AssetID   string          `json:"assetId"`
	Kind      berth.AssetKind `json:"kind" enum:"image,text,result"`
	MediaType string          `json:"mediaType"`
	Name      string          `json:"name,omitempty"`
	Size      int64           `json:"size" doc:"Bytes"`
	SHA256    string          `json:"sha256"`
}

func (s *server) upload(c echo.Context) error {
	name, content, err := s.readFile(c)
	if err != nil {
		return err
	}
	// A slow upload does not use up the time of what follows.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), callTimeout)
	defer cancel()
	asset, err := s.inspect(ctx, name, content)
	if err != nil {
		return err
	}
	asset.UserID, asset.Name, asset.CreatedAt = callOf(ctx).user.UserID, nameAs(name, asset.MediaType), s.Clock()
	a, err := s.Ledger.PutAsset(ctx, asset)
	if err != nil {
		return fmt.Errorf("store asset: %w", err)
	}
	c.Response().Header().Set(echo.HeaderLocation, location("/v1/assets/"+a.ID))
	return c.JSON(http.StatusCreated, assetView{
		AssetID: a.ID, Kind: a.Kind, MediaType: a.MediaType, Name: asset.Name, Size: a.Size, SHA256: a.SHA256,
	})
}

// location returns the value of Location for what a POST to /v1/… has created: relative, because a proxy may add a path prefix.
func location(path string) string { return strings.TrimPrefix(path, "/v1/") }

// nameAs returns the name of an upload, with another extension if the upload was converted.
func nameAs(name, mediaType string) string {
	switch ext := strings.ToLower(path.Ext(name)); {
	case mediaType == berth.TextMediaType && slices.Contains(documentNames, ext):
		return name + ".txt"
	case mediaType == raster.JPEG && ext == ".webp":
		return name + ".jpg"
	}
	return name
}

// documentNames are the extensions of documents of which the text is stored.
var documentNames = []string{".pdf", ".docx", ".odt", ".fodt", ".html", ".htm", ".xhtml", ".mht", ".mhtml", ".xml", ".eml", ".emlx", ".mbox"}

// inspect detects the format of an upload from its content, and returns the asset that it becomes.
func (s *server) inspect(ctx context.Context, name string, content []byte) (berth.Asset, error) {
	if len(content) == 0 {
		return berth.Asset{}, berth.Invalid("file", "must not be empty")
	}
	format := extract.Detect(content, name)
	if format.Image != "" {
		return s.imageAsset(ctx, content, format.Image)
	}
	text, err := s.documents.Text(ctx, format, content, maxTextBytes)
	if err != nil {
		return berth.Asset{}, documentError(err)
	}
	if !strings.ContainsFunc(text, berth.Visible) {
		return berth.Asset{}, berth.Invalid("file", "has no visible characters")
	}
	return berth.Asset{Kind: berth.AssetText, MediaType: berth.TextMediaType, Size: int64(len(text)), Content: []byte(text)}, nil
}

// documentError translates an error of reading a text.
func documentError(err error) error {
	switch {
	case errors.Is(err, extract.ErrNoTool):
		return berth.Errorf(berth.CodeUnavailable,
			"this server cannot read PDF files, because pdftotext is not installed on it; upload the text instead").With(err)
	case errors.Is(err, extract.ErrNoLanguageData):
		return berth.Errorf(berth.CodeUnavailable,
			"this server cannot read the characters of this PDF file, because poppler-data is not installed on it; upload the text instead").With(err)
	case errors.Is(err, extract.ErrTooLong):
		return errorIn("file", berth.CodeTooLarge, "the text of the file exceeds the limit of %s", sizeText(maxTextBytes)).With(err)
	case errors.Is(err, extract.ErrUnknown):
		return unsupported("%s; accepted are %s", extract.ErrUnknown, acceptedMedia).With(err)
	}
	if reason, ok := errors.AsType[extract.Reason](err); ok {
		return unsupported("%s", reason).With(err)
	}
	return fmt.Errorf("read document: %w", err)
}

// imageAsset returns an image as an asset. It is decoded, because a model's provider would refuse a damaged one only later.
func (s *server) imageAsset(ctx context.Context, content []byte, mediaType string) (berth.Asset, error) {
	img, err := raster.Open(content, mediaType)
	if err != nil {
		return berth.Asset{}, imageError(err)
	}
	pixels := img.Pixels()
	if err := s.decoding.Acquire(ctx, pixels); err != nil {
		return berth.Asset{}, err
	}
	defer s.decoding.Release(pixels)
	if pixels > manyPixels {
		defer runtime.GC() // otherwise the next image would be decoded beside this one, which is no longer used
	}
	content, mediaType, err = img.Prepare()
	if err != nil {
		return berth.Asset{}, imageError(err)
	}
	if int64(len(content)) > s.Config.MaxUploadBytes {
		return berth.Asset{}, errorIn("file", berth.CodeTooLarge, "the image exceeds the limit of %s once it is converted", sizeText(s.Config.MaxUploadBytes))
	}
	return berth.Asset{Kind: berth.AssetImage, MediaType: mediaType, Size: int64(len(content)), Content: content}, nil
}

// imageError translates an error of reading an image.
func imageError(err error) error {
	if large, ok := errors.AsType[raster.TooLarge](err); ok {
		return errorIn("file", berth.CodeTooLarge, "%s", large).With(err)
	}
	if reason, ok := errors.AsType[raster.Reason](err); ok {
		return unsupported("%s", reason).With(err)
	}
	return err
}

func unsupported(format string, args ...any) *berth.Error {
	return errorIn("file", berth.CodeUnsupportedMedia, format, args...)
}

// download sends an asset with headers that keep browsers from rendering it as a page.
func (s *server) download(c echo.Context) error {
	if err := berth.ValidID("id", c.Param("id")); err != nil {
		return err
	}
	ctx := c.Request().Context()
	a, err := s.Ledger.GetAsset(ctx, callOf(ctx).user.UserID, c.Param("id"))
	if err != nil {
		return fmt.Errorf("read asset: %w", err)
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentSecurityPolicy, "sandbox; default-src 'none'; frame-ancestors 'none'")
	disposition := "attachment"
	if a.Kind == berth.AssetImage {
		disposition = "inline"
	}
	if v := mime.FormatMediaType(disposition, map[string]string{"filename": downloadName(a)}); v != "" {
		disposition = v
	}
	h.Set(echo.HeaderContentDisposition, disposition)
	return c.Blob(http.StatusOK, a.MediaType, a.Content)
}

type assetInput struct {
	ID string `path:"id" pattern:"^[A-Za-z0-9_.@-]{1,128}$"`
}

func (s *server) eraseAsset(ctx context.Context, in *assetInput) (*struct{}, error) {
	producers, err := s.Ledger.EraseAsset(ctx, callOf(ctx).user.UserID, in.ID)
	if err != nil {
		return nil, err
	}
	for _, t := range producers {
		if err := s.dropEvents(ctx, t); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func downloadName(a berth.Asset) string {
	if a.Name != "" && a.Kind != berth.AssetResult {
		return a.Name
	}
	return a.ID
}
