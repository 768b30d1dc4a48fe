package raster

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// corners are the colours of an image's quarters, in the order of reading.
var corners = []color.RGBA{{255, 0, 0, 255}, {0, 255, 0, 255}, {0, 0, 255, 255}, {0, 0, 0, 255}}

const wide, high = 64, 32

// stored returns an image whose quarters are these corners.
func stored(order [4]int, w, h int) *image.RGBA {
	img := image.NewRGBA(image.Rect(0, 0, w, h))
	for i, corner := range order {
		x, y := i%2*w/2, i/2*h/2
		draw.Draw(img, image.Rect(x, y, x+w/2, y+h/2), image.NewUniform(corners[corner]), image.Point{}, draw.Src)
	}
	return img
}

// exif returns metadata with an orientation.
func exif(order binary.AppendByteOrder, orientation uint16) []byte {
	head := "II*\x00\x08\x00\x00\x00"
	if order.String() == binary.BigEndian.String() {
		head = "MM\x00*\x00\x00\x00\x08"
	}
	b := order.AppendUint16([]byte(head), 1)
	b = order.AppendUint32(order.AppendUint16(order.AppendUint16(b, 0x112), 3), 1)
	return append(order.AppendUint16(b, orientation), make([]byte, 6)...)
}

func jpegOf(t *testing.T, img image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, jpeg.Encode(&out, img, &jpeg.Options{Quality: 100}))
	return out.Bytes()
}

func pngOf(t *testing.T, img image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	require.NoError(t, png.Encode(&out, img))
	return out.Bytes()
}

// chunk returns a part of a PNG.
func chunk(kind string, data []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(data))) //nolint:gosec // a test's sizes are small
	b = append(append(b, kind...), data...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b[4:]))
}

// insert returns a PNG with a part behind its header.
func insert(img, part []byte) []byte { return slices.Concat(img[:33], part, img[33:]) }

// withEXIF returns a JPEG with metadata.
func withEXIF(img, metadata []byte) []byte {
	segment := append([]byte("Exif\x00\x00"), metadata...)
	head := binary.BigEndian.AppendUint16([]byte{0xff, 0xd8, 0xff, 0xe1}, uint16(len(segment)+2)) //nolint:gosec // a test's sizes are small
	return slices.Concat(head, segment, img[2:])
}

func prepare(content []byte, mediaType string) ([]byte, string, error) {
	img, err := Open(content, mediaType)
	if err != nil {
		return nil, "", err
	}
	return img.Prepare()
}

// upsideUp requires that an image shows the corners in order.
func upsideUp(t *testing.T, content []byte, name string) {
	t.Helper()
	img, _, err := image.Decode(bytes.NewReader(content))
	require.NoError(t, err, name)
	b := img.Bounds()
	require.Equal(t, image.Pt(wide, high), b.Size(), name)
	for i, want := range corners {
		r, g, bl, _ := img.At(b.Dx()/4+i%2*b.Dx()/2, b.Dy()/4+i/2*b.Dy()/2).RGBA()
		for j, c := range []uint32{r, g, bl} {
			require.InDelta(t, []uint8{want.R, want.G, want.B}[j], c>>8, 8, "%s corner %d", name, i)
		}
	}
}

// turned are the quarters of an image as it is stored, by its orientation.
var turned = map[uint16][4]int{
	1: {0, 1, 2, 3}, 2: {1, 0, 3, 2}, 3: {3, 2, 1, 0}, 4: {2, 3, 0, 1}, 5: {0, 2, 1, 3}, 6: {1, 3, 0, 2}, 7: {3, 1, 2, 0}, 8: {2, 0, 3, 1},
}

func TestPrepare_EachOrientation_ImageIsUpright(t *testing.T) { // FU3
	t.Parallel()
	for orientation, order := range turned {
		w, h := wide, high
		if orientation > 4 {
			w, h = high, wide
		}
		img := stored(order, w, h)
		for _, bytes := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			metadata := exif(bytes, orientation)
			content, mediaType, err := prepare(withEXIF(jpegOf(t, img), metadata), JPEG)
			require.NoError(t, err)
			require.Equal(t, JPEG, mediaType)
			upsideUp(t, content, "JPEG")
			content, _, err = prepare(insert(pngOf(t, img), chunk("eXIf", metadata)), PNG)
			require.NoError(t, err)
			upsideUp(t, content, "PNG")
		}
	}
}

func TestPrepare_UprightImage_IsUnchanged(t *testing.T) {
	t.Parallel()
	img := stored(turned[1], wide, high)
	for mediaType, content := range map[string][]byte{JPEG: withEXIF(jpegOf(t, img), exif(binary.BigEndian, 1)), PNG: pngOf(t, img)} {
		out, got, err := prepare(content, mediaType)
		require.NoError(t, err)
		require.Equal(t, mediaType, got)
		require.Equal(t, content, out)
	}
	for name, metadata := range map[string][]byte{"no such orientation": exif(binary.BigEndian, 9), "damaged": []byte("MM\x00*\xff\xff\xff\xff"), "empty": nil} {
		content := withEXIF(jpegOf(t, img), metadata)
		out, _, err := prepare(content, JPEG)
		require.NoError(t, err, name)
		require.Equal(t, content, out, name)
	}
}

