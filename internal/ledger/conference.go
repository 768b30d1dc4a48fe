package ledger

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"berth"
)

// NextEpoch returns an epoch of a number that is higher than all before: the database's time in ms, or where that is not later
// than the last epoch, the one after it. A database that was restored from an older copy does not repeat epochs that units have.
// An unused epoch leaves a gap.
func (l *Ledger) NextEpoch(ctx context.Context, e164 string) (int64, error) {
	if err := berth.ValidE164("e164", e164); err != nil {
		return 0, err
	}
	var epoch int64
	err := l.write.QueryRowContext(ctx, `INSERT INTO conference_epochs (e164, epoch) VALUES ($1, `+l.dialect.nowMillis+`)
		ON CONFLICT (e164) DO UPDATE SET epoch = CASE WHEN conference_epochs.epoch < excluded.epoch
			THEN excluded.epoch ELSE conference_epochs.epoch + 1 END RETURNING epoch`, e164).Scan(&epoch)
	return epoch, translate("next epoch", err)
}

const saveConference = `INSERT INTO conferences
	(id, e164, user_id, status, owner, generation, epoch, revision, created_at, lost_at, refused_at, body, moving, ended_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
	ON CONFLICT (id) DO UPDATE SET status = excluded.status, owner = excluded.owner, generation = excluded.generation, epoch = excluded.epoch,
		revision = excluded.revision, lost_at = excluded.lost_at, refused_at = excluded.refused_at, body = excluded.body,
		moving = excluded.moving, ended_at = excluded.ended_at
	WHERE conferences.revision < excluded.revision
		OR conferences.revision = excluded.revision AND conferences.epoch <= excluded.epoch`

// SaveConference stores a conference. An older revision than the stored one changes nothing.
func (l *Ledger) SaveConference(ctx context.Context, c berth.Conference) error {
	if !storableID(c.ID) {
		return berth.Invalid("conferenceId", "must not be empty")
	}
	if err := berth.ValidE164("e164", c.E164); err != nil {
		return err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("save conference: %w", err)
	}
	_, err = l.exec(ctx, "save conference", saveConference, c.ID, c.E164, plain(c.UserID), c.Status, plain(c.Owner.NodeID),
		c.Owner.Generation, c.Epoch, c.Revision, millis(c.CreatedAt), millis(c.LostAt), millis(c.RefusedAt), plain(string(body)), bit(c.Moving),
		millis(c.EndedAt))
	return err
}

const selectConference = `SELECT body FROM conferences `

// FindConference returns the number's last conference, which may have ended; CodeNotFound when it never had one.
func (l *Ledger) FindConference(ctx context.Context, e164 string) (berth.Conference, error) {
	return find(ctx, l, "find conference", body[berth.Conference],
		selectConference+`WHERE e164 = $1 ORDER BY created_at DESC, epoch DESC LIMIT 1`, e164)
}

// GetConference returns a conference; CodeNotFound when there is none.
func (l *Ledger) GetConference(ctx context.Context, id string) (berth.Conference, error) {
	return find(ctx, l, "get conference", body[berth.Conference], selectConference+`WHERE id = $1`, id)
}

// ConferencesOf returns the conferences that a unit owns in any generation, ordered by number.
func (l *Ledger) ConferencesOf(ctx context.Context, nodeID string) ([]berth.Conference, error) {
	if !storableID(nodeID) {
		return nil, nil
	}
	return list(ctx, l, "conferences of a unit", body[berth.Conference], selectConference+`WHERE owner <> '' AND owner = $1 ORDER BY e164`, nodeID)
}

// WaitingConferences returns at most limit conferences that wait for recovery, after the first skip ones: those that no unit has
// refused first, then the oldest.
func (l *Ledger) WaitingConferences(ctx context.Context, skip, limit int) ([]berth.Conference, error) {
	return list(ctx, l, "waiting conferences", body[berth.Conference], selectConference+`WHERE status = 'awaiting-recovery'
		ORDER BY refused_at, lost_at, id LIMIT $1 OFFSET $2`, clamp(limit, 1000), skip)
}

// MovingConferences returns at most limit open conferences that wait to be moved from a drained unit.
func (l *Ledger) MovingConferences(ctx context.Context, limit int) ([]berth.Conference, error) {
	return list(ctx, l, "moving conferences", body[berth.Conference], selectConference+`WHERE moving = 1 ORDER BY id LIMIT $1`, clamp(limit, 1000))
}

const nextNumber = `INSERT INTO conference_numbers (first, next) VALUES ($1, $2)
	ON CONFLICT (first) DO UPDATE SET next = CASE WHEN conference_numbers.next < $3 THEN conference_numbers.next + 1 ELSE excluded.next END
	RETURNING next`

// maxTaken is the number of used numbers that NextE164 skips before it fails.
const maxTaken = 1000

// NextE164 returns a free number of the range from the given number to the last one with as many digits. It advances
// through the range and wraps around, so that a number is reused as late as possible. CodeUnavailable when it finds none.
func (l *Ledger) NextE164(ctx context.Context, from string) (string, error) {
	if err := berth.ValidE164("from", from); err != nil {
		return "", err
	}
	first, err := strconv.ParseInt(from, 10, 64)
	if err != nil {
		return "", fmt.Errorf("next number: %w", err)
	}
	end := int64(1)
	for range from {
		end *= 10
	}
	for range maxTaken {
		var n int64
		if err := l.write.QueryRowContext(ctx, nextNumber, from, first, end-1).Scan(&n); err != nil {
			return "", translate("next number", err)
		}
		number := strconv.FormatInt(n, 10)
		last, ok, err := berth.Found(l.FindConference(ctx, number))
		if err != nil {
			return "", err
		}
		if !ok || last.Status.Final() {
			return number, nil
		}
	}
	return "", berth.Errorf(berth.CodeUnavailable, "no free number from %s on", from)
}
