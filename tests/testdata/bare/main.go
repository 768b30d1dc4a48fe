// Command bare is the least that an echo server does for open event streams: what berth's memory is measured beside.
// It listens on the address of its first argument. POST /event sends one event to every open stream.
package main

import (
	"log"
	"net/http"
	"os"
	"sync/atomic"

	"github.com/labstack/echo/v4"
)

// event is one round for all readers; next is closed when the one after it comes.
type event struct {
	data []byte
	next chan struct{}
}

func main() {
	var last atomic.Pointer[event]
	last.Store(&event{next: make(chan struct{})})
	e := echo.New()
	e.HideBanner = true
	e.GET("/events", func(c echo.Context) error {
		at := last.Load()
		res := c.Response()
		res.Header().Set(echo.HeaderContentType, "text/event-stream")
		res.WriteHeader(http.StatusOK)
		if _, err := res.Write([]byte("retry: 1000\n\n")); err != nil {
			return err
		}
		res.Flush()
		for {
			select {
			case <-c.Request().Context().Done():
				return nil
			case <-at.next:
				at = last.Load()
				if _, err := res.Write(at.data); err != nil {
					return err
				}
				res.Flush()
			}
		}
	})
	e.POST("/event", func(c echo.Context) error { // one at a time, when all have read the last
		ev := &event{data: []byte(c.FormValue("event")), next: make(chan struct{})}
		close(last.Swap(ev).next)
		return c.NoContent(http.StatusNoContent)
	})
	log.Fatal(e.Start(os.Args[1]))
}
