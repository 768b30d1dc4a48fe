package llm

import (
	"bufio"
	"compress/gzip"
	"io"
)

// unzipped is a body that may be in gzip although its header does not state it, as some proxies send it. No text begins with the mark of gzip.
type unzipped struct {
	io.Closer
	in  *bufio.Reader
	out io.Reader // nil before the first byte
}

func newUnzipped(body io.ReadCloser) *unzipped {
	return &unzipped{Closer: body, in: bufio.NewReader(body)}
}

func (u *unzipped) Read(p []byte) (int, error) {
	if u.out == nil {
		head, err := u.in.Peek(1)
		if err != nil {
			return 0, err
		}
		u.out = u.in
		if head[0] == 0x1f {
			if u.out, err = gzip.NewReader(u.in); err != nil {
				return 0, err
			}
		}
	}
	return u.out.Read(p)
}
