package llm

import (
	"net/http"
	"slices"
	"strings"

	"berth"
)

// Cause is why a provider failed a call.
type Cause string

// The causes.
const (
	CauseContext    Cause = "context_too_long"
	CauseRefused    Cause = "content_refused"
	CauseCredit     Cause = "no_credit"
	CauseKey        Cause = "invalid_key"
	CausePermission Cause = "no_permission"
	CauseRegion     Cause = "wrong_region"
	CauseBlocked    Cause = "blocked"
	CauseModel      Cause = "not_found"
	CauseLimit      Cause = "rate_limit"
	CauseOverload   Cause = "overload"
	CauseTimeout    Cause = "timeout"
	CauseTooLarge   Cause = "request_too_large"
	CauseOverLimit  Cause = "over_limit"
	CauseBadRequest Cause = "bad_request"
	CauseAddress    Cause = "wrong_address"
	CauseServer     Cause = "provider_failed"
	CauseConnection Cause = "connection"
	CauseUnreadable Cause = "unreadable_answer"
	CauseMalformed  Cause = "malformed_answer"
	CauseTool       Cause = "tool_call"
	CauseFinish     Cause = "unknown_finish_reason"
	CauseEmpty      Cause = "empty_answer"
	CauseEndless    Cause = "endless_answer"
	CauseTokens     Cause = "token_limit"
	CauseFormat     Cause = "wrong_format"
	CauseUnknown    Cause = "unknown_error"
)

// Decision is what follows a failed call.
type Decision string

// The decisions. A task that fails is refunded, whatever the decision was before.
const (
	// Fail: the same call would fail again.
	Fail Decision = "fail"
	// Retry: the call is made again, until the task's deadline; those that may have cost something only until the step has bought
	// its maximum of answers. Repeated failures pause the model.
	Retry Decision = "retry"
	// Pause: as Retry, and the model is paused for all callers for as long as the provider asks.
	Pause Decision = "pause"
	// Another: the model has answered, and another answer may be usable: as Retry, but the model is not paused.
	Another Decision = "another answer"
)

// Scope is what a cause concerns, which decides whether another upstream of the model may serve the call.
type Scope string

// The scopes.
const (
	// ScopeUpstream: another upstream may serve the call.
	ScopeUpstream Scope = "upstream"
	// ScopeOperator: likewise, and no call of the upstream succeeds before an operator has changed something.
	ScopeOperator Scope = "upstream, until an operator acts"
	// ScopeSize: the request is too large for the upstream; one with more room may serve it.
	ScopeSize Scope = "size of the request"
	// ScopeRequest: every upstream would fail the call, or the model has answered.
	ScopeRequest Scope = "request"
)

// causeRule is one cause: what shows it, what it concerns, what follows, and what the user reads.
type causeRule struct {
	cause    Cause
	code     berth.Code
	scope    Scope
	decision Decision
	// says is what users read: what happened and who can act. {} is the provider, {key} is the setting of its key, {reason} is the
	// provider's own reason.
	says string
	// names are codes and types of the provider's error, in lower case without separators; phrases are parts of its message, in lower
	// case. They are looked for before statuses: many providers have one status for several causes.
	names, phrases []string
	statuses       []int
	// kinds are names that do not tell more than a status; they count after it.
	kinds []string
}

