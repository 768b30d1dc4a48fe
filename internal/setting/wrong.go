package setting

// WrongError is a setting, a file that it names, or a right, with which a process cannot work until it is changed. Its text names the setting.
// A lasting health.Problem is one as well.
type WrongError struct{ Err error }

func (e *WrongError) Error() string { return e.Err.Error() }

func (e *WrongError) Unwrap() error { return e.Err }

// Wrong marks an error that names its setting; nil for nil.
func Wrong(err error) error {
	if err == nil {
		return nil
	}
	return &WrongError{err}
}
