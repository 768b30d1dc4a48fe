package app

import (
	"errors"
	"log/slog"
	"net"
	"syscall"
	"time"
)

// complainEvery is the time between two log records of a listener that accepts nothing.
const complainEvery = 10 * time.Second

// accepting is a listener that logs why it accepts no connections. The HTTP server retries, and logs it with the errors of broken clients.
type accepting struct {
	net.Listener
	log        *slog.Logger
	complained time.Time
}

// Accept is part of net.Listener. The HTTP server calls it from one goroutine.
func (a *accepting) Accept() (net.Conn, error) {
	c, err := a.Listener.Accept()
	if (errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)) && time.Since(a.complained) > complainEvery {
		a.complained = time.Now()
		a.log.Warn("new connections wait; raise the limit of open files (ulimit -n)", "error", err)
	}
	return c, err
}
