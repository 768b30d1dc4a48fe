package doctor

import (
	"context"
	"syscall"
)

// minFiles is the number of open files that systems permit by default. Go raises the limit of a process to the highest that is permitted.
const minFiles = 1024

// limits checks what the system permits this user's processes.
func (d *doctor) limits(context.Context) {
	const subject = "limits"
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil {
		d.add(Warning, subject, "", "the limit of open files cannot be read: %s", err)
		return
	}
	if files.Cur < minFiles {
		d.add(Warning, subject, "raise the limit of open files: ulimit -n 65536, or LimitNOFILE=65536 in the unit of systemd",
			"a process may have %d open files: every event stream needs one, every participant of a conference two; further connections wait", files.Cur)
		return
	}
	d.add(OK, subject, "", "a process may have %d open files", files.Cur)
}
