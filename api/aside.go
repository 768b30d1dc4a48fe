package api

import "runtime/debug"

// aside calls f on another goroutine and waits for it. A goroutine's stack keeps the size of its deepest call, and a
// reader's lasts as long as the reader: a call of the database or Redis would double it. A panic of f becomes its error.
func aside[T any](f func() (T, error)) (T, error) {
	var v T
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		err = rescued(func() (failed error) { v, failed = f(); return failed })
	}()
	<-done
	return v, err
}

// rescued calls f. A panic of f becomes its error.
func rescued(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &errPanic{value: p, stack: debug.Stack()}
		}
	}()
	return f()
}
