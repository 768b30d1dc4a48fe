package api

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	_ "image/png" // decoders of what an upload may be
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"path"
	"runtime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
	"github.com/labstack/echo/v4"
	_ "golang.org/x/image/webp" // as above

	"berth"
	"berth/internal/extract"
)

const (
	// maxPixels bounds an image, and all images that are decoded at the same time: a few bytes can claim to be gigabytes once decoded,
	// and a pixel needs up to 16 bytes. After an image of manyPixels its memory is released.
	maxPixels  = 40_000_000
	manyPixels = 4_000_000
	maxSide    = 20_000
	// bodyFactor times the limit of an upload is that of its body, which may have other parts.
	bodyFactor    = 4
	acceptedMedia = "image/png, image/jpeg, image/webp, PDF and DOCX with text, or text in UTF-8"
	// maxWebPPixels bounds a WebP image further, because it is converted. jpegQuality keeps small text legible.
	maxWebPPixels = 16_000_000
	jpegQuality   = 92
)

func (s *server) assetRoutes() {
	file := &huma.Schema{Type: huma.TypeString, Format: "binary", Description: "PNG, JPEG or WebP image, PDF or DOCX with text, or text in UTF-8"}
	upload := op("upload-asset", "assets", "Upload an image or a text for a task's variables",
		"The media type is detected from the content. Of PDF and DOCX files the text is stored, and WebP images are stored as "+
			"JPEG, because not every model reads them. 413 over the size limit, 415 for other kinds and for damaged files. Uploading the same content "+
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
	name, declared, content, err := s.readFile(c)
	if err != nil {
		return err
	}
	// A slow upload does not use up the time of what follows.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Request().Context()), callTimeout)
	defer cancel()
	asset, err := s.inspect(ctx, content)
	if err != nil {
		return err
	}
	if strings.HasPrefix(declared, "image/") && asset.Kind != berth.AssetImage {
		return unsupported("the file is declared as %s but contains text", declared)
	}
	asset.UserID, asset.Name, asset.CreatedAt = callOf(ctx).user.UserID, nameAs(name, asset.MediaType), s.Clock()
	a, err := s.Ledger.PutAsset(ctx, asset)
	if err != nil {
		return fmt.Errorf("store asset: %w", err)
	}
	c.Response().Header().Set(echo.HeaderLocation, "/v1/assets/"+a.ID)
	return c.JSON(http.StatusCreated, assetView{
		AssetID: a.ID, Kind: a.Kind, MediaType: a.MediaType, Name: asset.Name, Size: a.Size, SHA256: a.SHA256,
	})
}

// readFile returns the part "file" of a multipart body with its declared type. It buffers no more than the limit.
func (s *server) readFile(c echo.Context) (name, declared string, content []byte, err error) {
	limit, req := s.Config.MaxUploadBytes, c.Request()
	if mt, _, err := mime.ParseMediaType(req.Header.Get(echo.HeaderContentType)); err != nil || mt != "multipart/form-data" {
		return "", "", nil, errorIn(echo.HeaderContentType, berth.CodeUnsupportedMedia, "must be multipart/form-data, with the part file")
	}
	if req.ContentLength > bodyFactor*limit {
		return "", "", nil, exceeds("body", limit)
	}
	rc := http.NewResponseController(c.Response())
	_ = rc.SetReadDeadline(time.Now().Add(4 * s.Config.BodyTimeout)) // a writer without deadlines is a test's
	req.Body = io.NopCloser(io.LimitReader(req.Body, bodyFactor*limit))
	defer func() {
		if err != nil {
			return // see discard
		}
		if _, derr := io.Copy(io.Discard, req.Body); derr == nil { // what follows the last part
			_ = rc.SetReadDeadline(time.Time{})
		}
	}()
	form, err := req.MultipartReader()
	if err != nil {
		return "", "", nil, berth.Invalid("file", "the multipart body has no boundary").With(err)
	}
	found := false
	for {
		part, err := form.NextRawPart()
		if errors.Is(err, io.EOF) && found {
			return name, declared, content, nil
		}
		if errors.Is(err, io.EOF) {
			return "", "", nil, berth.Invalid("file", "the part is missing")
		}
		if err != nil {
			return "", "", nil, multipartError(err)
		}
		if part.FormName() != "file" {
			continue
		}
		if found {
			return "", "", nil, berth.Invalid("file", "an upload has one file")
		}
		found = true
		if content, err = io.ReadAll(io.LimitReader(part, limit+1)); err != nil {
			return "", "", nil, multipartError(err)
		}
		if int64(len(content)) > limit {
			return "", "", nil, exceeds("file", limit)
		}
		name = fileName(part)
		declared, _, _ = mime.ParseMediaType(part.Header.Get(echo.HeaderContentType)) // without one it is nothing
	}
}

// multipartError translates errors of incomplete, slow or invalid multipart bodies.
func multipartError(err error) error {
	if errors.Is(err, multipart.ErrMessageTooLarge) {
		return errorIn("file", berth.CodeTooLarge, "the parts have too many headers").With(err)
	}
	e := bodyError(err)
	if berth.CodeOf(e) == berth.CodeInvalid {
		return berth.Invalid("file", "the multipart body could not be read").With(err)
	}
	return e
}

// nameAs returns the name of an upload, with another extension if the upload was converted.
func nameAs(name, mediaType string) string {
	switch ext := strings.ToLower(path.Ext(name)); {
	case mediaType == berth.TextMediaType && (ext == ".pdf" || ext == ".docx"):
		return name + ".txt"
	case mediaType == "image/jpeg" && ext == ".webp":
		return name + ".jpg"
	}
	return name
}

// fileName returns the last element of a path, printable and short.
func fileName(part *multipart.Part) string {
	name := path.Base(strings.ReplaceAll(part.FileName(), `\`, "/"))
	name = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return -1
		}
		return r
	}, name)
	if runes := []rune(name); len(runes) > 100 {
		name = string(runes[:100])
	}
	if name == "." || name == "/" {
		return ""
	}
	return name
}

// inspect detects the media type of an upload from its content, and returns the asset that it becomes.
func (s *server) inspect(ctx context.Context, content []byte) (berth.Asset, error) {
	if len(content) == 0 {
		return berth.Asset{}, berth.Invalid("file", "must not be empty")
	}
	mediaType := http.DetectContentType(content)
	switch {
	case mediaType == "image/png", mediaType == "image/jpeg", mediaType == "image/webp":
		return s.imageAsset(ctx, content, mediaType)
	case mediaType == "application/pdf":
		text, err := s.documents.PDF(ctx, content, maxTextBytes)
		return documentAsset(text, err)
	case mediaType == "application/zip" && extract.IsDOCX(content):
		text, err := extract.DOCX(content, maxTextBytes)
		return documentAsset(text, err)
	case strings.HasPrefix(mediaType, "text/"):
		return textAsset(content)
	}
	return berth.Asset{}, unsupported("the file looks like %s; accepted are %s", mediaType, acceptedMedia)
}

// documentAsset returns the text of a document as an asset.
func documentAsset(text string, err error) (berth.Asset, error) {
	switch {
	case errors.Is(err, extract.ErrNoTool):
		return berth.Asset{}, berth.Errorf(berth.CodeUnavailable,
			"this server cannot read PDF files, because pdftotext is not installed on it; upload the text instead").With(err)
	case errors.Is(err, extract.ErrTooLong):
		return berth.Asset{}, errorIn("file", berth.CodeTooLarge, "the text of the file exceeds the limit of %s", sizeText(maxTextBytes)).With(err)
	}
	for _, reason := range []error{extract.ErrEncrypted, extract.ErrNoText, extract.ErrDamaged, extract.ErrTooSlow} {
		if errors.Is(err, reason) {
			return berth.Asset{}, unsupported("%s", reason).With(err)
		}
	}
	if err != nil {
		return berth.Asset{}, fmt.Errorf("read document: %w", err)
	}
	return textAsset([]byte(text))
}

// imageAsset returns an image as an asset. It is decoded, because a model's provider would refuse a damaged one only later.
func (s *server) imageAsset(ctx context.Context, content []byte, mediaType string) (berth.Asset, error) {
	format := strings.TrimPrefix(mediaType, "image/")
	pixels, err := checkImage(content, format)
	if err != nil {
		return berth.Asset{}, err
	}
	if err := s.decoding.Acquire(ctx, pixels); err != nil {
		return berth.Asset{}, err
	}
	defer s.decoding.Release(pixels)
	if pixels > manyPixels {
		defer runtime.GC() // otherwise the next image would be decoded beside this one, which is no longer used
	}
	img, _, err := image.Decode(bytes.NewReader(content))
	switch {
	case err != nil:
		return berth.Asset{}, unsupported("the %s image is damaged; accepted are %s", strings.ToUpper(format), acceptedMedia).With(err)
	case format == "webp":
		return s.asJPEG(img)
	}
	return berth.Asset{Kind: berth.AssetImage, MediaType: mediaType, Size: int64(len(content)), Content: content}, nil
}

// asJPEG returns an image as JPEG, without transparency.
func (s *server) asJPEG(img image.Image) (berth.Asset, error) {
	opaque := image.NewRGBA(img.Bounds())
	draw.Draw(opaque, opaque.Bounds(), image.White, image.Point{}, draw.Src)
	draw.Draw(opaque, opaque.Bounds(), img, img.Bounds().Min, draw.Over)
	var out bytes.Buffer
	if err := jpeg.Encode(&out, opaque, &jpeg.Options{Quality: jpegQuality}); err != nil {
		return berth.Asset{}, fmt.Errorf("convert image: %w", err)
	}
	if int64(out.Len()) > s.Config.MaxUploadBytes {
		return berth.Asset{}, errorIn("file", berth.CodeTooLarge, "the image exceeds the limit of %s as JPEG", sizeText(s.Config.MaxUploadBytes))
	}
	return berth.Asset{Kind: berth.AssetImage, MediaType: "image/jpeg", Size: int64(out.Len()), Content: out.Bytes()}, nil
}

// checkImage returns the number of pixels of an image, which is not decoded yet.
func checkImage(content []byte, format string) (pixels int64, err error) {
	cfg, got, err := image.DecodeConfig(bytes.NewReader(content))
	if err != nil || got != format || cfg.Width <= 0 || cfg.Height <= 0 {
		return 0, unsupported("the %s image cannot be decoded; accepted are %s", strings.ToUpper(format), acceptedMedia).With(err)
	}
	limit := maxPixels
	if format == "webp" {
		limit = maxWebPPixels
		if !complete(content) {
			return 0, unsupported("the WEBP image is truncated; accepted are %s", acceptedMedia)
		}
	}
	if cfg.Width > maxSide || cfg.Height > maxSide || cfg.Width*cfg.Height > limit {
		return 0, errorIn("file", berth.CodeTooLarge, "the image has %d x %d pixels; at most %d million are read",
			cfg.Width, cfg.Height, limit/1_000_000)
	}
	return int64(cfg.Width * cfg.Height), nil
}

// complete reports whether a WebP image has the length that it starts with.
func complete(content []byte) bool {
	return len(content) >= 8 && int64(len(content)) >= 8+int64(binary.LittleEndian.Uint32(content[4:8]))
}

func textAsset(content []byte) (berth.Asset, error) {
	content = bytes.TrimPrefix(content, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(content) || bytes.ContainsRune(content, 0) {
		return berth.Asset{}, unsupported("text must be UTF-8; accepted are " + acceptedMedia)
	}
	if err := checkText("file", string(content)); err != nil {
		return berth.Asset{}, err
	}
	return berth.Asset{
		Kind: berth.AssetText, MediaType: berth.TextMediaType, Size: int64(len(content)), Content: content,
	}, nil
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