// causeRules is the table of causes, in the order in which they are looked for. It serves errors with an HTTP status, errors within a
// stream and errors in the body of a 200 alike. docs/providers.md is generated from it.
var causeRules = []causeRule{
	{
		cause: CauseCredit, code: berth.CodeProviderRejected, scope: ScopeOperator, decision: Fail,
		says: "the account of this server at {} has no credit: the operator has to add some",
		names: []string{
			"insufficientquota", "insufficientbalance", "insufficientcredits", "billinghardlimitreached", "billingnotactive", "arrearage",
			"accountoverdueerror", "creditbalancetoolow", "paymentrequired", "exceededcurrentquotaerror",
			"1113", "baseresp1008", // Zhipu, MiniMax
		},
		phrases: []string{
			"insufficient balance", "insufficient credit", "insufficient fund", "credit balance is too low", "exceeded your current quota",
			"balance is insufficient", "balance is not enough", "not enough balance", "not enough credit", "insufficient account balance",
			"overdue balance", "out of credit", "no credit", "add credits", "requires more credits", "account is in arrears", "overdue payment", "余额不足", "欠费", "余量已用尽", "余量不足",
		},
		statuses: []int{http.StatusPaymentRequired},
	},
	{
		cause: CauseContext, code: berth.CodeProviderRejected, scope: ScopeSize, decision: Fail,
		says: "the texts are too long for the model: shorten them",
		names: []string{
			"contextlengthexceeded", "contextwindowexceeded", "contextlengthexceedederror", "modelcontextwindowexceeded", "exceedcontextsizeerror",
			"stringabovemaxlength", "tokenstoolong", "promptistoolong", "1261", // Zhipu
		},
		phrases: []string{
			"context length", "context_length", "context window", "context size", "context limit", "prompt is too long", "prompt too long",
			"input is too long", "input too long", "inputs tokens +", "reduce the length", "too many input tokens", "tokens_too_long",
			"maximum number of tokens allowed", "exceeds the maximum number of tokens", "range of input length should be",
			"input token count", "max_model_len", "maximum input length", "length of your prompt", "超长",
		},
	},
	{
		cause: CauseRefused, code: berth.CodeProviderRejected, scope: ScopeRequest, decision: Fail,
		says: "the content filter of {} refused the texts or the answer: change the texts",
		names: []string{
			"contentfilter", "contentpolicyviolation", "contentpolicy", "responsibleaipolicyviolation", "datainspectionfailed", "moderationblocked",
			"sensitivecheckerror", "sensitive", "safetyerror", "inappropriatecontent", "guardrailintervened", "imagecontentpolicyviolation", "1301", "baseresp1026", "baseresp1027",
		},
		phrases: []string{
			"content exists risk", "content management policy", "content policy", "inappropriate content", "content filter", "sensitive content",
			"unsafe content", "flagged", "safety system", "usage policies", "敏感", "不合规",
		},
		statuses: []int{http.StatusUnavailableForLegalReasons},
	},
	{
		cause: CauseRegion, code: berth.CodeProviderRejected, scope: ScopeOperator, decision: Fail,
		says:  "{} does not serve the region of this server{reason}: the operator has to use another provider",
		names: []string{"unsupportedcountryregionterritory", "unsupportedregion", "regionnotsupported"},
		phrases: []string{
			"unsupported_country_region_territory", "region, or territory not supported", "not supported in your country", "not supported in your region",
			"not available in your country", "not available in your region", "unsupported region", "unsupported country", "location is not supported",
		},
	},
	{
		cause: CauseModel, code: berth.CodeProviderRejected, scope: ScopeOperator, decision: Fail,
		says: "{} does not know the model or the address: the operator has to correct baseURL or id in the routing file{reason}",
		names: []string{
			"modelnotfound", "modelnotexist", "invalidmodel", "unknownmodel", "modelnotavailable", "modelnotsupported", "deploymentnotfound",
			"1211", "1221", "1222",
		},
		phrases: []string{
			"model not exist", "model does not exist", "model not found", "no such model", "unknown model", "invalid model", "not a valid model",
			"try pulling it first", "no endpoints found", "模型不存在",
		},
		statuses: []int{http.StatusNotFound, http.StatusGone},
	},
	{
		cause: CauseKey, code: berth.CodeProviderKey, scope: ScopeOperator, decision: Fail,
		says: "{key}",
		names: []string{
			"invalidapikey", "authenticationerror", "authenticationfailed", "invalidauthenticationerror", "incorrectapikey", "invalidtoken",
			"apikeyinvalid", "unauthenticated", "unauthorized", "1000", "1001", "1002", "1003", "1004", "baseresp1004", "baseresp2049",
		},
		phrases: []string{
			"invalid api key", "incorrect api key", "api key is invalid", "api key not valid", "invalid authentication", "authentication fails",
			"invalid token", "invalid x-api-key", "missing api key", "no auth credentials",
		},
		statuses: []int{http.StatusUnauthorized},
	},
	{
		cause: CausePermission, code: berth.CodeProviderKey, scope: ScopeOperator, decision: Fail,
		says: "{} does not permit this server the call{reason}: the operator has to check the rights of {key}",
		names: []string{
			"permissiondenied", "permissionerror", "permissiondeniederror", "accessdenied", "modelaccessdenied",
			"accountdeactivated", "organizationrestricted", "1110", "1112", "1121", "1220",
		},
		phrases:  []string{"does not have access to", "not allowed to access", "account has been locked"},
		statuses: []int{http.StatusForbidden},
		kinds:    []string{"forbidden"},
	},
	{ // also a page with the status 403
		cause: CauseBlocked, code: berth.CodeProviderRejected, scope: ScopeUpstream, decision: Fail,
		says:     "something in front of {} refused the call{reason}: the operator has to check baseURL, the network and the proxy",
		statuses: []int{http.StatusProxyAuthRequired},
	},
	{
		cause: CauseLimit, code: berth.CodeProviderUnavailable, scope: ScopeUpstream, decision: Pause,
		says: "{} has received too many requests of this server: retry later",
		names: []string{
			"ratelimitexceeded", "ratelimiterror", "ratelimit", "ratelimitreached", "ratelimitreachederror", "toomanyrequests", "throttling",
			"throttlingratequota", "throttlingallocationquota", "throttlingexception", "limitrequests", "limitburstrate", "resourceexhausted",
			"concurrencylimitexceeded", "tokens", "requests", "1302", "1303", "1304", "1308", "baseresp1002", "baseresp1039",
		},
		phrases:  []string{"rate limit", "rate_limit", "too many requests", "requests per minute", "tokens per minute", "max rpm", "max tpm", "速率限制"},
		statuses: []int{http.StatusTooManyRequests},
	},
	{
		cause: CauseOverload, code: berth.CodeProviderUnavailable, scope: ScopeUpstream, decision: Retry,
		says: "{} is overloaded: retry later",
		names: []string{
			"overloadederror", "overloaded", "engineoverloaded", "engineoverloadederror", "serverisoverloaded", "serveroverloaded", "serverbusy",
			"capacityexceeded", "insufficientsystemresource", "modeloverloaded", "1305", "1312",
		},
		phrases: []string{
			"overloaded", "server is busy", "servers are busy", "system is busy", "at capacity", "over capacity", "capacity exceeded",
			"currently loading", "loading model", "no available channel", "负载", "繁忙",
		},
		statuses: []int{http.StatusServiceUnavailable, 498, 529}, // 498 of Groq, 529 of Anthropic
		kinds:    []string{"unavailable", "serviceunavailable", "serviceunavailableerror"},
	},
	{
		cause: CauseTimeout, code: berth.CodeProviderUnavailable, scope: ScopeUpstream, decision: Retry,
		says:     "{} did not answer in time: retry later",
		names:    []string{"timeout", "timeouterror", "requesttimeout", "gatewaytimeout", "gatewaytimeouterror", "deadlineexceeded", "baseresp1001"},
		phrases:  []string{"timed out", "gateway timeout", "request timeout", "upstream timeout"},
		statuses: []int{http.StatusRequestTimeout, http.StatusTooEarly, http.StatusGatewayTimeout, 522, 524}, // 522 and 524 of Cloudflare
	},
	{
		cause: CauseTooLarge, code: berth.CodeProviderRejected, scope: ScopeRequest, decision: Fail,
		says:     "the request is too large for {}: use shorter texts or a smaller image",
		names:    []string{"requesttoolarge", "payloadtoolarge", "requestentitytoolarge"},
		phrases:  []string{"request entity too large", "payload too large", "body too large"},
		statuses: []int{http.StatusRequestEntityTooLarge},
	},
	{ // a rate limit that is lower than what the request needs
		cause: CauseOverLimit, code: berth.CodeProviderRejected, scope: ScopeSize, decision: Fail,
		says: "the texts are too long for the rate limit of this server at {}{reason}: shorten them, or the operator has to raise the limit or use another model",
	},
	{
		cause: CauseServer, code: berth.CodeProviderUnavailable, scope: ScopeUpstream, decision: Retry,
		says:  "{} failed{reason}: retry later",
		kinds: []string{"servererror", "internalservererror", "internalerror", "apierror", "internal", "upstreamerror", "badgateway", "1234", "baseresp1000"},
	},
	{
		cause: CauseAddress, code: berth.CodeProviderRejected, scope: ScopeOperator, decision: Fail,
		says:    "{} sent something else than an answer{reason}: the operator has to check baseURL in the routing file",
		phrases: []string{"http request to an https server", "http request was sent to https port"},
		statuses: []int{
			http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther, http.StatusTemporaryRedirect, http.StatusPermanentRedirect,
			http.StatusMethodNotAllowed,
		},
	},
	{
		cause: CauseBadRequest, code: berth.CodeProviderRejected, scope: ScopeRequest, decision: Fail,
		says: "{} rejected the request{reason}: the operator has to check the model in the routing file",
		kinds: []string{
			"invalidrequesterror", "badrequesterror", "badrequest", "invalidparameter", "invalidargument", "validationerror", "unsupportedparameter",
			"unsupportedvalue", "invalidvalue", "extraforbidden", "1210", "1213", "1214", "1215", "baseresp2013",
			"invalidprompt", "invalidencryptedcontent", "invalidimage", "invalidimageformat", "invalidbase64image", "invalidimageurl", "imagetoolarge", "imagetoosmall",
			"imageparseerror", "invalidimagemode", "imagefiletoolarge", "unsupportedimagemediatype", "emptyimagefile", "failedtodownloadimage", "imagefilenotfound", // of responses
		},
	},
	{
		cause: CauseConnection, code: berth.CodeProviderUnavailable, scope: ScopeUpstream, decision: Retry,
		says: "{} is unreachable or closed the connection{reason}: retry later",
	},
	{
		cause: CauseUnreadable, code: berth.CodeProviderUnavailable, scope: ScopeUpstream, decision: Retry,
		says: "{} sent an answer that is not valid JSON: retry, or the operator has to check baseURL",
	},
	{
		cause: CauseMalformed, code: berth.CodeInvalidOutput, scope: ScopeUpstream, decision: Fail,
		says: "{} sent an answer of an unknown form{reason}: the operator has to check the provider",
	},
	{
		cause: CauseTool, code: berth.CodeInvalidOutput, scope: ScopeRequest, decision: Another,
		says: "the model called a tool that it was not given, instead of answering: retry",
	},
	{
		cause: CauseFinish, code: berth.CodeInvalidOutput, scope: ScopeRequest, decision: Another,
		says: "{} ended the answer for a reason that berth does not know{reason}: retry",
	},
	{
		cause: CauseEmpty, code: berth.CodeInvalidOutput, scope: ScopeRequest, decision: Another,
		says: "{} returned no answer{reason}: retry",
	},
	{
		cause: CauseEndless, code: berth.CodeInvalidOutput, scope: ScopeRequest, decision: Fail,
		says: "the answer of {} was ended{reason}: retry with shorter texts",
	},
	{
		cause: CauseTokens, code: berth.CodeInvalidOutput, scope: ScopeRequest, decision: Fail,
		says: "the answer of {} reached the token limit of the model before its end{reason}: the operator has to raise maxOutputTokens in the routing file",
	},
	{
		cause: CauseFormat, code: berth.CodeInvalidOutput, scope: ScopeRequest, decision: Another,
		says: "the answer of {} does not have the required format{reason}: retry, or the operator has to use another model",
	},
	{
		cause: CauseUnknown, code: berth.CodeProviderUnavailable, scope: ScopeUpstream, decision: Retry,
		says: "{} ended the answer with an error{reason}: retry later",
	},
}

