package app

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"berth/internal/catalog"
	"berth/internal/ledger"
	"berth/internal/llm"
	"berth/internal/pause"
	"berth/internal/setting"
	"berth/internal/template"
)

// templates are those of a process, and the directory that it follows, if there is one.
type templates struct {
	*catalog.Catalog
	directory *catalog.Directory
	warned    map[string]bool // by warn, and still so
}

// openTemplates offers the templates of the binary and of a directory to all processes, and reads those of all. It waits for a database that
// is unavailable.
func openTemplates(ctx context.Context, l *ledger.Ledger, dir string, logger *slog.Logger) (*templates, error) {
	t := &templates{Catalog: catalog.New(l, logger), warned: map[string]bool{}}
	offer := func() error {
		if err := t.Offer(ctx, ledger.TemplateBuiltIn, template.Builtin().Templates, false); err != nil || dir == "" {
			return err
		}
		directory, err := t.OfferDirectory(ctx, dir)
		t.directory = directory
		return err
	}
	for backoff := pause.NewBackoff(time.Second, 10*time.Second); ; {
		err := offer()
		if err == nil {
			err = t.Refresh(ctx)
		}
		if wrong := (*setting.WrongError)(nil); err == nil || errors.As(err, &wrong) {
			return t, err
		}
		logger.WarnContext(ctx, "templates not read; retrying", "error", err)
		if !backoff.Wait(ctx) {
			return nil, context.Cause(ctx)
		}
	}
}

// run follows the changes of all processes and of the directory, and calls changed after each.
func (t *templates) run(ctx context.Context, changed func()) error {
	var g errgroup.Group
	g.Go(func() error { t.Run(ctx, changed); return nil })
	if t.directory != nil {
		g.Go(func() error { t.directory.Run(ctx); return nil })
	}
	return g.Wait()
}

// maxNamed is how many problems a line names.
const maxNamed = 10

// warn logs once what the routing file lacks for the templates of new tasks: a line for those of the program, which many installations do not
// use, and one for the others, such as after a model that they name was removed. It is for one goroutine.
func (t *templates) warn(ctx context.Context, c *llm.Catalog, logger *slog.Logger) {
	list := t.List()
	var builtin, own []string
	for _, one := range list {
		lacks := c.Lacks(one)
		if state, err := t.State(one.Name); err == nil && state.Source == ledger.TemplateBuiltIn {
			builtin = append(builtin, lacks...)
		} else {
			own = append(own, lacks...)
		}
	}
	const advice = "berth routing print --server, with the BERTH_ROUTING_FILE of this process, prints the model of each step; berth template list --server those that have none"
	known := t.warned
	t.warned = map[string]bool{}
	if fresh := t.unwarned(builtin, known); len(fresh) > 0 {
		logger.InfoContext(ctx, "routing file without the models of templates of the program", "steps", len(builtin), "first", fresh[0], "advice", advice)
	}
	own = append(c.UnusedRoutes(list), own...)
	if fresh := t.unwarned(own, known); len(fresh) > 0 {
		logger.WarnContext(ctx, "routing incomplete", "problems", len(own), "new", strings.Join(fresh[:min(len(fresh), maxNamed)], "; "), "advice", advice)
	}
}

// unwarned records problems, and returns those that are not known.
func (t *templates) unwarned(problems []string, known map[string]bool) (fresh []string) {
	for _, text := range problems {
		if t.warned[text] = true; !known[text] {
			fresh = append(fresh, text)
		}
	}
	return fresh
}
