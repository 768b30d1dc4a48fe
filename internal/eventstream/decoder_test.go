package eventstream

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func limits(o Options) Options {
	o.MaxLine, o.MaxEvent = 1000, 2000
	return o
}

// read returns the events of a stream and its error, nil for the end.
func read(r io.Reader, o Options) (all []Event, err error) {
	d := NewDecoder(r, o)
	for {
		ev, err := d.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, ev)
	}
}

// Each row is one form of a stream, with the events that the standard defines for it: id|name|data.
func TestDecoder_StreamsOfTheStandard_EventsInOrder(t *testing.T) { // FM1, P21
	t.Parallel()
	for name, row := range map[string]struct {
		stream string
		want   []string
		last   string // with KeepLast
	}{
		"default type":                     {"data: a\n\ndata: b\n\n", []string{"||a", "||b"}, ""},
		"CRLF":                             {"data: a\r\n\r\ndata: b\r\n\r\n", []string{"||a", "||b"}, ""},
		"CR":                               {"data: a\r\rdata: b\r\r", []string{"||a", "||b"}, ""},
		"line ends mixed":                  {"data: a\r\ndata: b\rdata: c\n\r\ndata: d\r\n\n", []string{"||a\nb\nc", "||d"}, ""},
		"LF CR is two lines":               {"data: a\n\rdata: b\n\r", []string{"||a", "||b"}, ""},
		"byte order mark":                  {"\ufeffdata: a\n\n", []string{"||a"}, ""},
		"byte order mark before a comment": {"\ufeff: hi\n\ndata: a\n\n", []string{"||a"}, ""},
		"second byte order mark is text":   {"\ufeff\ufeffdata: a\n\ndata: b\n\n", []string{"||b"}, ""},
		"no space after the colon":         {"data:a\nid:1\nevent:e\n\n", []string{"1|e|a"}, ""},
		"one space is removed":             {"data:  a\n\n", []string{"|| a"}, ""},
		"field without a colon":            {"data\n\ndata\ndata\n\n", []string{"||", "||\n"}, ""},
		"comments":                         {":\n: keep-alive\n\n:\n\ndata: a\n: within\ndata: b\n\n", []string{"||a\nb"}, ""},
		"colons in the data":               {"data: a: b\n\n", []string{"||a: b"}, ""},
		"unknown fields":                   {"retry: 100\nfoo: bar\ndata: a\n Data: x\nDATA: x\n\n", []string{"||a"}, ""},
		"the id stays":                     {"id: 7\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", []string{"7||a", "7||b", "||c"}, ""},
		"an id with NUL is ignored":        {"id: 7\ndata: a\n\nid: 8\x00\ndata: b\n\n", []string{"7||a", "7||b"}, ""},
		"the name does not stay":           {"event: ping\n\ndata: a\n\nevent: x\ndata: b\n\ndata: c\n\n", []string{"||a", "|x|b", "||c"}, ""},
		"the last of several names":        {"event: x\nevent: y\ndata: a\n\n", []string{"|y|a"}, ""},
		"only blank lines":                 {"\n\r\n\r\n\n", nil, ""},
		"without the last blank line":      {"data: a\n\ndata: b\n", []string{"||a"}, "||b"},
		"without the last line end":        {"data: a\n\nevent: e\ndata: b", []string{"||a"}, "|e|b"},
		"cut off in a name":                {"data: a\n\ndat", []string{"||a"}, ""},
		"empty":                            {"", nil, ""},
		"text of another kind":             {"<html>\n<body>\n\n", nil, ""},
		"characters of several bytes":      {"data: 你好 🌊\n\n", []string{"||你好 🌊"}, ""},
		"bytes that are no characters":     {"data: \xff\xfe\n\n", []string{"||\xff\xfe"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, keep := range []bool{false, true} {
				want := row.want
				if keep && row.last != "" {
					want = append(want[:len(want):len(want)], row.last)
				}
				for i := range len(row.stream) + 1 { // the stream arrives in two parts
					in := io.MultiReader(strings.NewReader(row.stream[:i]), strings.NewReader(row.stream[i:]))
					events, err := read(in, limits(Options{KeepLast: keep}))
					require.NoError(t, err)
					require.Equal(t, want, shown(events), "cut at byte %d", i)
				}
				events, err := read(iotest.OneByteReader(strings.NewReader(row.stream)), limits(Options{KeepLast: keep}))
				require.NoError(t, err)
				require.Equal(t, want, shown(events))
				if keep && row.last != "" {
					require.True(t, events[len(events)-1].Unfinished)
				}
			}
		})
	}
}

