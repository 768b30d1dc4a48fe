package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"berth/internal/pause"
	"berth/internal/process"
)

// processes are the processes that the demonstration has started. Each writes to a file in dir.
type processes struct {
	dir string

	mu  sync.Mutex //nolint:forbidigo // guards all
	all []*running
}

// running is a process.
type running struct {
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start starts a program with more environment variables. Its log has the name.
func (p *processes) start(name string, argv, env []string) (*running, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	file := filepath.Join(p.dir, strings.ReplaceAll(name, "/", "-")+".log")
	out, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600) //nolint:gosec // in the demonstration's own directory
	if err != nil {
		return nil, err
	}
	r := &running{cmd: exec.Command(argv[0], argv[1:]...), log: file, done: make(chan struct{})} //nolint:gosec,noctx // ended by kill
	r.cmd.Env = append(os.Environ(), env...)
	r.cmd.Stdout, r.cmd.Stderr = out, out
	r.cmd.SysProcAttr = process.EndWithParent(&syscall.SysProcAttr{})
	if err := r.cmd.Start(); err != nil {
		_ = out.Close()
		return nil, err
	}
	go func() {
		_ = r.cmd.Wait() // what it wrote shows how it ended
		_ = out.Close()
		close(r.done)
	}()
	p.all = append(p.all, r)
	return r, nil
}

// kill ends a process with SIGKILL, and returns when it has ended.
func (r *running) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	<-r.done
}

func (r *running) output() string {
	b, _ := os.ReadFile(r.log) // without it there is no output
	return string(b)
}

// killAll ends all processes.
func (p *processes) killAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.all {
		r.kill()
	}
}

// await waits until a process is ready.
func (r *running) await(ctx context.Context, ready func(context.Context) error) error {
	err := pause.Until(ctx, startTimeout, 20*time.Millisecond, func(ctx context.Context) error {
		select {
		case <-r.done:
			return nil // below
		default:
			return ready(ctx)
		}
	})
	select {
	case <-r.done:
		return fmt.Errorf("%s ended: %s", r.cmd, r.output())
	default:
	}
	if err != nil {
		return fmt.Errorf("%s did not start: %w (its log is %s)", r.cmd, err, r.log)
	}
	return nil
}

const startTimeout = time.Minute

// responds waits for the status 200 of a URL.
func responds(url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK {
			return fmt.Errorf("%s is %s", url, res.Status)
		}
		return nil
	}
}

// program is one run of one of the programs in examples/openai.
type program struct {
	name  string
	topic string
	// key is its API key.
	key           string
	calls, atOnce int
}

var result = regexp.MustCompile(`(\d+) of \d+ answers are complete`)

// run runs a program to its end, and returns how many complete answers it counted.
func (p *processes) run(ctx context.Context, examples, batch, baseURL, log string, of program) (complete int, err error) {
	argv := []string{"node", filepath.Join(examples, of.name+".mjs")}
	if of.name == "batch" {
		argv = []string{batch}
	}
	r, err := p.start(log, argv, []string{
		"OPENAI_BASE_URL=" + baseURL, "OPENAI_API_KEY=" + of.key, "MODEL=" + modelName, "TOPIC=" + of.topic,
		"CALLS=" + strconv.Itoa(of.calls), "AT_ONCE=" + strconv.Itoa(of.atOnce),
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-r.done:
	case <-ctx.Done():
		r.kill()
	}
	found := result.FindStringSubmatch(r.output())
	if found == nil {
		return 0, fmt.Errorf("%s has not ended, see %s: %w", of.name, r.log, ctx.Err())
	}
	complete, _ = strconv.Atoi(found[1]) // digits
	return complete, nil
}
