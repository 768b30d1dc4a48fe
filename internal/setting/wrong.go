package setting

// WrongError is a setting, or a file that it names, with which a process cannot work until it is changed. Its text names the setting.
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