func shown(events []Event) (all []string) {
	for _, ev := range events {
		all = append(all, ev.ID+"|"+ev.Name+"|"+string(ev.Data))
	}
	return all
}

// The bytes of an event decode to the same event, so that they can be forwarded.
func TestDecoder_Raw_IsTheEventAsSent(t *testing.T) { // FM1
	t.Parallel()
	const first, second = ": note\r\nid: 1\r\ndata: a\r\ndata:b\r\n\r\n", "event: x\rdata: c\r\r"
	stream := "\ufeff: keep-alive\n\n" + first + "event: ping\n\n" + second
	events, err := read(strings.NewReader(stream), limits(Options{}))
	require.NoError(t, err)
	require.Len(t, events, 2)
	require.Equal(t, first, string(events[0].Raw))
	require.Equal(t, second, string(events[1].Raw))
	rapid.Check(t, func(t *rapid.T) {
		stream := rapid.StringMatching(`(\x{feff})?((data|id|event|retry|x)?:? ?[a:]{0,3}(\r|\n|\r\n){1,2}){0,8}`).Draw(t, "stream")
		whole, err := read(strings.NewReader(stream), limits(Options{}))
		require.NoError(t, err)
		bytewise, err := read(iotest.OneByteReader(strings.NewReader(stream)), limits(Options{}))
		require.NoError(t, err)
		require.Equal(t, shown(whole), shown(bytewise))
		for i, ev := range bytewise {
			for _, raw := range [][]byte{ev.Raw, whole[i].Raw} {
				again, err := read(bytes.NewReader(raw), limits(Options{}))
				require.NoError(t, err)
				require.Len(t, again, 1)
				require.Equal(t, ev.Name+"|"+string(ev.Data), again[0].Name+"|"+string(again[0].Data))
			}
		}
	})
}

// An event is returned before the byte after it arrives.
func TestDecoder_BlankLineArrived_EventNotHeldBack(t *testing.T) { // FM1
	t.Parallel()
	for _, end := range []string{"\n", "\r\n", "\r"} {
		r, w := io.Pipe()
		go func() { _, _ = io.WriteString(w, "data: a"+end+end) }()
		ev, err := NewDecoder(r, limits(Options{})).Next()
		require.NoError(t, err)
		require.Equal(t, "a", string(ev.Data))
		require.NoError(t, w.Close())
	}
}

func TestDecoder_BeyondLimits_NamedError(t *testing.T) { // FM1, P16
	t.Parallel()
	for name, row := range map[string]struct {
		stream io.Reader
		want   error
	}{
		"a line":            {io.MultiReader(strings.NewReader("data: "), endless('x')), ErrLongLine},
		"a comment":         {io.MultiReader(strings.NewReader(":"), endless('x')), ErrLongLine},
		"an event of lines": {strings.NewReader(strings.Repeat("data: x\n", 10_000)), ErrLongEvent},
		"empty data lines":  {strings.NewReader(strings.Repeat("data\n", 10_000)), ErrLongEvent},
	} {
		events, err := read(row.stream, limits(Options{}))
		require.Empty(t, events, name)
		require.ErrorIs(t, err, row.want, name)
		require.ErrorContains(t, err, "00 bytes", name)
	}
	// Comments of any number are no event.
	events, err := read(strings.NewReader(strings.Repeat(": keep-alive\n\n", 10_000)+"data: a\n\n"), limits(Options{}))
	require.NoError(t, err)
	require.Len(t, events, 1)
}

func TestDecoder_ReaderFails_ErrorReturned(t *testing.T) {
	t.Parallel()
	events, err := read(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(io.ErrUnexpectedEOF)), limits(Options{KeepLast: true}))
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Equal(t, []string{"||a"}, shown(events), "of a stream that was cut off, the last event may be a part")
}

func endless(b byte) io.Reader { return endlessReader(b) }

type endlessReader byte

func (e endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}
