// Command berth-demo shows what berth does for programs of OpenAI's protocol: it runs five programs of two teams with faults, counts at the
// provider, and prints a scoreboard. It exits with 1 if a line is false. See examples/openai/README.md.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

type options struct {
	root        string
	durability  string
	quick, keep bool
}

const timeout = 5 * time.Minute

func main() {
	var o options
	flag.StringVar(&o.root, "root", ".", "directory of the project, which has bin and examples")
	flag.StringVar(&o.durability, "durability", "durable", "how berth makes the calls: durable or direct")
	flag.BoolVar(&o.quick, "quick", false, "make fewer calls, without the other gateway, and do not wait for the reconciliation")
	flag.BoolVar(&o.keep, "keep", false, "keep the logs also if no line is false")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ctx, cancel := context.WithTimeout(ctx, timeout)
	failed, err := o.run(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth-demo:", err)
	}
	if err != nil || failed > 0 {
		os.Exit(1)
	}
}

// run runs the demonstration and returns how many lines of its scoreboard are false.
func (o options) run(ctx context.Context) (failed int, err error) {
	dir, err := os.MkdirTemp("", "berth-demo-")
	if err != nil {
		return 0, err
	}
	defer func() {
		if err == nil && failed == 0 && !o.keep {
			_ = os.RemoveAll(dir)
			return
		}
		fmt.Fprintln(os.Stderr, "the logs are in", dir)
	}()
	began := time.Now()
	size := full
	if o.quick {
		size = quick
	}
	berth, portkey := &run{size: size, durable: o.durability == "durable"}, (*run)(nil)
	processes := &processes{dir: dir}
	defer processes.killAll()
	b := bench{processes: processes, bin: filepath.Join(o.root, "bin"), examples: filepath.Join(o.root, "examples", "openai"), size: size}
	gateway, stop, err := b.berth(ctx, berth, o.durability)
	defer stop()
	if err != nil {
		return 0, fmt.Errorf("berth: %w", err)
	}
	if !o.quick {
		portkey = &run{size: size}
		if err := b.portkey(ctx, portkey); err != nil { // nothing is required of it
			fmt.Println("portkey:", err)
			portkey = nil
		}
	}
	if err := b.charges(ctx, gateway, berth, !o.quick); err != nil {
		return 0, fmt.Errorf("berth: %w", err)
	}
	board := scoreboard(berth, portkey)
	fmt.Print(render(board, portkey != nil))
	conditions := 0
	for _, l := range board {
		if l.must != "" {
			conditions++
		}
		if l.wrong {
			failed++
		}
	}
	fmt.Printf("\n%d of %d conditions hold, after %s\n", conditions-failed, conditions, time.Since(began).Round(time.Second))
	return failed, nil
}
