// Package eventstream decodes event streams (text/event-stream) as defined by the WHATWG HTML standard, section 9.2.6: an optional
// byte order mark; lines that end with CR, LF or CRLF; fields whose colon, or the space after it, may be missing; comments; and a
// blank line at the end of each event.
package eventstream

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Event is one event with data. Its slices are its own.
type Event struct {
	// ID is the last id of the stream so far, for Last-Event-ID.
	ID string
	// Name is the type of the event, empty for the default one, "message".
	Name string
	// Data are the data lines, joined by newlines.
	Data []byte
	// Raw are the bytes of the event as they were sent, from its first line to the blank line at its end.
	Raw []byte
	// Unfinished: the stream ended before the blank line, see Options.KeepLast.
	Unfinished bool
}

// Options are what the users of the decoder differ in.
type Options struct {
	// MaxLine and MaxEvent bound a line, and the lines of an event together, in bytes.
	MaxLine, MaxEvent int
	// KeepLast returns an event that has no blank line when the stream ends, as many model servers omit it. The standard discards such
	// an event, because it may be cut off within its data. A reader that sets KeepLast can tell: the data of model servers are JSON
	// objects, no beginning of which is itself an object, or [DONE].
	KeepLast bool
}

// Errors for streams that exceed the limits.
var (
	ErrLongLine  = errors.New("a line of the event stream exceeds the size limit")
	ErrLongEvent = errors.New("an event of the stream exceeds the size limit")
)

// bom is the byte order mark that a stream may begin with.
var bom = []byte("\xef\xbb\xbf")

// Decoder reads the events of one stream. It does not read further than it must: an event is returned with the first byte of its
// blank line. Use NewDecoder.
type Decoder struct {
	in      *bufio.Reader
	options Options
	begun   bool // the byte order mark was looked for
	afterCR bool // a LF here belongs to the line before
	id      string
	line    []byte
	// The event that is being read.
	name    string
	data    []byte
	hasData bool
	raw     []byte
}

// NewDecoder returns a decoder of r.
func NewDecoder(r io.Reader, o Options) *Decoder {
	return &Decoder{in: bufio.NewReader(r), options: o}
}

// Next returns the next event that has data, io.EOF at the end of the stream, or the error of the reader. After an error there are no
// more events.
func (d *Decoder) Next() (Event, error) {
	for {
		ended, err := d.readLine()
		if err != nil && !errors.Is(err, io.EOF) {
			return Event{}, err
		}
		if ended || len(d.line) > 0 {
			if len(d.line) > 0 {
				d.field()
			} else if d.hasData {
				return d.take(false), nil
			} else {
				d.discard()
			}
		}
		if err != nil {
			if d.options.KeepLast && d.hasData {
				return d.take(true), nil
			}
			return Event{}, err
		}
	}
}

// take returns the event that was read and begins the next one.
func (d *Decoder) take(unfinished bool) Event {
	ev := Event{ID: d.id, Name: d.name, Data: bytes.TrimSuffix(d.data, []byte("\n")), Raw: d.raw, Unfinished: unfinished}
	d.discard()
	return ev
}

func (d *Decoder) discard() { d.name, d.data, d.hasData, d.raw = "", nil, false, nil }

// readLine reads the next line into d.line, without its end, and reports whether the line has one.
func (d *Decoder) readLine() (ended bool, err error) {
	if !d.begun {
		d.begun = true
		if head, _ := d.in.Peek(len(bom)); bytes.Equal(head, bom) { // an error is that of the next read, too
			_, _ = d.in.Discard(len(bom))
		}
	}
	for d.line = d.line[:0]; !ended; {
		part, err := d.arrived()
		if err != nil {
			return false, err
		}
		used := len(part)
		if n := lineEnd(part); n >= 0 {
			ended, used = true, n+1
			if d.afterCR = part[n] == '\r'; d.afterCR && used < len(part) {
				d.afterCR = false
				if part[used] == '\n' {
					used++
				}
			}
			d.line = append(d.line, part[:n]...)
		} else {
			d.line = append(d.line, part...)
		}
		d.raw = append(d.raw, part[:used]...)
		_, _ = d.in.Discard(used)
		if len(d.line) > d.options.MaxLine {
			return false, fmt.Errorf("%w of %d bytes", ErrLongLine, d.options.MaxLine)
		}
		if len(d.raw) > d.options.MaxEvent {
			return false, fmt.Errorf("%w of %d bytes", ErrLongEvent, d.options.MaxEvent)
		}
	}
	return true, nil
}

// lineEnd returns where the first line end begins, -1 without one.
func lineEnd(part []byte) int {
	n := bytes.IndexByte(part, '\n')
	if n >= 0 {
		part = part[:n]
	}
	if cr := bytes.IndexByte(part, '\r'); cr >= 0 {
		return cr
	}
	return n
}

// arrived returns the bytes that have arrived, at least one. It skips the rest of a CRLF whose CR has ended a line.
func (d *Decoder) arrived() ([]byte, error) {
	for {
		if _, err := d.in.Peek(1); err != nil { // fills the buffer
			return nil, err
		}
		part, _ := d.in.Peek(d.in.Buffered())
		if !d.afterCR || part[0] != '\n' {
			d.afterCR = false
			return part, nil
		}
		d.afterCR = false
		_, _ = d.in.Discard(1)
		if len(d.raw) > 0 { // or the event was returned before this byte came
			d.raw = append(d.raw, '\n')
		}
	}
}

// field processes one line that is not blank. Unknown fields are ignored, as is retry: the users of this package decide themselves when
// they connect again.
func (d *Decoder) field() {
	name, value, _ := bytes.Cut(d.line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) { // empty for a comment
	case "event":
		d.name = string(value)
	case "data":
		d.hasData = true
		d.data = append(append(d.data, value...), '\n')
	case "id":
		if bytes.IndexByte(value, 0) < 0 {
			d.id = string(value)
		}
	}
}
