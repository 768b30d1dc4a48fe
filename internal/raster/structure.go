package raster

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/bep/imagemeta"
)

const pngSignature = "\x89PNG\r\n\x1a\n"

// repairPNG returns a PNG without ancillary chunks that have a wrong checksum, and with its end if that is missing: readers ignore
// both. Whether all pixels are there is known when it is decoded.
func repairPNG(content []byte) ([]byte, error) {
	if !bytes.HasPrefix(content, []byte(pngSignature)) {
		return content, nil
	}
	pixels := false
	out := bytes.NewBuffer(make([]byte, 0, len(content)+12))
	out.WriteString(pngSignature)
	for rest := content[len(pngSignature):]; ; {
		if len(rest) < 12 {
			break
		}
		length := int64(binary.BigEndian.Uint32(rest))
		if length+12 > int64(len(rest)) {
			break
		}
		chunk, kind := rest[:length+12], string(rest[4:8])
		rest = rest[length+12:]
		if kind == "IEND" || !letters(kind) {
			break
		}
		intact := crc32.ChecksumIEEE(chunk[4:length+8]) == binary.BigEndian.Uint32(chunk[length+8:])
		switch {
		case kind == "CgBI":
			return nil, Reason("the image is a PNG of an Apple app, which is not supported: save it as JPEG or PNG again")
		case intact:
			pixels = pixels || kind == "IDAT"
			out.Write(chunk)
		case kind[0]&0x20 == 0: // a capital letter: critical
			return nil, Reason(fmt.Sprintf("the PNG image is damaged, its part %s has a wrong checksum: save it or copy it again", kind))
		}
	}
	if pixels {
		out.WriteString("\x00\x00\x00\x00IEND\xaeB`\x82")
	}
	return out.Bytes(), nil
}

// letters reports whether a name is one of a chunk.
func letters(kind string) bool {
	for _, c := range []byte(kind) {
		if c|0x20 < 'a' || c|0x20 > 'z' {
			return false
		}
	}
	return true
}

// checkWebP refuses WebP images that are animated, or shorter than they state.
func checkWebP(content []byte) error {
	const animation = 1 << 1 // in the flags of VP8X
	switch {
	case len(content) > 20 && string(content[12:16]) == "VP8X" && content[20]&animation != 0:
		return Reason("the file is an animated WebP image, which is not supported: save one of its frames as JPEG or PNG")
	case len(content) < 12, int64(len(content)) < 8+int64(binary.LittleEndian.Uint32(content[4:8])):
		return Reason("the WebP image is incomplete, its end is missing: save it or copy it again")
	}
	return nil
}

const upright = 1

// orientation returns how an image has to be turned to be upright, from its metadata. Metadata that cannot be read state nothing.
func orientation(content []byte, mediaType string) int {
	found := upright
	_, _ = imagemeta.Decode(imagemeta.Options{ // see above
		R:           bytes.NewReader(content),
		ImageFormat: map[string]imagemeta.ImageFormat{PNG: imagemeta.PNG, JPEG: imagemeta.JPEG, WebP: imagemeta.WebP}[mediaType],
		Sources:     imagemeta.EXIF,
		ShouldHandleTag: func(t imagemeta.TagInfo) bool {
			return t.Tag == "Orientation" && t.Namespace == "IFD0"
		},
		HandleTag: func(t imagemeta.TagInfo) error {
			if v, ok := t.Value.(uint16); ok && v >= 1 && v <= 8 {
				found = int(v)
			}
			return imagemeta.ErrStopWalking
		},
	})
	return found
}
