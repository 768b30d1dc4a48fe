package api

import "runtime/debug"

// aside calls f on a goroutine of its own and waits for it. A stack keeps the size that its deepest call needed, and
// that of a reader lives as long as the reader: a call of the database or of Redis would double it (P12). A panic of
// f is its error.
func aside[T any](f func() (T, error)) (T, error) {
	var v T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = &errPanic{value: p, stack: debug.Stack()}
			}
		}()
		v, err = f()
	}()
	<-done
	return v, err
}
