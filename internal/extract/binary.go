package extract

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"
)

// mark is how a binary format begins. A '?' matches any byte.
type mark struct {
	offset       int
	magic        string
	name, advice string
}

// images are the formats that the caller stores.
var images = []mark{
	{0, "\x89PNG\r\n\x1a\n", "image/png", ""},
	{0, "\xff\xd8\xff", "image/jpeg", ""},
	{0, "RIFF????WEBP", "image/webp", ""},
}

// marks has the formats that are refused by name. Sources: the formats' specifications, and the registry of media types.
var marks = []mark{
	{0, "GIF87a", "a GIF image", saveAsImage},
	{0, "GIF89a", "a GIF image", saveAsImage},
	{0, "BM????\x00\x00\x00\x00????", "a BMP image", saveAsImage},
	{0, "II*\x00", "a TIFF or camera raw image", saveAsImage},
	{0, "MM\x00*", "a TIFF or camera raw image", saveAsImage},
	{0, "II+\x00", "a TIFF image", saveAsImage},
	{0, "MM\x00+", "a TIFF image", saveAsImage},
	{0, "IIU\x00", "a camera raw image", saveAsImage},
	{0, "IIRO", "a camera raw image", saveAsImage},
	{0, "FUJIFILMCCD-RAW", "a camera raw image", saveAsImage},
	{0, "\x00\x00\x01\x00", "an icon", saveAsImage},
	{0, "\x00\x00\x02\x00", "a cursor", saveAsImage},
	{0, "8BPS\x00", "a Photoshop image", saveAsImage},
	{0, "gimp xcf ", "a GIMP image", saveAsImage},
	{0, "\x00\x00\x00\x0cJXL \r\n\x87\n", "a JPEG XL image", saveAsImage},
	{0, "\xff\x0a", "a JPEG XL image", saveAsImage},
	{0, "\x00\x00\x00\x0cjP  \r\n\x87\n", "a JPEG 2000 image", saveAsImage},
	{0, "\xff\x4f\xff\x51", "a JPEG 2000 image", saveAsImage},
	{0, "\x01\x00\x00\x00????????????????????????????????????\x20EMF", "an EMF image", saveAsImage},
	{0, "\xd7\xcd\xc6\x9a", "a WMF image", saveAsImage},
	{0, "\xc5\xd0\xd3\xc6", "an EPS image", saveAsImage},

	{0, "\xffWPC", "a WordPerfect document", saveAsDocument},
	{0, "\x31\xbe\x00\x00", "a document of Word for DOS or Write", saveAsDocument},
	{0, "\xdb\xa5", "a document of Word 2", saveAsDocument},
	{0, "HWP Document File", "a Hangul document", saveAsDocument},
	{0, "AT&TFORM", "a DjVu document", saveAsPDF},
	{0, "ITSF\x03", "a Windows help file", saveAsPDF},
	{60, "BOOKMOBI", "a Kindle book", saveAsPDF},
	{0, "\xe4\x52\x5c\x7b\x8c\xd8\xa7\x4d", "a OneNote section", saveAsPDF},
	{0, "bplist00", "a binary property list, such as a Safari web archive", saveAsPDF},
	{0, "!BDN", "an Outlook mailbox", "export single messages as .eml"},
	{0, "\x78\x9f\x3e\x22", "an Outlook attachment (winmail.dat)", "let the sender send it as PDF"},
	{0, "\x00\x05\x16\x07", "a macOS resource file (._…)", "upload the file whose name lacks ._"},
	{0, "SQLite format 3\x00", "an SQLite database", writeText},
	{4, "Standard Jet DB\x00", "an Access database", writeText},
	{4, "Standard ACE DB\x00", "an Access database", writeText},
	{0, "PAR1", "a Parquet file", writeText},
	{0, "\x89HDF\r\n\x1a\n", "an HDF5 file", writeText},

	{0, "\x1f\x8b\x08", "a gzip archive", unpack},
	{0, "\x1f\x9d", "a compressed file (.Z)", unpack},
	{0, "BZh?1AY&SY", "a bzip2 archive", unpack},
	{0, "\xfd7zXZ\x00", "an xz archive", unpack},
	{0, "7z\xbc\xaf\x27\x1c", "a 7z archive", unpack},
	{0, "Rar!\x1a\x07", "a RAR archive", unpack},
	{0, "\x28\xb5\x2f\xfd", "a Zstandard archive", unpack},
	{0, "\x04\x22\x4d\x18", "an LZ4 archive", unpack},
	{0, "LZIP\x01", "an lzip archive", unpack},
	{0, "MSCF\x00\x00\x00\x00", "a cabinet archive", unpack},
	{0, "xar!\x00", "a xar archive", unpack},
	{0, "!<arch>\n", "an ar archive", unpack},
	{257, "ustar", "a tar archive", unpack},
	{32769, "CD001", "a disk image", unpack},

	{0, "RIFF????WAVE", "WAV audio", writeText},
	{0, "RIFF????AVI ", "an AVI video", writeText},
	{0, "RIFF", "a RIFF file", writeText},
	{0, "FORM????AIF", "AIFF audio", writeText},
	{0, "ID3", "MP3 audio", writeText},
	{0, "\xff\xfb", "MP3 audio", writeText},
	{0, "\xff\xfa", "MP3 audio", writeText},
	{0, "\xff\xf3", "MP3 audio", writeText},
	{0, "\xff\xf2", "MP3 audio", writeText},
	{0, "\xff\xf1", "AAC audio", writeText},
	{0, "\xff\xf9", "AAC audio", writeText},
	{0, "OggS\x00?????????????????????", "Ogg audio or video", writeText},
	{0, "fLaC\x00", "FLAC audio", writeText},
	{0, ".snd", "AU audio", writeText},
	{0, "MThd\x00\x00\x00\x06", "a MIDI file", writeText},
	{0, "#!AMR", "AMR audio", writeText},
	{0, "\x30\x26\xb2\x75\x8e\x66\xcf\x11", "Windows Media audio or video", writeText},
	{0, "\x1a\x45\xdf\xa3", "a Matroska or WebM video", writeText},
	{0, "FLV\x01", "a Flash video", writeText},
	{0, "\x00\x00\x01\xba", "an MPEG video", writeText},
	{0, "\x00\x00\x01\xb3", "an MPEG video", writeText},
	{4, "moov", "a QuickTime video", writeText},
	{4, "mdat", "a QuickTime video", writeText},

	{0, "MZ", "a Windows program", writeText},
	{0, "\x7fELF", "a Linux program", writeText},
	{0, "\xcf\xfa\xed\xfe", "a macOS program", writeText},
	{0, "\xca\xfe\xba\xbe", "a Java class or macOS program", writeText},
	{0, "\x00asm", "a WebAssembly module", writeText},
	{0, "L\x00\x00\x00\x01\x14\x02\x00", "a Windows shortcut", "upload the file that it refers to"},
	{0, "wOFF", "a font", writeText},
	{0, "wOF2", "a font", writeText},
	{0, "OTTO\x00", "a font", writeText},
	{0, "ttcf\x00", "a font", writeText},
	{0, "\x00\x01\x00\x00", "a font", writeText},
}

