package ledger

import (
	"context"
	"crypto/rand"
	"database/sql"
	"testing"

	"berth"
	"berth/internal/testdb"
)

// BenchmarkTaskLife measures a task of one step (four transactions) with eight concurrent clients. SQLite commits durably
// here; PostgreSQL runs without fsync.
func BenchmarkTaskLife(b *testing.B) {
	for name, kind := range testdb.Kinds() {
		b.Run(name, func(b *testing.B) {
			l := open(b, kind(b))
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := oneLife(context.Background(), l); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tasks/s")
		})
	}
}

func oneLife(ctx context.Context, l *Ledger) error {
	t, _, err := l.CreateTask(ctx, chain())
	if err != nil {
		return err
	}
	a, err := l.BeginAttempt(ctx, t.Ref(), 0, "OCR_PENDING")
	if err != nil {
		return err
	}
	out, err := l.FinishStep(ctx, result(t, 0, a.Fence, t.ID))
	if err != nil {
		return err
	}
	_, _, err = l.FinishTask(ctx, End{TaskRef: t.Ref(), Status: berth.TaskCompleted, ResultAssetID: out})
	return err
}

// BenchmarkBareTransaction measures one insert in its own transaction: the cost of the database itself.
func BenchmarkBareTransaction(b *testing.B) {
	for name, kind := range testdb.Kinds() {
		b.Run(name, func(b *testing.B) {
			l := open(b, kind(b))
			if _, err := l.write.ExecContext(context.Background(), `CREATE TABLE bare (id TEXT PRIMARY KEY)`); err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(4)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					if err := l.inTx(context.Background(), "bare", func(tx *sql.Tx) error {
						_, err := tx.ExecContext(context.Background(), `INSERT INTO bare VALUES ($1)`, rand.Text())
						return err
					}); err != nil {
						b.Error(err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "tx/s")
		})
	}
}
