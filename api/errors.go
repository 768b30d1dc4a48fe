package api

import (
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"berth"
)

// ownCodes are the error codes of calls by operation id, besides those that follow from the access rule, the parameters and the body of
// each. The tests of this package fail for a response with a code that is not described.
var ownCodes = map[string][]berth.Code{
	"activate-routing": {berth.CodeNotFound},
	"add-credits":      {berth.CodeConflict, berth.CodeIdempotencyMismatch},
	"add-participant":  {berth.CodeConflict, berth.CodeEnded},
	"assign":           {berth.CodeIdempotencyMismatch, berth.CodeNoNode, berth.CodeNodeFull},
	"bind-tenant":      {berth.CodeConflict},
	"cancel-execution": {berth.CodeConflict, berth.CodeQueueFull, berth.CodeRateLimited},
	"cancel-task":      {berth.CodeConflict, berth.CodeQueueFull, berth.CodeRateLimited},
	"create-conference": {
		berth.CodeConflict, berth.CodeIdempotencyMismatch, berth.CodeQueueFull, berth.CodeRateLimited, berth.CodeUnitRefused,
		berth.CodeNoLicence, berth.CodeNoNode, berth.CodeNodeFull,
	},
	"create-key":             {berth.CodeConflict},
	"create-link":            {berth.CodeEnded},
	"create-webhook":         {berth.CodeConflict},
	"test-webhook":           {berth.CodeConflict},
	"resend-delivery":        {berth.CodeConflict},
	"create-ticket":          {berth.CodeNotFound},
	"delete-app":             {berth.CodeConflict},
	"delete-team":            {berth.CodeConflict},
	"get-routing":            {berth.CodeNotFound},
	"delete-template":        {berth.CodeConflict},
	"dispatch-job":           {berth.CodeTurnFinalized, berth.CodeIdempotencyMismatch, berth.CodeQueueFull, berth.CodeRateLimited, berth.CodeNoNode, berth.CodeNodeFull},
	"end-conference":         {berth.CodeConflict},
	"erase-asset":            {berth.CodeConflict},
	"erase-task":             {berth.CodeConflict},
	"extend-conference":      {berth.CodeConflict},
	"finalize-turn":          {berth.CodeTurnFinalized, berth.CodeQueueFull, berth.CodeRateLimited},
	"get-asset":              {berth.CodeErased},
	"get-conference-info":    {berth.CodeConflict},
	"get-execution":          {berth.CodeConflict, berth.CodeQueueFull, berth.CodeRateLimited},
	"get-task":               {berth.CodeConflict},
	"get-turn":               {berth.CodeQueueFull, berth.CodeRateLimited},
	"heartbeat-node":         {berth.CodeConflict},
	"look-up-invitation":     {berth.CodeUnauthenticated, berth.CodeRemoved, berth.CodeEnded, berth.CodeLinkRevoked, berth.CodeLinkUsed},
	"move-conference":        {berth.CodeConflict, berth.CodeNodeFull},
	"put-conference-info":    {berth.CodeConflict},
	"put-app":                {berth.CodeConflict},
	"put-key":                {berth.CodeConflict},
	"put-session":            {berth.CodeNoNode},
	"put-team":               {berth.CodeConflict},
	"redeem-link":            {berth.CodeUnauthenticated, berth.CodeRemoved, berth.CodeEnded, berth.CodeLinkRevoked, berth.CodeLinkUsed},
	"register-node":          {berth.CodeConflict},
	"renew-assignment":       {berth.CodeConflict, berth.CodeNoNode},
	"send-conference-record": {berth.CodeConflict},
	"signalling":             {berth.CodeUnauthenticated},
	"signalling-v1":          {berth.CodeUnauthenticated},
	"signalling-v1-validate": {berth.CodeUnauthenticated},
	"signalling-validate":    {berth.CodeUnauthenticated},
	"submit-execution":       {berth.CodeConflict, berth.CodeIdempotencyMismatch, berth.CodeQueueFull, berth.CodeRateLimited, berth.CodeNoNode, berth.CodeNodeFull},
	"submit-task":            {berth.CodeConflict, berth.CodeIdempotencyMismatch, berth.CodeQueueFull, berth.CodeRateLimited, berth.CodeNotServed},
	"task-events":            {berth.CodeConflict},
}

// describeErrors adds to each call the responses with the status of each code that it may return. The response "default" remains, for
// what is not an error of berth, such as one of a proxy.
func (s *server) describeErrors() {
	for path, item := range s.doc.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Put, item.Post, item.Delete, item.Patch} {
			if op == nil {
				continue
			}
			byStatus := map[int][]string{}
			for _, code := range errorCodes(op, s.rules[routeKey(op.Method, echoPath(path))]) {
				info := code.Info()
				byStatus[info.Status] = append(byStatus[info.Status], "`"+string(code)+"`: "+info.Description)
			}
			for status, codes := range byStatus {
				key := strconv.Itoa(status)
				if op.Responses[key] != nil { // the call has another body with this status
					continue
				}
				op.Responses[key] = response(strings.Join(codes, "; "), problemType, s.schemaOf(Problem{}))
			}
		}
	}
}

// errorCodes returns the codes of a call, in the order of their table.
func errorCodes(op *huma.Operation, r rule) []berth.Code {
	may := slices.Concat(ownCodes[op.OperationID], []berth.Code{berth.CodeInternal, berth.CodeInvalid}) // of a malformed query
	if strings.HasPrefix(op.Path, "/v1/") {
		may = append(may, berth.CodeUnavailable)
	}
	if !r.public {
		may = append(may, berth.CodeUnauthenticated)
	}
	if len(r.scopes) > 0 {
		may = append(may, berth.CodeForbidden)
	}
	if strings.Contains(op.Path, "{") {
		may = append(may, berth.CodeNotFound)
	}
	if op.RequestBody != nil {
		may = append(may, berth.CodeTooLarge, berth.CodeUnsupportedMedia)
	}
	var codes []berth.Code
	for _, c := range berth.Codes() {
		if c.Status != 0 && slices.Contains(may, c.Code) {
			codes = append(codes, c.Code)
		}
	}
	return codes
}