func TestPrepare_DamageThatBrowsersIgnore_IsRepaired(t *testing.T) { // FU3
	t.Parallel()
	img := stored(turned[1], wide, high)
	whole, jpg := pngOf(t, img), jpegOf(t, img)
	wrong := chunk("tEXt", []byte("Title\x00Go"))
	wrong[len(wrong)-1]++
	for name, c := range map[string]struct {
		content   []byte
		mediaType string
	}{
		"PNG, text with a wrong checksum": {insert(whole, wrong), PNG},
		"PNG without its end":             {whole[:len(whole)-12], PNG},
		"PNG with half of its end":        {whole[:len(whole)-5], PNG},
		"PNG with zeros as its end":       {append(bytes.Clone(whole[:len(whole)-12]), make([]byte, 40)...), PNG},
		"PNG with trailing bytes":         {append(bytes.Clone(whole), "trailing"...), PNG},
		"JPEG without its end":            {jpg[:len(jpg)-2], JPEG},
		"JPEG with half of its end":       {jpg[:len(jpg)-1], JPEG},
		"JPEG with trailing bytes":        {append(bytes.Clone(jpg), "trailing"...), JPEG},
	} {
		content, mediaType, err := prepare(c.content, c.mediaType)
		require.NoError(t, err, name)
		require.Equal(t, c.mediaType, mediaType, name)
		upsideUp(t, content, name)
	}
}

func TestPrepare_OtherDamage_IsNamed(t *testing.T) { // FU3
	t.Parallel()
	img := stored(turned[1], wide, high)
	whole, jpg := pngOf(t, img), jpegOf(t, img)
	pixels := bytes.Clone(whole)
	pixels[bytes.Index(pixels, []byte("IDAT"))+10]++
	arithmetic := bytes.Replace(jpg, []byte("\xff\xc0"), []byte("\xff\xc9"), 1)
	for name, c := range map[string]struct {
		content   []byte
		mediaType string
		want      string
	}{
		"PNG, wrong pixels":      {pixels, PNG, "the PNG image is damaged, its part IDAT has a wrong checksum: save it or copy it again"},
		"PNG, half sent":         {whole[:len(whole)/2], PNG, "the PNG image is incomplete, its end is missing: save it or copy it again"},
		"PNG, signature only":    {whole[:8], PNG, "the PNG image is incomplete"},
		"PNG of an Apple app":    {slices.Concat(whole[:8], chunk("CgBI", []byte{0, 0, 0, 0}), whole[8:]), PNG, "the image is a PNG of an Apple app"},
		"JPEG, half sent":        {jpg[:len(jpg)*3/4], JPEG, "the JPEG image is incomplete, its end is missing: save it or copy it again"},
		"JPEG, signature only":   {jpg[:3], JPEG, "the JPEG image is incomplete"},
		"JPEG, other coding":     {arithmetic, JPEG, "the JPEG image is of a kind that is not supported"},
		"WebP, header only":      {[]byte("RIFF\x04\x00\x00\x00WEBP"), WebP, "the WebP image is"},
		"WebP, half sent":        {[]byte("RIFF\xff\x00\x00\x00WEBPVP8 "), WebP, "the WebP image is incomplete, its end is missing"},
		"WebP with an animation": {[]byte("RIFF\x0e\x00\x00\x00WEBPVP8X\x0a\x00\x00\x00\x02\x00"), WebP, "the file is an animated WebP image, which is not supported"},
	} {
		_, _, err := prepare(c.content, c.mediaType)
		require.ErrorContains(t, err, c.want, name)
	}
}

// sized returns the beginning of a PNG of this size.
func sized(w, h uint32) []byte {
	size := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(nil, w), h)
	return append([]byte(pngSignature), chunk("IHDR", append(size, 8, 0, 0, 0, 0))...)
}

func TestOpen_EachLimit_IsNamedWithItsNumbers(t *testing.T) { // FU3
	t.Parallel()
	for want, content := range map[string][]byte{
		"the image is 24000 pixels high; at most 20000 are read: scale it down, or upload a part of it":          sized(1080, 24_000),
		"the image is 20001 pixels wide; at most 20000 are read: scale it down, or upload a part of it":          sized(20_001, 10),
		"the image has 10000 x 10000 pixels; at most 40 million are read: scale it down, or upload a part of it": sized(10_000, 10_000),
		"the image is 4294967 pixels wide; at most 20000 are read: scale it down, or upload a part of it":        sized(4_294_967, 24_000),
	} {
		_, err := Open(content, PNG)
		require.EqualError(t, err, want)
		require.ErrorAs(t, err, new(TooLarge))
	}
	img, err := Open(sized(1080, 19_999), PNG)
	require.NoError(t, err)
	require.EqualValues(t, 1080*19_999, img.Pixels())
}

func TestPrepare_CMYK_IsConvertedToRGB(t *testing.T) { // FU3
	t.Parallel()
	img := image.NewCMYK(image.Rect(0, 0, 2, 2))
	out := turn(img, upright)
	require.Equal(t, color.RGBA{255, 255, 255, 255}, out.At(1, 1))
}

func FuzzPrepare(f *testing.F) {
	for _, seed := range [][]byte{sized(4, 4), []byte("\xff\xd8\xff\xe1"), []byte("RIFF\x04\x00\x00\x00WEBPVP8X")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, mediaType := range []string{PNG, JPEG, WebP} {
			img, err := Open(content, mediaType)
			if err != nil || img.Pixels() > 1_000_000 {
				continue
			}
			if out, _, err := img.Prepare(); err == nil {
				_, _, err := image.Decode(bytes.NewReader(out))
				require.NoError(t, err)
			}
		}
	})
}
