package api

import (
	"cmp"
	"context"
	"net/http"

	"berth"
	"berth/internal/ledger"
)

func viewEntry(e ledger.Entry) entryView {
	return entryView{EntryID: e.ID, Kind: string(e.Kind), Amount: e.Amount, TaskID: e.TaskID, Reason: e.Reason, At: e.At}
}

type entriesOutputBody struct {
	Entries    []entryView `json:"entries"`
	NextCursor string      `json:"nextCursor,omitempty" doc:"Absent on the last page"`
}

// EntryPage selects a page of entries.
type EntryPage struct {
	Limit int `query:"limit" minimum:"1" maximum:"200" default:"50"`
	CursorParam
}

// AccountPath names an account in a path.
type AccountPath struct {
	UserID string `path:"userId" doc:"User id; reserved characters in it must be escaped"`
}

type accountEntriesInput struct {
	AccountPath
	EntryPage
}

type creditInput struct {
	AccountPath
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Required. Requests for one user with the same key add the credits once."`
	Body           struct {
		Amount berth.Credits `json:"amount" minimum:"-1000000000" maximum:"1000000000" doc:"Credits to add, with at most three decimals; negative to remove credits"`
		Reason string        `json:"reason" minLength:"1" doc:"Shown to the user: one line of at most 500 characters"`
	}
}

type creditOutput struct {
	Status int
	Body   creditAnswer
}

type creditAnswer struct {
	AccountView
	Entry  entryView `json:"entry"`
	Replay bool      `json:"replay,omitempty" doc:"The credits had already been added"`
}

func (s *server) accountRoutes() {
	register(s, "GET /v1/me/entries", forUser, s.listOwnEntries, op("list-own-entries", "account", "List the entries of your account, newest first",
		"The sum of all entries is the balance."))
	register(s, "GET /v1/accounts/{userId}", forOperator, s.getAccount, op("get-account", "account", "Get a user's account",
		"A user who never had credits has an account without any."))
	register(s, "GET /v1/accounts/{userId}/entries", forOperator, s.listEntries, op("list-entries", "account",
		"List the entries of a user's account, newest first"))
	replay := s.alternative("200", "The credits had already been added", creditAnswer{})
	registerOutput(s, "POST /v1/accounts/{userId}/credits", forOperator, s.addCredits, withStatus(http.StatusCreated, withResponses(replay, op(
		"add-credits", "account", "Add credits to a user's account, or remove some",
		"The balance never becomes negative: 409 when fewer credits are left than the request removes."))))
}

// account reads a user's account.
func (s *server) account(ctx context.Context, userID string) (*AccountView, error) {
	credits, err := s.Ledger.Credits(ctx, userID)
	if err != nil {
		return nil, err
	}
	return &AccountView{UserID: userID, Tier: s.tierFor(credits), Credits: credits}, nil
}

// tierFor returns the tier of a user with this balance: paid if it suffices for the cheapest template. What a metered one
// reserves depends on the task.
func (s *server) tierFor(credits berth.Credits) berth.Tier {
	for _, t := range s.Templates.List() {
		if price := s.catalog().Price(t, berth.TierPaid); price.Metered && credits > 0 || !price.Metered && price.Credits <= credits {
			return berth.TierPaid
		}
	}
	return berth.TierFree
}

func (s *server) getAccount(ctx context.Context, in *AccountPath) (*AccountView, error) {
	if err := berth.ValidUserID("userId", in.UserID); err != nil {
		return nil, err
	}
	return s.account(ctx, in.UserID)
}

func (s *server) listEntries(ctx context.Context, in *accountEntriesInput) (*entriesOutputBody, error) {
	if err := berth.ValidUserID("userId", in.UserID); err != nil {
		return nil, err
	}
	return s.entries(ctx, in.UserID, in.EntryPage)
}

func (s *server) listOwnEntries(ctx context.Context, in *EntryPage) (*entriesOutputBody, error) {
	return s.entries(ctx, callOf(ctx).user.UserID, *in)
}

func (s *server) entries(ctx context.Context, userID string, p EntryPage) (*entriesOutputBody, error) {
	found, next, err := s.Ledger.Entries(ctx, userID, p.Cursor, p.Limit)
	if err != nil {
		return nil, err
	}
	return &entriesOutputBody{Entries: convert(found, viewEntry), NextCursor: next}, nil
}

func (s *server) addCredits(ctx context.Context, in *creditInput) (*creditOutput, error) {
	switch {
	case in.IdempotencyKey == "":
		return nil, berth.Invalid("Idempotency-Key", "is missing; use a new value for each change of an account")
	case in.Body.Amount == 0:
		return nil, berth.Invalid("amount", "must not be 0")
	}
	if err := cmp.Or(berth.ValidUserID("userId", in.UserID), normalize("reason", &in.Body.Reason, berth.MaxReason)); err != nil {
		return nil, err
	}
	if in.Body.Reason == "" {
		return nil, berth.Invalid("reason", "must not be empty")
	}
	entry, credits, created, err := s.Ledger.AddCredits(ctx, ledger.Grant{
		UserID: in.UserID, Amount: in.Body.Amount, Reason: in.Body.Reason, Key: berth.DerivedID("k_", in.IdempotencyKey),
	})
	switch berth.CodeOf(err) {
	case "":
	case berth.CodeIdempotencyMismatch:
		return nil, inField(err, "Idempotency-Key")
	case berth.CodeConflict:
		return nil, inField(err, "amount")
	default:
		return nil, err
	}
	out := &creditOutput{Status: http.StatusCreated, Body: creditAnswer{
		AccountView: AccountView{UserID: in.UserID, Tier: s.tierFor(credits), Credits: credits},
		Entry:       viewEntry(entry), Replay: !created,
	}}
	if !created {
		out.Status = http.StatusOK
	}
	return out, nil
}