// Causes returns all causes, in the order of their table.
func Causes() []Cause {
	causes := make([]Cause, len(causeRules))
	for i, r := range causeRules {
		causes[i] = r.cause
	}
	return causes
}

// ruleOf returns the row of a cause.
func ruleOf(c Cause) causeRule {
	i := slices.IndexFunc(causeRules, func(r causeRule) bool { return r.cause == c })
	return causeRules[i]
}

// causeOf returns the cause that a provider's error shows.
func causeOf(status int, e reportedError) Cause {
	if status == http.StatusOK { // an error in an answer may have a status of its own
		status = e.status()
	}
	names, message := e.names(), strings.ToLower(e.message)
	named := func(list []string) bool {
		return slices.ContainsFunc(names, func(name string) bool { return slices.Contains(list, name) })
	}
	says := func(phrases []string) bool {
		return slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(message, p) })
	}
	limit := ruleOf(CauseLimit)
	limited := status == http.StatusTooManyRequests || named(limit.names) || says(limit.phrases)
	if limited && overLimit(message) {
		return CauseOverLimit
	}
	temporary := limited && e.wait > 0 // whatever the message says about a plan and its billing
	for _, r := range causeRules {
		if named(r.names) || says(r.phrases) && (r.decision != Fail || !temporary) {
			return r.cause
		}
	}
	if !limited && slices.Contains(lengthStatuses, status) && tooLong(message) {
		return CauseContext
	}
	for _, r := range causeRules {
		if slices.Contains(r.statuses, status) {
			return r.cause
		}
	}
	switch {
	case status >= http.StatusInternalServerError:
		return CauseServer
	case status >= http.StatusBadRequest:
		return CauseBadRequest
	case status >= http.StatusMultipleChoices || status > http.StatusOK:
		return CauseAddress
	}
	for _, r := range causeRules {
		if named(r.kinds) {
			return r.cause
		}
	}
	return CauseUnknown
}
