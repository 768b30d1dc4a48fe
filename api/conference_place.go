package api

import (
	"context"

	"berth"
	"berth/internal/ledger"
	"berth/workflows"
)

// maxNumbers limits how many numbers are tried when other requests take the assigned ones.
const maxNumbers = 5

// place creates the conference, with an assigned number when none was given.
func (s *server) place(ctx context.Context, want workflows.ConferenceInput, key string) (c berth.Conference, replay bool, err error) {
	if key != "" {
		return s.placeOnce(ctx, want, key)
	}
	if want.Spec.E164 != "" {
		return s.Starter.CreateConference(ctx, want)
	}
	for range maxNumbers {
		if want.Spec.E164, err = s.Ledger.NextE164(ctx, s.Config.NumbersFrom); err != nil {
			return c, false, err
		}
		if c, replay, err = s.Starter.CreateConference(ctx, want); berth.CodeOf(err) != berth.CodeConflict {
			return c, replay, err
		}
	}
	return c, false, noNumber(err)
}

func noNumber(err error) error {
	return berth.Errorf(berth.CodeUnavailable, "no free number found; retry").With(err)
}

// placeOnce is place for an idempotency key. The key's conference is stored first, so that a retry after a lost response or
// a crash finds it. A refused conference leaves nothing: the key then has another one.
func (s *server) placeOnce(ctx context.Context, want workflows.ConferenceInput, key string) (c berth.Conference, replay bool, err error) {
	named := want.Spec.E164
	id := hash([]byte(want.UserID + "\x00" + key))
	k, used, err := berth.Found(s.Ledger.FindConferenceKey(ctx, id))
	if err != nil {
		return c, false, err
	}
	k.ID = id
	for range maxNumbers {
		if !used {
			if k, err = s.keepKey(ctx, k, want, named); err != nil {
				return c, false, err
			}
		}
		if k.RequestHash != want.RequestHash {
			return c, false, errorIn("Idempotency-Key", berth.CodeIdempotencyMismatch, "was used for another request")
		}
		found, ok, ferr := berth.Found(s.Ledger.GetConference(ctx, k.ConferenceID))
		switch {
		case ferr != nil:
			return c, false, ferr
		case !ok || found.Status == berth.ConferenceCreating:
		case found.Status == berth.ConferenceDeleted:
			used, want.ConferenceID = false, berth.NewID("c-")
			continue
		default:
			return found, true, nil
		}
		want.ConferenceID, want.Spec.E164 = k.ConferenceID, k.E164
		c, replay, err = s.Starter.CreateConference(ctx, want)
		if berth.CodeOf(err) == berth.CodeConflict && named == "" { // another request took the number
			used, want.ConferenceID = false, berth.NewID("c-")
			continue
		}
		if err == nil && c.ID != k.ConferenceID { // the same request without this key created it
			_, err = s.Ledger.KeepConferenceKey(ctx, ledger.ConferenceKey{ID: k.ID, ConferenceID: c.ID, E164: c.E164}, k.ConferenceID)
		}
		return c, replay, err
	}
	return c, false, noNumber(err)
}

// keepKey stores the conference of a key, in place of an earlier one.
func (s *server) keepKey(
	ctx context.Context, was ledger.ConferenceKey, want workflows.ConferenceInput, e164 string,
) (ledger.ConferenceKey, error) {
	if e164 == "" {
		var err error
		if e164, err = s.Ledger.NextE164(ctx, s.Config.NumbersFrom); err != nil {
			return ledger.ConferenceKey{}, err
		}
	}
	return s.Ledger.KeepConferenceKey(ctx, ledger.ConferenceKey{
		ID: was.ID, RequestHash: want.RequestHash, ConferenceID: want.ConferenceID, E164: e164,
	}, was.ConferenceID)
}