// matches reports whether the file begins with the mark and is not a text.
func (m mark) matches(content []byte, isText bool) bool {
	if len(content) < m.offset+len(m.magic) || isText && !m.conclusive() {
		return false
	}
	for i, want := range []byte(m.magic) {
		if want != '?' && content[m.offset+i] != want {
			return false
		}
	}
	return true
}

// conclusive reports whether no text begins with the mark, because of its control characters or bytes that are not UTF-8. Two such
// bytes may be letters of an older encoding.
func (m mark) conclusive() bool {
	return len(m.magic) > 2 && (!utf8.ValidString(m.magic) || strings.ContainsFunc(m.magic, func(r rune) bool {
		return r < ' ' && !strings.ContainsRune(blank+"\x1b", r) || r == 0x7f
	}))
}

// binary returns the format of a file that begins like a binary one. Texts in any encoding but UTF-16 have no NUL, and binary formats
// whose mark consists of letters have some.
func binary(content []byte) (Format, bool) {
	isText := bytes.IndexByte(content, 0) < 0
	is := func(m mark) bool { return m.matches(content, isText) }
	if i := slices.IndexFunc(images, is); i >= 0 {
		return Format{Image: images[i].name}, true
	}
	switch {
	case bytes.HasPrefix(content, []byte("PK\x03\x04")), bytes.HasPrefix(content, []byte("PK\x05\x06")):
		return zipped(content), true
	case bytes.HasPrefix(content, []byte("\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1")):
		return Format{Reason: compound(content)}, true
	}
	if reason, found := boxed(content); found {
		return Format{Reason: reason}, true
	}
	if i := slices.IndexFunc(marks, is); i >= 0 {
		return Format{Reason: unsupported(marks[i].name, marks[i].advice)}, true
	}
	return Format{}, false
}

