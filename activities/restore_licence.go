package activities

import (
	"context"

	"go.temporal.io/sdk/activity"
	"golang.org/x/sync/errgroup"

	"berth"
)

// restoreLicences restores the licences of the conferences that are open according to the database.
func (l *Links) restoreLicences(ctx context.Context, done *signalled) error {
	if done.Licensed || l.Conferences.Licences == 0 {
		return nil
	}
	restored := 0
	for after := ""; ; {
		rows, err := l.Ledger.OpenConferences(ctx, after, restorePage)
		if err != nil {
			return err
		}
		var g errgroup.Group
		g.SetLimit(maxRestored)
		for _, c := range rows {
			after = c.ID
			if l.Conferences.licence(berth.Conference{Status: c.Status}).Waived {
				continue
			}
			restored++
			g.Go(func() error {
				_, err := l.Scripts.RestoreLicence(ctx, c.E164, c.ID)
				return err
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		done.Licensed = len(rows) < restorePage
		activity.RecordHeartbeat(ctx, *done)
		if done.Licensed {
			l.Logger.InfoContext(ctx, "licences of open conferences restored", "licences", restored)
			return nil
		}
	}
}
