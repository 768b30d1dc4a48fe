// Package raster prepares uploaded images for models: it repairs what browsers repair, applies the orientation, converts what not
// every model reads, and refuses the rest with a reason for users.
package raster

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/draw"
	"image/jpeg"
	"image/png"
	"strings"

	_ "golang.org/x/image/webp" // its decoder
)

// The media types that Open reads.
const (
	PNG  = "image/png"
	JPEG = "image/jpeg"
	WebP = "image/webp"
)

const (
	// MaxPixels bounds an image: a few bytes can claim to be gigabytes once decoded, and a pixel needs up to 16 bytes.
	MaxPixels = 40_000_000
	// maxWebPPixels bounds a WebP image further, because its decoder needs more.
	maxWebPPixels = 16_000_000
	maxSide       = 20_000
	// quality keeps small text legible.
	quality = 92
)

// Reason is why an image is refused, and what to do instead. It is shown to the user who uploaded it.
type Reason string

// Error returns the text for the user.
func (r Reason) Error() string { return string(r) }

// TooLarge is a Reason that is about a limit.
type TooLarge string

// Error returns the text for the user.
func (t TooLarge) Error() string { return string(t) }

// Image is an image that has been checked, and is not decoded yet.
type Image struct {
	MediaType     string
	Width, Height int
	content       []byte
	orientation   int
}

// Open checks the structure and the size of an image. Errors are a Reason or TooLarge.
func Open(content []byte, mediaType string) (*Image, error) {
	m := &Image{MediaType: mediaType, content: content}
	var err error
	switch mediaType {
	case PNG:
		m.content, err = repairPNG(content)
	case WebP:
		err = checkWebP(content)
	}
	if err != nil {
		return nil, err
	}
	cfg, format, err := image.DecodeConfig(bytes.NewReader(m.content))
	if err != nil || "image/"+format != mediaType || cfg.Width <= 0 || cfg.Height <= 0 {
		return nil, m.damage(err)
	}
	m.Width, m.Height = cfg.Width, cfg.Height
	m.orientation = orientation(m.content, mediaType)
	return m, m.check()
}

// check applies the limits on the size.
func (m *Image) check() error {
	limit := MaxPixels
	if m.MediaType == WebP {
		limit = maxWebPPixels
	}
	switch {
	case m.Width > maxSide:
		return TooLarge(fmt.Sprintf("the image is %d pixels wide; at most %d are read: scale it down, or upload a part of it", m.Width, maxSide))
	case m.Height > maxSide:
		return TooLarge(fmt.Sprintf("the image is %d pixels high; at most %d are read: scale it down, or upload a part of it", m.Height, maxSide))
	case m.Pixels() > int64(limit):
		return TooLarge(fmt.Sprintf("the image has %d x %d pixels; at most %d million are read: scale it down, or upload a part of it",
			m.Width, m.Height, limit/1_000_000))
	}
	return nil
}

// Pixels returns the number of pixels.
func (m *Image) Pixels() int64 { return int64(m.Width) * int64(m.Height) }

// Prepare decodes the image and returns it as every model reads it: upright, as PNG or JPEG, in RGB. Errors are a Reason or internal.
func (m *Image) Prepare() (content []byte, mediaType string, err error) {
	img, _, err := image.Decode(bytes.NewReader(m.content))
	if err != nil && m.MediaType == JPEG {
		ended := append(bytes.Clone(m.content), 0xff, 0xd9) // browsers show an image without its end marker, too
		if whole, _, again := image.Decode(bytes.NewReader(ended)); again == nil {
			img, err, m.content = whole, nil, ended
		}
	}
	if err != nil {
		return nil, "", m.damage(err)
	}
	if _, cmyk := img.(*image.CMYK); !cmyk && m.orientation == upright && m.MediaType != WebP {
		return m.content, m.MediaType, nil
	}
	var out bytes.Buffer
	turned := turn(img, m.orientation)
	if mediaType = JPEG; m.MediaType == PNG { // screenshots stay as sharp as they are
		mediaType = PNG
		err = (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(&out, turned)
	} else {
		err = jpeg.Encode(&out, turned, &jpeg.Options{Quality: quality})
	}
	if err != nil {
		return nil, "", fmt.Errorf("convert image: %w", err)
	}
	return out.Bytes(), mediaType, nil
}

// damage translates an error of a decoder.
func (m *Image) damage(err error) error {
	name := map[string]string{PNG: "PNG", JPEG: "JPEG", WebP: "WebP"}[m.MediaType]
	if kind, ok := errors.AsType[jpeg.UnsupportedError](err); ok {
		return fmt.Errorf("%w: %w", Reason("the JPEG image is of a kind that is not supported ("+string(kind)+"): save it as JPEG or PNG again"), err)
	}
	text := "the " + name + " image is damaged"
	if err != nil {
		switch {
		case strings.Contains(err.Error(), "EOF"), m.MediaType == JPEG && !bytes.Contains(tail(m.content), []byte("\xff\xd9")):
			text = "the " + name + " image is incomplete, its end is missing"
		default:
			text += " (" + err.Error() + ")"
		}
	}
	r := Reason(text + ": save it or copy it again")
	if err == nil {
		return r
	}
	return fmt.Errorf("%w: %w", r, err)
}

// tail returns the end of a file, where the mark of its end is.
func tail(content []byte) []byte { return content[max(0, len(content)-64):] }

// turn returns an image upright and without transparency. It is read row by row, so that it is in memory only once.
func turn(img image.Image, orientation int) image.Image {
	b := img.Bounds()
	w, h := b.Dx(), b.Dy()
	size := image.Rect(0, 0, w, h)
	if orientation > 4 {
		size = image.Rect(0, 0, h, w)
	}
	out := image.NewRGBA(size)
	row := image.NewRGBA(image.Rect(0, 0, w, 1))
	for y := range h {
		draw.Draw(row, row.Rect, image.White, image.Point{}, draw.Src)
		draw.Draw(row, row.Rect, img, image.Pt(b.Min.X, b.Min.Y+y), draw.Over)
		for x := range w {
			copy(out.Pix[out.PixOffset(place(orientation, x, y, w, h)):], row.Pix[4*x:4*x+4])
		}
	}
	return out
}

// place returns where a stored pixel is shown (TIFF 6.0, tag 274; Exif 2.3, 4.6.4).
func place(orientation, x, y, w, h int) (int, int) {
	switch orientation {
	case 2:
		return w - 1 - x, y
	case 3:
		return w - 1 - x, h - 1 - y
	case 4:
		return x, h - 1 - y
	case 5:
		return y, x
	case 6:
		return h - 1 - y, x
	case 7:
		return h - 1 - y, w - 1 - x
	case 8:
		return y, w - 1 - x
	}
	return x, y
}