// brands are those of files in the ISO base media format (ISO/IEC 14496-12, the registry at mp4ra.org), by their beginning.
var brands = []struct{ brand, name, advice string }{
	{"avif", "an AVIF image", saveAsImage},
	{"avis", "an animated AVIF image", saveAsImage},
	{"heic", "a HEIC image", saveAsImage},
	{"heix", "a HEIC image", saveAsImage},
	{"heim", "a HEIC image", saveAsImage},
	{"heis", "a HEIC image", saveAsImage},
	{"hevc", "an animated HEIC image", saveAsImage},
	{"hevx", "an animated HEIC image", saveAsImage},
	{"mif1", "a HEIF image", saveAsImage},
	{"msf1", "an animated HEIF image", saveAsImage},
	{"crx ", "a camera raw image", saveAsImage},
	{"jxl ", "a JPEG XL image", saveAsImage},
	{"M4A", "MPEG-4 audio", writeText},
	{"M4B", "MPEG-4 audio", writeText},
	{"qt", "a QuickTime video", writeText},
}

// boxed returns the reason to refuse a file that begins with a file type box. The generic brand of an image is followed by that of
// its codec.
func boxed(content []byte) (Reason, bool) {
	if len(content) < 12 || content[0] != 0 || string(content[4:8]) != "ftyp" {
		return "", false
	}
	size := min(int(content[2])<<8|int(content[3]), len(content))
	major := content[8:12]
	if string(major) == "mif1" || string(major) == "msf1" {
		for at := 16; at+4 <= size; at += 4 {
			if c := string(content[at : at+4]); strings.HasPrefix(c, "avi") || strings.HasPrefix(c, "he") {
				major = content[at : at+4]
				break
			}
		}
	}
	for _, b := range brands {
		if strings.HasPrefix(string(major), b.brand) {
			return unsupported(b.name, b.advice), true
		}
	}
	return unsupported("an MPEG-4 video", writeText), true
}

// compounds are what files in the compound file format of OLE contain, by the name of a stream (MS-CFB, MS-DOC, MS-XLS, MS-PPT,
// MS-OXMSG).
var compounds = []struct{ stream, name, advice string }{
	{"WordDocument", "a Word 97-2003 document", saveAsDocument},
	{"PowerPoint Document", "a PowerPoint 97-2003 presentation", saveAsPDF},
	{"Workbook", "an Excel 97-2003 workbook", saveAsPDF},
	{"Book", "an Excel 5.0 workbook", saveAsPDF},
	{"__properties_version1.0", "an Outlook message", "save it as .eml, or as text"},
	{"HwpSummaryInformation", "a Hangul document", saveAsDocument},
	{"VisioDocument", "a Visio drawing", saveAsPDF},
	{"Quill", "a Publisher document", saveAsPDF},
}

// compound returns the reason to refuse a file in the compound file format. The names of its streams are in UTF-16.
func compound(content []byte) Reason {
	has := func(stream string) bool {
		wide := make([]byte, 0, 2*len(stream))
		for i := range len(stream) {
			wide = append(wide, stream[i], 0)
		}
		return bytes.Contains(content, wide)
	}
	if has("EncryptedPackage") {
		return ErrEncrypted
	}
	for _, c := range compounds {
		if has(c.stream) {
			return unsupported(c.name, c.advice)
		}
	}
	return unsupported("an Office 97-2003 file", saveAsDocument)
}
