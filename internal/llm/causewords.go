package llm

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"
)

// lengthStatuses are those with which servers reject texts that are too long; 200 for an error that has none.
var lengthStatuses = []int{
	http.StatusOK, http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity, http.StatusInternalServerError,
}

// What a message in lower case has when the texts are too long: what is too long, in which measure, and that it is too much.
var (
	lengthSubject = regexp.MustCompile(`\b(inputs?|prompts?|context|messages?|conversation|texts?|requests?|query|sequence)(\b|_)|\btotal tokens`)
	lengthMeasure = regexp.MustCompile(`token|length|context|characters|_len\b|too long`)
	lengthExcess  = regexp.MustCompile(`too (long|large|many|big)|exceed|(longer|larger|greater|more|less|fewer) than|at most|maximum|\bmax\b|limit|<=|overflow|range of`)
	// lengthOther: the error is about something else: the bound of the answer, an image, a number.
	lengthOther = regexp.MustCompile(`max_(new_|completion_|output_)?tokens|(completion|output|generated|new) tokens|maximum tokens|` +
		`image|audio|video|\bfile|pixel|queue|concurren|quota|per (second|minute|hour|day)|timeout|timed out|stop sequence|temperature|top_[pk]|logprob`)
	// lengthSum: it is about the texts and the bound of the answer together.
	lengthSum = regexp.MustCompile("\\b(inputs?|prompts?|messages?)[`'\"]?( |_)?(tokens?|length)?[`'\"]?( \\([^)]*\\))? (\\+|plus|and|combined with) |" +
		"(\\+|plus|and) (the )?[`'\"]?(inputs?|prompts?|messages?)\\b")
	// lengthChinese: the same in Chinese.
	lengthChinese = regexp.MustCompile(`(输入|上下文|提示词|对话|文本|prompt|token).*(超过|超出|过长|超长|太长|上限)`)
)

// tooLong reports whether a message says that the texts are too long.
func tooLong(message string) bool {
	if lengthChinese.MatchString(message) {
		return !lengthOther.MatchString(message)
	}
	return lengthSubject.MatchString(message) && lengthMeasure.MatchString(message) && lengthExcess.MatchString(message) &&
		(!lengthOther.MatchString(message) || lengthSum.MatchString(message))
}

var (
	statedLimit     = regexp.MustCompile(`\blimit(?: is| of)?[:=\s]+(\d[\d,]*)`)
	statedRequested = regexp.MustCompile(`\brequested(?: tokens)?[:=\s]+(\d[\d,]*)`)
)

// overLimit reports whether a message states a limit that is lower than what the request needs: then no pause helps.
func overLimit(message string) bool {
	limit, known := statedNumber(statedLimit, message)
	requested, stated := statedNumber(statedRequested, message)
	if known && stated {
		return requested > limit
	}
	return strings.Contains(message, "request too large for")
}

func statedNumber(in *regexp.Regexp, message string) (n int, ok bool) {
	found := in.FindStringSubmatch(message)
	if found == nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.ReplaceAll(found[1], ",", ""))
	return n, err == nil
}

var (
	// statedWait is where a message says when to try again.
	statedWait = regexp.MustCompile(`(?i)\b(?:retry|try again|try your request again|wait|available again|resets?)(?: again| your request)?(?: in| after| for)?:?(?: about| at least| approximately)? ` +
		`((?:\d+(?:\.\d+)?\s*(?:milliseconds?|ms|seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d)\b(?:,? and |, | )?|\d+(?:\.\d+)?(?:ms|[dhms]))+)`)
	waitText = regexp.MustCompile(`(?i)^(\s*\d+(\.\d+)?\s*[a-z]*\s*)+$`)
	waitPart = regexp.MustCompile(`(?i)(\d+(?:\.\d+)?)\s*([a-z]*)`)
	waitKey  = regexp.MustCompile(`(?i)^(retry_?delay|retry_?after(_?(ms|s|seconds))?|estimated_time)$`)
)

// waitIn returns for how long a document of a provider asks to wait, 0 if it does not: in a field, or in the message.
func waitIn(doc gjson.Result, message string) (wait time.Duration) {
	if found := statedWait.FindStringSubmatch(message); found != nil {
		wait = readWait(strings.NewReplacer(",", " ", "and", " ").Replace(found[1]), "s")
	}
	var look func(v gjson.Result, depth int)
	look = func(v gjson.Result, depth int) {
		if depth > maxErrorDepth || !v.IsObject() && !v.IsArray() {
			return
		}
		v.ForEach(func(key, inner gjson.Result) bool {
			if waitKey.MatchString(key.String()) {
				unit := "s"
				if strings.HasSuffix(strings.ToLower(key.String()), "ms") {
					unit = "ms"
				}
				if asked := readWait(inner.String(), unit); asked < maxAsked { // more is a time
					wait = max(wait, asked)
				}
			}
			look(inner, depth+1)
			return true
		})
	}
	look(doc, 0)
	return wait
}

// maxErrorDepth is how deep the field with a pause is searched.
const maxErrorDepth = 5

// readWait reads a time such as 8.5s, 1m30s or "12 seconds". A number without a unit has the given one.
func readWait(text, unit string) time.Duration {
	if !waitText.MatchString(text) {
		return 0
	}
	seconds := 0.0
	for _, part := range waitPart.FindAllStringSubmatch(text, -1) {
		n, err := strconv.ParseFloat(part[1], 64)
		if err != nil {
			continue
		}
		in := strings.ToLower(part[2])
		if in == "" {
			in = unit
		}
		switch {
		case in == "ms" || strings.HasPrefix(in, "milli"):
			n /= 1000
		case in[0] == 'm':
			n *= 60
		case in[0] == 'h':
			n *= 3600
		case in[0] == 'd':
			n *= 86400
		case in[0] != 's':
			continue
		}
		seconds += n
	}
	return boundRetryAfter(seconds)
}
