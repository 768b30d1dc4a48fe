package doctor

import (
	"context"
	"slices"
	"time"

	"berth/internal/config"
)

// RunOnly is Run without the checks of other subjects: those of servers that do not run take seconds.
func RunOnly(ctx context.Context, cfg config.Config, now func() time.Time, subject string) []Finding {
	d := newDoctor(cfg, now)
	return d.run(ctx, slices.DeleteFunc(d.checks(nil), func(c check) bool { return c.subject != subject }))
}
